//! Which routes come nearest to a request: those that an operator may have meant.

use std::cmp::Ordering;

use crate::policy::Facts;
use crate::policy::table::{Considered, Verdict};

/// The routes that come nearest, so many beside the one that answers, the nearest first.
pub(super) fn first<'c, 't>(
    considered: &'c [Considered<'t>],
    facts: &Facts<'_, '_>,
    count: usize,
) -> Vec<&'c Considered<'t>> {
    let mut ranked: Vec<(Distance, &Considered<'_>)> =
        considered.iter().map(|considered| (Distance::of(considered, facts), considered)).collect();
    // Stable: of equals the one that was written first.
    ranked.sort_by(|(left, _), (right, _)| left.cmp(right));
    let answers = usize::from(ranked.first().is_some_and(|(_, it)| matches!(it.verdict, Verdict::Wins)));
    ranked.truncate(count.saturating_add(answers));
    ranked.into_iter().map(|(_, considered)| considered).collect()
}

/// How far a route is from answering.
#[derive(Debug)]
struct Distance {
    /// What it takes to match: nothing but a more specific route less, another header, another method, another place.
    class: u8,
    /// Of a route in another place: how many segments its path has in common with the request's from the left, and how
    /// alike the two are as texts, 0 to 1.
    common: usize,
    likeness: f64,
}

impl Distance {
    fn of(considered: &Considered<'_>, facts: &Facts<'_, '_>) -> Distance {
        let class = match considered.verdict {
            Verdict::Wins => 0,
            Verdict::LessSpecific { .. } => 1,
            Verdict::Header(_) => 2,
            Verdict::Method => 3,
            Verdict::Path | Verdict::Host => 4,
        };
        if class < 4 {
            return Distance { class, common: 0, likeness: 0.0 };
        }
        let path = considered.route.path();
        let end = facts.path.floor_char_boundary(COMPARED_BYTES_MAX);
        let likeness = strsim::jaro(&path.to_string(), &facts.path[..end]);
        Distance { class, common: path.common_segments(facts.path), likeness }
    }

    fn cmp(&self, other: &Distance) -> Ordering {
        let by_class = self.class.cmp(&other.class);
        by_class.then(other.common.cmp(&self.common)).then(other.likeness.total_cmp(&self.likeness))
    }
}

/// A longer path is compared as far as this: the time that takes grows with the product of the lengths.
const COMPARED_BYTES_MAX: usize = 256;
