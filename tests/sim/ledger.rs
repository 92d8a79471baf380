//! Every unit accounted for: what was admitted, beside exact windows that see every request at once, and what is left
//! when all is over, beside what should be.

use std::sync::Arc;

use limit::{Algorithm, Charge, Key, Plan, State};
use limiter::Decision;

/// The books of one scene.
pub struct Ledger {
    plans: Vec<Arc<Plan>>,
    /// By key, then by window.
    accounts: Vec<Vec<Account>>,
    /// Requests by key.
    asked: Vec<u64>,
    requests: u64,
    operations: u64,
    /// Units that exact windows admit, and that were admitted.
    exact: u64,
    admitted: u64,
}

#[derive(Clone, Default)]
struct Account {
    /// An exact window in front of what was offered.
    instead: State,
    /// An exact window behind what was admitted.
    behind: State,
    admitted: u64,
    /// Units of the window that were admitted when it refused first, and what it could have admitted by then.
    first_refusal: Option<(f64, f64)>,
    /// Which request was the first that was refused, and the first that an exact window refuses.
    refused_at: Option<u64>,
    exact_refused_at: Option<u64>,
    /// Units that should be left and are not.
    lost: f64,
    /// Units that nodes still hold.
    held: f64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Books {
    /// Of any window of a key, units.
    pub lost: f64,
    /// Of all nodes together, units.
    pub held: f64,
    /// What had been admitted of what a window of 100 units and more has when it refused first, percent; the least of all.
    pub first_refusal: f64,
    /// The first refused request's place among the requests, percent of its place in front of an exact window; the least of all.
    pub place: f64,
    /// Admitted less than exact windows do, and more, percent of what these admit.
    pub short: f64,
    pub over: f64,
    /// For each request, over all windows.
    pub operations: f64,
}

impl Books {
    /// The mean of several scenes; of what is lost and held the most.
    pub fn mean(of_scenes: &[Books]) -> Books {
        let most = |of: fn(&Books) -> f64| of_scenes.iter().map(of).fold(0.0, f64::max);
        let mean = |of: fn(&Books) -> f64| of_scenes.iter().map(of).sum::<f64>() / of_scenes.len() as f64;
        Books {
            lost: most(|books| books.lost),
            held: most(|books| books.held),
            first_refusal: mean(|books| books.first_refusal),
            place: mean(|books| books.place),
            short: mean(|books| books.short),
            over: mean(|books| books.over),
            operations: mean(|books| books.operations),
        }
    }
}

impl Ledger {
    pub fn new(plans: &[Arc<Plan>], keys: usize) -> Ledger {
        let accounts = vec![vec![Account::default(); plans.len()]; keys];
        Ledger {
            plans: plans.to_vec(),
            accounts,
            asked: vec![0; keys],
            requests: 0,
            operations: 0,
            exact: 0,
            admitted: 0,
        }
    }

    /// Returns the request's number among those of its key.
    pub fn offered(&mut self, key: usize, cost: u64, now_ns: u64) -> u64 {
        self.requests += 1;
        self.asked[key] += 1;
        let number = self.asked[key];
        let accounts = self.accounts[key].iter_mut().zip(&self.plans);
        let taken: Vec<(&mut Account, State, bool)> = accounts
            .map(|(account, plan)| {
                let (state, outcome) = account.instead.take(&plan.quota, cost, BEGIN_NS + now_ns);
                if !outcome.is_admitted() {
                    account.exact_refused_at.get_or_insert(number);
                }
                (account, state, outcome.is_admitted())
            })
            .collect();
        if taken.iter().all(|(_, _, fits)| *fits) {
            self.exact += cost;
            taken.into_iter().for_each(|(account, state, _)| account.instead = state);
        }
        number
    }

    pub fn operation(&mut self) {
        self.operations += 1;
    }

