//! Resets and grants: counts begin anew under other keys, empty or with what a grant leaves spent.
//!
//! A grant carries over what is spent before anybody counts under the new keys. The node that is asked does so in Redis; of
//! windows that nodes count apart each node does it, when it follows the change.

use super::sources::Counts;
use super::usage::{subject, tenant_of};
use base::clock;
use control::admin::{GrantOutcome, UnitGrant};
use control::database;
use limiter::{self, Reset};
use policy::{Holder, NamedSubject, Subject};

/// Carries over in Redis what a grant leaves spent, under the id of a reset that is not in force yet.
pub(super) async fn grant(counts: Counts, asked: UnitGrant) -> GrantOutcome {
    let counts = &counts;
    let snapshot = counts.current.load_full();
    let Some(policy) = snapshot.table.policy(&asked.policy) else { return GrantOutcome::NoPolicy };
    let Some(subject) = subject(counts, policy, &asked.holder, asked.tenant.as_deref(), (None, None)) else {
        return GrantOutcome::NoPolicy;
    };
    // Refused without a tier, because units of one tier are a larger or smaller share of another's limit.
    if policy.tier_of(0).is_some() && subject.tier().is_none() {
        return GrantOutcome::NoTier;
    }
    if policy.anchor_claim.is_some() {
        return GrantOutcome::OwnMonths;
    }
    let now_ns = clock::now_ns();
    let limiter = &counts.limiter;
    let after = limiter.resets().of(&asked.holder, &asked.policy).map_or(0, |reset| reset.version);
    let charges = limiter.inspect().windows_of(snapshot.table.with_candidate(policy), &subject, now_ns);
    let tenant = tenant_of(&asked.holder, asked.tenant.as_deref());
    let accounts = limiter.inspect().accounts(charges, tenant, now_ns).await;
    let is_unseen = |account: &limiter::Account| {
        account.look.is_some_and(|look| !matches!(look, limiter::RedisView::Seen(_)))
    };
    if accounts.iter().any(is_unseen) {
        return GrantOutcome::NoRedis;
    }
    if asked.is_dry {
        return GrantOutcome::Carried(after);
    }
    let reset = Reset::new(&asked.id, Some(&asked.policy), after);
    let of = (&asked.holder, asked.policy.as_str());
    match limiter.inspect().carry_in_redis(&accounts, of, tenant, &reset, asked.units).await {
        None => GrantOutcome::NoRedis,
        Some(_) => GrantOutcome::Carried(after),
    }
}

/// Carries over what this node counts on its own, before it puts a reset into force.
pub(crate) fn carry(counts: &Counts, row: &database::ResetRow) {
    let (Some(units), Some(name), Some(of)) = (row.units, &row.policy, holder(row)) else { return };
    let snapshot = counts.current.load_full();
    let Some(policy) = snapshot.table.policy(name) else { return };
    let Some(subject): Option<NamedSubject> = subject(counts, policy, &of, None, (None, None)) else {
        return;
    };
    let now_ns = clock::now_ns();
    let charges =
        counts.limiter.inspect().windows_of(snapshot.table.with_candidate(policy), &subject, now_ns);
    let reset = Reset::new(&row.id, Some(name), row.version);
    counts.limiter.inspect().carry(&charges, (&of, name), &reset, units, now_ns);
}

pub(crate) fn holder(row: &database::ResetRow) -> Option<Holder> {
    let consumer = row.user_id.as_deref().map(|name| Holder::Consumer(name.into()));
    consumer.or_else(|| Some(Holder::Tenant(row.tenant_id.as_deref()?.into())))
}
