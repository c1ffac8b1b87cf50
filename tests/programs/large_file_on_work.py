import hashlib
import os
import shutil

chunk = bytes(range(256)) * 4096
with open("/work/large", "wb") as f:
    for n in range(100):
        f.write(n.to_bytes(4, "little") + chunk[4:])
    f.flush()
    os.fsync(f.fileno())
print(os.path.getsize("/work/large"))
with open("/work/large", "rb") as f:
    f.seek(50 << 20)
    print(f.read(4), hashlib.file_digest(f, "sha256").hexdigest())
with open("/work/large", "r+b") as f:
    f.truncate(10 << 20)
    f.seek(5 << 20)
    f.write(b"patched")
shutil.copyfile("/work/large", "/work/copy")
with open("/work/large", "rb") as a, open("/work/copy", "rb") as b:
    print(a.read() == b.read())
fd = os.open("/work/sparse", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"end", 20 << 20)
os.posix_fallocate(fd, 0, 1 << 20)
print(os.fstat(fd).st_size, os.pread(fd, 3, 20 << 20))
print(os.sendfile(os.open("/work/target", os.O_WRONLY | os.O_CREAT), os.open("/work/copy", os.O_RDONLY), 0, 1000))
print(os.copy_file_range(os.open("/work/copy", os.O_RDONLY), os.open("/work/target", os.O_WRONLY), 5000))
