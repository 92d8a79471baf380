//! Decides checks of the rate limit service: by `Limiter::check_together`, on the counts that requests to the proxy have.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use smallvec::SmallVec;
use tonic::Status;

use super::statuses::{self, Answer, RuleMatch};
use crate::counts::Counts;
use base::clock;
use base::random::Random;
use gateway::proxy::events::sampled_windows;
use gateway::proxy::snapshot::Snapshot;
use limiter::{Check, CheckPart, Limiter, OwnLimit};
use metrics::WorkerToken;
use metrics::hot_keys;
use metrics::usage;
use observe::record::decisions::{DecisionSample, SampleBuffer, printable};
use policy::matching::domain::{CompiledDomain, DescriptorEntry, DescriptorMatch, DescriptorSubject};
use policy::{RouteTable, Subject};
use rls::{
    RateLimitCode, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, RateLimitResponse, RateLimits,
};
use rls::{RateLimitUnit, RlsStats};

pub(super) struct Decider {
    current: RefCell<Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>>,
    limiter: Arc<Limiter>,
    metrics: WorkerToken,
    usage: Option<usage::UsageTally>,
    hot_keys: Option<hot_keys::KeyTally>,
    decisions: SampleBuffer,
    stats: RlsStats,
    random: Random,
    /// Wall-clock time minus monotonic time; renewed by the upkeep, so that checks need not read the wall clock.
    unix_offset_ns: Cell<i64>,
}

