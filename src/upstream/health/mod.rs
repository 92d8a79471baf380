//! Which servers of an upstream may be used, and how much. All workers share it.
//!
//! Requests read words that seldom change: where nothing is wrong with any server, one load for the choice of a server and
//! one for its good answer. What is known behind these words (`ServerStanding`) lies under a lock that only checks, failures
//! and the upkeep take.

mod outliers;
mod server_state;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::config;
use super::ids::ServerIndex;
use super::tally::TallyCounts;
use base::ids::IdVec;
use outliers::Outlier;
use server_state::{HealthChange, ServerState, share_per_mille};

pub use outliers::SERVERS_MIN;
pub use server_state::WHOLE;

/// The health of an upstream's servers.
#[derive(Debug)]
pub struct UpstreamHealth {
    upstream: String,
    rules: config::HealthConfig,
    servers: IdVec<ServerIndex, Arc<ServerHealth>>,
    standings: Mutex<IdVec<ServerIndex, ServerState>>,
    /// What was wrong at each server's last check.
    check_failures: Mutex<IdVec<ServerIndex, Option<String>>>,
    /// Servers that are not to be used like all others. 0: requests look no further.
    unusual: AtomicUsize,
    /// Until when no server may be ejected because `most` are, nanoseconds.
    full_until_ns: AtomicU64,
    is_panicking: AtomicBool,
    /// In the order of [`EjectReason::ALL`].
    ejections: [Arc<AtomicU64>; 3],
    checks_good: Arc<AtomicU64>,
    checks_failed: Arc<AtomicU64>,
}

/// What requests read and write of one server.
#[derive(Debug)]
struct ServerHealth {
    /// `host:port`, for the log.
    authority: String,
    /// See [`ServerState::out_until_ns`].
    out_until_ns: AtomicU64,
    /// See [`ServerState::back_ns`].
    back_ns: AtomicU64,
    /// Requests that failed since the last one that did not.
    failures: AtomicU32,
    /// It is back from an ejection, and has answered none of `failures` more: the next failure ejects it again.
    is_on_trial: AtomicBool,
}

/// What a process tells its successor of one server. Both read the same clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthHandover {
    standing: ServerState,
    failures: u32,
}

metrics::words! {
    pub enum EjectReason {
        /// Requests to it have failed in a row.
        Failures: "failures",
        /// More of its requests fail than of the others'.
        SuccessRate: "success-rate",
        /// Its answers take longer than the others'.
        Latency: "latency",
    }
}

/// What operators are shown of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    /// It gets its share.
    Healthy,
    /// Its checks have failed.
    Unhealthy,
    /// Requests to it have failed; it is left out for so many nanoseconds more.
    Ejected { left_ns: u64 },
    /// It is back, and gets this part of its share.
    WarmingUp {
        /// Per mille.
        share: u32,
    },
    /// Its name has no address.
    Unresolved,
}

impl HealthState {
    /// Every word that there is for a state.
    pub const WORDS: [&str; 5] = ["healthy", "unhealthy", "ejected", "warming-up", "unresolved"];

    /// As metrics and the admin listener have it.
    pub fn word(self) -> &'static str {
        match self {
            HealthState::Healthy => "healthy",
            HealthState::Unhealthy => "unhealthy",
            HealthState::Ejected { .. } => "ejected",
            HealthState::WarmingUp { .. } => "warming-up",
            HealthState::Unresolved => "unresolved",
        }
    }
}

/// What has been counted since the upstream is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthCounts {
    /// Ejections, in the order of [`EjectReason::ALL`].
    pub ejections: [u64; 3],
    pub checks_good: u64,
    pub checks_failed: u64,
}

