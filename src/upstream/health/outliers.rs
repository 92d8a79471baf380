//! Which servers answer clearly worse than the others: more of their requests fail, or they take longer.
//!
//! Pure: it is told what was seen of each server. It knows no time and ejects nobody.

use std::fmt;

use crate::config::Outliers;
use crate::ids::ServerIndex;
use crate::tally::TallyCounts;
use base::ids::IdVec;

/// How a server stands out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outlier {
    /// So much of its requests succeeds, and so much of the others', 0 to 1.
    SuccessRate { own: f64, others: f64 },
    /// Its answers take so long to the first byte, and the others', nanoseconds.
    Latency { own_ns: f64, others_ns: f64 },
}

impl fmt::Display for Outlier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outlier::SuccessRate { own, others } => {
                let (own, others) = (own * 100.0, others * 100.0);
                write!(formatter, "{own:.1} % of its requests succeed, {others:.1} % of the other servers'")
            }
            Outlier::Latency { own_ns, others_ns } => {
                let (own, others) = (own_ns / 1e6, others_ns / 1e6);
                write!(
                    formatter,
                    "its responses take {own:.1} ms to the first byte, the other servers' {others:.1} ms"
                )
            }
        }
    }
}

/// The servers that stand out among these, the worst first. Each is compared with the median of the others, so that a bad
/// one does not hide another, and if half of them are bad nobody stands out. Fewer than [`SERVERS_MIN`] servers with
/// enough requests say nothing, because either of two could be the odd one.
pub fn outliers(seen: &IdVec<ServerIndex, TallyCounts>, rules: &Outliers) -> Vec<(ServerIndex, Outlier)> {
    let is_judged =
        |(_, seen): &(ServerIndex, &TallyCounts)| seen.requests() >= u64::from(rules.requests_min);
    let judged: Vec<(ServerIndex, &TallyCounts)> = seen.with_ids().filter(is_judged).collect();
    let mut found = Vec::new();
    if judged.len() < SERVERS_MIN {
        return Vec::new();
    }
    for (index, own) in &judged {
        let others: Vec<&TallyCounts> =
            judged.iter().filter(|(other, _)| other != index).map(|(_, seen)| *seen).collect();
        let by_rate = rules.success_rate_percent.and_then(|percent| fails_more(own, &others, percent));
        let by_time = || rules.latency_times.and_then(|times| takes_longer(own, &others, times));
        found.extend(by_rate.or_else(by_time).map(|(weight, outlier)| (*index, weight, outlier)));
    }
    // Those that fail come before those that are slow.
    found.sort_by(|(_, one, _), (_, other, _)| other.total_cmp(one));
    found.into_iter().map(|(index, _, outlier)| (index, outlier)).collect()
}

/// Whether its success rate is so many points below the others', and not by chance.
fn fails_more(own: &TallyCounts, others: &[&TallyCounts], percent: u32) -> Option<(f64, Outlier)> {
    let median = median(others.iter().map(|seen| seen.success_rate()).collect())?;
    let (rate, below) = (own.success_rate(), median - own.success_rate());
    let requests: u64 = others.iter().map(|seen| seen.requests()).sum();
    let failures: u64 = others.iter().map(|seen| seen.failures).sum();
    // The deviation of the difference of two rates if both servers were alike.
    let pooled = (own.failures + failures) as f64 / (own.requests() + requests).max(1) as f64;
    let one_over = 1.0 / own.requests().max(1) as f64 + 1.0 / requests.max(1) as f64;
    let deviation = (pooled * (1.0 - pooled) * one_over).sqrt();
    let is_outlier = below * 100.0 >= f64::from(percent) && below >= DEVIATIONS * deviation;
    is_outlier.then_some((FAILING + below, Outlier::SuccessRate { own: rate, others: median }))
}

/// Whether its answers take so many times as long as the others'.
fn takes_longer(own: &TallyCounts, others: &[&TallyCounts], times: u32) -> Option<(f64, Outlier)> {
    let own_ns = own.first_byte_ns()?;
    let others_ns = median(others.iter().filter_map(|seen| seen.first_byte_ns()).collect())?;
    let is_outlier = own_ns >= others_ns * f64::from(times) && own_ns >= SLOW_NS;
    is_outlier.then_some((own_ns / others_ns.max(1.0) / TIMES_MAX, Outlier::Latency { own_ns, others_ns }))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (lower, upper) = (values.get((values.len().max(1) - 1) / 2)?, values.get(values.len() / 2)?);
    Some((lower + upper) / 2.0)
}

