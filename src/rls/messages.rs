//! The messages of Envoy's rate limit service, as far as they are used: fields and their numbers from
//! `envoy/service/ratelimit/v3/rls.proto`, `envoy/extensions/common/ratelimit/v3/ratelimit.proto`,
//! `envoy/type/v3/ratelimit_unit.proto` and `envoy/config/core/v3/base.proto`. Fields that are not here are skipped when they
//! are read.
//!
//! Written by hand, because these are eight of some thousand.

use prost_types::Duration;

/// `envoy.service.ratelimit.v3.RateLimitRequest`: what a proxy asks about one request of a client.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitRequest {
    /// Under which rules the descriptors are looked for.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What is asked about, all or nothing.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// Units that each descriptor costs; 0: not said.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`: what a request is counted by.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitDescriptor {
    /// Its keys and values, in order.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<MapEntry>,
    /// A limit in the place of the one that is configured.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// Units that it costs (`google.protobuf.UInt64Value`); goes before the request's. 0: it is only looked at.
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Whether its units are to be given back. Nobody does: it is only looked at.
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry`, and an entry of a map of texts, which has the same
/// numbers. Texts are bytes here, because a client's field need not be UTF-8, and a proxy sends it as it is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MapEntry {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride`: a limit that the proxy brings along.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct RateLimitOverride {
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[prost(enumeration = "RateLimitUnit", tag = "2")]
    pub unit: i32,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`: the answer to one check.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitResponse {
    #[prost(enumeration = "RateLimitCode", tag = "1")]
    pub overall_code: i32,
    /// What became of each descriptor, in their order.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    /// Fields for the answer to the client.
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus`: what became of one descriptor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DescriptorStatus {
    /// Whether this descriptor is over its limit.
    #[prost(enumeration = "RateLimitCode", tag = "1")]
    pub code: i32,
    /// The limit that describes it best: the one that refuses, else the one with the least left.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    /// What is left of that, units.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// From now until that limit is whole again.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.RateLimit`: a limit as the answer describes it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimit {
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[prost(enumeration = "RateLimitUnit", tag = "2")]
    pub unit: i32,
    #[prost(string, tag = "3")]
    pub name: String,
}

/// `envoy.config.core.v3.HeaderValue`: one field for the answer to the client.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.Code`: whether what was asked about may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum RateLimitCode {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

/// `envoy.type.v3.RateLimitUnit`, and `envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit`, which has the same
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum RateLimitUnit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

impl RateLimitUnit {
    /// All that have a length, the shortest first.
    pub const TIMED: [RateLimitUnit; 7] = [
        RateLimitUnit::Second,
        RateLimitUnit::Minute,
        RateLimitUnit::Hour,
        RateLimitUnit::Day,
        RateLimitUnit::Week,
        RateLimitUnit::Month,
        RateLimitUnit::Year,
    ];

    /// Its length in seconds; 0 if it has none.
    pub fn seconds(self) -> u64 {
        match self {
            RateLimitUnit::Unknown => 0,
            RateLimitUnit::Second => 1,
            RateLimitUnit::Minute => 60,
            RateLimitUnit::Hour => 3_600,
            RateLimitUnit::Day => 86_400,
            RateLimitUnit::Week => 7 * 86_400,
            RateLimitUnit::Month => 30 * 86_400,
            RateLimitUnit::Year => 365 * 86_400,
        }
    }
}