impl UpstreamHealth {
    /// All servers may be used: nothing is known of them yet. `authorities` are their names, in their order.
    pub fn new(
        upstream: &str,
        rules: config::HealthConfig,
        authorities: impl Iterator<Item = String>,
    ) -> UpstreamHealth {
        let server = |authority| {
            Arc::new(ServerHealth {
                authority,
                out_until_ns: AtomicU64::new(0),
                back_ns: AtomicU64::new(0),
                failures: AtomicU32::new(0),
                is_on_trial: AtomicBool::new(false),
            })
        };
        let servers: IdVec<ServerIndex, Arc<ServerHealth>> = authorities.map(server).collect();
        let can_eject = rules.eject.as_ref().is_some_and(|eject| eject.most(servers.len()) > 0);
        UpstreamHealth {
            upstream: upstream.to_owned(),
            standings: Mutex::new(vec![ServerState::default(); servers.len()].into()),
            check_failures: Mutex::new(vec![None; servers.len()].into()),
            rules,
            servers,
            unusual: AtomicUsize::new(0),
            full_until_ns: AtomicU64::new(if can_eject { 0 } else { u64::MAX }),
            is_panicking: AtomicBool::new(false),
            ejections: Default::default(),
            checks_good: Arc::default(),
            checks_failed: Arc::default(),
        }
    }

    /// Whether any server may ever get less than its share.
    pub fn is_watched(&self) -> bool {
        self.rules.check.is_some() || self.rules.eject.is_some() || self.rules.slow_start.is_some()
    }

