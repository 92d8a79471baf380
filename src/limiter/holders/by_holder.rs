//! [`ByHolder`]: what consumers and tenants have, a list for each name.

use std::collections::HashMap;

use base::sharded_map::ShardedMap;
use policy::Holder;

/// Lists by the names of consumers and of tenants. No list is empty.
#[derive(Debug)]
pub(crate) struct ByHolder<T> {
    pub(crate) consumers: ByName<T>,
    pub(crate) tenants: ByName<T>,
}

pub(crate) type ByName<T> = ShardedMap<Box<str>, Box<[T]>>;

impl<T> Default for ByHolder<T> {
    fn default() -> ByHolder<T> {
        ByHolder { consumers: ShardedMap::default(), tenants: ShardedMap::default() }
    }
}

impl<T: Clone> ByHolder<T> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.consumers.is_empty() && self.tenants.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.consumers.sum(|list| list.len()) + self.tenants.sum(|list| list.len())
    }

    pub(crate) fn of_kind(&self, holder: &Holder) -> &ByName<T> {
        match holder {
            Holder::Consumer(_) => &self.consumers,
            Holder::Tenant(_) => &self.tenants,
        }
    }

    pub(crate) fn change(&self, holder: &Holder, change: impl FnOnce(Vec<T>) -> Vec<T>) {
        self.of_kind(holder).change(holder.name().into(), |held| {
            let list = change(held.map(Vec::from).unwrap_or_default());
            (!list.is_empty()).then(|| list.into())
        });
    }

    /// Puts these in the place of all there are, each added to its holder's list by `insert`. A holder that has a list
    /// before and after has one all the time.
    pub(crate) fn replace(
        &self,
        all: impl IntoIterator<Item = (Holder, T)>,
        insert: impl Fn(&mut Vec<T>, T),
    ) {
        let (mut consumers, mut tenants) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (holder, put) in all {
            let list = match holder {
                Holder::Consumer(name) => consumers.entry(name).or_default(),
                Holder::Tenant(name) => tenants.entry(name).or_default(),
            };
            insert(list, put);
        }
        let boxed =
            |lists: HashMap<Box<str>, Vec<T>>| lists.into_iter().map(|(name, list)| (name, list.into()));
        self.consumers.replace(boxed(consumers));
        self.tenants.replace(boxed(tenants));
    }
}
