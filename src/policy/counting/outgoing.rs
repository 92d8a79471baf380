//! Policies whose algorithm changes: what counted before goes on beside the new window until nothing counts any more of what
//! it knew, and the stricter of the two decides. Each has keys of its own (`AlgorithmBits`), so that neither touches what the
//! other knows, and what was spent before the change stays spent without being translated.
//!
//! All windows of one policy are charged together or not at all, so that the new window spends only what both admit.

use crate::counting::{Policy, Window, item};
use limit::{Algorithm, Charge, Quota, WhenDown};

#[derive(Clone, Debug)]
pub(crate) struct OutgoingWindow {
    /// The window that it counts beside.
    of: u16,
    pub(crate) overshoot: f64,
    pub(crate) when_down: WhenDown,
    /// When nothing counts any more of what it knew at the change, on the clock of the limiter.
    until_ns: u64,
}

impl Policy {
    /// The windows that count beside one of its own, with their numbers.
    #[inline]
    pub(crate) fn before<'t>(&'t self, window: &'t Window) -> impl Iterator<Item = (usize, &'t Window)> {
        let mut next = window.before;
        std::iter::from_fn(move || {
            let number = usize::from(next?);
            let window = &self.windows[number];
            next = window.before;
            Some((number, window))
        })
    }

    pub fn is_changing(&self) -> bool {
        self.windows.len() > self.own
    }

    /// Whether a charge is of the algorithm of before.
    pub fn is_outgoing(&self, charge: &Charge) -> bool {
        usize::from(charge.window) >= self.own
    }

    /// Whether a charge is of a window whose algorithm has just changed.
    pub fn is_incoming(&self, charge: &Charge) -> bool {
        !self.is_outgoing(charge) && self.windows[usize::from(charge.window)].before.is_some()
    }

    /// Whether the windows of both have the same algorithms, in the same places of the same tiers.
    pub(crate) fn counts_like(&self, other: &Policy) -> bool {
        self.own == other.own
            && (0..self.own).all(|window| {
                self.tier_of(window) == other.tier_of(window)
                    && self.windows[window].quota.algorithm() == other.windows[window].quota.algorithm()
            })
    }

    /// The window of its own that one of its windows counts beside, or is.
    pub(crate) fn own_of(&self, window: usize) -> usize {
        let outgoing = self.windows.get(window).and_then(|window| window.outgoing.as_ref());
        outgoing.map_or(window, |outgoing| outgoing.of.into())
    }

    /// What counts in a place of a tier, or would have counted there: the window of that place and those beside it, as they
    /// go on if the place gets another algorithm now.
    fn counting_at(&self, tier: Option<&str>, place: usize, now_ns: u64) -> Vec<(Quota, OutgoingWindow)> {
        let Some(own) = self.windows_of(tier).nth(place) else { return Vec::new() };
        let window = &self.windows[own];
        let (overshoot, when_down) = self.shared_as(own);
        let until_ns = now_ns.saturating_add(counts_for_ns(&window.quota, window.plan.is_some()));
        let now = OutgoingWindow { of: 0, overshoot, when_down, until_ns };
        let earlier = self.before(window).filter_map(|(_, window)| {
            let outgoing = window.outgoing.as_deref()?;
            Some((window.quota, outgoing.clone()))
        });
        std::iter::once((window.quota, now)).chain(earlier).collect()
    }

    /// Lets windows of the policy of this name that was in force before go on where the algorithm is another.
    pub(crate) fn count_on(&mut self, before: &Policy, now_ns: u64, is_free: &mut impl FnMut(&str) -> bool) {
        let is_shared = before.windows.iter().any(|window| window.plan.is_some());
        let mut windows = Vec::from(std::mem::take(&mut self.windows));
        self.windows = windows.clone().into();
        for own in 0..self.own {
            let mut known = vec![windows[own].quota.algorithm()];
            let mut last = own;
            let of = u16::try_from(own).unwrap_or(u16::MAX);
            for (quota, outgoing) in before.counting_at(self.tier_of(own), self.place(own), now_ns) {
                // What is in flight does not go on, because it has no period, and is given back to where it was
                // taken. Nor does anything beside it, because there is no period for which it would count.
                let kinds = [quota.algorithm(), windows[own].quota.algorithm()];
                let is_over = outgoing.until_ns <= now_ns || kinds.contains(&Algorithm::Concurrency);
                let Ok(number) = u16::try_from(windows.len()) else { break };
                if is_over || known.contains(&quota.algorithm()) {
                    continue;
                }
                known.push(quota.algorithm());
                windows[last].before = Some(number);
                last = number.into();
                let most_ns = match windows[own].quota.has_periods_of(&quota) {
                    true => u64::MAX,
                    false => counts_for_ns(&windows[own].quota, is_shared),
                };
                let until_ns = outgoing.until_ns.min(now_ns.saturating_add(most_ns));
                let quota = quota_of(&quota, &windows[own].quota);
                let label = label_of(&windows[own].label, is_free);
                windows.push(Window {
                    quota,
                    plan: None,
                    anchored: Box::default(),
                    item: item(&label, &quota, 0).into(),
                    label,
                    before: None,
                    outgoing: Some(Box::new(OutgoingWindow { of, until_ns, ..outgoing })),
                });
            }
        }
        self.windows = windows.into();
    }

    pub(crate) fn let_go(&mut self) {
        let own = self.windows.iter().take(self.own).cloned();
        self.windows = own.map(|window| Window { before: None, ..window }).collect();
    }

    pub(crate) fn over_ns(&self) -> Option<u64> {
        let before = self.windows[self.own..].iter().filter_map(|window| window.outgoing.as_ref());
        before.map(|outgoing| outgoing.until_ns).min()
    }
}

/// How long it matters what a window has counted: one period, or until a bucket or a queue is whole again; if a fleet shares it a
/// little longer, because a change does not come to all nodes at once.
fn counts_for_ns(quota: &Quota, is_shared: bool) -> u64 {
    let whole_ns =
        u128::from(quota.capacity()) * u128::from(quota.period_ns().get()) / u128::from(quota.limit().get());
    let whole_ns = u64::try_from(whole_ns).unwrap_or(u64::MAX);
    let apart_ns = if is_shared { CHANGE_NS } else { 0 };
    quota.period_ns().get().max(whole_ns).saturating_add(apart_ns)
}

/// Within this a change is in force at all nodes of a fleet, nanoseconds.
const CHANGE_NS: u64 = 5_000_000_000;

/// What the algorithm of before allows: the limit of now, so that a limit that changes too takes hold at once. A burst or a queue
/// stays as it was, as a share of the limit. One of another period has room for the limit of now at least, so that a key that it
/// has not counted has that, and keeps its own period, because its count goes on if the change is taken back.
fn quota_of(before: &Quota, now: &Quota) -> Quota {
    let is_enough = now.limit() < before.limit() && !now.has_periods_of(before);
    if is_enough || now.limit() == before.limit() {
        return *before;
    }
    let scaled = before.multiplied(now.limit().get() as f64 / before.limit().get() as f64);
    // Otherwise the old quota stays, because some algorithms do not take every limit.
    if scaled.limit() == now.limit() { scaled } else { *before }
}

/// `search-before`, or with a number if another window is called that.
fn label_of(label: &str, is_free: &mut impl FnMut(&str) -> bool) -> Box<str> {
    let plain = format!("{label}-before");
    if is_free(&plain) {
        return plain.into();
    }
    let numbered = (2..).map(|number| format!("{plain}-{number}"));
    numbered.into_iter().find(|label| is_free(label)).unwrap_or(plain).into()
}
