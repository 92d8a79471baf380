//! When a request is sent a second time: what an upstream says, or a route instead. Whether it can be sent again, and whether
//! the upstream's budget has room for that, is not decided here.

use std::ops::RangeInclusive;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Second tries a request may have: 0 or 1.
    pub times: u32,
    /// The connection could not be made.
    pub on_connect: bool,
    /// It broke before a byte of an answer came.
    pub on_reset: bool,
    /// No answer came within `timeouts.try` or `timeouts.response`.
    pub on_timeout: bool,
    /// The answer has one of these statuses.
    pub on_status: Statuses,
    /// A second server is asked as well if the first has sent no head of an answer after this. `None`: it is not.
    pub hedge_after: Option<Duration>,
}

impl Default for Retry {
    fn default() -> Self {
        Retry {
            times: 1,
            on_connect: true,
            on_reset: true,
            on_timeout: false,
            on_status: Statuses::default(),
            hedge_after: None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statuses(Vec<RangeInclusive<u16>>);

impl Statuses {
    pub fn new(ranges: Vec<RangeInclusive<u16>>) -> Statuses {
        Statuses(ranges)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn extend(&mut self, others: Statuses) {
        self.0.extend(others.0);
    }

    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }

    /// Each range as it is written: `200`, `200-399`.
    pub fn words(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|range| match (range.start(), range.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        })
    }
}

impl std::fmt::Display for Statuses {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.words().collect::<Vec<_>>().join(", "))
    }
}