impl Decider {
    /// Call it on its thread.
    pub(super) fn new(
        counts: &Counts,
        metrics: WorkerToken,
        stats: RlsStats,
        decisions: SampleBuffer,
    ) -> Decider {
        let random = Random::seeded();
        Decider {
            current: RefCell::new(Cache::new(Arc::clone(&counts.current))),
            limiter: Arc::clone(&counts.limiter),
            metrics,
            usage: counts.usage.clone().map(usage::UsageTally::new),
            hot_keys: counts.hot_keys.as_ref().map(|keys| keys.gathered().tally(random.next())),
            decisions,
            stats,
            random,
            unix_offset_ns: Cell::new(unix_offset_ns()),
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(self.current.borrow_mut().load())
    }
}

impl RateLimits for Decider {
    async fn decide(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        if request.domain.is_empty() || request.descriptors.is_empty() {
            return Err(Status::invalid_argument("a check needs a domain and at least one descriptor"));
        }
        let snapshot = self.snapshot();
        let Some(domain) = snapshot.table.domain(&request.domain) else {
            self.stats.unknown_domain(request.descriptors.len() as u64);
            return Ok(self.told(statuses::passed(request.descriptors.len())));
        };
        let (texts, ranges) = texts(&request.descriptors);
        let entries: SmallVec<[DescriptorEntry<'_>; 8]> =
            texts.iter().map(|(key, value)| DescriptorEntry { key, value }).collect();
        let matched = domain.find_all(ranges.iter().map(|range| &entries[range.clone()]));
        let asked = self.asked(&snapshot.table, domain, &request, (&entries, &ranges), &matched);
        let now_ns = clock::now_ns();
        let answer = Answer {
            snapshot: &snapshot,
            limiter: &self.limiter,
            unix_seconds: self.unix(now_ns).as_secs(),
            random: self.random.next(),
        };
        if asked.is_denied {
            return Ok(self.told(self.look(&answer, &asked, now_ns)));
        }
        let mut check = Check::default();
        check.looks.clone_from(&asked.looks);
        let pending = self.limiter.check_together(&asked.parts, asked.client, now_ns, &mut check);
        if let Some(pending) = pending {
            self.limiter.finish_together(pending, &mut check).await;
        }
        self.count(&snapshot, &asked.parts, &check, now_ns);
        self.sample(&snapshot, &request.domain, &asked, (&check, now_ns));
        Ok(self.told(answer.of(&asked.found, &check)))
    }

    fn upkeep(&self) {
        // Loaded here, too, because a thread that nobody asks must not keep an old configuration.
        self.current.borrow_mut().load();
        self.unix_offset_ns.set(unix_offset_ns());
        self.decisions.hand_over();
        self.usage.iter().for_each(usage::UsageTally::hand_over);
        let second = self.unix(clock::now_ns()).as_secs();
        self.hot_keys.iter().for_each(|tally| tally.hand_over(second));
    }
}

struct DescriptorCheck<'t> {
    parts: SmallVec<[CheckPart<'t, DescriptorSubject<'t>>; 2]>,
    found: SmallVec<[RuleMatch; 4]>,
    looks: SmallVec<[u16; 1]>,
    client: usize,
    is_denied: bool,
}

impl Decider {
    fn asked<'t>(
        &self,
        table: &'t RouteTable,
        domain: &CompiledDomain,
        request: &RateLimitRequest,
        (entries, ranges): (&'t [DescriptorEntry<'t>], &[Range<usize>]),
        matched: &[DescriptorMatch<'t>],
    ) -> DescriptorCheck<'t> {
        let mut asking = DescriptorCheck {
            parts: SmallVec::new(),
            found: SmallVec::new(),
            looks: SmallVec::new(),
            client: usize::MAX,
            is_denied: false,
        };
        let mut unknown = 0;
        for ((descriptor, range), matched) in request.descriptors.iter().zip(ranges).zip(matched) {
            let own = domain.overrides.then_some(descriptor.limit).flatten();
            let found = match matched {
                DescriptorMatch::Limited(_) if own.is_some_and(|own| own.requests_per_unit == 0) => {
                    RuleMatch::Denied
                }
                DescriptorMatch::Limited(rule) => {
                    let entries = &entries[range.clone()];
                    let subject = DescriptorSubject::new(rule, entries, cost(descriptor, request));
                    let subject =
                        subject.with_identity(|identity| self.limiter.assignments().apply(identity));
                    if asking.client == usize::MAX
                        && entries.iter().any(|entry| ADDRESSES.contains(&entry.key))
                    {
                        asking.client = asking.parts.len();
                    }
                    if is_looked_at(descriptor) {
                        // It never saturates, because a request has far fewer descriptors than that.
                        asking.looks.push(u16::try_from(asking.parts.len()).unwrap_or(u16::MAX));
                    }
                    let policies = table.chosen_by(rule);
                    asking.parts.push(CheckPart { policies, subject, limit: own.and_then(own_limit) });
                    RuleMatch::Limited
                }
                DescriptorMatch::Denied => RuleMatch::Denied,
                DescriptorMatch::Unlimited | DescriptorMatch::Replaced => RuleMatch::Passed,
                DescriptorMatch::Unknown => {
                    unknown += 1;
                    RuleMatch::Passed
                }
            };
            if descriptor.is_negative_hits {
                self.stats.negative_hits();
            }
            asking.is_denied |= found == RuleMatch::Denied;
            asking.found.push(found);
        }
        if unknown > 0 {
            self.stats.unknown_descriptors(unknown);
        }
        asking.client = if asking.client == usize::MAX { 0 } else { asking.client };
        asking
    }

    /// What is told of a request that never passes: nothing is charged, and each descriptor is looked at by itself.
    fn look(&self, answer: &Answer<'_>, asked: &DescriptorCheck<'_>, now_ns: u64) -> RateLimitResponse {
        let looked = asked.parts.iter().map(|part| {
            let mut check = Check::default();
            match self.limiter.peek(part.policies, &part.subject, now_ns, &mut check) {
                Ok(_) => {
                    let windows = check.charges.iter().zip(&mut check.decision.outcomes);
                    windows.for_each(|(charge, outcome)| *outcome = outcome.uncharged(charge.cost));
                    answer.status(0, &check)
                }
                Err(_) => statuses::over_limit(),
            }
        });
        statuses::answered(RateLimitCode::OverLimit, &asked.found, looked)
    }

    /// Counts each policy's decision, and by the minute for whom it was made.
    fn count(
        &self,
        snapshot: &Snapshot,
        parts: &[CheckPart<'_, DescriptorSubject<'_>>],
        check: &Check<'_>,
        now_ns: u64,
    ) {
        snapshot.series.decided(&self.metrics, check);
        let duration_ns = clock::now_ns().saturating_sub(now_ns);
        snapshot.series.latency.record(&self.metrics, check.decision.tier, duration_ns, 1);
        let is_left = |(number, part): &(u16, &CheckPart<'_, _>)| {
            let mut own = check.charges.iter().filter(|charge| charge.part == *number).peekable();
            part.limit.is_some() && own.peek().is_some() && !own.any(|charge| charge.is_overridden)
        };
        (0_u16..).zip(parts).filter(is_left).for_each(|_| self.stats.override_left());
        if let Some(tally) = &self.hot_keys {
            let subject = |number: u16| parts.get(usize::from(number)).map(|part| &part.subject);
            check.count_keys(&self.limiter, (tally, &snapshot.naming), subject);
        }
        let Some(tally) = &self.usage else { return };
        let minute = usage::UnixMinute::of(self.unix(now_ns));
        for (number, part) in (0_u16..).zip(parts) {
            let (consumer, tenant) = (part.subject.consumer(), part.subject.tenant());
            for (who, amount) in check.usage(number, &snapshot.table, consumer, tenant) {
                tally.count(minute, who, amount);
            }
        }
    }

    /// Draws the decision of a check, and keeps what is known of it if it is drawn: as of a request, less the id and the route.
    fn sample(
        &self,
        snapshot: &Snapshot,
        domain: &str,
        asked: &DescriptorCheck<'_>,
        (check, now_ns): (&Check<'_>, u64),
    ) {
        if check.charges.is_empty() || check.missing.is_some() {
            return;
        }
        if self.decisions.draws(&snapshot.draws, check.is_admitted(), || now_ns / SECOND_NS) {
            self.keep_sample(snapshot, domain, asked, (check, now_ns));
        }
    }

    #[cold]
    fn keep_sample(
        &self,
        snapshot: &Snapshot,
        domain: &str,
        asked: &DescriptorCheck<'_>,
        (check, now_ns): (&Check<'_>, u64),
    ) {
        let of_part = |part: u16| asked.parts.get(usize::from(part)).map(|part| &part.subject);
        let with = (&*self.limiter, &snapshot.naming, &snapshot.table);
        let (windows, windows_left_out) = sampled_windows(with, check, of_part, now_ns);
        // Of several descriptors the one that is refused, whose window comes first, says for whom.
        let over = check.decision.binding.and_then(|index| of_part(check.charges[index].part));
        let text =
            |value: Option<&str>| value.map(|text| printable(text.as_bytes()).into()).unwrap_or_default();
        self.decisions.keep(DecisionSample {
            time: self.unix(now_ns),
            node: snapshot.node.name.clone(),
            domain: text(Some(domain)),
            consumer: text(over.and_then(Subject::consumer)),
            tenant: text(over.and_then(Subject::tenant)),
            is_admitted: check.is_admitted(),
            blocked: Box::default(),
            is_redis_down: check.decision.is_redis_down,
            wait_ns: check.decision.retry_after_ns(),
            latency_ns: clock::now_ns().saturating_sub(now_ns),
            windows,
            windows_left_out,
            ..DecisionSample::default()
        });
    }

    fn told(&self, answer: RateLimitResponse) -> RateLimitResponse {
        self.stats.answered(answer.overall_code());
        answer
    }

    fn unix(&self, now_ns: u64) -> Duration {
        let unix_ns = now_ns as i64 + self.unix_offset_ns.get();
        Duration::from_nanos(unix_ns.max(0) as u64)
    }
}

/// Keys and values. What is not UTF-8 in one is U+FFFD: all such values are one client, which is limited like any other.
type Texts<'d> = SmallVec<[(Cow<'d, str>, Cow<'d, str>); 8]>;

/// The entries of all descriptors one after the other, and which of them are whose.
fn texts(descriptors: &[RateLimitDescriptor]) -> (Texts<'_>, SmallVec<[Range<usize>; 4]>) {
    let mut texts = Texts::new();
    let ranges = descriptors.iter().map(|descriptor| {
        let first = texts.len();
        texts.extend(
            descriptor
                .entries
                .iter()
                .map(|entry| (String::from_utf8_lossy(&entry.key), String::from_utf8_lossy(&entry.value))),
        );
        first..texts.len()
    });
    let ranges = ranges.collect();
    (texts, ranges)
}

fn is_looked_at(descriptor: &RateLimitDescriptor) -> bool {
    descriptor.is_negative_hits || descriptor.hits_addend == Some(0)
}

/// What a descriptor says that it costs, or its request; `None`: what its policies say. One that costs nothing is charged a
/// unit, which is given back.
fn cost(descriptor: &RateLimitDescriptor, request: &RateLimitRequest) -> Option<NonZeroU64> {
    match descriptor.hits_addend {
        _ if is_looked_at(descriptor) => Some(NonZeroU64::MIN),
        Some(hits) => NonZeroU64::new(hits),
        None => NonZeroU64::new(request.hits_addend.into()),
    }
}

/// A descriptor's own limit; `None` if its unit has no length.
fn own_limit(own: RateLimitOverride) -> Option<OwnLimit> {
    let limit = NonZeroU64::new(own.requests_per_unit.into())?;
    let seconds = RateLimitUnit::try_from(own.unit).map_or(0, RateLimitUnit::seconds);
    Some(OwnLimit { limit, period_ns: NonZeroU64::new(seconds.saturating_mul(SECOND_NS))? })
}

fn unix_offset_ns() -> i64 {
    clock::unix().as_nanos() as i64 - clock::now_ns() as i64
}

/// The entries that say the client's address.
const ADDRESSES: [&str; 2] = ["remote_address", "masked_remote_address"];
const SECOND_NS: u64 = 1_000_000_000;
