//! Brings the lines of one log into the order in which their requests began, as far as a bounded memory reaches, and
//! keeps time from going back.
//!
//! Lines are held until later ones are [`HORIZON_NS`] ahead, because logs are written when requests end, by several
//! threads: lines are a little out of order. A line whose time is far off is a stray or the first after the clock was set;
//! that is known when [`RUN`] lines agree with it. A stray is played at the time of the lines around it. A clock that
//! was set forward, or a log that pauses, goes on at the later time; after one that was set back time goes on from
//! where it was, as the clock that limits count by does.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use super::format::time::TIME_MAX_NS;

/// Lines on their way into order.
pub struct Order<T> {
    held: BinaryHeap<Reverse<PendingLine<T>>>,
    held_max: usize,
    /// Lines whose times are far off, until it is known why.
    suspects: VecDeque<PendingLine<T>>,
    /// The latest time of an ordinary line, as its log says it; `None` before the first.
    clock_ns: Option<u64>,
    /// How far the log's clock was set back.
    behind_ns: u64,
    /// The time of the last line that was handed out.
    played_ns: u64,
    lines: u64,
    /// Lines that were put into their place.
    placed: usize,
    /// The times of the first line and of the last one, as they are logged.
    ends_ns: Option<(u64, u64)>,
    /// Lines that are later than the one before them, less those that are earlier.
    later: i64,
    disorder: OrderReport,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplayOrder {
    /// Nanoseconds since 1970; it never goes back.
    pub at_ns: u64,
    /// The same by the log's clock, which may have been set back.
    pub logged_ns: u64,
    /// How much later than its request began, nanoseconds.
    pub late_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderReport {
    /// Lines that came too late to be put in their place.
    pub late: u64,
    /// Lines whose time fits to none around them.
    pub strays: u64,
    /// How often the clock was set back.
    pub set_back: u64,
    /// How often the log goes on more than an hour later.
    pub pauses: u64,
    /// Whether the newest line comes first.
    pub newest_first: bool,
}

struct PendingLine<T> {
    began_ns: u64,
    logged_ns: u64,
    /// How far the log's clock was set back when the line was placed.
    behind_ns: u64,
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
            placed: 0,
            ends_ns: None,
            later: 0,
            disorder: OrderReport::default(),
        }
    }

    /// Takes the next line of the log: when its request began, and when the line was written.
    pub fn push(&mut self, began_ns: u64, logged_ns: u64, item: T) {
        self.lines += 1;
        let (first_ns, last_ns) = self.ends_ns.unwrap_or((logged_ns, logged_ns));
        self.ends_ns = Some((first_ns, logged_ns));
        self.later += i64::from(logged_ns > last_ns) - i64::from(logged_ns < last_ns);
        let held = PendingLine { began_ns, logged_ns, behind_ns: 0, number: self.lines, item };
        match self.clock_ns {
            Some(clock_ns) if is_far(clock_ns, logged_ns) => self.suspect(held),
            _ => {
                self.release_strays();
                self.place(held);
            }
        }
    }

    /// The next line in order with the time to play it at. `None`: later lines must come first, or there are no more.
    pub fn pop(&mut self, is_over: bool) -> Option<(ReplayOrder, T)> {
        let Reverse(first) = self.held.peek()?;
        let is_due = is_over
            || self.held.len() > self.held_max
            || first.began_ns.saturating_add(HORIZON_NS) <= self.now_ns();
        if !is_due {
            return None;
        }
        let Reverse(held) = self.held.pop()?;
        if held.began_ns < self.played_ns {
            self.disorder.late += 1;
        }
        self.played_ns = self.played_ns.max(held.began_ns);
        let turn = ReplayOrder {
            at_ns: self.played_ns,
            logged_ns: self.played_ns.saturating_sub(held.behind_ns),
            late_ns: self.played_ns - held.began_ns,
        };
        Some((turn, held.item))
    }

    /// The log has no more lines.
    pub fn finish(&mut self) {
        let Some(clock_ns) = self.clock_ns else { return };
        // Strays, because a few lines at the end are no proof that the clock was set back. Later ones do no harm,
        // unless they are so much later that no log pauses so long.
        let is_earlier = self.suspects.front().is_some_and(|first| first.logged_ns < clock_ns);
        let mut before_ns = clock_ns;
        let is_too_late = |held: &PendingLine<T>| {
            let after_ns = held.logged_ns.saturating_sub(std::mem::replace(&mut before_ns, held.logged_ns));
            after_ns > PAUSE_MAX_NS
        };
        let strays = match self.began_with_strays() {
            true => VecDeque::new(),
            false if is_earlier => std::mem::take(&mut self.suspects),
            false => {
                let at = self.suspects.iter().position(is_too_late);
                self.suspects.split_off(at.unwrap_or(self.suspects.len()))
            }
        };
        self.accept();
        self.suspects = strays;
        self.release_strays();
    }

