"""A gRPC server whose messages are raw bytes: unary, server streaming, client streaming, both, and a failure."""

from concurrent import futures

import grpc


def unary(request, context):
    context.set_trailing_metadata((("x-trailer", "seen"),))
    return b"unary:" + request


def stream(request, context):
    for number in range(int(request)):
        yield b"%d" % number


def collect(requests, context):
    return b",".join(requests)


def both(requests, context):
    for request in requests:
        yield b"back:" + request


def fail(request, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")


server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
server.add_generic_rpc_handlers((
    grpc.method_handlers_generic_handler("test.Echo", {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
        "Collect": grpc.stream_unary_rpc_method_handler(collect),
        "Both": grpc.stream_stream_rpc_method_handler(both),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
    }),
))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print("ready", port, flush=True)
server.wait_for_termination()
