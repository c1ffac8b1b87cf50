import os
import subprocess
import tempfile

print(tempfile.gettempdir())
with tempfile.TemporaryDirectory() as d:
    p = os.path.join(d, "f")
    open(p, "w").write("x" * 100000)
    print(os.path.getsize(p), oct(os.stat(d).st_mode))
print(os.path.exists(d))
with tempfile.NamedTemporaryFile("w+", suffix=".txt") as f, tempfile.TemporaryFile() as t, tempfile.SpooledTemporaryFile(10) as s:
    f.write("named")
    f.flush()
    t.write(b"unnamed")
    s.write(b"spooled over the limit")
    print(open(f.name).read(), t.tell(), s.tell())
fd, path = tempfile.mkstemp()
os.write(fd, b"z\na\n")
print(subprocess.run(["sort", path], capture_output=True).stdout)
print(subprocess.run("mktemp -u | cut -c1-9; cat <<E\nheredoc\nE", shell=True, capture_output=True, text=True).stdout)
os.rename(path, "/tmp/renamed")
os.replace("/tmp/renamed", "/tmp/replaced")
os.link("/tmp/replaced", "/tmp/linked")
os.symlink("replaced", "/tmp/sym")
print(os.stat("/tmp/linked").st_nlink, os.readlink("/tmp/sym"))
