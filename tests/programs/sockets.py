import http.server
import os
import socket
import threading
import urllib.request

for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.create_server((address, 0), family=family)

    def serve():
        connection = server.accept()[0]
        connection.sendall(b"tcp" * 100000)
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    client = socket.create_connection(server.getsockname()[:2])
    print(sum(len(chunk) for chunk in iter(lambda: client.recv(65536), b"")))
    thread.join()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
udp.sendto(b"datagram", udp.getsockname())
print(udp.recvfrom(100)[0])
a, b = socket.socketpair()
r, w = os.pipe()
socket.send_fds(a, [b"fd"], [w])
fd = socket.recv_fds(b, 10, 1)[1][0]
os.write(fd, b"passed")
print(os.read(r, 6), b.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, *args):
        pass


httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=httpd.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{httpd.server_port}/path").read())
httpd.shutdown()
print(socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)[0][4], socket.if_nameindex()[0])
socket.create_connection(("127.0.0.1", 1))