/// The fewest servers that can be compared.
pub const SERVERS_MIN: usize = 3;
/// A difference of less than this many standard deviations may be chance: one in a thousand is larger.
const DEVIATIONS: f64 = 3.0;
/// A server that answers sooner is not slow, however fast the others are, nanoseconds.
const SLOW_NS: f64 = 5e6;
/// Puts every server that fails more before every one that is slow.
const FAILING: f64 = 1.0;
const TIMES_MAX: f64 = 1e12;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tally::Tallies;

    const RULES: Outliers =
        Outliers { success_rate_percent: Some(15), latency_times: Some(3), ..Outliers::OFF };

    fn seen(answers: u64, failures: u64, ns: u64) -> TallyCounts {
        let tallies = Tallies::default();
        let row = tallies.row();
        (0..answers).for_each(|_| row.answered(ns));
        (0..failures).for_each(|_| row.failed());
        tallies.end_interval()
    }

    fn found(servers: &[TallyCounts]) -> Vec<usize> {
        outliers(&servers.to_vec().into(), &RULES).into_iter().map(|(server, _)| server.index()).collect()
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn who_fails_or_is_slow_against_the_others_stands_out() {
        let good = seen(200, 0, 5 * MS);
        assert_eq!(found(&[good, seen(140, 60, 5 * MS), good, good]), [1]);
        assert_eq!(found(&[good, good, good, seen(200, 0, 100 * MS)]), [3]);
        // Both of two, the one that fails first.
        assert_eq!(found(&[seen(200, 0, 900 * MS), good, seen(100, 100, 5 * MS), good, good]), [2, 0]);
        assert_eq!(found(&[good, good, good, good]), [0_usize; 0]);
    }

    #[test]
    fn what_all_have_what_chance_does_and_what_few_requests_say_is_nothing() {
        let bad = seen(140, 60, 5 * MS);
        assert!(found(&[bad, bad, bad, bad]).is_empty(), "all alike");
        assert!(found(&[seen(200, 0, 5 * MS), bad, bad, bad]).is_empty(), "most are so");
        let slow = seen(200, 0, 100 * MS);
        assert!(found(&[slow, slow, slow, slow]).is_empty());
        let few = seen(49, 50, 900 * MS);
        assert!(found(&[seen(200, 0, 5 * MS), seen(200, 0, 5 * MS), seen(200, 0, 5 * MS), few]).is_empty());
        assert!(found(&[seen(200, 0, MS), bad]).is_empty(), "of two either could be wrong");
        // Twenty times as long, but nobody notices.
        let fast = seen(200, 0, MS / 10);
        assert!(found(&[fast, fast, fast, seen(200, 0, 2 * MS)]).is_empty());
        // Sixteen points between coins of one hundred throws.
        let coin = |heads| seen(heads, 100 - heads, 5 * MS);
        assert!(found(&[coin(42), coin(58), coin(55), coin(58)]).is_empty());
    }

    proptest! {
        /// Whatever is seen: fewer than half of the servers judged stand out by what they have in common, and nobody
        /// stands out who is as good as any other.
        #[test]
        fn the_best_never_stands_out(
            seen in prop::collection::vec((0_u64..1_000, 0_u64..1_000, 1_u64..40), 0..12),
        ) {
            let seen: IdVec<ServerIndex, TallyCounts> = seen
                .into_iter()
                .map(|(answers, failures, log)| TallyCounts { answers, failures, log_ns: answers * log * 256 })
                .collect();
            for (server, outlier) in outliers(&seen, &RULES) {
                let judged = seen.iter().filter(|seen| seen.requests() >= 100);
                let is_worse = judged.clone().any(|other| match outlier {
                    Outlier::SuccessRate { .. } => other.success_rate() > seen[server].success_rate(),
                    Outlier::Latency { .. } => other.first_byte_ns() < seen[server].first_byte_ns(),
                });
                prop_assert!(is_worse && judged.count() >= SERVERS_MIN);
            }
        }
    }
}
