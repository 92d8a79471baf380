//! The windows that an override has changed so far, so that each is worked out once.

use std::sync::{PoisonError, RwLock};

use smallvec::SmallVec;

use crate::holders::own_limits::{OwnWindow, named};
use limit::{PlanId, Quota};

/// A window as a charge carries it: its quota, and its plan if the fleet shares it.
type Window = (Quota, Option<PlanId>);

/// Windows of policies, each with what it is under one override.
#[derive(Debug, Default)]
pub(crate) struct ScaledWindows(RwLock<SmallVec<[Entry; 1]>>);

#[derive(Clone, Debug)]
struct Entry {
    base: Window,
    factor: f64,
    scaled: OwnWindow,
}

impl ScaledWindows {
    /// What the window `base` multiplied by `factor` is; `scale` works it out.
    pub(crate) fn of(&self, base: Window, factor: f64, scale: impl FnOnce() -> OwnWindow) -> Window {
        // Only requests of the override's own holder meet here.
        let known = |entries: &[Entry]| {
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
        if entries.len() >= ENTRIES_MAX {
            entries.clear();
        }
        let window = named(&scaled);
        entries.push(Entry { base, factor, scaled });
        window
    }
}

/// Windows remembered of one override; beyond that all are worked out again.
const ENTRIES_MAX: usize = 256;
