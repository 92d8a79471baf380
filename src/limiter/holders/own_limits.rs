//! Limits that a subject brings itself, in the place of its first policy's windows. Each that is new makes a quota and a plan
//! known for good, so their number is bounded; how many of them hold at a time is, too, and one that nobody has brought for
//! so long that its windows are whole makes room for another. Beside them the windows that an override has changed, so that each is
//! worked out once.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use smallvec::SmallVec;

use limit::{Algorithm, Plan, PlanId, Quota, sliding_log};

/// A limit that a subject brings itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnLimit {
    /// Units that it allows in `period_ns`.
    pub limit: NonZeroU64,
    /// The time in which it allows so many, nanoseconds.
    pub period_ns: NonZeroU64,
}

/// Those that have come, with what was made of them.
#[derive(Debug, Default)]
pub(crate) struct OwnLimits(Mutex<LimitEntries>);

#[derive(Debug, Default)]
struct LimitEntries {
    entries: HashMap<Base, Entry>,
    held: usize,
    /// When those that nobody brings any more were last looked for.
    swept_ns: u64,
}

/// The policy, the quota, and the plan of the window whose place it takes.
type Base = (Box<str>, Quota, Option<PlanId>);
/// A quota and the plan by which the fleet shares it.
type Window = (Quota, Option<PlanId>);
/// A quota that was made for a holder, with the plan by which the fleet shares it, which stays for as long as it is held here.
pub(crate) type OwnWindow = (Quota, Option<(PlanId, Arc<Plan>)>);

/// A window as a charge names it.
pub(crate) fn named((quota, plan): &OwnWindow) -> Window {
    (*quota, plan.as_ref().map(|(id, _)| *id))
}

#[derive(Clone, Debug)]
struct Entry {
    made: OwnWindow,
    /// When it was brought last; `None`: it does not hold any more.
    brought_ns: Option<u64>,
}

impl OwnLimits {
    /// The quota and the plan of a policy's window under another limit, which `make` makes known if they are new; `None` if
    /// too many different ones hold already.
    pub(crate) fn of(
        &self,
        policy: &str,
        base: Window,
        own: OwnLimit,
        now_ns: u64,
        make: impl FnOnce(Quota) -> OwnWindow,
    ) -> Option<Window> {
        let (quota, plan) = base;
        let most = if quota.algorithm() == Algorithm::SlidingLog { sliding_log::LIMIT_MAX } else { u64::MAX };
        let limit = NonZeroU64::new(own.limit.get().min(most)).unwrap_or(NonZeroU64::MIN);
        let quota = Quota::new(quota.algorithm(), limit, own.period_ns, limit);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (Box::from(policy), quota, plan);
        if let Some(Entry { made, brought_ns: Some(brought_ns) }) = known.entries.get_mut(&key) {
            *brought_ns = now_ns;
            return Some(named(made));
        }
        if !known.has_room(now_ns) {
            return None;
        }
        // One that held before is made already.
        let made = match known.entries.get(&key) {
            Some(entry) => entry.made.clone(),
            None if known.entries.len() >= MADE_MAX => return None,
            None => make(quota),
        };
        let window = named(&made);
        known.entries.insert(key, Entry { made, brought_ns: Some(now_ns) });
        known.held += 1;
        Some(window)
    }
}

impl LimitEntries {
    /// Whether one more may hold. Looks for those that nobody brings any more if there are too many, at most once a second.
    fn has_room(&mut self, now_ns: u64) -> bool {
        if self.held >= HELD_MAX && now_ns >= self.swept_ns.saturating_add(SWEEP_EVERY_NS) {
            self.swept_ns = now_ns;
            let held = self.entries.iter_mut().filter(|(_, entry)| entry.brought_ns.is_some());
            for ((_, quota, _), entry) in held {
                if entry.brought_ns.is_some_and(|brought_ns| is_whole(quota, brought_ns, now_ns)) {
                    entry.brought_ns = None;
                    self.held -= 1;
                }
            }
        }
        self.held < HELD_MAX
    }
}

