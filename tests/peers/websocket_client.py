"""A WebSocket client: URL and, for wss, the certificate to trust as arguments. Text, 1 MiB of bytes, a ping, 100 small ones, a close with code 1000."""

import asyncio
import ssl
import sys

import websockets


async def main(url, certificate=None):
    trust = ssl.create_default_context(cafile=certificate) if certificate else None
    async with websockets.connect(url, max_size=None, ssl=trust) as socket:
        await socket.send("grüße")
        assert await socket.recv() == "grüße"
        large = bytes(range(256)) * 4096
        await socket.send(large)
        assert await socket.recv() == large
        await asyncio.wait_for(await socket.ping(), 5)
        for number in range(100):
            await socket.send(str(number))
        for number in range(100):
            assert await socket.recv() == str(number)
    assert socket.close_code == 1000, socket.close_code
    print("echoed")


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 30))
