//! Windows that fit a log: limits that would have refused a given share of the callers at least once, and nobody else.
//!
//! Callers are counted by policies of its own, whose keys are those that a gateway would count by. Each has the gateway's
//! sliding windows, with a limit that nothing meets; what was used of one at most is the limit that its caller needs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU64;
use std::path::Path;

use super::fleet_simulation::Simulation;
use super::logs::{Logs, ScheduledRequest};
use super::options::Options;
use super::report::LogReport;
use super::source::Unreadable;
use config::{self, Config, Definition, LoadedConfig};
use limit::{Algorithm, Charge, Key, Quota, State};
use policy::definition::{self, Dimension, Missing};

#[derive(Clone, Debug)]
pub struct SuggestOptions {
    /// Who is a caller: any number of answers, each a list of dimensions.
    pub by: Vec<Vec<Dimension>>,
    /// Whether each route gets limits of its own.
    pub per_route: bool,
    /// The share of callers that may be refused at least once, millionths.
    pub refuse_ppm: u32,
}

#[derive(Clone, Debug)]
pub struct FitReport {
    pub logs: Vec<LogReport>,
    pub requests: u64,
    /// From the first to the last request, nanoseconds.
    pub span_ns: u64,
    /// A policy for each answer of who is a caller, and for each route.
    pub policies: Vec<Suggestion>,
    /// Callers that came when as many were known as are kept.
    pub left_out: u64,
}

#[derive(Clone, Debug)]
pub struct Suggestion {
    pub by: Vec<Dimension>,
    /// The route it is for, if each has one.
    pub route: Option<String>,
    pub callers: u64,
    /// Requests that lack a dimension, and are not counted.
    pub lacking: u64,
    pub requests: u64,
    pub windows: Vec<SuggestedWindow>,
    /// Callers that these windows would have refused at least once; that need more than one of them if the log cannot be read a
    /// second time.
    pub refused: u64,
    /// Requests that they would have refused. `None`: the log cannot be read a second time.
    pub refused_requests: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuggestedWindow {
    pub limit: u64,
    /// Its period, seconds.
    pub period_s: u64,
}

/// Callers of one answer on one route.
#[derive(Default)]
struct Group {
    /// Of each window what is used of it, and what was used at most.
    callers: HashMap<Key, [(State, u64); PERIODS_S.len()]>,
    requests: u64,
    lacking: u64,
}

/// Finds windows for logs. The routes are those of a configuration, if one is given, else one for every path.
///
/// # Errors
/// If a log cannot be read, or a route has not what callers are told apart by.
pub fn suggest(
    options: &Options,
    asked: &SuggestOptions,
    routes: Option<Config>,
) -> Result<FitReport, Error> {
    let mut logs = Logs::open(options)?;
    let mut world = Simulation::new(counting(asked, routes)?, 1);
    let (mut groups, mut room) = (Groups::new(), CallerCap { callers: 0, left_out: 0 });
    while let Some(ScheduledRequest { turn, request, .. }) = logs.request() {
        let now_ns = world.reading(turn.at_ns);
        world.charges(&request, |route, charges| {
            let route = if asked.per_route { route } else { "" };
            if !groups.contains_key(route) {
                groups.insert(route.to_owned(), asked.by.iter().map(|_| Group::default()).collect());
            }
            for (number, group) in groups.get_mut(route).into_iter().flatten().enumerate() {
                let own = charges.iter().filter(|charge| charge.policy.index() == number);
                group.count(own, now_ns, &mut room);
            }
        });
    }
    let span = logs.span();
    let mut policies: Vec<Suggestion> = Vec::new();
    let mut judges: BTreeMap<(String, usize), Judge> = BTreeMap::new();
    for (route, of_route) in groups {
        let named = asked.per_route.then_some(route.clone());
        for (number, (by, group)) in asked.by.iter().zip(of_route).enumerate() {
            let known: HashSet<Key> = group.callers.keys().copied().collect();
            if let Some(suggestion) = group.suggestion(by, named.clone(), span.ns(), asked.refuse_ppm) {
                let judge = Judge { windows: suggestion.quotas(), known, ..Judge::default() };
                judges.insert((route.clone(), number), judge);
                policies.push(suggestion);
            }
        }
    }
    // The log is played again, because only the windows tell how many of its requests a caller loses, and which callers
    // lose any: a request that is refused is not used of a window.
    if !options.logs.iter().any(|log| log == Path::new("-")) {
        let mut again = Logs::open(options)?;
        while let Some(ScheduledRequest { turn, request, .. }) = again.request() {
            let now_ns = world.reading(turn.at_ns);
            world.charges(&request, |route, charges| {
                let route = if asked.per_route { route } else { "" };
                for number in 0..asked.by.len() {
                    let own = charges.iter().find(|charge| charge.policy.index() == number);
                    if let (Some(judge), Some(own)) = (judges.get_mut(&(route.to_owned(), number)), own) {
                        judge.judge(own.key, now_ns);
                    }
                }
            });
        }
        for (suggestion, judge) in policies.iter_mut().zip(judges.values()) {
            suggestion.refused_requests = Some(judge.refused);
            suggestion.refused = judge.refused_callers();
        }
    }
    let logs = logs.read().into_iter().map(LogReport::of).collect();
    Ok(FitReport { logs, requests: span.requests, span_ns: span.ns(), policies, left_out: room.left_out })
}

/// The suggested windows of one group, and what is used of them.
#[derive(Default)]
struct Judge {
    windows: Vec<Quota>,
    /// Callers that were counted.
    known: HashSet<Key>,
    /// Of each caller what is used of the windows, and whether one of its requests was refused.
    states: HashMap<Key, (Vec<State>, bool)>,
    refused: u64,
}

impl Judge {
    /// Decides a request by all windows, or by none of them.
    fn judge(&mut self, key: Key, now_ns: u64) {
        if !self.known.contains(&key) {
            return;
        }
        let fresh = || (vec![State::default(); self.windows.len()], false);
        let (states, is_refused) = self.states.entry(key).or_insert_with(fresh);
        let taken: Vec<_> =
            self.windows.iter().zip(&*states).map(|(window, state)| state.take(window, 1, now_ns)).collect();
        if taken.iter().all(|(_, outcome)| outcome.is_admitted()) {
            *states = taken.into_iter().map(|(state, _)| state).collect();
        } else {
            self.refused += 1;
            *is_refused = true;
        }
    }

