//! Ranks routes by how near they come to answering a request, to show an operator those that were probably meant.

use std::cmp::Ordering;

use policy::RoutingFacts;
use policy::table::{ConsideredRoute, MatchVerdict};

/// The `count` nearest routes and the one that answers, the nearest first.
pub(super) fn first<'c, 't>(
    considered: &'c [ConsideredRoute<'t>],
    facts: &RoutingFacts<'_, '_>,
    count: usize,
) -> Vec<&'c ConsideredRoute<'t>> {
    let mut ranked: Vec<(Distance, &ConsideredRoute<'_>)> =
        considered.iter().map(|considered| (Distance::of(considered, facts), considered)).collect();
    // The sort is stable, so that equally near routes stay in the order of the configuration.
    ranked.sort_by(|(left, _), (right, _)| left.cmp(right));
    let answers = usize::from(ranked.first().is_some_and(|(_, it)| matches!(it.verdict, MatchVerdict::Wins)));
    ranked.truncate(count.saturating_add(answers));
    ranked.into_iter().map(|(_, considered)| considered).collect()
}

/// How far a route is from answering.
#[derive(Debug)]
struct Distance {
    /// Rank of the verdict, from "answers" to "another path or host".
    class: u8,
    /// For another path or host only: leading segments that the two paths share, then their Jaro similarity, 0 to 1.
    common: usize,
    likeness: f64,
}

impl Distance {
    fn of(considered: &ConsideredRoute<'_>, facts: &RoutingFacts<'_, '_>) -> Distance {
        let class = match considered.verdict {
            MatchVerdict::Wins => 0,
            MatchVerdict::LessSpecific { .. } => 1,
            MatchVerdict::Header(_) => 2,
            MatchVerdict::Method => 3,
            MatchVerdict::Path if differs_in_case(considered, facts) => 4,
            MatchVerdict::Path | MatchVerdict::Host => 5,
        };
        if class < 5 {
            return Distance { class, common: 0, likeness: 0.0 };
        }
        let path = &considered.route.pattern;
        let end = facts.path.floor_char_boundary(COMPARED_BYTES_MAX);
        let likeness = strsim::jaro(&path.to_string(), &facts.path[..end]);
        Distance { class, common: path.common_segments(facts.path), likeness }
    }

    fn cmp(&self, other: &Distance) -> Ordering {
        let by_class = self.class.cmp(&other.class);
        by_class.then(other.common.cmp(&self.common)).then(other.likeness.total_cmp(&self.likeness))
    }
}

/// Whether nothing but the case of letters keeps a path from that of a route.
pub(super) fn differs_in_case(considered: &ConsideredRoute<'_>, facts: &RoutingFacts<'_, '_>) -> bool {
    let (path, pattern) = (facts.path, considered.route.pattern.to_string());
    let is_like =
        |(wanted, found): (&str, &str)| wanted.starts_with('{') || wanted.eq_ignore_ascii_case(found);
    let before_rest = pattern.split_once("{*").map(|(before, _)| before.matches('/').count());
    let is_as_long = before_rest.is_some() || pattern.split('/').count() == path.split('/').count();
    let both = pattern.split('/').zip(path.split('/'));
    is_as_long && both.take(before_rest.unwrap_or(usize::MAX)).all(is_like)
}

/// Longer paths are cut before they are compared, because the Jaro similarity takes time in the product of both
/// lengths.
const COMPARED_BYTES_MAX: usize = 256;