    /// Goes on with what another configuration of the same upstream knows. `before` names each server's index there; one
    /// that was not there begins among others that were. What this configuration does not ask for any more is forgotten.
    pub fn inherit(
        &self,
        other: &UpstreamHealth,
        before: impl Fn(ServerIndex) -> Option<ServerIndex>,
        now_ns: u64,
    ) {
        let known = other.standings().clone();
        {
            let mut standings = self.standings();
            for (index, standing) in self.servers.ids().zip(standings.iter_mut()) {
                let was = before(index);
                *standing = match was.and_then(|was| known.get(was)) {
                    None => ServerState::new_among_others(now_ns),
                    Some(was) => was.under(&self.rules),
                };
                let failures = was.map_or(0, |was| other.servers[was].failures.load(Ordering::Relaxed));
                self.servers[index].failures.store(failures, Ordering::Relaxed);
                let is_on_trial =
                    was.is_some_and(|was| other.servers[was].is_on_trial.load(Ordering::Relaxed));
                self.servers[index].is_on_trial.store(is_on_trial, Ordering::Relaxed);
            }
            self.publish(&standings, now_ns);
        }
        let checks = [(&self.checks_good, &other.checks_good), (&self.checks_failed, &other.checks_failed)];
        for (count, counted) in self.ejections.iter().zip(&other.ejections).chain(checks) {
            count.store(counted.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// What another process can go on with, server by server: those of which anything is known.
    pub fn remember(&self) -> Vec<(ServerIndex, HealthHandover)> {
        let standings = self.standings();
        let known = |(index, standing): (ServerIndex, &ServerState)| {
            let known = HealthHandover { standing: standing.clone(), failures: self.failures(index) };
            (known != HealthHandover::default()).then_some((index, known))
        };
        standings.with_ids().filter_map(known).collect()
    }

    /// Goes on with what another process knew of each server, by its rules: what they do not ask for is forgotten.
    pub fn recall(&self, known: impl Fn(ServerIndex) -> Option<HealthHandover>, now_ns: u64) {
        let mut standings = self.standings();
        for (index, standing) in self.servers.ids().zip(standings.iter_mut()) {
            let Some(known) = known(index) else { continue };
            *standing = known.standing.under(&self.rules);
            self.servers[index].failures.store(known.failures, Ordering::Relaxed);
        }
        self.publish(&standings, now_ns);
    }

    /// Goes on from the set of servers before, which it takes the place of: the servers and counts that both have are the
    /// same, so that requests which hold the old set are still heard. `before` names each server's index there. One that
    /// is new begins among others, unless there were none (`is_first`).
    pub fn go_on_from(
        &mut self,
        other: &UpstreamHealth,
        before: impl Fn(ServerIndex) -> Option<ServerIndex>,
        is_first: bool,
        now_ns: u64,
    ) {
        let known = other.standings().clone();
        let failures = other.check_failures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut standings: IdVec<_, _> = vec![ServerState::default(); self.servers.len()].into();
        let mut check_failures: IdVec<_, _> = vec![None; self.servers.len()].into();
        for (index, standing) in self.servers.ids().zip(standings.iter_mut()) {
            match before(index) {
                Some(was) => {
                    standing.clone_from(&known[was]);
                    check_failures[index].clone_from(&failures[was]);
                    self.servers[index] = Arc::clone(&other.servers[was]);
                }
                None if !is_first => *standing = ServerState::new_among_others(now_ns),
                None => {}
            }
        }
        self.ejections.clone_from(&other.ejections);
        self.checks_good = Arc::clone(&other.checks_good);
        self.checks_failed = Arc::clone(&other.checks_failed);
        self.is_panicking = AtomicBool::new(other.is_panicking());
        self.publish(&standings, now_ns);
        (self.standings, self.check_failures) = (Mutex::new(standings), Mutex::new(check_failures));
    }

    /// This server is not one any more: requests that still choose among the servers of this set leave it out.
    pub(super) fn leave(&self, server: ServerIndex) {
        self.servers[server].out_until_ns.store(u64::MAX, Ordering::Relaxed);
        self.unusual.fetch_add(1, Ordering::Release);
    }

    /// How much of its share each server gets now; `None` if all get all of it, and if too few would get any.
    pub fn shares(&self, now_ns: impl FnOnce() -> u64) -> Option<Shares<'_>> {
        if self.unusual.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let now_ns = now_ns();
        let shares = Shares { health: self, now_ns };
        (!self.is_panic(now_ns)).then_some(shares)
    }

    /// Whether this server may be used; also where too few may, so that all are.
    pub fn is_usable(&self, server: ServerIndex, now_ns: impl FnOnce() -> u64) -> bool {
        self.unusual.load(Ordering::Relaxed) == 0 || Shares { health: self, now_ns: now_ns() }.of(server) > 0
    }

    /// Whether so few servers may be used that all are. It is worked out from the words that requests read, so that an
    /// ejection that ends counts at once.
    fn is_panic(&self, now_ns: u64) -> bool {
        let shares = Shares { health: self, now_ns };
        let usable = self.servers.ids().filter(|&server| shares.of(server) > 0).count();
        usable == 0 || usable * 100 < self.servers.len() * self.rules.panic_percent as usize
    }

    /// A request to this server was answered well. The usual one costs one load.
    pub fn succeeded(&self, server: ServerIndex, now_ns: impl FnOnce() -> u64) {
        let ServerHealth { failures, out_until_ns, is_on_trial, .. } = &*self.servers[server];
        // Not while it is out, because what was sent before an ejection says nothing of the server as it is.
        if failures.load(Ordering::Relaxed) > 0 && now_ns() >= out_until_ns.load(Ordering::Relaxed) {
            failures.store(0, Ordering::Relaxed);
            is_on_trial.store(false, Ordering::Relaxed);
        }
    }

    /// A request to this server failed. If the server is out already, or no other one may be ejected, that costs no lock:
    /// all requests of an upstream that is down come here.
    pub fn failed(&self, server: ServerIndex, now_ns: u64) {
        let Some(rules) = &self.rules.eject else { return };
        let ServerHealth { failures, out_until_ns, is_on_trial, .. } = &*self.servers[server];
        let failures = failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let is_out = now_ns < out_until_ns.load(Ordering::Relaxed);
        if failures < rules.after || is_out || now_ns < self.full_until_ns.load(Ordering::Relaxed) {
            return;
        }
        let mut standings = self.standings();
        // An ejection that is over may not have been noticed yet.
        let returned = advance(&mut standings, now_ns);
        let may_eject = self.may_eject(&standings, rules);
        let change = (may_eject && !standings[server].is_ejected()).then(|| {
            // Back again, it has one try, until it has answered one request well.
            self.servers[server].failures.store(rules.after - 1, Ordering::Relaxed);
            self.count(EjectReason::Failures);
            let was_on_trial = is_on_trial.swap(true, Ordering::Relaxed);
            (standings[server].eject(rules, now_ns), was_on_trial)
        });
        self.publish(&standings, now_ns);
        drop(standings);
        self.say_returned(&returned);
        match change {
            // What was counted before the ejection is not in a row with what came after it.
            Some((change, true)) if rules.after > 1 => {
                self.say(server, change, &"its first request after an ejection failed");
            }
            Some((change, _)) if failures == 1 => self.say(server, change, &"a request failed"),
            Some((change, _)) => {
                self.say(server, change, &format_args!("{failures} requests failed in a row"))
            }
            None => {}
        }
    }

    /// Ejects the servers that answered clearly worse than the others, by what was `seen` of each since the last look, as
    /// far as more may be ejected.
    pub fn compare(&self, seen: &IdVec<ServerIndex, TallyCounts>, now_ns: u64) {
        let Some(rules) = &self.rules.eject else { return };
        for (server, outlier) in outliers::outliers(seen, &rules.outliers) {
            let reason = match outlier {
                Outlier::SuccessRate { .. } => EjectReason::SuccessRate,
                Outlier::Latency { .. } => EjectReason::Latency,
            };
            let mut standings = self.standings();
            let returned = advance(&mut standings, now_ns);
            let may_eject = self.may_eject(&standings, rules) && !standings[server].is_ejected();
            let change = may_eject.then(|| standings[server].eject(rules, now_ns));
            self.publish(&standings, now_ns);
            drop(standings);
            self.say_returned(&returned);
            if let Some(change) = change {
                self.count(reason);
                self.say(server, change, &outlier);
            }
        }
    }

    fn count(&self, reason: EjectReason) {
        self.ejections[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether one more server may be ejected. If not, notes until when, because ejections end with their time only.
    fn may_eject(&self, standings: &[ServerState], rules: &config::Eject) -> bool {
        let ends = || standings.iter().filter_map(ServerState::ejected_until_ns);
        let is_full = ends().count() >= rules.most(self.servers.len());
        if is_full {
            self.full_until_ns.store(ends().min().unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        !is_full
    }

    /// A check of this server has ended; the error says why it is not well.
    pub fn checked<E: std::fmt::Display>(&self, server: ServerIndex, result: &Result<(), E>, now_ns: u64) {
        let Some(rules) = &self.rules.check else { return };
        let count = if result.is_ok() { &self.checks_good } else { &self.checks_failed };
        count.fetch_add(1, Ordering::Relaxed);
        let failure = result.as_ref().err().map(ToString::to_string);
        self.check_failures.lock().unwrap_or_else(PoisonError::into_inner)[server] = failure;
        let mut standings = self.standings();
        let Some(change) = standings[server].checked(result.is_ok(), rules, now_ns) else { return };
        self.publish(&standings, now_ns);
        drop(standings);
        match result {
            Ok(()) => self.say(server, change, &"it passes its health checks"),
            Err(error) => self.say(server, change, error),
        }
    }

    /// Ends what is over, and says what is new.
    pub fn tick(&self, now_ns: u64) {
        let mut standings = self.standings();
        let returned = advance(&mut standings, now_ns);
        self.publish(&standings, now_ns);
        drop(standings);
        self.say_returned(&returned);
        let is_panicking = self.is_panic(now_ns);
        if is_panicking != self.is_panicking.swap(is_panicking, Ordering::Relaxed) {
            let upstream = &self.upstream;
            match is_panicking {
                true => tracing::warn!(%upstream, "too few servers are healthy: requests go to all of them"),
                false => {
                    tracing::info!(%upstream, "enough servers are healthy again: requests go only to the healthy ones")
                }
            }
        }
    }

    /// The state of each server, in order, as far as it is known here: not whether it has an address.
    pub(super) fn states(&self, now_ns: u64) -> Vec<HealthState> {
        let shares = Shares { health: self, now_ns };
        let state = |(index, standing): (ServerIndex, &ServerState)| match shares.of(index) {
            0 if standing.is_unhealthy() => HealthState::Unhealthy,
            0 => HealthState::Ejected { left_ns: standing.out_until_ns().saturating_sub(now_ns) },
            WHOLE => HealthState::Healthy,
            share => HealthState::WarmingUp { share },
        };
        self.standings().with_ids().map(state).collect()
    }

    /// What was wrong at this server's last check; `None` if nothing was, and if there was none.
    pub fn check_failure(&self, server: ServerIndex) -> Option<String> {
        self.check_failures.lock().unwrap_or_else(PoisonError::into_inner)[server].clone()
    }

    /// Whether all servers are used because too few are usable.
    pub fn is_panicking(&self) -> bool {
        self.is_panicking.load(Ordering::Relaxed)
    }

    /// Requests to this server that failed since the last one that did not.
    pub fn failures(&self, server: ServerIndex) -> u32 {
        self.servers[server].failures.load(Ordering::Relaxed)
    }

    pub fn counts(&self) -> HealthCounts {
        HealthCounts {
            ejections: self.ejections.each_ref().map(|count| count.load(Ordering::Relaxed)),
            checks_good: self.checks_good.load(Ordering::Relaxed),
            checks_failed: self.checks_failed.load(Ordering::Relaxed),
        }
    }

    /// Shows requests what is known. Counted last, so that who sees the count sees the rest, or an older state of it.
    fn publish(&self, standings: &[ServerState], now_ns: u64) {
        let mut unusual = 0;
        for (server, standing) in self.servers.iter().zip(standings) {
            let (out_until_ns, back_ns) = (standing.out_until_ns(), standing.back_ns());
            server.back_ns.store(back_ns, Ordering::Relaxed);
            server.out_until_ns.store(out_until_ns, Ordering::Relaxed);
            let share = share_per_mille(out_until_ns, back_ns, self.rules.slow_start, now_ns);
            unusual += usize::from(out_until_ns > 0 || share < WHOLE);
        }
        self.unusual.store(unusual, Ordering::Release);
    }

    fn say_returned(&self, servers: &[ServerIndex]) {
        for server in servers {
            self.say(*server, HealthChange::Returned, &"its ejection time has passed");
        }
    }

    fn say(&self, server: ServerIndex, change: HealthChange, why: &dyn std::fmt::Display) {
        let (upstream, server) = (&self.upstream, &self.servers[server].authority);
        match change {
            HealthChange::Unhealthy => tracing::warn!(%upstream, %server, %why, "server is unhealthy"),
            HealthChange::Healthy => tracing::info!(%upstream, %server, %why, "server is healthy again"),
            HealthChange::Ejected(time) => {
                tracing::warn!(%upstream, %server, %why, seconds = time.as_secs_f64(), "server is ejected");
            }
            HealthChange::Returned => {
                tracing::info!(%upstream, %server, %why, "server's ejection ended")
            }
        }
    }

    fn standings(&self) -> MutexGuard<'_, IdVec<ServerIndex, ServerState>> {
        self.standings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the ejections that are over; the servers that return.
fn advance(standings: &mut IdVec<ServerIndex, ServerState>, now_ns: u64) -> Vec<ServerIndex> {
    let ends = |(server, standing): (ServerIndex, &mut ServerState)| standing.tick(now_ns).map(|_| server);
    standings.ids().zip(standings.iter_mut()).filter_map(ends).collect()
}

/// How much of its share each server gets at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Shares<'a> {
    health: &'a UpstreamHealth,
    now_ns: u64,
}

impl Shares<'_> {
    /// Per mille; 0: it is not to be used.
    pub fn of(&self, server: ServerIndex) -> u32 {
        let ServerHealth { out_until_ns, back_ns, .. } = &*self.health.servers[server];
        let (out_until_ns, back_ns) = (out_until_ns.load(Ordering::Relaxed), back_ns.load(Ordering::Relaxed));
        share_per_mille(out_until_ns, back_ns, self.health.rules.slow_start, self.now_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::config::{Eject, HealthCheckConfig};

    const SECOND: u64 = 1_000_000_000;

    fn health(servers: usize) -> UpstreamHealth {
        let rules = config::HealthConfig {
            check: Some(HealthCheckConfig {
                unhealthy_after: 1,
                healthy_after: 1,
                ..HealthCheckConfig::default()
            }),
            eject: Some(Eject::default()),
            slow_start: Some(Duration::from_secs(10)),
            panic_percent: 25,
        };
        UpstreamHealth::new("u", rules, (0..servers).map(|index| format!("s{index}")))
    }

    const A: ServerIndex = ServerIndex::new(0);
    const B: ServerIndex = ServerIndex::new(1);
    const C: ServerIndex = ServerIndex::new(2);
    const D: ServerIndex = ServerIndex::new(3);

    fn fail(health: &UpstreamHealth, server: ServerIndex, times: usize) {
        (0..times).for_each(|_| health.failed(server, SECOND));
    }

    #[test]
    fn failures_in_a_row_eject_and_one_good_answer_breaks_the_row() {
        let health = health(2);
        fail(&health, A, 4);
        health.succeeded(A, || SECOND);
        fail(&health, A, 4);
        assert!(health.shares(|| SECOND).is_none());
        fail(&health, A, 1);
        let shares = health.shares(|| SECOND).expect("one is ejected");
        assert_eq!((shares.of(A), shares.of(B)), (0, WHOLE));
        // An answer that comes late changes nothing; back again, the server has one try.
        health.succeeded(A, || SECOND);
        assert_eq!(health.states(40 * SECOND)[0], HealthState::WarmingUp { share: 900 });
        health.failed(A, 40 * SECOND);
        assert_eq!(health.states(41 * SECOND)[0], HealthState::Ejected { left_ns: 59 * SECOND });
    }

    #[test]
    fn no_more_than_half_of_the_servers_are_ejected() {
        for (servers, most) in [(1, 0), (2, 1), (3, 1), (4, 2), (9, 4)] {
            let health = health(servers);
            health.servers.ids().for_each(|server| fail(&health, server, 20));
            let states = health.states(SECOND);
            let ejected = states.iter().filter(|state| matches!(state, HealthState::Ejected { .. })).count();
            assert_eq!(ejected, most, "of {servers}");
            assert_eq!(health.counts().ejections, [most as u64, 0, 0]);
        }
    }

    #[test]
    fn failures_that_cannot_eject_take_no_lock() {
        for (servers, failing) in [(1, A), (2, A), (2, B)] {
            let health = Arc::new(health(servers));
            fail(&health, A, 20);
            fail(&health, failing, 5);
            let locked = health.standings();
            let (tx, rx) = mpsc::channel();
            let told = Arc::clone(&health);
            thread::spawn(move || {
                fail(&told, failing, 20);
                tx.send(()).expect("the test waits for it");
            });
            rx.recv_timeout(Duration::from_secs(10)).expect("nothing waits for the lock");
            drop(locked);
        }
    }

    #[test]
    fn the_next_is_ejected_when_the_first_of_those_ejected_is_back() {
        let health = health(4);
        health.failed(A, SECOND);
        (0..5).for_each(|_| health.failed(A, 2 * SECOND));
        (0..5).for_each(|_| health.failed(B, 5 * SECOND));
        (0..9).for_each(|_| health.failed(C, 6 * SECOND));
        let is_ejected = |now| {
            let states = health.states(now).into_iter();
            states.map(|state| matches!(state, HealthState::Ejected { .. })).collect::<Vec<_>>()
        };
        assert_eq!(is_ejected(31 * SECOND), [true, true, false, false]);
        health.failed(C, 32 * SECOND - 1);
        assert_eq!(is_ejected(32 * SECOND - 1), [true, true, false, false]);
        health.failed(C, 32 * SECOND);
        assert_eq!(is_ejected(32 * SECOND), [false, true, true, false]);
    }

    #[test]
    fn when_too_few_are_usable_all_are_used() {
        let health = health(4);
        let check = |server, result: Result<(), &str>| health.checked(server, &result, SECOND);
        [A, B, C].into_iter().for_each(|server| check(server, Err("gone")));
        assert_eq!(health.shares(|| SECOND).map(|shares| shares.of(A)), Some(0), "one in four is enough");
        check(D, Err("gone"));
        assert!(health.shares(|| SECOND).is_none());
        health.tick(SECOND);
        assert!(
            health.is_panicking() && health.servers.ids().all(|server| !health.is_usable(server, || SECOND))
        );
        check(B, Ok(()));
        let shares = health.shares(|| SECOND).expect("one in four is enough");
        assert_eq!([A, B, C, D].map(|server| shares.of(server) > 0), [false, true, false, false]);
        health.tick(SECOND);
        assert!(!health.is_panicking());
    }

    #[test]
    fn a_new_configuration_goes_on_with_what_is_known() {
        let (old, new) = (health(3), health(3));
        old.checked(A, &Err("gone"), SECOND);
        fail(&old, B, 5);
        // The first is the second now, the second the first; the third is another.
        new.inherit(&old, |server| [Some(B), Some(A), None][server.index()], 2 * SECOND);
        let states = new.states(2 * SECOND);
        assert_eq!(states[..2], [HealthState::Ejected { left_ns: 29 * SECOND }, HealthState::Unhealthy]);
        assert_eq!(states[2], HealthState::WarmingUp { share: 100 });
        assert_eq!(new.counts(), old.counts());
    }
}
