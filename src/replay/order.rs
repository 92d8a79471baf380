//! Brings the lines of one log into the order in which their requests began, as far as a bounded memory reaches, and
//! keeps time from going back.
//!
//! Logs are written when requests end, by several threads, so lines are a little out of order: they are held until later
//! lines are [`HORIZON_NS`] ahead. A line whose time is far off is a stray or the first after the clock was set; that is
//! known when [`RUN`] lines agree with it. A stray is played at the time of the lines around it. A clock that was set
//! forward, or a log that pauses, goes on at the later time; after one that was set back time goes on from where it was,
//! as the clock that limits count by does.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

/// Lines on their way into order.
pub struct Order<T> {
    held: BinaryHeap<Reverse<Held<T>>>,
    held_max: usize,
    /// Lines whose times are far off, until it is known why.
    suspects: VecDeque<Held<T>>,
    /// The latest time of an ordinary line, as its log says it; `None` before the first.
    clock_ns: Option<u64>,
    /// How far the log's clock was set back.
    behind_ns: u64,
    /// The time of the last line that was handed out.
    played_ns: u64,
    lines: u64,
    disorder: Disorder,
}

/// What was found of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disorder {
    /// Lines that came too late to be put in their place.
    pub late: u64,
    /// Lines whose time fits to none around them.
    pub strays: u64,
    /// How often the clock was set back.
    pub set_back: u64,
    /// How often the log goes on more than an hour later.
    pub pauses: u64,
}

struct Held<T> {
    began_ns: u64,
    logged_ns: u64,
    number: u64,
    item: T,
}

impl<T> Order<T> {
    /// With room for so many lines.
    pub fn new(held_max: usize) -> Order<T> {
        Order {
            held: BinaryHeap::new(),
            held_max,
            suspects: VecDeque::new(),
            clock_ns: None,
            behind_ns: 0,
            played_ns: 0,
            lines: 0,
            disorder: Disorder::default(),
        }
    }

    /// Takes the next line of the log: when its request began, and when the line was written.
    pub fn push(&mut self, began_ns: u64, logged_ns: u64, item: T) {
        self.lines += 1;
        let held = Held { began_ns, logged_ns, number: self.lines, item };
        match self.clock_ns {
            Some(clock_ns) if is_far(clock_ns, logged_ns) => self.suspect(held),
            _ => {
                self.release_strays();
                self.place(held);
            }
        }
    }

    /// The next line in order with the time to play it at. `None`: later lines must come first, or there are no more.
    pub fn pop(&mut self, is_over: bool) -> Option<(u64, T)> {
        let Reverse(first) = self.held.peek()?;
        let newest_ns = self.clock_ns.unwrap_or(0) + self.behind_ns;
        let is_due = is_over || self.held.len() > self.held_max || first.began_ns + HORIZON_NS <= newest_ns;
        if !is_due {
            return None;
        }
        let Reverse(held) = self.held.pop()?;
        if held.began_ns < self.played_ns {
            self.disorder.late += 1;
        }
        self.played_ns = self.played_ns.max(held.began_ns);
        Some((self.played_ns, held.item))
    }

    /// The log has no more lines.
    pub fn finish(&mut self) {
        // A few lines at the end are no proof that the clock was set back, and do no harm where they are later.
        match (self.suspects.front(), self.clock_ns) {
            (Some(first), Some(clock_ns)) if first.logged_ns > clock_ns => self.accept(),
            _ => self.release_strays(),
        }
    }

    /// What was found of times so far.
    pub fn disorder(&self) -> Disorder {
        self.disorder
    }

    /// Keeps a line that is far off until it is known why.
    fn suspect(&mut self, held: Held<T>) {
        let disagrees = |last: &Held<T>| {
            let is_ahead = |logged_ns: u64| self.clock_ns.is_some_and(|clock_ns| logged_ns > clock_ns);
            // Lines of a log that pauses often are far from each other, too, but each is later.
            let is_later = is_ahead(last.logged_ns) && held.logged_ns >= last.logged_ns;
            is_far(last.logged_ns, held.logged_ns) && !is_later
        };
        if self.suspects.back().is_some_and(disagrees) {
            self.release_strays();
        }
        self.suspects.push_back(held);
        if self.suspects.len() >= RUN {
            self.accept();
        }
    }

    /// The lines that were far off were right: the clock was set, or the log paused.
    fn accept(&mut self) {
        let (Some(first), Some(clock_ns)) = (self.suspects.front(), self.clock_ns) else { return };
        if first.logged_ns < clock_ns {
            self.disorder.set_back += 1;
            self.behind_ns += clock_ns - first.logged_ns;
            self.clock_ns = Some(first.logged_ns);
        }
        for held in std::mem::take(&mut self.suspects) {
            if self.clock_ns.is_some_and(|clock_ns| held.logged_ns > clock_ns + FORWARD_NS) {
                self.disorder.pauses += 1;
            }
            self.place(held);
        }
    }

    /// The lines that were far off stand alone.
    fn release_strays(&mut self) {
        for held in std::mem::take(&mut self.suspects) {
            self.disorder.strays += 1;
            let now_ns = self.clock_ns.unwrap_or(0) + self.behind_ns;
            self.held.push(Reverse(Held { began_ns: now_ns, ..held }));
        }
    }