    /// What was found of times so far.
    pub fn disorder(&self) -> OrderReport {
        let is_back = self.ends_ns.is_some_and(|(first, last)| last.saturating_add(BACK_NS) < first);
        OrderReport { newest_first: is_back && self.later < 0, ..self.disorder }
    }

    /// Keeps a line that is far off until it is known why.
    fn suspect(&mut self, held: PendingLine<T>) {
        if self.suspects.back().is_some_and(|last| self.disagrees(last, &held)) {
            let last = self.suspects.pop_back();
            // The last is taken out first, because it alone was wrong if this goes on where the one before it was.
            if self.suspects.back().is_none_or(|before| self.disagrees(before, &held)) {
                self.release_strays();
            }
            last.into_iter().for_each(|last| self.stray(last));
        }
        self.suspects.push_back(held);
        if self.suspects.len() >= RUN {
            self.accept();
        }
    }

    /// Whether a line does not go on where the last one that was far off, too, has been.
    fn disagrees(&self, last: &PendingLine<T>, held: &PendingLine<T>) -> bool {
        let is_ahead = self.clock_ns.is_some_and(|clock_ns| last.logged_ns > clock_ns);
        // A later one fits, because lines of a log that pauses often are far from each other, too, but each is later.
        let is_later = is_ahead && held.logged_ns >= last.logged_ns;
        is_far(last.logged_ns, held.logged_ns) && !is_later
    }

    /// The lines that were far off were right: the clock was set, the log paused, or those before them were strays.
    fn accept(&mut self) {
        let (Some(first), Some(clock_ns)) = (self.suspects.front(), self.clock_ns) else { return };
        let first_ns = first.logged_ns;
        if self.began_with_strays() {
            self.clock_ns = Some(first_ns);
            for Reverse(held) in std::mem::take(&mut self.held) {
                self.stray(held);
            }
        } else if first_ns < clock_ns {
            self.disorder.set_back += 1;
            self.behind_ns = sum(self.behind_ns, clock_ns - first_ns);
            self.clock_ns = Some(first_ns);
        }
        for held in std::mem::take(&mut self.suspects) {
            if self.clock_ns.is_some_and(|clock_ns| held.logged_ns > sum(clock_ns, FORWARD_NS)) {
                self.disorder.pauses += 1;
            }
            self.place(held);
        }
    }

    /// Whether the first lines are the strays, and not those that are far from them, because they are few, and no pause
    /// explains it.
    fn began_with_strays(&self) -> bool {
        let (Some(first), Some(clock_ns)) = (self.suspects.front(), self.clock_ns) else { return false };
        let is_first = self.placed * FEW_PART <= self.suspects.len() && self.held.len() == self.placed;
        is_first && (first.logged_ns < clock_ns || first.logged_ns > sum(clock_ns, PAUSE_MAX_NS))
    }

    /// The lines that were far off stand alone.
    fn release_strays(&mut self) {
        for held in std::mem::take(&mut self.suspects) {
            self.stray(held);
        }
    }

    /// A line whose time is wrong: its request ends now.
    fn stray(&mut self, held: PendingLine<T>) {
        self.disorder.strays += 1;
        let lasted_ns = held.logged_ns.saturating_sub(held.began_ns);
        let began_ns = self.now_ns().saturating_sub(lasted_ns);
        self.held.push(Reverse(PendingLine { began_ns, behind_ns: self.behind_ns, ..held }));
    }

    fn place(&mut self, held: PendingLine<T>) {
        self.placed += 1;
        self.clock_ns = Some(self.clock_ns.map_or(held.logged_ns, |clock_ns| clock_ns.max(held.logged_ns)));
        let began_ns = sum(held.began_ns, self.behind_ns);
        self.held.push(Reverse(PendingLine { began_ns, behind_ns: self.behind_ns, ..held }));
    }

    /// The latest time of an ordinary line, with all that the clock was set back.
    fn now_ns(&self) -> u64 {
        sum(self.clock_ns.unwrap_or(0), self.behind_ns)
    }
}

/// A later time, no later than any time may be.
fn sum(time_ns: u64, more_ns: u64) -> u64 {
    time_ns.saturating_add(more_ns).min(TIME_MAX_NS)
}

