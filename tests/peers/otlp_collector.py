"""A collector of traces over gRPC that hands each batch, as it came, to the HTTP server that the call's metadata names."""

import http.client
from concurrent import futures

import grpc


def export(request, context):
    metadata = dict(context.invocation_metadata())
    connection = http.client.HTTPConnection(metadata["x-hand-to"])
    connection.request("POST", "/grpc", request)
    status = connection.getresponse().status
    if status != 200:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not today")
    return b""


server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
server.add_generic_rpc_handlers((
    grpc.method_handlers_generic_handler("opentelemetry.proto.collector.trace.v1.TraceService", {
        "Export": grpc.unary_unary_rpc_method_handler(export),
    }),
))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print("ready", port, flush=True)
server.wait_for_termination()
