"""A gRPC client against grpc_server.py: address and, for TLS, the certificate to trust as arguments. Every kind of call, metadata, a failing one."""

import queue
import sys

import grpc

options = [("grpc.enable_http_proxy", 0)]
if len(sys.argv) > 2:
    with open(sys.argv[2], "rb") as certificate:
        trust = grpc.ssl_channel_credentials(certificate.read())
    channel = grpc.secure_channel(sys.argv[1], trust, options)
else:
    channel = grpc.insecure_channel(sys.argv[1], options)
with channel:
    answer, call = channel.unary_unary("/test.Echo/Unary").with_call(
        b"hello", timeout=10, metadata=(("x-metadata", "sent"),))
    assert answer == b"unary:hello", answer
    assert ("x-trailer", "seen") in call.trailing_metadata(), call.trailing_metadata()

    numbers = list(channel.unary_stream("/test.Echo/Stream")(b"100", timeout=10))
    assert numbers == [b"%d" % number for number in range(100)], numbers

    collected = channel.stream_unary("/test.Echo/Collect")(iter([b"a", b"b", b"c"]), timeout=10)
    assert collected == b"a,b,c", collected

    # A message goes out only once the one before has come back: nothing may wait for the stream's end.
    turns = queue.Queue()
    turns.put(b"0")
    received = []
    for answer in channel.stream_stream("/test.Echo/Both")(iter(turns.get, None), timeout=10):
        received.append(answer)
        turns.put(b"%d" % len(received) if len(received) < 10 else None)
    assert received == [b"back:%d" % number for number in range(10)], received

    try:
        channel.unary_unary("/test.Echo/Fail")(b"", timeout=10)
        raise SystemExit("the failing call did not fail")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
        assert error.details() == "not today", error

    large = bytes(1 << 20)
    assert channel.unary_unary("/test.Echo/Unary")(large, timeout=10) == b"unary:" + large
print("called")
