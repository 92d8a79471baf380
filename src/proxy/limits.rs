//! The decision about one request. What its answer says of limits stands in `limit_fields.rs`.
//!
//! Which keys a request has is the policy's to say, whether they may spend the limiter's; here both meet.

use std::net::IpAddr;
use std::time::Duration;

use smallvec::SmallVec;

use super::context::{RequestContext, Verdict};
use super::limit_fields::Fields;
use super::reply::{Limited, Refusal, Violation};
use super::reservation::Reservation;
use crate::limit::{Algorithm, Charge, Conduct};
use crate::limiter::{Caller, Decision, Recall, Waiting};
use crate::metrics::Tier;
use crate::policy::{Facts, Found, Table};
use crate::{clock, metrics, policy};

/// What came of a decision.
#[derive(Debug)]
pub enum Decided {
    /// The request goes on; its answer carries these fields.
    Admitted(Fields),
    /// It is refused; so does the refusal.
    Refused(Refusal, Fields),
}

/// A decision as far as this node can make it by itself.
pub enum Begun {
    /// It is made.
    Decided(Decided),
    /// Redis must say; wait with [`Wait::end`].
    Waits(Box<Wait>),
    /// Redis must say first whether it is a retry; wait with [`Retry::end`].
    Asks(Box<Retry>),
}

/// A request that may be a retry.
pub struct Retry {
    recall: Recall,
    charges: SmallVec<[Charge; 4]>,
    memories: Vec<Charge>,
}

/// A request that waits for Redis.
pub struct Wait {
    waiting: Waiting,
    charges: SmallVec<[Charge; 4]>,
    memories: Vec<Charge>,
    conducts: SmallVec<[Conduct; 1]>,
    decision: Decision,
}

/// Decides one request on every limit of its route, all or nothing, and counts it.
pub fn begin(context: &mut RequestContext, found: &Found<'_, '_>, facts: &Facts<'_, '_>) -> Begun {
    if found.route.policies.is_empty() {
        return Begun::Decided(Decided::Admitted(Fields::default()));
    }
    let view = std::rc::Rc::clone(&context.view);
    let table = &view.snapshot.table;
    let mut charges: SmallVec<[Charge; 4]> = SmallVec::new();
    if let Err(missing) = table.charges(found, facts, &mut charges) {
        count(context, missing.policy, metrics::Decision::MissingRejected, Tier::Local);
        let refusal = Refusal::MissingKey(missing.dimension.to_string());
        return Begun::Decided(Decided::Refused(refusal, Fields::default()));
    }
    let now_ns = clock::ns_of(context.started);
    let mut memories = Vec::new();
    // A caller that is not recognised is charged for every try, whatever key it names.
    if found.route.remembers && !facts.refused {
        memories = table.memories(found, facts);
        // A policy that does not count this request has nothing to remember.
        memories.retain(|memory| charges.iter().any(|charge| charge.policy == memory.policy));
        let limiter = std::sync::Arc::clone(&context.conn.worker.shared.limiter);
        limiter.settle_tenant(&mut memories, facts.identity.tenant.as_deref());
        let is_known = |memory: &Charge| limiter.is_remembered(memory, now_ns);
        pass_retries(context, &mut memories, &mut charges, is_known);
        if let Some(recall) = limiter.recall(&memories) {
            return Begun::Asks(Box::new(Retry { recall, charges, memories }));
        }
    }
    match charge(context, found, facts, charges, memories) {
        Ok(decided) => Begun::Decided(decided),
        Err(wait) => Begun::Waits(wait),
    }
}

/// Decides what a request is charged, retries left out; `Err` where Redis must say.
fn charge(
    context: &mut RequestContext,
    found: &Found<'_, '_>,
    facts: &Facts<'_, '_>,
    mut charges: SmallVec<[Charge; 4]>,
    memories: Vec<Charge>,
) -> Result<Decided, Box<Wait>> {
    if charges.is_empty() {
        return Ok(Decided::Admitted(Fields::default()));
    }
    let view = std::rc::Rc::clone(&context.view);
    let now_ns = clock::ns_of(context.started);
    let mut decision = Decision::default();
    // By the keys before they are settled: a record is this node's own.
    let mut conducts = SmallVec::new();
    if found.route.penalises {
        conducts = view.snapshot.table.conducts(&charges);
    }
    let conn = std::rc::Rc::clone(&context.conn);
    let limiter = &conn.worker.shared.limiter;
    limiter.settle_tenant(&mut charges, facts.identity.tenant.as_deref());
    if !conducts.is_empty() && limiter.keep_out(&charges, &mut conducts, now_ns, &mut decision) {
        return Ok(end(context, found, &charges, &memories, &mut conducts, &mut decision));
    }
    let caller = caller_of(facts, view.snapshot.client_ip.ipv6_prefix);
    match limiter.decide(&charges, caller, now_ns, &mut decision) {
        None => Ok(end(context, found, &charges, &memories, &mut conducts, &mut decision)),
        Some(waiting) => Err(Box::new(Wait { waiting, charges, memories, conducts, decision })),
    }
}

