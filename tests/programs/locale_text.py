import locale
import os
import sys

print(locale.setlocale(locale.LC_ALL, ""), locale.getpreferredencoding(), locale.localeconv()["decimal_point"])
print(sys.stdout.encoding, sys.stdin.encoding, sys.stderr.encoding, sys.stderr.errors, sys.getfilesystemencoding())
print("汉字 é 🦞 \u202e", "ß".upper(), sorted(["ä", "z", "a"], key=locale.strxfrm))
open("/tmp/汉字 🦞.txt", "w").write("内容")
print(sorted(f for f in os.listdir("/tmp") if f.startswith("汉")), open("/tmp/汉字 🦞.txt").read())
print(os.fsencode("汉"), os.fsdecode(b"\xff"), ascii("é"))
sys.stdout.buffer.write(b"raw \xff\n")
try:
    locale.setlocale(locale.LC_ALL, "xx_XX.UTF-8")
except locale.Error as e:
    print(e)
"\ud800".encode()
