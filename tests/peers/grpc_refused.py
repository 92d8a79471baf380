"""Calls each method named behind the address once, and prints a line of JSON about its end: the code's name, the message, and the trailing metadata (binary values in hex)."""

import json
import sys

import grpc

with grpc.insecure_channel(sys.argv[1], [("grpc.enable_http_proxy", 0)]) as channel:
    for method in sys.argv[2:]:
        try:
            channel.unary_unary(method)(b"hello", timeout=10)
            print(json.dumps({"code": "OK"}))
        except grpc.RpcError as error:
            trailing = {
                name: value.hex() if isinstance(value, bytes) else value
                for name, value in error.trailing_metadata() or ()
            }
            print(json.dumps({"code": error.code().name, "details": error.details(), "trailing": trailing}))
