//! What reflection tells clients of the services and their messages (`grpc.reflection.v1`): descriptors of the same fields as
//! in `messages.rs`. Clients like grpcurl build messages from them.

use std::pin::Pin;

use http::{Request, Response};
use prost_types::field_descriptor_proto::Type;
use prost_types::{
    DescriptorProto, FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto,
};
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic_reflection::server::Builder;

use super::counted_body::CountedBody;
use super::limits::MESSAGE_BYTES_MAX;
use super::proto::{enumeration, file, message, of_type, one, repeated, text};

/// Answers the calls of one service.
pub(super) type Call = Box<dyn Fn(Request<CountedBody>) -> Pin<Box<dyn Future<Output = Response<Body>>>>>;

/// Reflection, in both versions that clients ask for.
pub(super) struct Reflection {
    pub(super) v1: Call,
    pub(super) v1alpha: Call,
}

impl Reflection {
    /// Of the services that there are.
    pub(super) fn new() -> Reflection {
        let builder = || {
            Builder::configure()
                .register_file_descriptor_set(files())
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let v1 = builder().build_v1().expect("the descriptors are this program's own");
        let v1 = v1.max_decoding_message_size(MESSAGE_BYTES_MAX);
        let v1alpha = builder().build_v1alpha().expect("the descriptors are this program's own");
        let v1alpha = v1alpha.max_decoding_message_size(MESSAGE_BYTES_MAX);
        Reflection {
            v1: Box::new(move |request| {
                let answer = v1.clone().call(request);
                Box::pin(async move { super::service::infallible(answer.await) })
            }),
            v1alpha: Box::new(move |request| {
                let answer = v1alpha.clone().call(request);
                Box::pin(async move { super::service::infallible(answer.await) })
            }),
        }
    }
}

/// The files, those that others import first.
fn files() -> FileDescriptorSet {
    FileDescriptorSet {
        file: vec![
            file("google/protobuf/duration.proto", "google.protobuf", &[], vec![duration()]),
            file(
                "google/protobuf/wrappers.proto",
                "google.protobuf",
                &[],
                vec![message("UInt64Value", vec![one("value", 1, Type::Uint64)])],
            ),
            FileDescriptorProto {
                enum_type: vec![enumeration("RateLimitUnit", &UNITS)],
                ..file("envoy/type/v3/ratelimit_unit.proto", "envoy.type.v3", &[], vec![])
            },
            file("envoy/config/core/v3/base.proto", "envoy.config.core.v3", &[], vec![header_value()]),
            file(
                "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
                "envoy.extensions.common.ratelimit.v3",
                &["envoy/type/v3/ratelimit_unit.proto", "google/protobuf/wrappers.proto"],
                vec![descriptor()],
            ),
            FileDescriptorProto {
                service: vec![service()],
                ..file(
                    "envoy/service/ratelimit/v3/rls.proto",
                    "envoy.service.ratelimit.v3",
                    &[
                        "envoy/config/core/v3/base.proto",
                        "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
                        "google/protobuf/duration.proto",
                    ],
                    vec![request(), response()],
                )
            },
        ],
    }
}

fn duration() -> DescriptorProto {
    message("Duration", vec![one("seconds", 1, Type::Int64), one("nanos", 2, Type::Int32)])
}

fn header_value() -> DescriptorProto {
    message("HeaderValue", vec![one("key", 1, Type::String), one("value", 2, Type::String)])
}

fn descriptor() -> DescriptorProto {
    let own = ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor";
    let entry = message("Entry", vec![one("key", 1, Type::String), one("value", 2, Type::String)]);
    let limit = vec![
        one("requests_per_unit", 1, Type::Uint32),
        of_type("unit", 2, Type::Enum, ".envoy.type.v3.RateLimitUnit"),
    ];
    DescriptorProto {
        nested_type: vec![entry, message("RateLimitOverride", limit)],
        ..message(
            "RateLimitDescriptor",
            vec![
                repeated("entries", 1, &format!("{own}.Entry")),
                of_type("limit", 2, Type::Message, &format!("{own}.RateLimitOverride")),
                of_type("hits_addend", 3, Type::Message, ".google.protobuf.UInt64Value"),
                one("is_negative_hits", 4, Type::Bool),
            ],
        )
    }
}

fn request() -> DescriptorProto {
    message(
        "RateLimitRequest",
        vec![
            one("domain", 1, Type::String),
            repeated("descriptors", 2, ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor"),
            one("hits_addend", 3, Type::Uint32),
        ],
    )
}

fn response() -> DescriptorProto {
    let own = ".envoy.service.ratelimit.v3.RateLimitResponse";
    let limit = vec![
        one("requests_per_unit", 1, Type::Uint32),
        of_type("unit", 2, Type::Enum, &format!("{own}.RateLimit.Unit")),
        one("name", 3, Type::String),
    ];
    let limit =
        DescriptorProto { enum_type: vec![enumeration("Unit", &UNITS)], ..message("RateLimit", limit) };
    let status = vec![
        of_type("code", 1, Type::Enum, &format!("{own}.Code")),
        of_type("current_limit", 2, Type::Message, &format!("{own}.RateLimit")),
        one("limit_remaining", 3, Type::Uint32),
        of_type("duration_until_reset", 4, Type::Message, ".google.protobuf.Duration"),
    ];
    DescriptorProto {
        nested_type: vec![limit, message("DescriptorStatus", status)],
        enum_type: vec![enumeration("Code", &[("UNKNOWN", 0), ("OK", 1), ("OVER_LIMIT", 2)])],
        ..message(
            "RateLimitResponse",
            vec![
                of_type("overall_code", 1, Type::Enum, &format!("{own}.Code")),
                repeated("statuses", 2, &format!("{own}.DescriptorStatus")),
                repeated("response_headers_to_add", 3, ".envoy.config.core.v3.HeaderValue"),
            ],
        )
    }
}

fn service() -> ServiceDescriptorProto {
    ServiceDescriptorProto {
        name: text("RateLimitService"),
        method: vec![MethodDescriptorProto {
            name: text("ShouldRateLimit"),
            input_type: text(".envoy.service.ratelimit.v3.RateLimitRequest"),
            output_type: text(".envoy.service.ratelimit.v3.RateLimitResponse"),
            ..MethodDescriptorProto::default()
        }],
        ..ServiceDescriptorProto::default()
    }
}

const UNITS: [(&str, i32); 8] = [
    ("UNKNOWN", 0),
    ("SECOND", 1),
    ("MINUTE", 2),
    ("HOUR", 3),
    ("DAY", 4),
    ("MONTH", 5),
    ("YEAR", 6),
    ("WEEK", 7),
];
