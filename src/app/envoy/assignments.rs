//! What a proxy is told about a bucket, as Envoy reads it.

use std::num::NonZeroU64;

use prost_types::Duration;

use base::quota::Assignment;
use rls::{
    Abandon, Action, Blanket, BucketAction, BucketId, QuotaAssignment, Rule, Strategy, TokenBucket, Told,
};

/// An assignment, and what it counts as. Envoy begins a token bucket with as much time as the one before has gathered, and
/// not full, so that only one after another rule has its tokens. In one answer nobody sees that other rule. A proxy that
/// was told nothing of the bucket has another rule already: what it does without an assignment.
pub(super) fn assigned(bucket: BucketId, assignment: Assignment) -> (Told, Vec<BucketAction>) {
    let deny = |bucket, ttl: std::time::Duration| blanket(bucket, Blanket::DenyAll, ttl.as_secs());
    match assignment {
        Assignment::Deny { ttl } => (Told::Deny, vec![deny(bucket, ttl)]),
        Assignment::Begin { units, ttl } | Assignment::Keep { units, ttl } => {
            (Told::Spend, vec![strategy(bucket, Rule::Bucket(tokens(units)), ttl.as_secs())])
        }
        Assignment::Spend { units, ttl } => {
            let first = deny(bucket.clone(), ttl);
            (Told::Spend, vec![first, strategy(bucket, Rule::Bucket(tokens(units)), ttl.as_secs())])
        }
    }
}

fn tokens(units: NonZeroU64) -> TokenBucket {
    let units = u32::try_from(units.get()).unwrap_or(u32::MAX);
    let fill_interval = Some(Duration { seconds: FILL_SECONDS, nanos: 0 });
    TokenBucket { max_tokens: units, tokens_per_fill: Some(units), fill_interval }
}

/// All or nothing, for a usual time.
pub(super) fn usual(bucket: BucketId, rule: Blanket) -> BucketAction {
    blanket(bucket, rule, USUAL_SECONDS)
}

/// The bucket is to be forgotten.
pub(super) fn abandoned(bucket: BucketId) -> BucketAction {
    BucketAction { bucket_id: Some(bucket), action: Some(Action::Abandon(Abandon {})) }
}

fn blanket(bucket: BucketId, rule: Blanket, seconds: u64) -> BucketAction {
    strategy(bucket, Rule::Blanket(rule.into()), seconds)
}

fn strategy(bucket: BucketId, rule: Rule, seconds: u64) -> BucketAction {
    let ttl = Duration { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 };
    let assignment = QuotaAssignment {
        assignment_time_to_live: Some(ttl),
        rate_limit_strategy: Some(Strategy { rule: Some(rule) }),
    };
    BucketAction { bucket_id: Some(bucket), action: Some(Action::Assign(assignment)) }
}

/// How long a token bucket takes to be full again. It is not to be: what comes back counts as spent when it is. But an Envoy
/// may leave one empty that takes longer than its host is up.
const FILL_SECONDS: i64 = 600;
/// How long what never changes holds until it is said again.
const USUAL_SECONDS: u64 = 60;
