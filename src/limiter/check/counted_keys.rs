//! Which keys a decision was about, for who watches which of them are heavy, and what it says of a consumer's and a tenant's
//! usage, for the counts by the minute. It decides nothing.

use crate::{Check, Count, Limiter};
use ::policy::definition::Dimension;
use ::policy::{KeyNaming, RouteTable, Subject};
use limit::Charge;
use metrics::PolicyDecision;
use metrics::hot_keys::{KeyTally, NamedKey, ShardNumber};
use metrics::usage::{Amount, UsageSubject};

impl Check<'_> {
    /// Counts the keys of a decision. `subject` gives the subject of a part: it is asked for the few keys that are worth a
    /// name.
    pub fn count_keys<'s, S: Subject + 's>(
        &self,
        limiter: &Limiter,
        (tally, naming): (&KeyTally, &KeyNaming),
        subject: impl Fn(u16) -> Option<&'s S>,
    ) {
        for (charge, is_denied) in self.keys() {
            let key = charge.key.high();
            let is_shared = self.is_shared(charge);
            // `None` if only this node counts it.
            let shard = || {
                let fleet = limiter.fleet().filter(|_| is_shared)?;
                u16::try_from(fleet.link.shard(charge.key).index()).ok().map(ShardNumber)
            };
            tally.count(key, is_denied, || {
                let policy = self.policies.policy_of(charge);
                // A policy that counts everybody together has one key, which needs no name.
                let subject = subject(charge.part).filter(|_| !policy.by.is_empty());
                let name = subject.map(|subject| naming.name(policy, subject)).unwrap_or_default();
                NamedKey::new(key, &policy.name, name, shard())
            });
            if is_shared {
                tally.count_shard(|| shard().unwrap_or_default());
            }
        }
    }

    /// What each policy that counts by consumer or tenant decided of this one. Nothing for who has neither name. Costs that
    /// are known later change nothing of it.
    pub fn usage<'a>(
        &'a self,
        part: u16,
        table: &'a RouteTable,
        consumer: Option<&'a str>,
        tenant: Option<&'a str>,
    ) -> impl Iterator<Item = (UsageSubject<'a>, Amount)> + 'a {
        let is_charged = self.is_admitted();
        let is_known = consumer.is_some() || tenant.is_some();
        let is_counted =
            move |said: &&Count| is_known && said.part == part && said.decision != PolicyDecision::Exempt;
        self.event.counts.iter().filter(is_counted).filter_map(move |said| {
            let policy = &table.policies()[said.policy.index()];
            if !policy.by.iter().any(Dimension::is_name) {
                return None;
            }
            let is_admitted = said.decision == PolicyDecision::Admitted;
            // The first window's, because the others are charged the same.
            let is_own = |charge: &&Charge| is_charged && (charge.policy, charge.part) == (said.policy, part);
            let charge = self.charges.iter().find(is_own);
            let amount = Amount {
                admitted: u64::from(is_admitted),
                denied: u64::from(!is_admitted),
                units: charge.map_or(0, |charge| charge.cost),
            };
            let who = UsageSubject {
                policy: &policy.name,
                consumer: consumer.unwrap_or_default(),
                tenant: tenant.unwrap_or_default(),
            };
            Some((who, amount))
        })
    }

    /// Whether the fleet shares a charge, or would if it were not so hot that each node decides it alone. Such a key has its
    /// part of its shard's decisions still, because otherwise it would be taken for cooler than it is, or for all that
    /// there is.
    fn is_shared(&self, charge: &Charge) -> bool {
        let window = || self.policies.policy_of(charge).windows.get(usize::from(charge.window));
        charge.plan.is_some()
            || (charge.is_overridden && window().is_some_and(|window| window.plan.is_some()))
    }

    /// The key of each policy that charged a subject, by its first window, and whether the policy denied it.
    fn keys(&self) -> impl Iterator<Item = (&Charge, bool)> {
        let mut outcomes = self.decision.outcomes.iter();
        self.charges.chunk_by(Charge::is_beside).filter_map(move |windows| {
            let own = outcomes.by_ref().take(windows.len());
            let is_over = own.fold(false, |is_over, outcome| is_over | !outcome.is_admitted());
            let first = windows.first()?;
            Some((first, is_over || self.keeps_out(first)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::{Job, NOW, check, limiter, policy, table};
    use metrics::hot_keys::{HotKeyFilter, KeyCollector, PolicyFacts};

    #[test]
    fn each_policy_counts_its_key_and_what_it_denied() {
        let (limiter, table) =
            (limiter(), table(&[policy("jobs", "3/m by consumer"), policy("all", "1000/m by route")]));
        let gathered = KeyCollector::default();
        let (tally, naming) = (gathered.tally(1), KeyNaming::default());
        tally.hand_over(60);
        for consumer in ["ann", "ann", "bob", "ann", "ann", "ann"] {
            let job = Job { consumer, units: 1, number: None };
            let check = check(&limiter, &table, &job, NOW);
            check.count_keys(&limiter, (&tally, &naming), |_| Some(&job));
        }
        tally.hand_over(61);
        gathered.turn(61, |_| PolicyFacts { decided: 6, above: 1.0 });
        let asked = HotKeyFilter { policy: Some("jobs".to_owned()), minutes: 1, each: 5 };
        let shown = gathered.book().shown(&asked);
        let shown: Vec<_> =
            shown.iter().map(|it| (&*it.key.name, it.requests_per_second, it.denied_per_second)).collect();
        assert_eq!(shown, [("consumer=ann", 5.0, 2.0)], "bob came once only");
        assert_eq!(gathered.book().shown(&HotKeyFilter { policy: None, ..asked }).len(), 2);
    }
}
