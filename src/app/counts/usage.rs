//! What a consumer or a tenant has spent of each policy that counts it, over the whole fleet.

use std::collections::BTreeSet;
use std::time::Duration;

use super::sources::Counts;
use crate::views::override_view::OverrideView;
use base::clock;
use control::admin::{
    CountSource, HotKeyUsage, NamesInForce, PenaltyShown, PolicyUsage, TierFrom, TierShown, UsageQuestion,
    WindowUsage,
};
use control::database::Time;
use limit::Algorithm;
use limiter::{Account, Override, RedisView};
use policy::definition::Dimension;
use policy::{Holder, NamedSubject, Policy, Subject, SubjectValues};

/// The windows of one policy before Redis is asked.
struct Row<'t> {
    policy: &'t Policy,
    /// `None`: its key has more dimensions than the holder.
    subject: Option<NamedSubject>,
    tier: Option<TierShown>,
    /// For how much longer this node keeps the holder out for a penalty, nanoseconds.
    penalty_ns: u64,
    windows: usize,
}

pub(super) fn names(counts: &Counts) -> NamesInForce {
    let snapshot = counts.current.load();
    let policies = || snapshot.table.policies_by_name();
    let tiers_of = |policy: &Policy| {
        let tiers = (0..policy.windows.len()).filter_map(|window| policy.tier_of(window));
        tiers.map(str::to_owned).collect::<Vec<_>>()
    };
    let required = snapshot.table.routes().iter().filter_map(|route| route.access.require.as_ref());
    let required = required.flat_map(|require| require.tiers.iter().cloned());
    let tables = snapshot.tiers.iter().map(|tier| tier.to_string());
    let tiers: BTreeSet<String> = policies().flat_map(tiers_of).chain(required).chain(tables).collect();
    NamesInForce {
        policies: policies().map(|policy| policy.name.to_string()).collect(),
        tiers: tiers.into_iter().collect(),
    }
}

/// The usage of policies by name, after one of them.
pub(super) async fn usage(counts: Counts, asked: UsageQuestion) -> Vec<PolicyUsage> {
    let snapshot = counts.current.load_full();
    let table = &snapshot.table;
    let (now_ns, wall) = (clock::now_ns(), Time::now());
    let dimension = asked.holder.dimension();
    let counted = table.policies_by_name().filter(|policy| policy.by.contains(&dimension));
    let is_asked = |policy: &&Policy| match &asked.policy {
        Some(only) => *policy.name == **only,
        None => asked.after.as_ref().is_none_or(|after| *policy.name > **after),
    };
    let tenant = tenant_of(&asked.holder, asked.tenant.as_deref());
    let (mut rows, mut charges) = (Vec::new(), Vec::new());
    for policy in counted.filter(is_asked).take(asked.limit) {
        let (tier, from) = tier(&counts, policy, &asked);
        let anchor = asked.seen.get(&*policy.name).and_then(|seen| seen.anchor);
        let known = (tier.as_deref(), anchor);
        let subject = subject(&counts, policy, &asked.holder, asked.tenant.as_deref(), known);
        let windows = |it| counts.limiter.inspect().windows_of(table.only(policy), it, now_ns);
        let own = subject.as_ref().map(windows).unwrap_or_default();
        let name = own.first().and_then(|charge| policy.tier_of(charge.window.into()));
        let from = match &tier {
            Some(tier) if name != Some(tier.as_str()) => TierFrom::Default,
            _ => from,
        };
        let tier = name.map(|name| TierShown { name: name.to_owned(), from });
        let penalty_ns = counts.limiter.inspect().penalty_left_ns(table.only(policy), &own, now_ns);
        let own = counts.limiter.inspect().hot_charges(&own, tenant).unwrap_or(own);
        rows.push(Row { policy, subject, tier, penalty_ns, windows: own.len() });
        charges.extend(own);
    }
    let mut accounts = counts.limiter.inspect().accounts(charges, tenant, now_ns).await.into_iter();
    let shown = |row: Row<'_>| {
        let own: Vec<Account> = accounts.by_ref().take(row.windows).collect();
        let Some(subject) = &row.subject else {
            return PolicyUsage { windows: None, ..PolicyUsage::of(row.policy) };
        };
        let found = counts.limiter.overrides().of(row.policy, subject.consumer(), subject.tenant(), now_ns);
        let windows = own.iter().map(|account| {
            let shown =
                found.as_ref().map(|found| OverrideView::of(found, row.policy, &account.charge, now_ns));
            let usual = window(row.policy, account, wall);
            let hot_key = counts.limiter.inspect().hot_instead_of(row.policy, &account.charge);
            let refuses_all = found.as_deref().is_some_and(Override::refuses_all);
            let usual = if refuses_all { WindowUsage { limit: 0, remaining: 0, ..usual } } else { usual };
            WindowUsage {
                overridden: shown.map(|shown| shown.to_json()),
                tenant_limit: counts.limiter.inspect().limit_beneath(
                    row.policy,
                    (subject.consumer(), subject.tenant()),
                    account.charge.window,
                    now_ns,
                ),
                hot_key: hot_key.map(|instead_of| HotKeyUsage { instead_of }),
                ..usual
            }
        });
        let ends_at = (row.penalty_ns > 0).then(|| wall.after(Duration::from_nanos(row.penalty_ns)));
        let penalty =
            row.policy.penalty.map(|_| PenaltyShown { node: snapshot.node.name.to_string(), ends_at });
        let windows = Some(windows.collect());
        let (consumer, tenant) = (subject.consumer(), subject.tenant());
        let outranked = counts.limiter.overrides().outranked(row.policy, consumer, tenant, now_ns);
        let is_exempt = table.only(row.policy).exemptions(subject).next().is_some();
        let exempt = found.iter().filter(|_| is_exempt).map(|found| (found.id.to_string(), EXEMPT));
        let others = outranked.into_iter().map(|(other, why)| (other.id.to_string(), why));
        let outranked = exempt.chain(others).collect();
        PolicyUsage { tier: row.tier, penalty, outranked, windows, ..PolicyUsage::of(row.policy) }
    };
    rows.into_iter().map(shown).collect()
}

