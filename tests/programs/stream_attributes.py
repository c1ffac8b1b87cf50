import io
import os
import sys

for name in ("stdin", "stdout", "stderr"):
    s = getattr(sys, name)
    print(name, s is getattr(sys, "__" + name + "__"), type(s), type(s.buffer), type(getattr(s.buffer, "raw", None)))
    print([getattr(s, a, None) for a in ("encoding", "errors", "line_buffering", "write_through", "newlines", "name", "mode", "closed", "_CHUNK_SIZE")])
    print(s.isatty(), s.seekable(), s.readable(), s.writable(), s.fileno(), s.buffer.name, s.buffer.mode, s.buffer.closed)
    raw = getattr(s.buffer, "raw", s.buffer)
    print(raw.name, raw.mode, getattr(raw, "closefd", None), raw.readable(), raw.writable(), repr(s), repr(s.buffer))
print(io.text_encoding(None), sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
print(os.device_encoding(0), os.device_encoding(1))
print("surrogates \udcff go where?", file=sys.stderr)
print(ascii(sys.stdin.readline()), sys.stdin.newlines)
sys.stdout.buffer.write(b"bytes \xff\n")
sys.stdout.write("你好\n")
print("\udc80")
