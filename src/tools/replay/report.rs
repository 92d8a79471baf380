//! The report of a replay: plain values with stable names, for tables, JSON and charts alike.

use serde::Serialize;

use super::differences::{Caller, Differences};
use super::fleet_simulation::Simulation;
use super::logs::Read;
use super::minutes::{Minute, Minutes};
use super::options::{Options, Span, Spread};
use super::outcome_counts::{OutcomeCounts, PolicyCounts};
use super::tally::{Distinct, HeavyHitters};
use config::limits::limit_text;
use policy::Policy;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReplayReport {
    pub logs: Vec<LogReport>,
    /// When the first request began, seconds since 1970; `None` if there is none.
    pub first: Option<u64>,
    /// When the last one did.
    pub last: Option<u64>,
    /// Requests that were answered 429 in their own life. They are played like all others.
    pub answered_429: u64,
    /// Requests whose lines name no host.
    pub no_host: u64,
    /// How many nodes they were spread over.
    pub nodes: u32,
    /// `turns` or `address`.
    pub spread: &'static str,
    /// The configuration that was asked about.
    pub candidate: WorldReport,
    /// The one that it is compared with.
    pub against: Option<WorldReport>,
    pub differences: Option<DifferencesReport>,
}

/// What was read of one log.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LogReport {
    pub name: String,
    /// `sluicegate`, `common` or `envoy`; `None`: no line has any of these formats.
    pub format: Option<&'static str>,
    /// Lines that are not empty.
    pub lines: u64,
    /// Lines that are none of the format.
    pub unreadable: u64,
    pub examples: Vec<Example>,
    /// Lines about no request.
    pub without_request: u64,
    /// Lines that came too late to be put in their place; they are played at the time of those around them.
    pub late: u64,
    /// Lines whose time fits to none around them; they are played at the time of those.
    pub strays: u64,
    /// How often the clock was set back; time goes on all the same.
    pub set_back: u64,
    /// How often the log goes on more than an hour later.
    pub pauses: u64,
    /// Whether the newest line comes first, so that hardly any has its time.
    pub newest_first: bool,
    /// Why it ended before its end.
    pub ended_early: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Example {
    /// Its number, from 1.
    pub line: u64,
    pub why: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct WorldReport {
    /// Whether its nodes share limits.
    pub fleet: bool,
    pub requests: u64,
    pub admitted: u64,
    pub denied: u64,
    /// Requests of routes without a policy.
    pub unlimited: u64,
    /// Requests that are refused or answered before limits are asked.
    pub before_limits: u64,
    pub no_route: u64,
    /// Requests without an address; they count as one client.
    pub no_address: u64,
    /// Decisions on a bucket that keys share, because the limiter's table was full.
    pub overflow_decisions: u64,
    /// The minute with the most refusals.
    pub worst_minute: Option<MinuteReport>,
    pub minutes: Vec<MinuteReport>,
    /// Requests that are in none of them, because the log is longer than 31 days.
    pub beyond_minutes: u64,
    pub policies: Vec<PolicyReport>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct MinuteReport {
    /// When it begins, seconds since 1970.
    pub begins: u64,
    pub requests: u64,
    pub denied: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyReport {
    pub policy: String,
    pub limit: String,
    pub by: Vec<String>,
    /// Whether it refuses nothing.
    pub shadow: bool,
    /// The policy that it is a candidate for.
    pub replaces: Option<String>,
    /// Requests that it admitted, whatever others said.
    pub admitted: u64,
    /// Requests that were over one of its windows.
    pub denied: u64,
    /// Requests that a penalty of it refused.
    pub penalised: u64,
    /// Requests that it refused because they lack a dimension.
    pub missing: u64,
    /// Keys that it counted.
    pub keys: u64,
    /// Those of them that it refused at least once.
    pub keys_denied: u64,
    /// Whether these two are exact; else they may be off by about a hundredth.
    pub keys_exact: bool,
    pub worst_callers: Vec<CallerReport>,
    /// How much too low these counts may be.
    pub worst_callers_error: u64,
    /// The minute in which it refused most.
    pub worst_minute: Option<MinuteReport>,
    /// Dimensions that lines had no value for.
    pub no_value: Vec<NoValueReport>,
    /// Requests whose cost the log does not tell: they count what was reserved.
    pub unknown_costs: u64,
    /// Requests that were in flight for no time, because their lines do not say how long they took.
    pub no_duration: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct CallerReport {
    pub caller: String,
    pub count: u64,
}

/// How many lines lack a dimension.
#[derive(Clone, Debug, Serialize)]
pub struct NoValueReport {
    pub dimension: String,
    /// Requests of the policy's routes that have no value for it.
    pub requests: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DifferencesReport {
    pub both_admit: u64,
    pub both_deny: u64,
    /// Requests that only the candidate refuses.
    pub newly_denied: u64,
    /// Requests that only the other one refuses.
    pub newly_admitted: u64,
    /// Who sent those that only the candidate refuses.
    pub newly_denied_callers: Vec<CallerReport>,
    /// Who sent those that only the other one refuses.
    pub newly_admitted_callers: Vec<CallerReport>,
    /// By the candidate's route.
    pub routes: Vec<RouteReport>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RouteReport {
    /// Its name; empty: none answers.
    pub route: String,
    /// Requests that only the candidate refuses.
    pub newly_denied: u64,
    /// Requests that only the other one refuses.
    pub newly_admitted: u64,
}

impl ReplayReport {
    pub(super) fn new(
        options: &Options,
        logs: Vec<Read>,
        span: &Span,
        candidate: &Simulation,
        other: Option<&(Simulation, Differences)>,
    ) -> ReplayReport {
        ReplayReport {
            logs: logs.into_iter().map(LogReport::of).collect(),
            first: span.first_ns.map(|ns| ns / SECOND_NS),
            last: span.first_ns.map(|_| span.last_ns / SECOND_NS),
            answered_429: span.refused,
            no_host: span.no_host,
            nodes: options.nodes,
            spread: match options.spread {
                Spread::Turns => "turns",
                Spread::Address => "address",
            },
            candidate: WorldReport::of(candidate, options.top),
            against: other.map(|(world, _)| WorldReport::of(world, options.top)),
            differences: other.map(|(_, differences)| DifferencesReport::of(differences, options.top)),
        }
    }
}

impl LogReport {
    /// Whether no line of it could be read.
    pub fn is_unreadable(&self) -> bool {
        self.lines == self.unreadable
    }

    pub(super) fn of(read: Read) -> LogReport {
        let example = |(line, why): (u64, super::request::NoLine)| Example { line, why: why.to_string() };
        LogReport {
            name: read.name,
            format: read.format.map(super::format::Format::word),
            lines: read.lines,
            unreadable: read.unreadable,
            examples: read.examples.into_iter().map(example).collect(),
            without_request: read.without_request,
            late: read.disorder.late,
            strays: read.disorder.strays,
            set_back: read.disorder.set_back,
            pauses: read.disorder.pauses,
            newest_first: read.disorder.newest_first,
            ended_early: read.ended_early,
        }
    }
}

impl WorldReport {
    fn of(world: &Simulation, top: usize) -> WorldReport {
        let counts: &OutcomeCounts = &world.counts;
        let policies = world.table().policies().iter().zip(&counts.policies);
        WorldReport {
            fleet: world.is_fleet(),
            requests: counts.requests,
            admitted: counts.admitted,
            denied: counts.denied,
            unlimited: counts.unlimited,
            before_limits: counts.before_limits,
            no_route: counts.no_route,
            no_address: counts.no_address,
            overflow_decisions: world.overflow_decisions(),
            worst_minute: worst(&counts.minutes),
            minutes: counts.minutes.iter().map(minute).collect(),
            beyond_minutes: counts.minutes.beyond,
            policies: policies.map(|(policy, counted)| PolicyReport::of(policy, counted, top)).collect(),
        }
    }
}

impl PolicyReport {
    fn of(policy: &Policy, counted: &PolicyCounts, top: usize) -> PolicyReport {
        let windows = policy.windows.iter().map(|window| limit_text::show_window(&window.quota));
        let replaced = policy.replaces().map(|replaces| replaces.name.to_string());
        let lacking = counted.lacking.iter().filter(|(_, requests)| *requests > 0);
        PolicyReport {
            policy: policy.name.to_string(),
            limit: windows.collect::<Vec<_>>().join(", "),
            by: policy.by.iter().map(ToString::to_string).collect(),
            shadow: policy.shadow,
            replaces: replaced,
            admitted: counted.admitted,
            denied: counted.denied,
            penalised: counted.penalised,
            missing: counted.missing,
            keys: counted.keys.count(),
            keys_denied: counted.keys_denied.count(),
            keys_exact: [&counted.keys, &counted.keys_denied].into_iter().all(Distinct::is_exact),
            worst_callers: callers(&counted.worst, top),
            worst_callers_error: counted.worst.error(),
            worst_minute: worst(&counted.minutes),
            no_value: lacking
                .map(|(by, requests)| NoValueReport { dimension: by.to_string(), requests: *requests })
                .collect(),
            unknown_costs: counted.unknown_costs,
            no_duration: counted.no_duration,
        }
    }

    /// Requests that it refused, for whatever reason.
    pub fn refused(&self) -> u64 {
        self.denied + self.penalised + self.missing
    }
}

impl DifferencesReport {
    fn of(differences: &Differences, top: usize) -> DifferencesReport {
        let route = |(route, [newly_denied, newly_admitted]): (&String, &[u64; 2])| RouteReport {
            route: route.clone(),
            newly_denied: *newly_denied,
            newly_admitted: *newly_admitted,
        };
        let mut routes: Vec<RouteReport> = differences.routes.iter().map(route).collect();
        routes.sort_by_key(|route| std::cmp::Reverse(route.newly_denied + route.newly_admitted));
        routes.truncate(top);
        DifferencesReport {
            both_admit: differences.both_admit,
            both_deny: differences.both_deny,
            newly_denied: differences.newly_denied,
            newly_admitted: differences.newly_admitted,
            newly_denied_callers: callers::<Caller>(&differences.denied_callers, top),
            newly_admitted_callers: callers::<Caller>(&differences.admitted_callers, top),
            routes,
        }
    }
}

fn callers<K: Eq + std::hash::Hash>(most: &HeavyHitters<K>, top: usize) -> Vec<CallerReport> {
    let caller = |(count, caller): (u64, &str)| CallerReport { caller: caller.to_owned(), count };
    most.top(top).into_iter().map(caller).collect()
}

fn worst(minutes: &Minutes) -> Option<MinuteReport> {
    minutes.worst().map(minute)
}

fn minute((begins, Minute { requests, denied }): (u64, Minute)) -> MinuteReport {
    MinuteReport { begins, requests, denied }
}

const SECOND_NS: u64 = 1_000_000_000;
