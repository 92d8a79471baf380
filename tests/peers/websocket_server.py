"""A WebSocket server: sends back every message, text or binary, and closes with the client's code."""

import asyncio

import websockets


async def echo(socket):
    async for message in socket:
        await socket.send(message)


async def main():
    async with websockets.serve(echo, "127.0.0.1", 0, max_size=None) as server:
        print("ready", server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Future()


asyncio.run(main())