/// The tier to show a policy's windows of, and who says that it is the holder's. One that was assigned goes before any other.
fn tier(counts: &Counts, policy: &Policy, asked: &UsageQuestion) -> (Option<String>, TierFrom) {
    let assigned = match &asked.holder {
        Holder::Consumer(name) => counts.limiter.assignments().of(name),
        Holder::Tenant(_) => None,
    };
    let seen = || {
        let seen = asked.seen.get(&*policy.name)?;
        let window = policy.windows.iter().position(|window| *window.label == *seen.label)?;
        policy.tier_of(window).map(str::to_owned)
    };
    match (assigned, &asked.tier) {
        (Some(tier), _) => (Some(tier.into()), TierFrom::Assigned),
        (None, Some(tier)) => (Some(tier.clone()), TierFrom::Asked),
        (None, None) => match seen() {
            Some(tier) => (Some(tier), TierFrom::Decision),
            None => (None, TierFrom::Assumed),
        },
    }
}

/// The holder as a subject of a policy, with its tier and the day on which its own months begin as far as they are known;
/// `None` if the policy counts by more than it.
pub(super) fn subject(
    counts: &Counts,
    policy: &Policy,
    holder: &Holder,
    tenant: Option<&str>,
    (tier, anchor): (Option<&str>, Option<u64>),
) -> Option<NamedSubject> {
    let own = holder.dimension();
    let is_known = |by: &Dimension| *by == own || *by == Dimension::Tenant && tenant.is_some();
    if !policy.by.iter().all(is_known) {
        return None;
    }
    let mut named = vec![(own.to_string(), holder.name().to_owned())];
    if let (Holder::Consumer(_), Some(tenant)) = (holder, tenant) {
        named.push(("tenant".to_owned(), tenant.to_owned()));
    }
    let own_months = policy.anchor_claim.iter().zip(anchor);
    named.extend(own_months.map(|(claim, day)| (claim.to_string(), day.to_string())));
    let subject = NamedSubject::new(policy, SubjectValues::Dimensions(named), tier, None).ok()?;
    Some(subject.with_identity(|identity| counts.limiter.assignments().apply(identity)))
}

/// The tenant whose keys may have a shard of their own.
pub(super) fn tenant_of<'h>(holder: &'h Holder, tenant: Option<&'h str>) -> Option<&'h str> {
    match holder {
        Holder::Consumer(_) => tenant,
        Holder::Tenant(name) => Some(name),
    }
}

fn window(policy: &Policy, account: &Account, wall: Time) -> WindowUsage {
    let quota = account.charge.quota;
    let capacity = quota.capacity();
    let remaining = account.remaining.min(capacity);
    let leased = account.leased.min(capacity - remaining);
    let is_timed = quota.algorithm() != Algorithm::Concurrency;
    WindowUsage {
        window: policy.windows[usize::from(account.charge.window)].label.to_string(),
        quota,
        limit: quota.limit().get(),
        capacity,
        period_seconds: is_timed.then(|| quota.period_at_ns(clock::unix()) as f64 / 1e9),
        used: capacity - remaining - leased,
        leased,
        remaining,
        reset_at: is_timed.then(|| wall.after(Duration::from_nanos(account.reset_ns))),
        from: match account.look {
            None => CountSource::Node,
            Some(RedisView::Seen(_)) => CountSource::Redis,
            Some(RedisView::Away | RedisView::Late | RedisView::Refused) => CountSource::NodeWithoutRedis,
        },
        overridden: None,
        tenant_limit: None,
        hot_key: None,
    }
}

/// Why an override does not apply.
const EXEMPT: &str = "the policy exempts this caller";