    fn refused_callers(&self) -> u64 {
        self.states.values().filter(|(_, is_refused)| *is_refused).count() as u64
    }
}

impl Suggestion {
    fn quotas(&self) -> Vec<Quota> {
        self.windows.iter().map(|window| sliding(window.limit, window.period_s)).collect()
    }
}

/// A configuration whose routes have these policies and nothing else.
fn counting(asked: &SuggestOptions, routes: Option<Config>) -> Result<LoadedConfig, config::Errors> {
    let mut config = match routes {
        Some(config) => config,
        None => config::from_text("suggest", EVERYTHING)?.config,
    };
    let policy = |(number, by): (usize, &Vec<Dimension>)| definition::PolicyDefinition {
        by: by.clone(),
        missing: Missing::Skip,
        ..definition::PolicyDefinition::new(format!("suggested-{number}"), PERIODS_S.map(endless).to_vec())
    };
    config.policies = asked.by.iter().enumerate().map(policy).collect();
    config.domains = Vec::new();
    config.redis = None;
    config.limits.memory = MEMORY_BYTES;
    for route in &mut config.routes {
        route.limits = config.policies.iter().map(|policy| policy.name.clone()).collect();
    }
    let mut definition = Definition::new(config);
    let table = definition.compile();
    definition.finish(table)
}

/// A sliding window of so many seconds that nothing fills.
fn endless(period_s: u64) -> Quota {
    sliding(ENDLESS, period_s)
}

fn sliding(limit: u64, period_s: u64) -> Quota {
    let number = |number: u64| NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN);
    let limit = number(limit);
    Quota::new(Algorithm::SlidingWindow, limit, number(period_s * 1_000_000_000), limit)
}

/// Callers by route, then by the number of the answer to who is one.
type Groups = BTreeMap<String, Vec<Group>>;

/// How much room there is for callers.
struct CallerCap {
    callers: usize,
    left_out: u64,
}

impl Group {
    /// Counts a request by its windows' charges; without any it lacks a dimension.
    fn count<'c>(&mut self, charges: impl Iterator<Item = &'c Charge>, now_ns: u64, room: &mut CallerCap) {
        let mut charges = charges.peekable();
        let Some(key) = charges.peek().map(|charge| charge.key) else {
            self.lacking += 1;
            return;
        };
        if !self.callers.contains_key(&key) {
            if room.callers >= CALLERS_MAX {
                room.left_out += 1;
                return;
            }
            room.callers += 1;
        }
        self.requests += 1;
        let windows = self.callers.entry(key).or_default();
        for ((state, most), charge) in windows.iter_mut().zip(charges) {
            let (next, outcome) = state.take(&charge.quota, 1, now_ns);
            *state = next;
            *most = (*most).max(ENDLESS - outcome.remaining);
        }
    }

    /// The strictest windows that refuse no more than this share of the callers; `None` if there was no caller.
    fn suggestion(
        self,
        by: &[Dimension],
        route: Option<String>,
        span_ns: u64,
        refuse_ppm: u32,
    ) -> Option<Suggestion> {
        let needs: Vec<Need> = self.callers.values().map(|windows| windows.map(|(_, most)| most)).collect();
        if needs.is_empty() && self.lacking == 0 {
            return None;
        }
        let refused_max = (needs.len() as u128 * u128::from(refuse_ppm) / 1_000_000) as usize;
        // Left out, because a window that is longer than the log has not been seen whole.
        let periods = PERIODS_S.iter().filter(|period_s| **period_s * 1_000_000_000 <= span_ns).count();
        let windows =
            if needs.is_empty() { Vec::new() } else { windows(&needs, periods.max(1), refused_max) };
        let limits = windows.iter().map(|window| (place(window.period_s), window.limit)).collect::<Vec<_>>();
        Some(Suggestion {
            by: by.to_vec(),
            route,
            callers: needs.len() as u64,
            lacking: self.lacking,
            requests: self.requests,
            refused: needs.iter().filter(|need| is_over(need, &limits)).count() as u64,
            windows,
            refused_requests: None,
        })
    }
}

