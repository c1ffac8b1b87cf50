import ctypes
import os
import select
import selectors
import socket

a, b = socket.socketpair()
poll = select.poll()
poll.register(a, select.POLLIN)
print(poll.poll(10))
b.send(b"x")
print([event for _, event in poll.poll(1000)])
epoll = select.epoll()
epoll.register(a, select.EPOLLIN | select.EPOLLET)
print([e for _, e in epoll.poll(1)], epoll.poll(0.01))
with selectors.DefaultSelector() as s:
    s.register(a, selectors.EVENT_READ, "data")
    print([(k.data, e) for k, e in s.select(1)], type(s).__name__)
print(len(select.select([a], [b], [], 1)[1]))
fd = os.eventfd(3)
print(os.eventfd_read(fd))
libc = ctypes.CDLL(None, use_errno=True)
print(libc.inotify_init1(0) > 0, libc.timerfd_create(1, 0) > 0, libc.signalfd(-1, ctypes.create_string_buffer(128), 0) > 0)
os.set_blocking(a.fileno(), False)
a.recv(1)
a.recv(1)
