//! Rows of one minute, found by names that are not copied for it.

use std::borrow::Borrow;
use std::collections::HashMap;

use smallvec::SmallVec;

use super::{Amount, OTHERS, UsageRow, UsageSubject};

#[derive(Debug, Default)]
pub(super) struct MinuteRows {
    named: HashMap<UsageNames, Amount>,
    /// Of everybody for whom there was no room.
    others: Amount,
}

/// The three names, one after another with [`END`] behind each of the first two.
#[derive(Debug, PartialEq, Eq, Hash)]
struct UsageNames(Box<[u8]>);

impl Borrow<[u8]> for UsageNames {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl UsageNames {
    fn who(&self) -> UsageSubject<'_> {
        let mut names = self.0.split(|byte| *byte == END);
        // Cannot fail, because they were texts.
        let mut next = || names.next().and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
        UsageSubject { policy: next(), consumer: next(), tenant: next() }
    }
}

impl MinuteRows {
    /// Counts; whether it had to be among the others, because there are so many rows already.
    pub(super) fn count(&mut self, who: UsageSubject<'_>, amount: Amount, most: usize) -> bool {
        let names = encoded(who);
        if let Some(known) = self.named.get_mut(&names[..]) {
            known.add(amount);
            return false;
        }
        let is_other = who == OTHERS || self.named.len() >= most || !is_kept(&names);
        match is_other {
            true => self.others.add(amount),
            false => self.named.entry(UsageNames(names[..].into())).or_default().add(amount),
        }
        is_other
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (UsageSubject<'_>, Amount)> {
        let others = (self.others != Amount::default()).then_some((OTHERS, self.others));
        self.named.iter().map(|(names, amount)| (names.who(), *amount)).chain(others)
    }

    /// As rows of their own, in one order at every node.
    pub(super) fn sorted(self) -> Vec<UsageRow> {
        let owned = |(who, amount): (UsageSubject<'_>, Amount)| UsageRow {
            policy: who.policy.to_owned(),
            consumer: who.consumer.to_owned(),
            tenant: who.tenant.to_owned(),
            amount,
        };
        let mut rows: Vec<UsageRow> = self.iter().map(owned).collect();
        rows.sort_unstable_by(|one, two| {
            (&one.consumer, &one.policy, &one.tenant).cmp(&(&two.consumer, &two.policy, &two.tenant))
        });
        rows
    }
}

/// Whether a database keeps such names: clients may have some of any length, and with any characters.
fn is_kept(names: &[u8]) -> bool {
    names.len() <= NAMES_BYTES_MAX && !names.contains(&0)
}

fn encoded(who: UsageSubject<'_>) -> SmallVec<[u8; 128]> {
    let mut names = SmallVec::new();
    for (number, name) in [who.policy, who.consumer, who.tenant].into_iter().enumerate() {
        if number > 0 {
            names.push(END);
        }
        names.extend_from_slice(name.as_bytes());
    }
    names
}

/// The three names together: no more, because an index of PostgreSQL takes rows of some 2,700 bytes.
const NAMES_BYTES_MAX: usize = 2_000;
/// Ends a name, because it is a byte that no UTF-8 has.
const END: u8 = 0xff;
