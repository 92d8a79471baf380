//! One key of one policy: what this node knows of it, what is left, what it holds, who decides; and beside that what
//! the store holds. It spends nothing.

use serde_json::{Value, json};

use super::centre;
use crate::limit::{Algorithm, Charge, View};
use crate::limiter::Limiter;
use crate::policy::Table;

/// A key as one node sees it.
pub(super) struct Key {
    charges: Vec<Charge>,
    windows: Vec<Value>,
    shown: Value,
}

impl Key {
    /// With what the store says.
    pub(super) async fn with_store(mut self, limiter: &Limiter) -> Value {
        for (look, window) in limiter.look_at_centre(&self.charges).await.iter().zip(&mut self.windows) {
            look.iter().for_each(|look| centre::show(look, window));
        }
        self.shown["windows"] = self.windows.into();
        self.shown
    }
}

/// The key with these values, one for each dimension of the policy. `None`: there is no such policy, or the values are
/// not its.
pub(super) fn key(
    table: &Table,
    limiter: &Limiter,
    policy: &str,
    values: &[String],
    now_ns: u64,
) -> Option<Key> {
    let policy = table.policies().iter().find(|known| *known.name == *policy)?;
    let tenant = policy.by.iter().position(|by| *by == crate::policy::definition::Dimension::Tenant);
    let mut charges = policy.look_at(values)?;
    limiter.settle_tenant(&mut charges, tenant.map(|tenant| values[tenant].as_str()));
    let left = limiter.peek(&charges, now_ns).outcomes;
    let windows = charges
        .iter()
        .zip(left)
        .map(|(charge, left)| {
            // What is in flight has no period.
            let period_ns = Some(charge.quota.period_ns().get());
            let period_ns = period_ns.filter(|_| charge.quota.algorithm() != Algorithm::Concurrency);
            let mut shown = json!({
                "window": policy.windows[usize::from(charge.window)].label,
                "limit": charge.quota.limit(),
                "capacity": charge.quota.capacity(),
                "period-seconds": period_ns.map(|period_ns| period_ns as f64 / 1e9),
                "remaining": left.remaining,
                "reset-seconds": left.reset_ns as f64 / 1e9,
            });
            share(limiter, charge, now_ns, &mut shown);
            shown
        })
        .collect();
    let by: Vec<String> = policy.by.iter().map(ToString::to_string).collect();
    let shown = json!({ "policy": &*policy.name, "by": by, "key": values });
    Some(Key { charges, windows, shown })
}

/// What this node holds of a shared window, and who decided of it last.
fn share(limiter: &Limiter, charge: &Charge, now_ns: u64, shown: &mut Value) {
    let Some(plan) = limiter.fleet().and_then(|fleet| fleet.plans().get(charge.plan)) else {
        shown["shared"] = "no".into();
        shown["decided"] = "local".into();
        return;
    };
    shown["shared"] = if plan.sharing.is_exact() { "exact" } else { "leased" }.into();
    let view = limiter.fleet().and_then(|fleet| fleet.view(charge.key, now_ns));
    let Some(view) = view else { return };
    shown["decided"] = decided(&view).into();
    if view.has_lease {
        shown["lease"] = json!({
            "held": view.held,
            "rate-per-second": view.rate,
            "ends-in-ms": view.lasts_ns / 1_000_000,
            "demand-per-second": view.demand,
            "renewed-ms-ago": view.told_ns / 1_000_000,
        });
    }
    if view.denied_ns > 0 {
        shown["denied-for-ms"] = (view.denied_ns / 1_000_000).into();
    }
    shown["left-at-the-store"] = view.level.into();
}

fn decided(view: &View) -> &'static str {
    match view {
        View { is_alone: true, .. } => "fallback",
        View { has_lease: true, .. } => "local",
        View { denied_ns: 1.., .. } => "local",
        _ => "global",
    }
}
