//! Exemplars: for a bucket of a histogram, a request that fell into it and of which more can be found.
//!
//! Who keeps one knows that its id leads somewhere: to a sampled decision, or to a trace.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::Duration;

/// A request as an exemplar shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exemplar {
    pub(super) labels: Vec<(&'static str, Box<str>)>,
    /// The duration that was counted in the bucket.
    pub(super) duration_ns: u64,
    /// When it was counted, since the Unix epoch.
    pub(super) time: Duration,
}

impl Exemplar {
    /// The request of this id, and of this trace if that is sampled. What would not fit is left out, because half an id
    /// finds nothing; `None` if nothing is left.
    pub fn new(
        request_id: &str,
        trace_id: Option<u128>,
        duration_ns: u64,
        time: Duration,
    ) -> Option<Exemplar> {
        let trace = trace_id.map(|id| ("trace_id", format!("{id:032x}").into_boxed_str()));
        let taken = trace.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let room = LABELS_CHARS_MAX - taken - REQUEST_ID.len();
        let is_shown = !request_id.is_empty() && request_id.chars().count() <= room;
        let request = is_shown.then(|| (REQUEST_ID, request_id.into()));
        let labels: Vec<_> = request.into_iter().chain(trace).collect();
        (!labels.is_empty()).then_some(Exemplar { labels, duration_ns, time })
    }
}

/// The newest exemplar of each bucket of one series. Nothing is allocated before the first one.
#[derive(Debug, Default)]
pub(super) struct Exemplars(Mutex<BTreeMap<usize, Exemplar>>);

impl Exemplars {
    /// Keeps an exemplar of a bucket. It is dropped while a scrape reads, because a worker does not wait.
    pub(super) fn keep(&self, bucket: usize, exemplar: Exemplar) {
        let mut kept = match self.0.try_lock() {
            Ok(kept) => kept,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        kept.insert(bucket, exemplar);
    }

    /// All of them by the index of their bucket.
    pub(super) fn all(&self) -> BTreeMap<usize, Exemplar> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// OpenMetrics 1.0, "Exemplars": names and values of the labels together.
const LABELS_CHARS_MAX: usize = 128;
const REQUEST_ID: &str = "request_id";

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(request_id: &str, trace_id: Option<u128>) -> Vec<(&'static str, String)> {
        let exemplar = Exemplar::new(request_id, trace_id, 1, Duration::ZERO);
        exemplar.map_or_else(Vec::new, |it| {
            it.labels.into_iter().map(|(name, value)| (name, value.into_string())).collect()
        })
    }

    #[test]
    fn labels_fit_or_are_left_out() {
        let trace = ("trace_id", "0000000000000000000000000000002a".to_owned());
        assert_eq!(labels("a-1", None), [("request_id", "a-1".to_owned())]);
        assert_eq!(labels("a-1", Some(42)), [("request_id", "a-1".to_owned()), trace.clone()]);
        let of = |length: usize| "x".repeat(length);
        assert_eq!((labels(&of(118), None).len(), labels(&of(119), None).len()), (1, 0));
        assert_eq!(labels(&of(78), Some(42)).len(), 2);
        assert_eq!(labels(&of(79), Some(42)), [trace]);
        assert_eq!(labels("", None), []);
    }

    #[test]
    fn a_bucket_has_its_newest_and_a_worker_does_not_wait() {
        let exemplars = Exemplars::default();
        let of = |id: &str| Exemplar::new(id, None, 1, Duration::ZERO).expect("it fits");
        for id in ["a", "b"] {
            exemplars.keep(3, of(id));
        }
        let held = exemplars.0.lock().expect("nobody panicked");
        exemplars.keep(3, of("c"));
        drop(held);
        assert_eq!(exemplars.all(), BTreeMap::from([(3, of("b"))]));
    }
}
