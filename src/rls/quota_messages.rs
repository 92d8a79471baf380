//! The messages of Envoy's rate limit quota service, as far as they are used: fields and their numbers from
//! `envoy/service/rate_limit_quota/v3/rlqs.proto`, `envoy/type/v3/ratelimit_strategy.proto` and
//! `envoy/type/v3/token_bucket.proto`.
//!
//! Reports are read by hand: an entry of two bytes takes many times that once it is read, so what one report can be read
//! into is bounded beside its bytes.

use std::str::Utf8Error;

use prost::bytes::{Buf, BufMut};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};
use prost_types::Duration;

use super::limits::{BUCKET_ENTRIES_READ_MAX, ENTRIES_READ_MAX, USAGES_READ_MAX};
use super::messages::Entry;

/// `envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateLimitQuotaUsageReports {
    /// 1: under which rules the buckets are looked for; said by the first report of a stream.
    pub domain: String,
    /// 2: what was done since the last report. Those beyond the bound are skipped when it is read.
    pub bucket_quota_usages: Vec<BucketQuotaUsage>,
    /// No field: entries of all names that were read.
    pub entries: usize,
}

impl Message for RateLimitQuotaUsageReports {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        encoding::string::encode(1, &self.domain, buf);
        encoding::message::encode_repeated(2, &self.bucket_quota_usages, buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        let usages = &mut self.bucket_quota_usages;
        match tag {
            1 => encoding::string::merge(wire_type, &mut self.domain, buf, ctx),
            2 if usages.len() < USAGES_READ_MAX && self.entries < ENTRIES_READ_MAX => {
                encoding::message::merge_repeated(wire_type, usages, buf, ctx)?;
                let name = usages.last().and_then(|usage| usage.bucket_id.as_ref());
                self.entries += name.map_or(0, |name| name.entries.len());
                Ok(())
            }
            _ => encoding::skip_field(wire_type, tag, buf, ctx),
        }
    }

    fn encoded_len(&self) -> usize {
        encoding::string::encoded_len(1, &self.domain)
            + encoding::message::encoded_len_repeated(2, &self.bucket_quota_usages)
    }

    fn clear(&mut self) {
        *self = RateLimitQuotaUsageReports::default();
    }
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BucketId {
    /// 1: its keys and values. Those beyond the bound are skipped when it is read.
    pub entries: Vec<Entry>,
}

impl BucketId {
    /// Its keys and values as texts.
    ///
    /// # Errors
    /// If one of them is not UTF-8. An answer that names such a bucket could not be read.
    pub fn texts(&self) -> Result<Vec<(&str, &str)>, Utf8Error> {
        self.entries
            .iter()
            .map(|entry| Ok((str::from_utf8(&entry.key)?, str::from_utf8(&entry.value)?)))
            .collect()
    }
}

impl Message for BucketId {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        encoding::message::encode_repeated(1, &self.entries, buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 if self.entries.len() < BUCKET_ENTRIES_READ_MAX => {
                encoding::message::merge_repeated(wire_type, &mut self.entries, buf, ctx)
            }
            _ => encoding::skip_field(wire_type, tag, buf, ctx),
        }
    }

    fn encoded_len(&self) -> usize {
        encoding::message::encoded_len_repeated(1, &self.entries)
    }

    fn clear(&mut self) {
        self.entries.clear();
    }
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
