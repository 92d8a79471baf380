//! The messages of Envoy's rate limit quota service, as far as they are used: fields and their numbers from
//! `envoy/service/rate_limit_quota/v3/rlqs.proto`, `envoy/type/v3/ratelimit_strategy.proto` and
//! `envoy/type/v3/token_bucket.proto`.

use prost_types::Duration;

/// `envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitQuotaUsageReports {
    /// Under which rules the buckets are looked for; said by the first report of a stream.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What was done since the last report.
    #[prost(message, repeated, tag = "2")]
    pub bucket_quota_usages: Vec<BucketQuotaUsage>,
}

/// `envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports.BucketQuotaUsage`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BucketQuotaUsage {
    /// Which bucket.
    #[prost(message, optional, tag = "1")]
    pub bucket_id: Option<BucketId>,
    /// Since its last report, by the proxy's clock.
    #[prost(message, optional, tag = "2")]
    pub time_elapsed: Option<Duration>,
    /// Requests that passed.
    #[prost(uint64, tag = "3")]
    pub num_requests_allowed: u64,
    /// Requests that were refused.
    #[prost(uint64, tag = "4")]
    pub num_requests_denied: u64,
}

/// `envoy.service.rate_limit_quota.v3.BucketId`: a map, written as its entries in any order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BucketId {
    /// Its keys and values.
    #[prost(map = "string, string", tag = "1")]
    pub bucket: std::collections::HashMap<String, String>,
}

/// `envoy.service.rate_limit_quota.v3.RateLimitQuotaResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RateLimitQuotaResponse {
    /// What the proxy is told.
    #[prost(message, repeated, tag = "1")]
    pub bucket_action: Vec<BucketAction>,
}

/// `envoy.service.rate_limit_quota.v3.RateLimitQuotaResponse.BucketAction`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BucketAction {
    /// Which bucket.
    #[prost(message, optional, tag = "1")]
    pub bucket_id: Option<BucketId>,
    /// What to do with its requests.
    #[prost(oneof = "Action", tags = "2, 3")]
    pub action: Option<Action>,
}

/// What to do with a bucket.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Action {
    /// Limit it so.
    #[prost(message, tag = "2")]
    Assign(QuotaAssignment),
    /// Forget it.
    #[prost(message, tag = "3")]
    Abandon(Abandon),
}

/// `envoy.service.rate_limit_quota.v3.RateLimitQuotaResponse.BucketAction.QuotaAssignmentAction`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct QuotaAssignment {
    /// How long it holds. Envoy reads whole seconds.
    #[prost(message, optional, tag = "2")]
    pub assignment_time_to_live: Option<Duration>,
    /// What passes.
    #[prost(message, optional, tag = "3")]
    pub rate_limit_strategy: Option<Strategy>,
}

/// `envoy.service.rate_limit_quota.v3.RateLimitQuotaResponse.BucketAction.AbandonAction`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Abandon {}

/// `envoy.type.v3.RateLimitStrategy`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Strategy {
    /// Which of them; Envoy does not know requests in a unit of time, which is 2.
    #[prost(oneof = "Rule", tags = "1, 3")]
    pub rule: Option<Rule>,
}

/// What passes.
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub enum Rule {
    /// All, or nothing.
    #[prost(enumeration = "Blanket", tag = "1")]
    Blanket(i32),
    /// What a token bucket has.
    #[prost(message, tag = "3")]
    Bucket(TokenBucket),
}

/// `envoy.type.v3.RateLimitStrategy.BlanketRule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Blanket {
    /// All.
    AllowAll = 0,
    /// Nothing.
    DenyAll = 1,
}

/// `envoy.type.v3.TokenBucket`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct TokenBucket {
    /// What it has at first, and at most.
    #[prost(uint32, tag = "1")]
    pub max_tokens: u32,
    /// What comes back in each interval (`google.protobuf.UInt32Value`).
    #[prost(message, optional, tag = "2")]
    pub tokens_per_fill: Option<u32>,
    /// The interval.
    #[prost(message, optional, tag = "3")]
    pub fill_interval: Option<Duration>,
}