/// Whether nothing is spent of windows that nobody has charged since then: two periods are the longest that a window
/// remembers.
fn is_whole(quota: &Quota, brought_ns: u64, now_ns: u64) -> bool {
    now_ns.saturating_sub(brought_ns) >= quota.period_ns().get().saturating_mul(2)
}

/// Windows of policies, each with what it is under one override.
#[derive(Debug, Default)]
pub(crate) struct ScaledWindows(RwLock<SmallVec<[ScaledWindow; 1]>>);

#[derive(Clone, Debug)]
struct ScaledWindow {
    base: Window,
    factor: f64,
    scaled: OwnWindow,
}

impl ScaledWindows {
    /// What the window `base` multiplied by `factor` is; `scale` works it out.
    pub(crate) fn of(&self, base: Window, factor: f64, scale: impl FnOnce() -> OwnWindow) -> Window {
        // Only requests of the override's own holder meet here.
        let known = |entries: &[ScaledWindow]| {
            entries.iter().find(|it| it.base == base && it.factor == factor).map(|it| named(&it.scaled))
        };
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(scaled) = known(&entries) {
            return scaled;
        }
        drop(entries);
        let scaled = scale();
        let mut entries = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Reloads that change a policy leave windows behind that nobody has any more.
        if entries.len() >= SCALED_MAX {
            entries.clear();
        }
        let window = named(&scaled);
        entries.push(ScaledWindow { base, factor, scaled });
        window
    }
}

/// Different limits that subjects may bring at a time.
const HELD_MAX: usize = 1_024;
/// The same in the life of a process.
const MADE_MAX: usize = 65_536;
const SWEEP_EVERY_NS: u64 = 1_000_000_000;
/// Windows remembered of one override; beyond that all are worked out again.
const SCALED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_NS: u64 = 60_000_000_000;

    /// Whether a limit of so many units a minute is heeded.
    fn is_heeded(given: &OwnLimits, units: usize, now_ns: u64) -> bool {
        let positive = |number: u64| NonZeroU64::new(number).expect("not zero");
        let base = Quota::new(Algorithm::FixedWindow, positive(9), positive(MINUTE_NS), positive(9));
        let own = OwnLimit { limit: positive(units as u64), period_ns: positive(MINUTE_NS) };
        let found = given.of("p", (base, None), own, now_ns, |quota| (quota, None));
        assert!(found.is_none_or(|(quota, _)| quota.limit() == own.limit));
        found.is_some()
    }

    #[test]
    fn one_that_nobody_brings_any_more_makes_room_once_its_windows_are_whole() {
        let given = OwnLimits::default();
        assert!((1..=HELD_MAX).all(|units| is_heeded(&given, units, 5)));
        assert!(!is_heeded(&given, HELD_MAX + 1, 5) && is_heeded(&given, 1, MINUTE_NS));
        assert!(!is_heeded(&given, HELD_MAX + 1, 4 + 2 * MINUTE_NS), "they may be spent still");
        // The one that is brought stays, all others go.
        let later_ns = 5 + 2 * MINUTE_NS + SWEEP_EVERY_NS;
        assert!((HELD_MAX + 1..2 * HELD_MAX).all(|units| is_heeded(&given, units, later_ns)));
        assert!(is_heeded(&given, 1, later_ns) && !is_heeded(&given, 2, later_ns));
        let last_ns = later_ns + 2 * MINUTE_NS + SWEEP_EVERY_NS;
        assert!(is_heeded(&given, 2, last_ns), "one that held before is known again");
    }

    #[test]
    fn limits_without_end_fill_no_memory() {
        let given = OwnLimits::default();
        let mut now_ns = 1;
        for volley in 0..70 {
            let heeded = (1..=HELD_MAX).filter(|units| is_heeded(&given, volley * HELD_MAX + units, now_ns));
            assert_eq!(heeded.count(), if volley < MADE_MAX / HELD_MAX { HELD_MAX } else { 0 }, "{volley}");
            now_ns += 2 * MINUTE_NS;
        }
        assert!(is_heeded(&given, 1, now_ns), "those that are known may come again");
        assert_eq!(given.0.lock().expect("not poisoned").entries.len(), MADE_MAX);
    }
}