impl Retry {
    /// Waits until Redis has said whether it remembers the request, and goes on; where it must be asked once more,
    /// both waits are together no longer than the deadline.
    pub async fn end(
        self: Box<Self>,
        context: &mut RequestContext,
        found: &Found<'_, '_>,
        facts: &Facts<'_, '_>,
    ) -> Decided {
        let Retry { recall, mut charges, mut memories } = *self;
        let deadline = context.conn.worker.shared.limiter.deadline();
        let begun_ns = clock::now_ns();
        let _ = tokio::time::timeout(deadline, recall.settled()).await;
        let known: SmallVec<[Charge; 2]> = recall.remembered().iter().map(|index| memories[*index]).collect();
        pass_retries(context, &mut memories, &mut charges, |memory| known.contains(memory));
        match charge(context, found, facts, charges, memories) {
            Ok(decided) => decided,
            Err(wait) => {
                let waited = Duration::from_nanos(clock::now_ns() - begun_ns);
                wait.end_within(deadline.saturating_sub(waited), context, found).await
            }
        }
    }
}

impl Wait {
    /// Waits for Redis, no longer than the deadline, and decides.
    pub async fn end(self: Box<Self>, context: &mut RequestContext, found: &Found<'_, '_>) -> Decided {
        let deadline = context.conn.worker.shared.limiter.deadline();
        self.end_within(deadline, context, found).await
    }

    async fn end_within(
        self: Box<Self>,
        deadline: Duration,
        context: &mut RequestContext,
        found: &Found<'_, '_>,
    ) -> Decided {
        let Wait { waiting, charges, memories, mut conducts, mut decision } = *self;
        let limiter = std::sync::Arc::clone(&context.conn.worker.shared.limiter);
        // Late or not, what has been said until now is what counts.
        let _ = tokio::time::timeout(deadline, waiting.settled()).await;
        limiter.resume(waiting, clock::now_ns(), &mut decision);
        end(context, found, &charges, &memories, &mut conducts, &mut decision)
    }
}

