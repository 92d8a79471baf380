//! The limiting arithmetic: pure functions of (state, quota, cost, now). No I/O, no clock, no tokio, no floats.
//!
//! Every algorithm keeps a key in one [`State`] and offers the same four operations: take, give back, look, and
//! carry over to a changed quota. A denied request leaves the state as it was.

pub mod charge;
pub mod fixed_window;
pub mod outcome;
pub mod quota;
pub mod sliding_window;
pub mod state;
pub mod token_bucket;

pub use charge::Charge;
pub use outcome::{Answer, Outcome};
pub use quota::{Algorithm, Quota};
pub use state::State;

/// Asks for `cost` units at `now_ns`. Denied: the state comes back as it was.
pub fn take(state: State, quota: &Quota, cost: u64, now_ns: u64) -> (State, Outcome) {
    match quota.algorithm {
        Algorithm::TokenBucket => token_bucket::take(state, quota, cost, now_ns),
        Algorithm::FixedWindow => fixed_window::take(state, quota, cost, now_ns),
        Algorithm::SlidingWindow => sliding_window::take(state, quota, cost, now_ns),
    }
}

/// Counts `cost` units whether they fit or not: for policies that count what they deny.
pub fn charge(state: State, quota: &Quota, cost: u64, now_ns: u64) -> State {
    match quota.algorithm {
        Algorithm::TokenBucket => token_bucket::charge(state, quota, cost, now_ns),
        Algorithm::FixedWindow => fixed_window::charge(state, quota, cost, now_ns),
        Algorithm::SlidingWindow => sliding_window::charge(state, quota, cost, now_ns),
    }
}

/// Returns `cost` units that [`take`] took at `taken_ns`.
pub fn give_back(state: State, quota: &Quota, cost: u64, taken_ns: u64) -> State {
    match quota.algorithm {
        Algorithm::TokenBucket => token_bucket::give_back(state, quota, cost),
        Algorithm::FixedWindow => fixed_window::give_back(state, quota, cost, taken_ns),
        Algorithm::SlidingWindow => sliding_window::give_back(state, quota, cost, taken_ns),
    }
}

/// Whether the state says no more than a key never seen: it can be forgotten without loss.
pub fn is_full(state: State, quota: &Quota, now_ns: u64) -> bool {
    match quota.algorithm {
        Algorithm::TokenBucket => token_bucket::is_full(state, now_ns),
        Algorithm::FixedWindow => fixed_window::is_full(state, quota, now_ns),
        Algorithm::SlidingWindow => sliding_window::is_full(state, quota, now_ns),
    }
}

/// The state under a changed quota: the share that is used stays used, so a change never hands out a fresh burst.
pub fn rescale(state: State, old: &Quota, new: &Quota, now_ns: u64) -> State {
    if is_full(state, old, now_ns) {
        return State::FRESH;
    }
    let (used, capacity) = used_of(state, old, now_ns);
    let room = new.capacity();
    // Rounded up: the caller may lose less than a unit by a reload, and gains none.
    let units = (u128::from(used) * u128::from(room)).div_ceil(u128::from(capacity.max(1)));
    let units = u64::try_from(units).unwrap_or(u64::MAX).min(room);
    charge(State::FRESH, new, units, now_ns)
}

/// Units used, and how many there are in all.
fn used_of(state: State, quota: &Quota, now_ns: u64) -> (u64, u64) {
    let capacity = quota.capacity();
    let (_, outcome) = take(state, quota, 0, now_ns);
    (capacity.saturating_sub(outcome.remaining), capacity)
}
