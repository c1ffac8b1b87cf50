import asyncio


async def main():
    p = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    print(await p.communicate(b"through cat"), p.returncode)
    p = await asyncio.create_subprocess_shell("echo out; echo err >&2; exit 3", stdout=-1, stderr=-1)
    print(await p.communicate(), p.returncode)
    many = [await asyncio.create_subprocess_exec("sh", "-c", f"echo {n}", stdout=-1) for n in range(10)]
    print([(await p.communicate())[0] for p in many])
    p = await asyncio.create_subprocess_exec("sleep", "100")
    p.terminate()
    print(await p.wait())
    try:
        async with asyncio.timeout(0.1):
            await asyncio.sleep(100)
    except TimeoutError:
        print("timeout")


asyncio.run(main())
