import mmap
import os
from multiprocessing import shared_memory

with open("/work/map", "wb") as f:
    f.truncate(1 << 20)
with open("/work/map", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    m[:5] = b"hello"
    m.flush()
    m.resize(2 << 20)
    print(m.find(b"llo"), len(m))
print(open("/work/map", "rb").read(5), os.path.getsize("/work/map"))
shared = mmap.mmap(-1, 4096)
if os.fork() == 0:
    shared[:5] = b"child"
    os._exit(0)
os.wait()
print(shared[:5])
block = shared_memory.SharedMemory(create=True, size=8 << 20, name="differential_block")
block.buf[-1] = 7
print(block.size, block.buf[-1], os.path.exists("/dev/shm/differential_block"))
block.close()
block.unlink()
fd = os.memfd_create("x")
os.write(fd, b"memfd")
print(os.pread(fd, 5, 0), mmap.PAGESIZE)
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.madvise(mmap.MADV_DONTNEED)
print("executable memory")
