//! The admin page of one key of a policy: what is left, the lease this node holds, who decided last, and beside that
//! what Redis holds. It spends nothing.

use serde_json::{Value, json};

use crate::views::override_view::OverrideView;
use crate::views::redis_view;
use base::clock;
use limit::lease_messages::WindowBalance;
use limit::{Algorithm, Charge, Outcome, View};
use limiter::{Limiter, RedisView};
use policy::definition::Dimension;
use policy::{Policy, RouteTable};

/// A key as one node sees it.
pub(crate) struct Key {
    charges: Vec<Charge>,
    windows: Vec<Value>,
    shown: Value,
}

impl Key {
    /// Completes the page with the records in Redis.
    pub(crate) async fn with_redis(mut self, limiter: &Limiter) -> Value {
        let looks = limiter.inspect().look_in_redis(&self.charges).await;
        for ((look, charge), window) in looks.iter().zip(&self.charges).zip(&mut self.windows) {
            let Some(look) = look else { continue };
            redis_view::show(look, window);
            correct(look, charge, limiter, window);
        }
        self.shown["windows"] = self.windows.into();
        self.shown
    }
}

/// The key with these values, one for each dimension of the policy. `None` if no such policy exists, or the values do
/// not fit its dimensions. `node` is what this gateway is called; `of_tenant` is the tenant that its consumer acts for, if
/// the policy does not count by it.
pub(crate) fn key(
    (table, node): (&RouteTable, &str),
    limiter: &Limiter,
    policy: &str,
    (values, of_tenant): (&[String], Option<&str>),
    now_ns: u64,
) -> Option<Key> {
    let policy = table.policies().iter().find(|known| *known.name == *policy)?;
    let value_of = |dimension| Some(values[policy.by.iter().position(|by| *by == dimension)?].as_str());
    let mut charges = policy.look_at(values)?;
    let consumer = value_of(Dimension::Consumer);
    let tenant = value_of(Dimension::Tenant).or(of_tenant);
    let inspection = limiter.inspect();
    let change = |charge| inspection.change(policy, (consumer, tenant), charge, now_ns);
    let overrides: Vec<_> = charges.iter_mut().map(change).collect();
    let penalty_ns = inspection.penalty_left_ns(table.only(policy), &charges, now_ns);
    let hot = inspection.hot_charges(&charges, tenant);
    limiter.route_tenant(&mut charges, tenant);
    let (charges, overrides) = match hot {
        // An override goes before what is done about a hot key.
        Some(hot) => (hot, Vec::new()),
        None => (charges, overrides),
    };
    let left = limiter.peek_charges(&charges, now_ns).outcomes;
    let windows = charges
        .iter()
        .zip(left)
        .zip(overrides.into_iter().chain(std::iter::repeat(None)))
        .map(|((charge, left), overridden)| {
            let mut shown = window(policy, charge, left);
            if let Some(own) = inspection.hot_instead_of(policy, charge) {
                shown["hot-key"] = json!({ "instead-of": own });
            } else if let Some(tier) = policy.tier_of(charge.window.into()) {
                // The tier is named, because tiers count under one key: what is left is what a client of this tier
                // would have.
                shown["tier"] = tier.into();
            }
            shown["from"] = policy.origin_of(charge.window.into()).word().into();
            if let Some(found) = overridden {
                OverrideView::of(&found, policy, charge, now_ns).show(&mut shown);
            }
            let beneath = inspection.limit_beneath(policy, (consumer, tenant), charge.window, now_ns);
            if let Some(limit) = beneath {
                shown["tenant-limit"] = limit.into();
            }
            show_lease(limiter, charge, now_ns, &mut shown);
            shown
        })
        .collect();
    let by: Vec<String> = policy.by.iter().map(ToString::to_string).collect();
    let mut shown = json!({ "policy": &*policy.name, "by": by, "key": values });
    if penalty_ns > 0 {
        shown["penalty"] = json!({ "node": node, "ends-in-seconds": penalty_ns as f64 / 1e9 });
    }
    show_trial(policy, table, values, &mut shown);
    Some(Key { charges, windows, shown })
}

/// A window of a policy: its quota, and what is left of it.
fn window(policy: &Policy, charge: &Charge, left: Outcome) -> Value {
    // A concurrency limit counts requests in flight and has no period.
    let period_ns = Some(charge.quota.period_at_ns(clock::unix()));
    let period_ns = period_ns.filter(|_| charge.quota.algorithm() != Algorithm::Concurrency);
    json!({
        "window": policy.windows[usize::from(charge.window)].label,
        "limit": charge.quota.limit(),
        "capacity": charge.quota.capacity(),
        "period-seconds": period_ns.map(|period_ns| period_ns as f64 / 1e9),
        "remaining": left.remaining,
        "reset-seconds": left.reset_ns as f64 / 1e9,
    })
}

/// Shows which policy is compared with this one, and which of the two decides about the key.
fn show_trial(policy: &Policy, table: &RouteTable, values: &[String], shown: &mut Value) {
    let candidate = policy.tried.map(|candidate| &table.policies()[candidate.index()]);
    if let Some(candidate) = candidate {
        shown["candidate"] = (*candidate.name).into();
        shown["decides"] = (!candidate.decides_about_key(values)).into();
    }
    if let Some(replaces) = policy.replaces() {
        shown["replaces"] = (*replaces.name).into();
        shown["decides"] = policy.decides_about_key(values).into();
    }
}

/// Replaces what this node remembers by what Redis says. A node with a lease keeps its own number, because its lease is
/// not in what Redis has left.
fn correct(look: &RedisView, charge: &Charge, limiter: &Limiter, window: &mut Value) {
    let RedisView::Seen(seen) = look else { return };
    match seen.left {
        WindowBalance::Exact(outcome) => {
            window["remaining"] = outcome.remaining.into();
            window["reset-seconds"] = (outcome.reset_ns as f64 / 1e9).into();
        }
        WindowBalance::Leased(lent) => {
            let view = limiter.inspect().leases().and_then(|leases| leases.view(charge.key, clock::now_ns()));
            let left = lent.level.max(0.0) as u64;
            if !view.as_ref().is_some_and(|view| view.has_lease)
                && window["remaining"].as_u64().is_some_and(|remaining| remaining > left)
            {
                window["remaining"] = left.into();
            }
            // Only this node knows what it has of a bucket. A window ends for all nodes at once.
            let is_bucket = charge.quota.algorithm() == Algorithm::TokenBucket;
            let remaining = window["remaining"].as_u64().filter(|_| !(is_bucket && view.is_some()));
            if let Some(remaining) = remaining {
                let reset_ns = limiter.inspect().whole_again_ns(charge, remaining);
                window["reset-seconds"] = (reset_ns as f64 / 1e9).into();
            }
        }
    }
}

/// Shows the lease of this node on a shared window, and who decided last.
fn show_lease(limiter: &Limiter, charge: &Charge, now_ns: u64, shown: &mut Value) {
    let Some(plan) = limiter.fleet().and_then(|fleet| fleet.plans().get(charge.plan)) else {
        shown["shared"] = "no".into();
        shown["decided"] = "local".into();
        return;
    };
    shown["shared"] = if plan.sharing.is_exact() { "exact" } else { "leased" }.into();
    let view = limiter.inspect().leases().and_then(|leases| leases.view(charge.key, now_ns));
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
    shown["left-in-redis"] = view.level.into();
}

fn decided(view: &View) -> &'static str {
    match view {
        View { is_fallback: true, .. } => "fallback",
        View { has_lease: true, .. } => "local",
        View { denied_ns: 1.., .. } => "local",
        _ => "global",
    }
}
