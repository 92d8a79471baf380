#!/usr/bin/env -S python3 -B
"""A server that does nothing: what an attacker alone costs the machine it shares with those who are measured.

    benches/peers/sink.py PORT

It reads and drops what comes, and closes a connection when that was as much as a flood is ended after, or when it is
as old as a head may become: so an attacker opens as many connections here as at a gateway. Ends when it is stopped.
"""

import collections
import resource
import selectors
import socket
import sys
import time

FLOOD_BYTES = 4096
HEAD_SECONDS = 5


def main() -> None:
    """Accepts until it is stopped."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=4096)
    listener.setblocking(False)
    ready = selectors.DefaultSelector()
    ready.register(listener, selectors.EVENT_READ)
    ages = collections.deque()  # what was accepted and when, the oldest first
    taken = {}  # bytes of each that is open

    def close(peer: socket.socket) -> None:
        if taken.pop(peer, None) is not None:
            ready.unregister(peer)
            peer.close()

    while True:
        for key, _ in ready.select(timeout=0.1):
            if key.fileobj is listener:
                peer, _ = listener.accept()
                peer.setblocking(False)
                ready.register(peer, selectors.EVENT_READ)
                taken[peer] = 0
                ages.append((time.monotonic(), peer))
                continue
            try:
                count = len(key.fileobj.recv(1 << 16))
            except OSError:
                count = 0
            taken[key.fileobj] += count
            if count == 0 or taken[key.fileobj] >= FLOOD_BYTES:
                close(key.fileobj)
        while ages and ages[0][0] + HEAD_SECONDS < time.monotonic():
            close(ages.popleft()[1])


if __name__ == "__main__":
    main()