/// What one caller used of each window at most.
type Need = [u64; PERIODS_S.len()];

/// The strictest windows of these periods under which no more than so many callers need more in any.
fn windows(needs: &[Need], periods: usize, refused_max: usize) -> Vec<SuggestedWindow> {
    let sorted: Vec<Vec<u64>> = (0..periods)
        .map(|period| {
            let mut most: Vec<u64> = needs.iter().map(|need| need[period]).collect();
            most.sort_unstable_by(|one, other| other.cmp(one));
            most
        })
        .collect();
    // Fewer for each, because all together refuse at least as many as each window alone.
    let limits = |refused_each: usize| {
        let of = |(period, most): (usize, &Vec<u64>)| (period, most[refused_each.min(most.len() - 1)]);
        sorted.iter().enumerate().map(of).collect::<Vec<_>>()
    };
    let fits = |refused_each: usize| {
        let limits = limits(refused_each);
        needs.iter().filter(|need| is_over(need, &limits)).count() <= refused_max
    };
    let (mut least, mut most) = (0, refused_max);
    while least < most {
        let middle = least + (most - least).div_ceil(2);
        if fits(middle) { least = middle } else { most = middle - 1 }
    }
    let mut windows: Vec<SuggestedWindow> = Vec::new();
    for (period, limit) in limits(least) {
        // Taken out, because a window that is no longer than another one and no smaller refuses nothing that this does
        // not.
        windows.retain(|shorter| shorter.limit < limit);
        windows.push(SuggestedWindow { limit, period_s: PERIODS_S[period] });
    }
    windows
}

fn is_over(need: &Need, limits: &[(usize, u64)]) -> bool {
    limits.iter().any(|(period, limit)| need[*period] > *limit)
}

fn place(period_s: u64) -> usize {
    PERIODS_S.iter().position(|period| *period == period_s).unwrap_or_default()
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Log(#[from] Unreadable),
    /// Routes that do not have what callers are told apart by.
    #[error("{0}")]
    Routes(#[from] config::Errors),
}

/// The routes of a log without a configuration. Who sent a request is what its line says; the keys are never read.
const EVERYTHING: &str = "[auth.any]\nkind = \"api-key\"\nkeys = { file = \"any.toml\" }\n\
                          [[route]]\npath = \"/{*rest}\"\nauth = \"any\"\nrespond = {}\n";
/// A second, a minute, an hour, a day.
const PERIODS_S: [u64; 4] = [1, 60, 3_600, 86_400];
/// Units that nobody uses, and that a sliding window can hold.
const ENDLESS: u64 = 1 << 40;
/// Callers that are counted, of all groups together.
const CALLERS_MAX: usize = 1 << 20;
/// Nothing is counted in the table.
const MEMORY_BYTES: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn window(limit: u64, period_s: u64) -> SuggestedWindow {
        SuggestedWindow { limit, period_s }
    }

    #[test]
    fn windows_refuse_no_more_callers_than_asked_for_all_together() {
        // Ten callers, of whom one needs much within a second and another one within an hour.
        let mut needs = vec![[2, 10, 100, 200]; 8];
        needs.extend([[50, 60, 100, 200], [2, 10, 900, 900]]);
        assert_eq!(
            windows(&needs, 4, 0),
            [window(50, 1), window(60, 60), window(900, 86_400)],
            "an hour and a day need the same"
        );
        assert_eq!(windows(&needs, 2, 1), [window(2, 1), window(10, 60)]);
        assert_eq!(windows(&needs, 4, 1), windows(&needs, 4, 0), "one of each would be two");
        assert_eq!(
            windows(&needs, 4, 2),
            [window(2, 1), window(10, 60), window(100, 3_600), window(200, 86_400)]
        );
        assert_eq!(windows(&needs, 4, 10), windows(&needs, 4, 2));
    }
}
