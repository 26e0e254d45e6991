"""Passes connections on to a daemon, and breaks all of them on request.

    relay.py PORT TARGET_PORT CUT_PORT

Whoever connects to CUT_PORT breaks the connections that exist; that connection then ends.
"""

import asyncio
import socket
import struct
import sys

HOST = "127.0.0.1"
# Closing sends RST: the client learns of it while it waits for a reply.
RESET = struct.pack("ii", 1, 0)

writers = set()


async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def passer(target):
    async def serve(reader, writer):
        try:
            back_reader, back_writer = await asyncio.open_connection(HOST, target)
        except OSError:
            writer.close()
            return
        both = {writer, back_writer}
        writers.update(both)
        await asyncio.gather(copy(reader, back_writer), copy(back_reader, writer))
        writers.difference_update(both)

    return serve


async def cut(_reader, writer):
    for other in list(writers):
        sock = other.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        other.transport.abort()
    writer.close()


async def main(port, target, cut_port):
    servers = [
        await asyncio.start_server(passer(target), HOST, port),
        await asyncio.start_server(cut, HOST, cut_port),
    ]
    await asyncio.gather(*(server.serve_forever() for server in servers))


asyncio.run(main(*map(int, sys.argv[1:])))
