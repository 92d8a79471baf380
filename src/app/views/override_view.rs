//! Shows operators which override a window is under, beside what it would be without.

use std::sync::Arc;

use serde_json::{Value, json};

use limit::Charge;
use limiter::{Change, Override};
use policy::Policy;

/// An override as a window of a policy is under it.
#[derive(Debug)]
pub(crate) struct OverrideView {
    of: Arc<Override>,
    /// Nanoseconds until it ends. `None`: never.
    left_ns: Option<u64>,
    /// The limit of the window without it. `None`: it is for no window.
    instead_of: Option<u64>,
}

impl OverrideView {
    /// The override that has changed a charge of this policy.
    pub(crate) fn of(found: &Arc<Override>, policy: &Policy, charge: &Charge, now_ns: u64) -> OverrideView {
        let instead_of = Some(policy.own_limit(charge.window.into()));
        OverrideView { instead_of, ..OverrideView::alone(found, now_ns) }
    }

    /// One that blocks, or that no limit counts.
    pub(crate) fn alone(found: &Arc<Override>, now_ns: u64) -> OverrideView {
        OverrideView { of: Arc::clone(found), left_ns: found.left_ns(now_ns), instead_of: None }
    }

    /// Shows it in what is shown of its window. A limit of 0 is none of the charge's, because nothing is charged under it.
    pub(crate) fn show(&self, window: &mut Value) {
        window["override"] = self.to_json();
        if self.of.change == Change::Absolute(0) {
            (window["limit"], window["remaining"]) = (0.into(), 0.into());
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "id": self.of.id,
            "absolute": match self.of.change { Change::Absolute(limit) => Some(limit), _ => None },
            "multiplicative": match self.of.change { Change::Multiplicative(by) => Some(by), _ => None },
            "reason": self.of.reason,
            "created-by": self.of.by,
            "ends-in-seconds": self.left_ns.map(|left_ns| left_ns as f64 / 1e9),
            "instead-of": self.instead_of,
        })
    }

    /// For people: `override 01k…, made by alice, instead of 100, for 540 s more: a migration`.
    pub(crate) fn sentence(&self) -> String {
        let ends = match self.left_ns {
            Some(left_ns) => format!(", for {:.0} s more", left_ns as f64 / 1e9),
            None => String::new(),
        };
        // Escaped, because whoever wrote it may have written anything.
        let (reason, by) = (self.of.reason.escape_debug(), self.of.by.escape_debug());
        let made = if self.of.by.is_empty() { String::new() } else { format!(", created by {by}") };
        let instead = self.instead_of.map_or_else(String::new, |own| format!(", instead of {own}"));
        format!("override {}{made}{instead}{ends}: {reason}", self.of.id)
    }
}