/// The client as the limiter tells callers apart by themselves.
fn caller_of(facts: &Facts<'_, '_>, ipv6_prefix: u8) -> Caller {
    let address = match policy::request::caller(facts.client_ip, ipv6_prefix) {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    Caller { address: address.to_bits() }
}

/// Counts a decision and says it; an admitted request is remembered where it has a key.
fn end(
    context: &mut RequestContext,
    found: &Found<'_, '_>,
    charges: &[Charge],
    memories: &[Charge],
    conducts: &mut [Conduct],
    decision: &mut Decision,
) -> Decided {
    let view = std::rc::Rc::clone(&context.view);
    let table = &view.snapshot.table;
    // What is refused for want of Redis says nothing of the caller.
    if !conducts.is_empty() && !decision.is_redis_down {
        let now_ns = clock::ns_of(context.started);
        context.conn.worker.shared.limiter.watch(charges, conducts, now_ns, decision);
    }
    context.steps.decide = context.elapsed_ns();
    record(context, charges, conducts, decision);
    let unix_seconds = context.conn.worker.unix(context.started).as_secs();
    let fields = Fields::new(view.snapshot.limit_headers, unix_seconds, table, found, charges, decision);
    if decision.is_admitted() {
        if found.route.holds {
            context.held = Reservation::of(table, charges, decision, clock::ns_of(context.started));
        }
        for memory in memories {
            let now_ns = clock::ns_of(context.started);
            context.conn.worker.shared.limiter.remember(memory, now_ns);
        }
        return Decided::Admitted(fields);
    }
    let random = context.conn.worker.random();
    let limited = Box::new(limited(table, charges, conducts, decision, random));
    let refusal =
        if decision.is_redis_down { Refusal::RedisDown(limited) } else { Refusal::Limited(limited) };
    Decided::Refused(refusal, fields)
}

/// Takes out what a policy that has charged this request before would charge for it again; what is left of
/// `memories` is new. Only what is in flight counts anew. A request is remembered once it is admitted, never before,
/// so two that come together are both charged: no key lets a request pass that was not paid for once.
fn pass_retries(
    context: &mut RequestContext,
    memories: &mut Vec<Charge>,
    charges: &mut SmallVec<[Charge; 4]>,
    is_known: impl Fn(&Charge) -> bool,
) {
    memories.retain(|memory| {
        let is_new = !is_known(memory);
        if !is_new {
            charges.retain(|charge| {
                charge.policy != memory.policy || charge.quota.algorithm() == Algorithm::Concurrency
            });
            if charges.iter().all(|charge| charge.policy != memory.policy) {
                count(context, memory.policy, metrics::Decision::Admitted, Tier::Local);
            }
        }
        is_new
    });
}

/// Counts what each policy said, once a policy however many windows it has, and keeps the word that decides for the
/// log: a penalty before a refusal, a refusal before a shadow's, a shadow's before an admission.
fn record(context: &mut RequestContext, charges: &[Charge], conducts: &[Conduct], decision: &Decision) {
    let mut windows = charges.iter().zip(&decision.outcomes).peekable();
    while let Some((charge, outcome)) = windows.next() {
        let mut over = !outcome.is_admitted();
        while let Some((_, outcome)) = windows.next_if(|(next, _)| next.policy == charge.policy) {
            over |= !outcome.is_admitted();
        }
        let word = match (over, charge.shadow) {
            _ if is_penalised(conducts, charge.policy) && charge.shadow => metrics::Decision::ShadowPenalised,
            _ if is_penalised(conducts, charge.policy) => metrics::Decision::Penalised,
            (true, true) => metrics::Decision::ShadowDenied,
            (true, false) => metrics::Decision::Denied,
            (false, _) => metrics::Decision::Admitted,
        };
        count(context, charge.policy, word, decision.tier);
    }
}

/// Whether a policy keeps the caller out, or would if it were not in shadow.
fn is_penalised(conducts: &[Conduct], policy: u32) -> bool {
    conducts.iter().any(|conduct| conduct.policy == policy && conduct.wait_ns > 0)
}

fn count(context: &mut RequestContext, policy: u32, word: metrics::Decision, tier: Tier) {
    let figures = &context.view.snapshot.figures.policies[policy as usize];
    figures.decided(&context.conn.worker.metrics, word);
    figures.decided_by(&context.conn.worker.metrics, tier);
    let weight = |word: metrics::Decision| match word {
        metrics::Decision::Admitted => 0,
        metrics::Decision::ShadowDenied | metrics::Decision::ShadowPenalised => 1,
        metrics::Decision::Denied | metrics::Decision::MissingRejected => 2,
        metrics::Decision::Penalised => 3,
    };
    if context.verdict.is_none_or(|verdict| weight(word) > weight(verdict.decision)) {
        context.verdict = Some(Verdict { decision: word, tier, policy });
    }
}

/// What a refusal tells: every violated window, and when all of them will admit the request. All waits of one answer
/// are late by the same share, so that the longest of them is the answer's own.
fn limited(
    table: &Table,
    charges: &[Charge],
    conducts: &[Conduct],
    decision: &Decision,
    random: u64,
) -> Limited {
    let violated = decision
        .violated(charges)
        .map(|(charge, outcome)| {
            let policy = &table.policies()[charge.policy as usize];
            Violation {
                window: policy.windows[usize::from(charge.window)].label.to_string(),
                policy: policy.name.to_string(),
                limit: charge.quota.limit().get(),
                period_seconds: (charge.quota.algorithm() != Algorithm::Concurrency)
                    .then(|| charge.quota.period_ns().get().div_ceil(SECOND_NS)),
                retry_after_seconds: outcome.retry_after_ns().map(|wait| jittered(wait, random)),
                decided: decision.tier.label(),
                is_penalty: is_penalised(conducts, charge.policy),
            }
        })
        .collect();
    // None where one window can never hold the cost.
    let retry_after_seconds = decision.retry_after_ns().map(|wait| jittered(wait, random));
    Limited { violated, retry_after_seconds }
}

/// Whole seconds, up to 10 % late and never early, so that refused clients do not all come back at once.
fn jittered(wait_ns: u64, random: u64) -> u64 {
    let late = (u128::from(wait_ns) * u128::from(random % 1_000) / 10_000) as u64;
    wait_ns.saturating_add(late).div_ceil(SECOND_NS).max(1)
}

const SECOND_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_is_never_early_and_at_most_a_tenth_late() {
        for random in 0..1_000 {
            assert!((10..=11).contains(&jittered(10 * SECOND_NS, random)));
            assert_eq!(jittered(1, random), 1);
            assert!((1..=2).contains(&jittered(SECOND_NS, random)));
        }
        assert!(jittered(u64::MAX, 999) > 0);
    }
}
