"""A client of the rate limit service that knows nothing of its messages: it asks by reflection, as grpcurl does. The address is its argument."""

import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"

with grpc.insecure_channel(sys.argv[1], [("grpc.enable_http_proxy", 0)]) as channel:
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = DescriptorPool(database)
    method = pool.FindServiceByName(SERVICE).FindMethodByName("ShouldRateLimit")
    Request, Answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    call = channel.unary_unary(
        f"/{SERVICE}/ShouldRateLimit", request_serializer=Request.SerializeToString, response_deserializer=Answer.FromString)
    request = Request(domain="edge")
    request.descriptors.add().entries.add(key="user", value="ann")
    for _ in range(3):
        answer = call(request, timeout=10)
        status = answer.statuses[0]
        limit = status.current_limit
        code = Answer.Code.Name(answer.overall_code)
        unit = type(limit).Unit.Name(limit.unit)
        print(code, status.limit_remaining, limit.requests_per_unit, unit, limit.name)
    print(*sorted(database.get_services()))