    fn place(&mut self, held: Held<T>) {
        self.clock_ns = Some(self.clock_ns.map_or(held.logged_ns, |clock_ns| clock_ns.max(held.logged_ns)));
        let began_ns = held.began_ns.saturating_add(self.behind_ns);
        self.held.push(Reverse(Held { began_ns, ..held }));
    }
}

/// Whether a line is too far from the clock to be ordinary.
fn is_far(clock_ns: u64, logged_ns: u64) -> bool {
    logged_ns > clock_ns.saturating_add(FORWARD_NS) || logged_ns.saturating_add(BACK_NS) < clock_ns
}

impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Held<T>) -> Ordering {
        (self.began_ns, self.number).cmp(&(other.began_ns, other.number))
    }
}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Held<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Held<T>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Held<T> {}

/// Lines are held until others are so far ahead.
const HORIZON_NS: u64 = 10 * SECOND_NS;
/// A line that is so much later than those before it is no ordinary one.
const FORWARD_NS: u64 = 3_600 * SECOND_NS;
/// The same of one that is earlier.
const BACK_NS: u64 = 60 * SECOND_NS;
/// So many lines that agree show that a clock was set.
const RUN: usize = 16;
const SECOND_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lines that end at these seconds, in the order in which they are played, with the second at which.
    fn played(seconds: &[u64]) -> (Vec<(u64, u64)>, Disorder) {
        played_with(seconds.iter().map(|second| (*second, *second)), 1_000)
    }

    fn played_with(lines: impl Iterator<Item = (u64, u64)>, held_max: usize) -> (Vec<(u64, u64)>, Disorder) {
        let (mut order, mut played) = (Order::new(held_max), Vec::new());
        for (began, logged) in lines {
            order.push(began * SECOND_NS, logged * SECOND_NS, began);
            while let Some((at_ns, item)) = order.pop(false) {
                played.push((at_ns / SECOND_NS, item));
            }
        }
        order.finish();
        while let Some((at_ns, item)) = order.pop(true) {
            played.push((at_ns / SECOND_NS, item));
        }
        (played, order.disorder())
    }

    #[test]
    fn lines_are_played_in_the_order_in_which_requests_began() {
        let (lines, disorder) = played(&[100, 103, 101, 102, 109, 104]);
        assert_eq!(lines, [100, 101, 102, 103, 104, 109].map(|second| (second, second)));
        assert_eq!(disorder, Disorder::default());
        // One that took longer than lines are held is played late, and time does not go back.
        let long = (100..130).map(|second| (second, second)).chain([(95, 130), (131, 131)]);
        let (lines, disorder) = played_with(long, 1_000);
        assert_eq!(disorder, Disorder { late: 1, ..Disorder::default() });
        assert!(lines.is_sorted_by_key(|(at, _)| *at) && lines.contains(&(119, 95)), "{lines:?}");
    }

    #[test]
    fn a_stray_moves_nothing() {
        let mut seconds: Vec<u64> = (1_000..1_020).collect();
        seconds.insert(10, 9_000_000_000);
        seconds.insert(15, 3);
        let (lines, disorder) = played(&seconds);
        assert_eq!(disorder, Disorder { strays: 2, ..Disorder::default() });
        assert_eq!(lines.len(), 22);
        assert!(
            lines.is_sorted_by_key(|(at, _)| *at) && lines.iter().all(|(at, _)| *at < 1_020),
            "{lines:?}"
        );
    }

    #[test]
    fn after_a_clock_that_was_set_back_time_goes_on() {
        let seconds: Vec<u64> = (10_000..10_040).chain(6_400..6_440).collect();
        let (lines, disorder) = played(&seconds);
        assert_eq!(disorder, Disorder { set_back: 1, ..Disorder::default() });
        assert_eq!(lines.last(), Some(&(10_039 + 39, 6_439)));
        assert!(lines.is_sorted_by_key(|(at, _)| *at));
    }

    #[test]
    fn a_pause_is_a_pause() {
        let seconds: Vec<u64> = (0..20).chain(100_000..100_020).collect();
        let (lines, disorder) = played(&seconds);
        assert_eq!(disorder, Disorder { pauses: 1, ..Disorder::default() });
        assert!(lines.iter().all(|(at, second)| at == second));
        // A log with a line every two hours pauses at each, and one with few lines is taken as it is.
        let seconds: Vec<u64> = (0..5).map(|line| line * 7_200).collect();
        let (lines, disorder) = played(&seconds);
        assert_eq!(disorder.pauses, 4);
        assert!(lines.iter().all(|(at, second)| at == second));
    }

    #[test]
    fn no_more_than_so_many_lines_are_held() {
        let mut order = Order::new(10);
        for line in 0..100 {
            order.push(5, 5, line);
            while order.pop(false).is_some() {}
            assert!(order.held.len() <= 10);
        }
    }

    proptest! {
        #[test]
        fn every_line_is_played_once_and_time_never_goes_back(
            times in prop::collection::vec((0u64..200_000, 0u64..200), 0..200),
            held_max in 1usize..50,
        ) {
            let lines = times.iter().map(|(second, took)| (second.saturating_sub(*took), *second));
            let (played, _) = played_with(lines.clone(), held_max);
            prop_assert!(played.is_sorted_by_key(|(at, _)| *at));
            let mut all: Vec<u64> = lines.map(|(began, _)| began).collect();
            let mut seen: Vec<u64> = played.iter().map(|(_, began)| *began).collect();
            all.sort_unstable();
            seen.sort_unstable();
            prop_assert_eq!(all, seen);
        }
    }
}
