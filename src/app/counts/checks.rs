//! Decides checks: by `Limiter::check`, as a request is decided, or by a look ahead that spends nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::yield_now;

use super::sources::{Clocks, Counts};
use crate::explain::{blocked, lacking, later, look_ahead, seconds};
use base::words;
use control::admin::{CheckQuestion, CheckVerdict, ViolatedWindow};
use control::database::Time;
use limit::{Algorithm, Charge, Outcome, TrialSet};
use limiter::{Check, Limiter, Pending};
use metrics::usage;
use policy::{NamedSubject, PolicySelection, RouteTable, Subject};

struct Ready<'t> {
    chosen: PolicySelection<'t>,
    subject: NamedSubject,
    now_ns: u64,
    wall: Time,
    is_dry: bool,
}

enum Step<'t> {
    Told(CheckVerdict),
    Decided(Ready<'t>, Box<Check<'t>>),
    Waits(Ready<'t>, Box<Check<'t>>, Pending),
    Looks(Ready<'t>),
}

/// Decides checks in their order; what has to ask Redis asks at once and waits together.
pub(super) async fn decide(
    counts: Counts,
    (asked, is_together): (Vec<CheckQuestion>, bool),
) -> Vec<CheckVerdict> {
    let counts = &counts;
    let snapshot = counts.current.load_full();
    let table = &snapshot.table;
    let now = Clocks::now();
    let mut steps = Vec::with_capacity(asked.len());
    for (number, asked) in asked.into_iter().enumerate() {
        // A pause, so that others of this runtime have their turn.
        if number % TURN == TURN - 1 {
            yield_now().await;
        }
        steps.push(match ready(table, counts, asked, now) {
            Ok(ready) => begin(&counts.limiter, ready),
            Err(why) => Step::Told(CheckVerdict::undecided(why)),
        });
    }
    let steps = wait(counts, table, steps).await;
    let mut verdicts: Vec<CheckVerdict> = steps.iter().map(|step| verdict(table, step)).collect();
    let is_taken_back = is_together && !verdicts.iter().all(|verdict| verdict.allowed);
    {
        let worker = counts.metrics.outside();
        for step in &steps {
            let Step::Decided(ready, check) = step else { continue };
            count_usage(counts, table, ready, check, is_taken_back);
            if let Some(keys) = &counts.hot_keys {
                keys.count(&snapshot.naming, check, &ready.subject);
            }
            snapshot.series.decided(&worker, check);
        }
    }
    if is_taken_back {
        for step in &steps {
            give_back(&counts.limiter, step);
        }
        refuse_together(&mut verdicts);
    }
    verdicts
}

/// Counts a decision by the minute, as that of a request; of what is taken back no units.
fn count_usage(
    counts: &Counts,
    table: &RouteTable,
    ready: &Ready<'_>,
    check: &Check<'_>,
    is_taken_back: bool,
) {
    let Some(gathered) = &counts.usage else { return };
    let unix = Duration::from_micros(u64::try_from(ready.wall.0).unwrap_or(0));
    let subject = &ready.subject;
    for (who, mut amount) in check.usage(0, table, subject.consumer(), subject.tenant()) {
        if is_taken_back {
            amount.units = 0;
        }
        gathered.count(usage::UnixMinute::of(unix), who, amount);
    }
}

fn ready<'t>(
    table: &'t RouteTable,
    counts: &Counts,
    asked: CheckQuestion,
    now: Clocks,
) -> Result<Ready<'t>, String> {
    let unknown = || {
        let known: Vec<String> = table.policies().iter().map(|policy| policy.name.to_string()).collect();
        words::unknown("policy", &asked.policy, &known)
    };
    let policy = table.policy(&asked.policy).ok_or_else(unknown)?;
    if let Some(replaces) = policy.replaces() {
        let (name, of) = (&policy.name, &replaces.name);
        return Err(format!("`{name}` is a candidate of `{of}`: check `{of}`, which includes it"));
    }
    let candidate = policy.tried.map(|candidate| &table.policies()[candidate.index()]);
    let mut windows = [Some(policy), candidate].into_iter().flatten().flat_map(|policy| &policy.windows);
    if !asked.is_dry && windows.any(|it| it.quota.algorithm() == Algorithm::Concurrency) {
        return Err(IN_FLIGHT.to_owned());
    }
    let (now_ns, wall) = match asked.at {
        None => (now.now_ns, now.wall),
        Some(_) if policy.windows.iter().any(|window| window.plan.is_some()) => {
            return Err(BY_REDIS.to_owned());
        }
        Some(at) => {
            let at_ns = at_time(at, counts.clocks.unwrap_or(now));
            (at_ns.ok_or(TOO_FAR)?, at)
        }
    };
    let subject = NamedSubject::new(policy, asked.named, asked.tier.as_deref(), asked.cost);
    let subject = subject.map_err(|error| error.to_string())?;
    let subject = subject.with_identity(|identity| counts.limiter.assignments().apply(identity));
    let chosen = table.with_candidate(policy);
    Ok(Ready { chosen, subject, now_ns, wall, is_dry: asked.is_dry })
}