    pub fn decided(&mut self, key: usize, number: u64, cost: u64, decision: &Decision, now_ns: u64) {
        let at_ns = BEGIN_NS + now_ns;
        if decision.is_admitted() {
            self.admitted += cost;
        }
        for (window, (account, plan)) in self.accounts[key].iter_mut().zip(&self.plans).enumerate() {
            if decision.is_admitted() {
                account.admitted += cost;
                account.behind = account.behind.debit(&plan.quota, cost, at_ns);
                continue;
            }
            let is_refused = decision.outcomes.get(window).is_some_and(|outcome| !outcome.is_admitted());
            if is_refused {
                account.refused_at = Some(account.refused_at.map_or(number, |first| first.min(number)));
            }
            if is_refused && account.first_refusal.is_none() {
                let left = left_of(plan, account.behind, at_ns);
                let admitted = account.admitted as f64;
                // Of a dear request as much may be left as it lacks.
                account.first_refusal = Some((admitted, admitted + (left - (cost - 1) as f64).max(0.0)));
            }
        }
    }

    /// When all is over: what Redis has (nothing: all), and what nodes hold.
    pub fn close(&mut self, key: usize, window: usize, level: Option<f64>, held: f64, now_ns: u64) {
        let (plan, account) = (&self.plans[window], &mut self.accounts[key][window]);
        let should = left_of(plan, account.behind, BEGIN_NS + now_ns);
        let level = level.unwrap_or(plan.quota.capacity() as f64);
        account.lost = if plan.sharing.is_exact() { 0.0 } else { should - level - held };
        account.held = held;
    }

    pub fn books(&self) -> Books {
        let accounts = || self.accounts.iter().flatten();
        // Of a small window a unit is much.
        let large: Vec<bool> = self.plans.iter().map(|plan| plan.quota.capacity() >= LARGE).collect();
        let large_accounts =
            self.accounts.iter().flat_map(|key| key.iter().zip(&large)).filter(|(_, is_large)| **is_large);
        let part = |(admitted, whole): (f64, f64)| 100.0 * admitted / whole.max(1.0);
        let refusals = large_accounts.filter_map(|(account, _)| account.first_refusal.map(part));
        let places = self.accounts.iter().zip(&self.asked).flat_map(|(accounts, asked)| {
            accounts.iter().zip(&large).filter(|(_, is_large)| **is_large).filter_map(|(account, _)| {
                let exact = account.exact_refused_at.unwrap_or(*asked);
                Some(100.0 * account.refused_at? as f64 / exact as f64)
            })
        });
        let of_exact = |units: u64| 100.0 * units as f64 / self.exact.max(1) as f64;
        Books {
            lost: accounts().map(|account| account.lost).fold(0.0, f64::max),
            held: accounts().map(|account| account.held).fold(0.0, f64::max),
            first_refusal: refusals.fold(100.0, f64::min),
            place: places.fold(100.0, f64::min),
            short: of_exact(self.exact.saturating_sub(self.admitted)),
            over: of_exact(self.admitted.saturating_sub(self.exact)),
            operations: self.operations as f64 / self.requests.max(1) as f64,
        }
    }
}

/// What an exact window has left, units.
fn left_of(plan: &Plan, state: State, now_ns: u64) -> f64 {
    let nothing = Charge { cost: 0, ..Charge::one(Key::new(1), plan.quota) };
    let outcome = state.take(&nothing.quota, 0, now_ns).1;
    match plan.quota.algorithm() {
        // A bucket says its fractions by when it is whole.
        Algorithm::TokenBucket => {
            let unit_ns = plan.quota.period_ns().get() as f64 / plan.quota.limit().get() as f64;
            plan.quota.capacity() as f64 - outcome.reset_ns as f64 / unit_ns
        }
        _ => outcome.remaining as f64,
    }
}

/// Windows of so many units should refuse nobody before they are spent.
const LARGE: u64 = 100;
/// A whole day, so that the windows of Redis begin with these.
const BEGIN_NS: u64 = 86_400_000_000_000;