/// Whether a line is too far from the clock to be ordinary.
fn is_far(clock_ns: u64, logged_ns: u64) -> bool {
    logged_ns > clock_ns.saturating_add(FORWARD_NS) || logged_ns.saturating_add(BACK_NS) < clock_ns
}

impl<T> Ord for PendingLine<T> {
    fn cmp(&self, other: &PendingLine<T>) -> Ordering {
        (self.began_ns, self.number).cmp(&(other.began_ns, other.number))
    }
}

impl<T> PartialOrd for PendingLine<T> {
    fn partial_cmp(&self, other: &PendingLine<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for PendingLine<T> {
    fn eq(&self, other: &PendingLine<T>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for PendingLine<T> {}

/// Lines are held until others are so far ahead.
const HORIZON_NS: u64 = 10 * SECOND_NS;
/// A line that is so much later than those before it is no ordinary one.
const FORWARD_NS: u64 = 3_600 * SECOND_NS;
/// The same of one that is earlier.
const BACK_NS: u64 = 60 * SECOND_NS;
/// So many lines that agree show that a clock was set.
const RUN: usize = 16;
/// Strays at the beginning are at most this part of the lines that agree.
const FEW_PART: usize = 4;
/// No log pauses longer unless so many lines say so: 31 days.
const PAUSE_MAX_NS: u64 = 31 * 86_400 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The lines that end at these seconds, in the order in which they are played, with the second at which.
    fn played(seconds: &[u64]) -> (Vec<(u64, u64)>, OrderReport) {
        played_with(seconds.iter().map(|second| (*second, *second)), 1_000)
    }

    fn played_with(
        lines: impl Iterator<Item = (u64, u64)>,
        held_max: usize,
    ) -> (Vec<(u64, u64)>, OrderReport) {
        let (mut order, mut played) = (Order::new(held_max), Vec::new());
        for (began, logged) in lines {
            order.push(began * SECOND_NS, logged * SECOND_NS, began);
            while let Some((turn, item)) = order.pop(false) {
                played.push((turn.at_ns / SECOND_NS, item));
            }
        }
        order.finish();
        while let Some((turn, item)) = order.pop(true) {
            played.push((turn.at_ns / SECOND_NS, item));
        }
        (played, order.disorder())
    }

    #[test]
    fn lines_are_played_in_the_order_in_which_requests_began() {
        let (lines, disorder) = played(&[100, 103, 101, 102, 109, 104]);
        assert_eq!(lines, [100, 101, 102, 103, 104, 109].map(|second| (second, second)));
        assert_eq!(disorder, OrderReport::default());
        // One that took longer than lines are held is played late, so that time does not go back.
        let long = (100..130).map(|second| (second, second)).chain([(95, 130), (131, 131)]);
        let (lines, disorder) = played_with(long, 1_000);
        assert_eq!(disorder, OrderReport { late: 1, ..OrderReport::default() });
        assert!(lines.is_sorted_by_key(|(at, _)| *at) && lines.contains(&(119, 95)), "{lines:?}");
    }

    #[test]
    fn a_stray_moves_nothing() {
        let mut seconds: Vec<u64> = (1_000..1_020).collect();
        seconds.insert(10, 9_000_000_000);
        seconds.insert(15, 3);
        let (lines, disorder) = played(&seconds);
        assert_eq!(disorder, OrderReport { strays: 2, ..OrderReport::default() });
        assert_eq!(lines.len(), 22);
        assert!(
            lines.is_sorted_by_key(|(at, _)| *at) && lines.iter().all(|(at, _)| *at < 1_020),
            "{lines:?}"
        );
    }

    #[test]
    fn strays_at_the_ends_of_a_log_stretch_nothing() {
        for stray in [0, 9_000_000_000] {
            for at in [0, 40] {
                let mut seconds: Vec<u64> = (1_700_000_000..1_700_000_040).collect();
                seconds.insert(at, stray);
                let (lines, disorder) = played(&seconds);
                assert_eq!(disorder, OrderReport { strays: 1, ..OrderReport::default() }, "{stray} at {at}");
                let (first, last) = (lines[0].0, lines[40].0);
                assert_eq!((first, last), (1_700_000_000, 1_700_000_039), "{stray} at {at}");
            }
        }
    }

    #[test]
    fn a_stray_is_played_by_the_clock_of_those_around_it_and_is_over_when_it_was_logged() {
        let mut order = Order::new(1_000);
        (100..130).for_each(|second| order.push(second * SECOND_NS, second * SECOND_NS, second));
        order.push(9_000_000_000 * SECOND_NS, 9_000_000_003 * SECOND_NS, 0);
        // One that took longer than lines are held, and one whose duration is broken.
        order.push(100 * SECOND_NS, 130 * SECOND_NS, 1);
        order.push(0, 131 * SECOND_NS, 2);
        order.finish();
        let mut turns = std::collections::BTreeMap::new();
        while let Some((turn, item)) = order.pop(true) {
            turns.insert(item, turn);
        }
        let seconds = |item: u64| {
            let ReplayOrder { at_ns, logged_ns, late_ns } = turns[&item];
            [at_ns, logged_ns, late_ns].map(|ns| ns / SECOND_NS)
        };
        assert_eq!(seconds(0), [126, 126, 0]);
        assert_eq!((seconds(1), seconds(2)), ([100, 100, 0], [0, 0, 0]));
        let mut order = Order::new(1_000);
        for second in 100..130 {
            order.push(second * SECOND_NS, second * SECOND_NS, second);
            while order.pop(false).is_some() {}
        }
        order.push(100 * SECOND_NS, 130 * SECOND_NS, 1);
        assert_eq!(order.pop(false).map(|(turn, _)| turn.late_ns), Some(20 * SECOND_NS - SECOND_NS));
    }

    #[test]
    fn a_log_with_the_newest_line_first_is_known() {
        let is_newest_first = |seconds: &[u64]| played(seconds).1.newest_first;
        assert!(is_newest_first(&(1_000..2_000).rev().collect::<Vec<_>>()));
        assert!(!is_newest_first(&(1_000..2_000).collect::<Vec<_>>()));
        assert!(!is_newest_first(&(10_000..10_040).chain(6_400..6_440).collect::<Vec<_>>()));
    }

    #[test]
    fn after_a_clock_that_was_set_back_time_goes_on() {
        let seconds: Vec<u64> = (10_000..10_040).chain(6_400..6_440).collect();
        let (lines, disorder) = played(&seconds);
        assert_eq!(disorder, OrderReport { set_back: 1, ..OrderReport::default() });
        assert_eq!(lines.last(), Some(&(10_039 + 39, 6_439)));
        assert!(lines.is_sorted_by_key(|(at, _)| *at));
    }

    #[test]
    fn a_pause_is_a_pause() {
        let seconds: Vec<u64> = (0..20).chain(100_000..100_020).collect();
        let (lines, disorder) = played(&seconds);
        assert_eq!(disorder, OrderReport { pauses: 1, ..OrderReport::default() });
        assert!(lines.iter().all(|(at, second)| at == second));
        // A log with a line every two hours pauses at each, and one with few lines is taken as it is.
        let seconds: Vec<u64> = (0..5).map(|line| line * 7_200).collect();
        let (lines, disorder) = played(&seconds);
        assert_eq!(disorder.pauses, 4);
        assert!(lines.iter().all(|(at, second)| at == second));
        // A stray among such lines is one alone.
        let seconds = [100, 7_300, 9_000_000_000, 14_500, 21_700];
        let (lines, disorder) = played(&seconds);
        assert_eq!(disorder, OrderReport { strays: 1, pauses: 3, ..OrderReport::default() });
        assert!(lines.iter().filter(|(_, second)| *second != seconds[2]).all(|(at, second)| at == second));
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
            lines in prop::collection::vec((any_time(), any_time()), 0..200),
            held_max in 1usize..50,
        ) {
            let (mut order, mut turns) = (Order::new(held_max), Vec::new());
            for (number, (logged_ns, took_ns)) in lines.iter().enumerate() {
                order.push(logged_ns.saturating_sub(*took_ns), *logged_ns, number);
                while let Some(played) = order.pop(false) {
                    turns.push(played);
                }
            }
            order.finish();
            while let Some(played) = order.pop(true) {
                turns.push(played);
            }
            prop_assert!(turns.is_sorted_by_key(|(turn, _)| turn.at_ns));
            prop_assert!(turns.iter().all(|(turn, _)| turn.at_ns <= TIME_MAX_NS));
            let mut seen: Vec<usize> = turns.iter().map(|(_, number)| *number).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lines.len()).collect::<Vec<_>>());
        }
    }

    /// Ordinary times, and all that a line may say.
    fn any_time() -> impl Strategy<Value = u64> {
        prop_oneof![9 => (0u64..200_000).prop_map(|second| second * SECOND_NS), 1 => any::<u64>()]
    }
}