/// A time of the wall clock on the monotonic one; `None` before that began.
fn at_time(at: Time, Clocks { now_ns, wall }: Clocks) -> Option<u64> {
    let ahead_ns = at.0.checked_sub(wall.0)?.checked_mul(1_000)?;
    now_ns.checked_add_signed(ahead_ns).filter(|at_ns| *at_ns <= now_ns + AHEAD_MAX_NS)
}

fn begin<'t>(limiter: &Arc<Limiter>, ready: Ready<'t>) -> Step<'t> {
    if ready.is_dry {
        return Step::Looks(ready);
    }
    let mut check = Box::default();
    match limiter.check(ready.chosen, &ready.subject, ready.now_ns, &mut check) {
        None => Step::Decided(ready, check),
        Some(pending) => Step::Waits(ready, check, pending),
    }
}

/// Waits for Redis, no longer than a request would, and completes the checks.
async fn wait<'t>(counts: &Counts, table: &'t RouteTable, steps: Vec<Step<'t>>) -> Vec<Step<'t>> {
    let limiter = &counts.limiter;
    let waits = steps.into_iter().map(|step| async move {
        match step {
            Step::Waits(ready, mut check, pending) => {
                limiter.finish(pending, &ready.subject, &mut check).await;
                Step::Decided(ready, check)
            }
            Step::Looks(ready) => {
                let when = (ready.now_ns, ready.wall);
                Step::Told(look_ahead(table, limiter, ready.chosen, &ready.subject, when).await)
            }
            Step::Told(_) | Step::Decided(..) => step,
        }
    });
    join_all(waits).await
}

fn verdict(table: &RouteTable, step: &Step<'_>) -> CheckVerdict {
    let (ready, check) = match step {
        Step::Told(verdict) => return verdict.clone(),
        Step::Decided(ready, check) => (ready, check),
        Step::Waits(..) | Step::Looks(_) => return CheckVerdict::undecided(NO_POLICY.to_owned()),
    };
    if let Some(missing) = &check.missing {
        return lacking(&missing.dimension.to_string());
    }
    if let Some(by) = &check.blocked {
        return blocked(by, ready.now_ns, ready.wall);
    }
    let decision = &check.decision;
    // A shadow binds nobody, but what is left of it is known, too.
    let own =
        check.charges.iter().zip(&decision.outcomes).filter(|(charge, _)| charge.world() == TrialSet::OWN);
    let least = own.map(|(_, outcome)| outcome).min_by_key(|outcome| outcome.remaining);
    let shown = decision.binding.and_then(|index| decision.outcomes.get(index)).or(least);
    let remaining = shown.map(|outcome| outcome.remaining);
    let binding = (remaining, shown.map(|outcome| later((ready.now_ns, ready.wall), outcome.reset_ns)));
    if check.is_admitted() {
        return CheckVerdict::allowed(binding, decision.delay_ns(&check.charges) as f64 / 1e9);
    }
    let violated = decision.violated(&check.charges);
    let violated =
        violated.map(|(charge, outcome)| violated_of(table, charge, outcome, ready.wall)).collect();
    CheckVerdict::refused(binding, decision.retry_after_ns().map(seconds), violated)
}

fn violated_of(table: &RouteTable, charge: &Charge, outcome: &Outcome, wall: Time) -> ViolatedWindow {
    let policy = &table.policies()[charge.policy.index()];
    ViolatedWindow {
        policy: policy.name.to_string(),
        window: policy.windows[usize::from(charge.window)].label.to_string(),
        limit: charge.quota.limit().get(),
        period_seconds: seconds(charge.quota.period_at_ns(Time(0).until(wall))),
        retry_after_seconds: outcome.retry_after_ns().map(seconds),
    }
}

fn give_back(limiter: &Arc<Limiter>, step: &Step<'_>) {
    let Step::Decided(ready, check) = step else { return };
    for (index, charge) in check.charges.iter().enumerate() {
        if check.decision.has_taken(index, charge) {
            limiter.refund(charge, check.decision.refund(index), ready.now_ns);
        }
    }
}

/// Refuses what would have been allowed alone, for as long as the others wait. What cannot be decided is never allowed.
fn refuse_together(verdicts: &mut [CheckVerdict]) {
    let wait = |verdict: &CheckVerdict| match verdict.allowed {
        true => Some(0),
        false => verdict.retry_after_seconds.flatten(),
    };
    let longest = verdicts.iter().map(wait).reduce(|one, other| Some(one?.max(other?))).flatten();
    for verdict in verdicts.iter_mut().filter(|verdict| verdict.allowed) {
        *verdict = CheckVerdict::refused(verdict.binding, longest, Vec::new());
    }
}

/// Checks that are begun without a pause.
const TURN: usize = 64;
const SECOND_NS: u64 = 1_000_000_000;
/// How far ahead a check may say it is asked: a year.
const AHEAD_MAX_NS: u64 = 366 * 86_400 * SECOND_NS;
const NO_POLICY: &str = "no policy of this name is in force";
const IN_FLIGHT: &str = "the policy limits requests in flight, and a check does not say when one ends: only a dry check (`dry` of the admin API) tells what is left";
const TOO_FAR: &str = "`now` is before the start of this gateway's clock, or more than a year ahead";
const BY_REDIS: &str =
    "`now` cannot be used: this policy is counted in Redis, which uses its own clock. Leave it out";
