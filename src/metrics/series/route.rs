//! Requests: those of one route, and those refused for one reason.

use std::fmt;

use crate::cells::{Cells, WorkerToken};
use crate::exemplars::{Exemplar, Exemplars};
use crate::families::{Families, LabelledSeries, MetricUnit};
use crate::grid::{CELLS, bucket, cell};
use crate::histogram::{Durations, HistogramReading};

/// Requests of one route, by status, with their durations and bytes.
#[derive(Debug)]
pub struct RouteSeries {
    cells: Cells<{ slot::SLOTS }>,
    exemplars: Exemplars,
}

/// What a route counts of a finished request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestCounts {
    pub status: u16,
    /// From its head to the answer's last byte, nanoseconds.
    pub duration_ns: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteTotals {
    /// By class of their status: 1xx to 5xx, and what is no status.
    pub classes: [u64; CLASSES.len()],
    pub durations: Durations,
}

impl RouteSeries {
    pub(crate) fn new(workers: usize) -> RouteSeries {
        RouteSeries { cells: Cells::new(workers), exemplars: Exemplars::default() }
    }

    pub fn finished(&self, worker: &WorkerToken, request: &RequestCounts) {
        let row = self.cells.row(worker);
        row.add(code_slot(request.status), 1);
        row.add(slot::CELLS_FIRST + cell(request.duration_ns), 1);
        row.add(slot::SUM_NS, request.duration_ns);
        row.add(slot::BYTES_IN, request.bytes_in);
        row.add(slot::BYTES_OUT, request.bytes_out);
    }

    /// Shows a finished request as an exemplar of its duration.
    pub fn exemplify(&self, exemplar: Exemplar) {
        self.exemplars.keep(bucket(exemplar.duration_ns), exemplar);
    }

    /// A head that was answered with this status without having come whole: it has no duration.
    pub fn unread(&self, worker: &WorkerToken, status: u16) {
        self.cells.row(worker).add(code_slot(status), 1);
    }

    /// Requests so far by code: a known status, or its class (`4xx`). Only those that occurred.
    pub(crate) fn by_code(&self) -> Vec<(String, u64)> {
        (0..CODES)
            .map(|slot| (slot, self.cells.total(slot)))
            .filter(|(_, count)| *count > 0)
            .map(|(slot, count)| (code_label(slot), count))
            .collect()
    }

    pub(crate) fn durations(&self) -> HistogramReading {
        HistogramReading {
            cells: self.cells.totals(slot::CELLS_FIRST),
            sum_ns: self.cells.total(slot::SUM_NS),
        }
    }

    /// Requests so far by the class of their status, and how long they took.
    pub(crate) fn totals(&self) -> RouteTotals {
        let mut classes = [0; CLASSES.len()];
        for slot in 0..CODES {
            let class = match KNOWN_CODES.get(slot) {
                Some(code) => usize::from(code / 100 - 1),
                None => slot - KNOWN_CODES.len(),
            };
            classes[class] += self.cells.total(slot);
        }
        RouteTotals { classes, durations: self.durations().durations() }
    }

    pub(crate) fn bytes_in(&self) -> u64 {
        self.cells.total(slot::BYTES_IN)
    }

    pub(crate) fn bytes_out(&self) -> u64 {
        self.cells.total(slot::BYTES_OUT)
    }

    pub(crate) fn requests_of_worker(&self, index: usize) -> u64 {
        (0..CODES).map(|slot| self.cells.of_worker(index, slot)).sum()
    }

    pub(crate) fn is_used(&self) -> bool {
        self.cells.is_used()
    }
}

impl RouteTotals {
    /// Those that came since an earlier moment.
    pub fn since(&self, earlier: &RouteTotals) -> RouteTotals {
        RouteTotals {
            // It saturates, because a reading that races with a worker may see less than one before.
            classes: std::array::from_fn(|index| self.classes[index].saturating_sub(earlier.classes[index])),
            durations: self.durations.since(&earlier.durations),
        }
    }

    /// With those of another route.
    pub fn and(&self, other: &RouteTotals) -> RouteTotals {
        RouteTotals {
            classes: std::array::from_fn(|index| self.classes[index] + other.classes[index]),
            durations: self.durations.and(&other.durations),
        }
    }

    pub fn requests(&self) -> u64 {
        self.classes.iter().sum()
    }
}

pub(crate) fn families(routes: &[LabelledSeries<RouteSeries>], families: &mut Families<'_>) -> fmt::Result {
    let used: Vec<_> = routes.iter().filter(|(_, route)| route.is_used()).collect();
    let by_code: Vec<_> = used.iter().map(|(name, route)| (name, route.by_code())).collect();
    families.counters(
        "requests",
        "Requests answered, by route and status (only the class of rare ones)",
        None,
        by_code.iter().flat_map(|(name, codes)| {
            codes.iter().map(move |(code, count)| ([("route", &***name), ("code", code.as_str())], *count))
        }),
    )?;
    families.distributions(
        "request_duration",
        "Duration of requests, from the request's head to the last byte of the response",
        used.iter().map(|(name, route)| {
            ([("route", &**name)], route.durations().distribution(route.exemplars.all()))
        }),
    )?;
    families.counters(
        "request_body",
        "Body bytes received from clients",
        Some(&MetricUnit::Bytes),
        used.iter().map(|(name, route)| ([("route", &**name)], route.bytes_in())),
    )?;
    families.counters(
        "response_body",
        "Body bytes sent to clients",
        Some(&MetricUnit::Bytes),
        used.iter().map(|(name, route)| ([("route", &**name)], route.bytes_out())),
    )
}

