import asyncio
import threading
import time


async def handle(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()


async def main():
    loop = asyncio.get_running_loop()
    print(await loop.run_in_executor(None, lambda: (time.sleep(0.01), "executor")[1]))
    print(await asyncio.to_thread(sum, range(1000)))
    event = asyncio.Event()
    threading.Thread(target=lambda: loop.call_soon_threadsafe(event.set)).start()
    print(await asyncio.wait_for(event.wait(), 60))
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"over loopback\n")
    print(await reader.readline())
    writer.close()
    server.close()
    unix = await asyncio.start_unix_server(handle, "/tmp/differential.sock")
    reader, writer = await asyncio.open_unix_connection("/tmp/differential.sock")
    writer.write(b"over a unix socket\n")
    print(await reader.readline())
    writer.close()
    unix.close()
    print(await asyncio.gather(*(asyncio.sleep(0.01 * (5 - n), n) for n in range(5))))


asyncio.run(main())
