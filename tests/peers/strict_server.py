"""An HTTP/1.1 server that forgives nothing, and tells what it has seen.

Every connection is read by the letter of RFC 9112. What deviates is written down and ends the connection. A GET of
/seen answers with what came so far: {"heads": how many, "requests": [[target, body bytes], ...], "faults": [...]}, a request once its
body has ended.
"""

import json
import re
import socketserver
import threading

REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ /[!-\"$-~]* HTTP/1\.1")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[!-~\x80-\xff](?:[\t !-~\x80-\xff]*[!-~\x80-\xff])?)?)[ \t]*")
CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,16}")
# What a gateway must never pass on as it came.
OF_THE_HOP = {b"upgrade", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"http2-settings", b"expect"}

seen = {"heads": 0, "requests": [], "faults": []}
lock = threading.Lock()


class Fault(Exception):
    pass


def line(stream):
    """The next line without its end."""
    text = stream.readline(65536)
    if not text:
        raise EOFError
    if not text.endswith(b"\r\n") or b"\r" in text[:-2] or b"\0" in text:
        raise Fault(f"a line: {text!r}")
    return text[:-2]


def exactly(stream, count):
    """So many bytes."""
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def chunks(stream):
    """The length of a body in chunks."""
    total = 0
    while True:
        size = line(stream)
        if not CHUNK_SIZE.fullmatch(size):
            raise Fault(f"a chunk's size: {size!r}")
        if int(size, 16) == 0:
            break
        total += len(exactly(stream, int(size, 16)))
        if exactly(stream, 2) != b"\r\n":
            raise Fault("a chunk without end")
    if line(stream):
        raise Fault("a trailer")
    return total


def request(stream):
    """Reads one request: its target and the length of its body."""
    first = line(stream)
    if not REQUEST_LINE.fullmatch(first):
        raise Fault(f"a request line: {first!r}")
    fields = {}
    while text := line(stream):
        field = FIELD.fullmatch(text)
        if not field:
            raise Fault(f"a field: {text!r}")
        fields.setdefault(field[1].lower(), []).append(field[2])
    lengths, codings = fields.get(b"content-length", []), fields.get(b"transfer-encoding", [])
    if len(fields.get(b"host", [])) != 1 or len(lengths) + len(codings) > 1:
        raise Fault(f"hosts or framing: {fields!r}")
    if OF_THE_HOP & set(fields):
        raise Fault(f"a field of another hop: {fields!r}")
    target = first.split(b" ")[1].decode("latin-1")
    with lock:
        seen["heads"] += target != "/seen"
    if codings:
        if codings != [b"chunked"]:
            raise Fault(f"a coding: {codings!r}")
        return target, chunks(stream)
    if lengths:
        if not re.fullmatch(rb"0|[1-9][0-9]{0,17}", lengths[0]):
            raise Fault(f"a length: {lengths!r}")
        return target, len(exactly(stream, int(lengths[0])))
    return target, 0


class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            while True:
                target, length = request(self.rfile)
                with lock:
                    body = json.dumps(seen).encode() if target == "/seen" else b"ok"
                    seen["requests"].append([target, length])
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        except Fault as fault:
            with lock:
                seen["faults"].append(str(fault))
        except (EOFError, OSError):
            pass


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    with Server(("127.0.0.1", 0), Connection) as server:
        print("ready", server.server_address[1], flush=True)
        server.serve_forever()