pub(crate) fn refusal_families(
    refusals: &[LabelledSeries<RefusalSeries>],
    causes: &[LabelledSeries<RefusalSeries>],
    families: &mut Families<'_>,
) -> fmt::Result {
    let refused = ("refused_requests", "Requests this gateway refused, by reason");
    families.counter_of_each(refused, "reason", refusals, RefusalSeries::total)?;
    let wrong = ("causes", "Refused credentials, certificates and connections, by what was wrong with them");
    families.counter_of_each(wrong, "cause", causes, RefusalSeries::total)
}

/// The family of calls of gRPC.
pub(crate) fn call_families(
    calls: &[LabelledSeries<RefusalSeries>],
    families: &mut Families<'_>,
) -> fmt::Result {
    let ended = ("grpc_calls", "gRPC calls, by the status that ended them");
    families.counter_of_each(ended, "grpc_status", calls, RefusalSeries::total)
}

mod slot {
    pub(super) const CELLS_FIRST: usize = super::CODES;
    pub(super) const SUM_NS: usize = CELLS_FIRST + super::CELLS;
    pub(super) const BYTES_IN: usize = SUM_NS + 1;
    pub(super) const BYTES_OUT: usize = BYTES_IN + 1;
    pub(super) const SLOTS: usize = BYTES_OUT + 1;
}

/// Requests that ended in one way: refused for one reason, with one cause, or with one status of gRPC's.
#[derive(Debug)]
pub struct RefusalSeries(Cells<1>);

impl RefusalSeries {
    pub(crate) fn new(workers: usize) -> RefusalSeries {
        RefusalSeries(Cells::new(workers))
    }

    pub fn count(&self, worker: &WorkerToken) {
        self.0.count(worker, 0);
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.total(0)
    }
}

/// Statuses counted on their own; any other is counted with its class, because a slot for every number would be four
/// kilobytes a route and worker.
const KNOWN_CODES: [u16; 39] = [
    101, 200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 406, 408, 409, 410,
    411, 412, 413, 414, 415, 416, 417, 421, 422, 429, 431, 499, 500, 501, 502, 503, 504, 505,
];
/// What the statuses of a class are called, in the order of [`RouteTotals::classes`].
pub const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];
const CODES: usize = KNOWN_CODES.len() + CLASSES.len();

fn code_slot(status: u16) -> usize {
    CODE_SLOTS.get(usize::from(status)).map_or(CODES - 1, |slot| usize::from(*slot))
}

fn code_label(slot: usize) -> String {
    match KNOWN_CODES.get(slot) {
        Some(code) => code.to_string(),
        None => CLASSES[slot - KNOWN_CODES.len()].to_owned(),
    }
}

/// The slot of every status below 600, worked out by the compiler.
static CODE_SLOTS: [u8; 600] = {
    let mut slots = [(CODES - 1) as u8; 600];
    let mut status = 100;
    while status < slots.len() {
        slots[status] = (KNOWN_CODES.len() + status / 100 - 1) as u8;
        status += 1;
    }
    let mut known = 0;
    while known < KNOWN_CODES.len() {
        slots[KNOWN_CODES[known] as usize] = known as u8;
        known += 1;
    }
    slots
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_status_has_a_label() {
        let labels = [
            (200, "200"),
            (417, "417"),
            (421, "421"),
            (429, "429"),
            (505, "505"),
            (207, "2xx"),
            (418, "4xx"),
            (599, "5xx"),
        ];
        for (status, label) in labels {
            assert_eq!(code_label(code_slot(status)), label);
        }
        for strange in [0, 99, 600, 999, u16::MAX] {
            assert_eq!(code_label(code_slot(strange)), "other");
        }
    }

    #[test]
    fn a_head_that_never_came_is_counted_without_a_duration() {
        let route = RouteSeries::new(1);
        route.unread(&WorkerToken::new(0), 408);
        assert_eq!(
            (route.by_code(), route.durations().distribution(BTreeMap::new()).count()),
            (vec![("408".to_owned(), 1)], 0)
        );
    }

    #[test]
    fn a_finished_request_is_counted_whole() {
        let route = RouteSeries::new(2);
        let worker = WorkerToken::new(1);
        let request = RequestCounts { status: 204, duration_ns: 2_000_000, bytes_in: 10, bytes_out: 20 };
        route.finished(&worker, &request);
        route.finished(&worker, &request);
        assert_eq!(route.by_code(), [("204".to_owned(), 2)]);
        assert_eq!(route.durations().distribution(BTreeMap::new()).count(), 2);
        assert_eq!(route.durations().sum_ns, 4_000_000);
        assert_eq!((route.bytes_in(), route.bytes_out()), (20, 40));
        assert_eq!((route.requests_of_worker(0), route.requests_of_worker(1)), (0, 2));
    }
}
