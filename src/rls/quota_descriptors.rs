//! What reflection tells of the rate limit quota service: descriptors of the same fields as in `quota_messages.rs`.

use prost_types::field_descriptor_proto::Type;
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, MessageOptions, MethodDescriptorProto,
    OneofDescriptorProto, ServiceDescriptorProto,
};

use super::proto::{enumeration, file, message, of_type, one, repeated, text};

/// Its files, those that others import first.
pub(super) fn files() -> [FileDescriptorProto; 3] {
    let duration = "google/protobuf/duration.proto";
    [
        file(
            "envoy/type/v3/token_bucket.proto",
            "envoy.type.v3",
            &[duration, "google/protobuf/wrappers.proto"],
            vec![token_bucket()],
        ),
        file(
            "envoy/type/v3/ratelimit_strategy.proto",
            "envoy.type.v3",
            &["envoy/type/v3/ratelimit_unit.proto", "envoy/type/v3/token_bucket.proto"],
            vec![strategy()],
        ),
        FileDescriptorProto {
            service: vec![service()],
            ..file(
                "envoy/service/rate_limit_quota/v3/rlqs.proto",
                PACKAGE,
                &[duration, "envoy/type/v3/ratelimit_strategy.proto"],
                vec![reports(), response(), bucket_id()],
            )
        },
    ]
}

fn token_bucket() -> DescriptorProto {
    message(
        "TokenBucket",
        vec![
            one("max_tokens", 1, Type::Uint32),
            of_type("tokens_per_fill", 2, Type::Message, ".google.protobuf.UInt32Value"),
            of_type("fill_interval", 3, Type::Message, DURATION),
        ],
    )
}

fn strategy() -> DescriptorProto {
    let own = ".envoy.type.v3.RateLimitStrategy";
    let per_unit = vec![
        one("requests_per_time_unit", 1, Type::Uint64),
        of_type("time_unit", 2, Type::Enum, ".envoy.type.v3.RateLimitUnit"),
    ];
    let rules = vec![
        of_type("blanket_rule", 1, Type::Enum, &format!("{own}.BlanketRule")),
        of_type("requests_per_time_unit", 2, Type::Message, &format!("{own}.RequestsPerTimeUnit")),
        of_type("token_bucket", 3, Type::Message, ".envoy.type.v3.TokenBucket"),
    ];
    DescriptorProto {
        nested_type: vec![message("RequestsPerTimeUnit", per_unit)],
        enum_type: vec![enumeration("BlanketRule", &[("ALLOW_ALL", 0), ("DENY_ALL", 1)])],
        ..with_choice("RateLimitStrategy", "strategy", vec![], rules)
    }
}

fn reports() -> DescriptorProto {
    let usage = vec![
        of_type("bucket_id", 1, Type::Message, &named("BucketId")),
        of_type("time_elapsed", 2, Type::Message, DURATION),
        one("num_requests_allowed", 3, Type::Uint64),
        one("num_requests_denied", 4, Type::Uint64),
    ];
    let usages = named("RateLimitQuotaUsageReports.BucketQuotaUsage");
    DescriptorProto {
        nested_type: vec![message("BucketQuotaUsage", usage)],
        ..message(
            "RateLimitQuotaUsageReports",
            vec![one("domain", 1, Type::String), repeated("bucket_quota_usages", 2, &usages)],
        )
    }
}

fn response() -> DescriptorProto {
    let action = named("RateLimitQuotaResponse.BucketAction");
    let assignment = vec![
        of_type("assignment_time_to_live", 2, Type::Message, DURATION),
        of_type("rate_limit_strategy", 3, Type::Message, ".envoy.type.v3.RateLimitStrategy"),
    ];
    let bucket = of_type("bucket_id", 1, Type::Message, &named("BucketId"));
    let actions = vec![
        of_type("quota_assignment_action", 2, Type::Message, &format!("{action}.QuotaAssignmentAction")),
        of_type("abandon_action", 3, Type::Message, &format!("{action}.AbandonAction")),
    ];
    let nested = DescriptorProto {
        nested_type: vec![message("QuotaAssignmentAction", assignment), message("AbandonAction", vec![])],
        ..with_choice("BucketAction", "bucket_action", vec![bucket], actions)
    };
    DescriptorProto {
        nested_type: vec![nested],
        ..message("RateLimitQuotaResponse", vec![repeated("bucket_action", 1, &action)])
    }
}

fn bucket_id() -> DescriptorProto {
    let entry = message("BucketEntry", vec![one("key", 1, Type::String), one("value", 2, Type::String)]);
    let options = MessageOptions { map_entry: Some(true), ..MessageOptions::default() };
    DescriptorProto {
        nested_type: vec![DescriptorProto { options: Some(options), ..entry }],
        ..message("BucketId", vec![repeated("bucket", 1, &named("BucketId.BucketEntry"))])
    }
}

fn service() -> ServiceDescriptorProto {
    ServiceDescriptorProto {
        name: text("RateLimitQuotaService"),
        method: vec![MethodDescriptorProto {
            name: text("StreamRateLimitQuotas"),
            input_type: text(&named("RateLimitQuotaUsageReports")),
            output_type: text(&named("RateLimitQuotaResponse")),
            client_streaming: Some(true),
            server_streaming: Some(true),
            ..MethodDescriptorProto::default()
        }],
        ..ServiceDescriptorProto::default()
    }
}

/// A message with fields, and others of which it has one.
fn with_choice(
    name: &str,
    choice: &str,
    mut fields: Vec<FieldDescriptorProto>,
    one_of: Vec<FieldDescriptorProto>,
) -> DescriptorProto {
    fields.extend(one_of.into_iter().map(|field| FieldDescriptorProto { oneof_index: Some(0), ..field }));
    let choice = OneofDescriptorProto { name: text(choice), ..OneofDescriptorProto::default() };
    DescriptorProto { oneof_decl: vec![choice], ..message(name, fields) }
}

/// The full name of a message of the service's package.
fn named(message: &str) -> String {
    format!(".{PACKAGE}.{message}")
}

const PACKAGE: &str = "envoy.service.rate_limit_quota.v3";
const DURATION: &str = ".google.protobuf.Duration";
