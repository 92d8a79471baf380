//! Tiers that consumers were assigned while traffic runs. An assignment goes before the tier that a credential names.

use std::sync::Arc;

use base::identity::Identity;
use base::sharded_map::ShardedMap;

/// The tier of each consumer that was assigned one.
#[derive(Debug, Default)]
pub struct Assignments(ShardedMap<Box<str>, Box<str>>);

impl Assignments {
    /// Assigns a tier; `None` ends the assignment.
    pub fn assign(&self, consumer: &str, tier: Option<&str>) {
        self.0.change(consumer.into(), |_| tier.map(Box::from));
    }

    /// Puts these assignments in the place of all there were.
    pub fn replace(&self, all: impl IntoIterator<Item = (Box<str>, Box<str>)>) {
        self.0.replace(all);
    }

    /// How many consumers have a tier that was assigned.
    pub fn len(&self) -> usize {
        self.0.sum(|_| 1)
    }

    /// Whether no consumer has a tier that was assigned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tier that a consumer was assigned.
    pub fn of(&self, consumer: &str) -> Option<Box<str>> {
        self.0.of(consumer)?.get().cloned()
    }

    /// The identity with the tier that its consumer was assigned.
    #[inline]
    pub fn apply(&self, identity: Arc<Identity>) -> Arc<Identity> {
        match &identity.consumer {
            Some(consumer) if !self.is_empty() => self.assigned(consumer, &identity).unwrap_or(identity),
            _ => identity,
        }
    }

    #[cold]
    fn assigned(&self, consumer: &str, identity: &Identity) -> Option<Arc<Identity>> {
        let held = self.0.of(consumer)?;
        let tier = held.get()?;
        (identity.tier.as_ref() != Some(tier))
            .then(|| Arc::new(Identity { tier: Some(tier.clone()), ..identity.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_goes_before_the_tier_of_the_credential() {
        let assignments = Assignments::default();
        let of = |consumer: Option<&str>, tier: Option<&str>| {
            let text = |text: Option<&str>| text.map(Box::from);
            let identity = Identity { consumer: text(consumer), tier: text(tier), ..Identity::default() };
            assignments.apply(Arc::new(identity)).tier.clone()
        };
        assert_eq!(of(Some("ann"), Some("free")).as_deref(), Some("free"));
        assignments.assign("ann", Some("pro"));
        for tier in [None, Some("free"), Some("pro")] {
            assert_eq!(of(Some("ann"), tier).as_deref(), Some("pro"));
        }
        assert_eq!(of(Some("bob"), Some("free")).as_deref(), Some("free"));
        assert_eq!(of(None, Some("free")).as_deref(), Some("free"));
        assignments.replace([("bob".into(), "max".into())]);
        assert_eq!((of(Some("ann"), None), of(Some("bob"), None).as_deref()), (None, Some("max")));
        assignments.assign("bob", None);
        assignments.assign("nobody", None);
        assert_eq!((of(Some("bob"), None), assignments.len()), (None, 0));
    }
}
