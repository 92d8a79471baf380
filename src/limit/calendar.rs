//! Windows of the calendar: days, weeks that begin on Monday, months and years of a time zone, numbered from the one in which
//! 1970 begins.
//!
//! A window begins at the first instant whose local time is midnight or later: where clocks skip midnight when they are set
//! forward, where midnight comes twice at the first of the two. So every instant lies in one window, and a day has 23 or 25
//! hours where clocks change. Which offsets a zone has is an argument ([`Zone`]); this file reads no database.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a window of the calendar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// A month of the Gregorian calendar.
    Month,
    /// A year of the Gregorian calendar.
    Year,
}

impl CalendarUnit {
    /// All units, in the order of their numbers.
    pub const ALL: [CalendarUnit; 4] =
        [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year];

    /// The word that limits have for it.
    pub fn word(self) -> &'static str {
        match self {
            CalendarUnit::Day => "day",
            CalendarUnit::Week => "week",
            CalendarUnit::Month => "month",
            CalendarUnit::Year => "year",
        }
    }

    /// The unit of this word.
    pub fn of_word(word: &str) -> Option<CalendarUnit> {
        CalendarUnit::ALL.into_iter().find(|unit| unit.word() == word)
    }

    /// The days of its longest window, which stand for each where only a rate is needed.
    pub fn days(self) -> u64 {
        match self {
            CalendarUnit::Day => 1,
            CalendarUnit::Week => 7,
            CalendarUnit::Month => 31,
            CalendarUnit::Year => 366,
        }
    }

    /// The day on which a window begins, and the number of the window to which a day belongs. Days count from 1970. A month
    /// begins on the day `anchor`, or on its last one if it is shorter.
    fn start_day(self, index: i64, anchor: u8) -> i64 {
        match self {
            CalendarUnit::Day => index,
            // 1970 began on a Thursday.
            CalendarUnit::Week => 7 * index - 3,
            CalendarUnit::Month => {
                let first = |index: i64| first_of_month(1970 + index.div_euclid(12), index.rem_euclid(12));
                (first(index) + i64::from(anchor) - 1).min(first(index + 1) - 1)
            }
            CalendarUnit::Year => first_of_month(1970 + index, 0),
        }
    }

    fn of_day(self, day: i64) -> i64 {
        match self {
            CalendarUnit::Day => day,
            CalendarUnit::Week => (day + 3).div_euclid(7),
            CalendarUnit::Month => {
                let (year, month) = month_of(day);
                12 * (year - 1970) + month
            }
            CalendarUnit::Year => month_of(day).0 - 1970,
        }
    }
}

/// The day on which a month of the Gregorian calendar begins, counted from 1970; `month` is from 0. Years begin in March here,
/// so that a leap day is the last of its year (Hinnant, "chrono-compatible low-level date algorithms").
fn first_of_month(year: i64, month: i64) -> i64 {
    let (year, month) = if month < 2 { (year - 1, month + 10) } else { (year, month - 2) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 - MARCH_DAYS
}

/// The year and the month, from 0, of a day.
fn month_of(day: i64) -> (i64, i64) {
    let day = day + MARCH_DAYS;
    let (era, of_era) = (day.div_euclid(ERA_DAYS), day.rem_euclid(ERA_DAYS));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let year = year + era * 400;
    if month < 10 { (year, month + 2) } else { (year + 1, month - 10) }
}

/// A time zone: its name, and its offsets from UTC.
#[derive(Debug, PartialEq, Eq)]
pub struct Zone {
    name: Cow<'static, str>,
    /// From when on each offset holds, the first of them always; seconds since 1970, and seconds that local time is ahead. Empty:
    /// UTC.
    offsets: Vec<(i64, i64)>,
}

impl Zone {
    /// A zone, kept for good, because there are only so many. The offsets are in order; an offset is at most
    /// a day and two hours.
    pub fn new(name: &str, offsets: Vec<(i64, i64)>) -> &'static Zone {
        let zone = Zone { name: Cow::Owned(name.to_owned()), offsets };
        if zone == UTC { &UTC } else { interned(&ZONES, zone) }
    }

    /// Coordinated universal time.
    pub fn utc() -> &'static Zone {
        &UTC
    }

    /// Its name in the IANA database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its offsets, as `new` takes them.
    pub fn offsets(&self) -> &[(i64, i64)] {
        &self.offsets
    }

    fn offset_s(&self, unix_s: i64) -> i64 {
        let next = self.offsets.partition_point(|(from_s, _)| *from_s <= unix_s);
        self.offsets.get(next.saturating_sub(1)).map_or(0, |(_, offset_s)| *offset_s)
    }

    /// The first instant at which clocks show this local time, or a later one.
    fn first_at(&self, local_s: i64) -> i64 {
        let next = self.offsets.partition_point(|(from_s, _)| *from_s <= local_s - OFFSET_MAX_S);
        let mut begun = next.saturating_sub(1);
        while let Some((from_s, offset_s)) = self.offsets.get(begun) {
            let from_s = if begun == 0 { i64::MIN } else { *from_s };
            let at_s = from_s.max(local_s - offset_s);
            if self.offsets.get(begun + 1).is_none_or(|(until_s, _)| at_s < *until_s) {
                return at_s;
            }
            begun += 1;
        }
        local_s
    }
}

/// The windows of the calendar in a time zone, on a clock of which zero is at `origin_s`. Each is kept for good and made once,
/// so that a quota can refer to it and be copied; two are equal if they are the same.
#[derive(Debug)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: &'static Zone,
    anchor: u8,
    /// When the clock of `now_ns` reads 0, seconds since 1970.
    origin_s: u64,
    latest: LatestWindow,
}

/// The window that was looked for last, because nearly all decisions are about one: without it the arithmetic of a month would
/// take ten times as long (bench `decision`). Each word has the end, which the rest follows from, so words of two windows are
/// told apart.
#[derive(Debug, Default)]
struct LatestWindow {
    /// The end, seconds since 1970, in the lower half; the length in the upper.
    length: AtomicU64,
    /// The end, and the number.
    index: AtomicU64,
}

impl LatestWindow {
    /// The number, the begin and the end of the window that is known, if any is.
    fn get(&self) -> Option<(i64, i64, i64)> {
        let [length, index] = [&self.length, &self.index].map(|word| word.load(Ordering::Relaxed));
        let end_s = seconds(length & END);
        (length != 0 && length & END == index & END)
            .then(|| (seconds(index >> END_BITS), end_s - seconds(length >> END_BITS), end_s))
    }

    fn put(&self, index: i64, begin_s: i64, end_s: i64) {
        // Windows before 1970, and ends beyond the words, are worked out each time.
        if let (Ok(index), Ok(end), Ok(length)) =
            (u64::try_from(index), u64::try_from(end_s), u64::try_from(end_s - begin_s))
            && end <= END
        {
            self.length.store(length << END_BITS | end, Ordering::Relaxed);
            self.index.store(index << END_BITS | end, Ordering::Relaxed);
        }
    }
}

/// The starts of the windows around an instant, for Redis, because it knows no zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edges {
    /// The number of the window that the first of them begins.
    pub first: u64,
    /// When four windows in a row begin, microseconds since 1970; the second of them is that of the instant.
    pub starts_us: [u64; 4],
}

impl Calendar {
    /// The calendar of this unit in a zone.
    pub fn new(unit: CalendarUnit, zone: &'static Zone, origin_s: u64) -> &'static Calendar {
        Calendar::known(unit, zone, 1, origin_s)
    }

    /// The same with months that begin on this day, from 1 to 31; 29 to 31 are the last day of a shorter month. Other windows
    /// have no such day.
    pub fn anchored(&self, anchor: u8) -> &'static Calendar {
        let anchor = if self.is_monthly() { anchor.clamp(1, 31) } else { 1 };
        Calendar::known(self.unit, self.zone, anchor, self.origin_s)
    }

    /// The same for another zone, on a clock with another origin.
    pub fn moved(&self, zone: &'static Zone, origin_s: u64) -> &'static Calendar {
        Calendar::known(self.unit, zone, self.anchor, origin_s)
    }

    fn known(unit: CalendarUnit, zone: &'static Zone, anchor: u8, origin_s: u64) -> &'static Calendar {
        let latest = LatestWindow::default();
        interned(&CALENDARS, Calendar { unit, zone, anchor, origin_s, latest })
    }

    /// Whether its windows are months, which alone begin on a day of choice.
    pub fn is_monthly(&self) -> bool {
        self.unit == CalendarUnit::Month
    }

    /// The day on which months begin.
    pub fn anchor(&self) -> u8 {
        self.anchor
    }

    /// Which windows it has.
    pub fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// Whose local time it follows.
    pub fn zone(&self) -> &'static Zone {
        self.zone
    }

    /// When its clock reads 0, seconds since 1970.
    pub fn origin_s(&self) -> u64 {
        self.origin_s
    }

    /// A length that stands for each of its windows, nanoseconds: that of the longest without a change of clocks. It is a
    /// microsecond more, so that Redis's records tell it from a limit of so many days, which is no calendar's.
    pub(super) fn period_ns(&self) -> u64 {
        (self.unit.days() * DAY_S as u64 * 1_000_000 + 1) * 1_000
    }

    /// The number of the window in which the clock reads `now_ns`.
    pub(super) fn window_at(&self, now_ns: u64) -> u64 {
        number(self.index_at(seconds(now_ns / SECOND_NS + self.origin_s)))
    }

    pub(super) fn start_ns(&self, window: u64) -> u64 {
        self.start_unix_s(window).saturating_sub(self.origin_s).saturating_mul(SECOND_NS)
    }

    /// From when to when the window of this time lasts, seconds since 1970.
    pub fn around_s(&self, unix: Duration) -> (u64, u64) {
        let window = number(self.index_at(seconds(unix.as_secs())));
        (self.start_unix_s(window), self.start_unix_s(window + 1))
    }

    /// The starts of windows around a time.
    pub fn edges(&self, unix: Duration) -> Edges {
        let first = number(self.index_at(seconds(unix.as_secs())) - 1);
        Edges { first, starts_us: [0, 1, 2, 3].map(|more| self.start_unix_s(first + more) * 1_000_000) }
    }

    fn start_unix_s(&self, window: u64) -> u64 {
        u64::try_from(self.start_s(seconds(window))).unwrap_or_default()
    }

    fn start_s(&self, index: i64) -> i64 {
        match self.latest.get() {
            Some((latest, begin_s, _)) if latest == index => begin_s,
            Some((latest, _, end_s)) if latest + 1 == index => end_s,
            _ => self.find_start_s(index),
        }
    }

    #[cold]
    fn find_start_s(&self, index: i64) -> i64 {
        self.zone.first_at(self.unit.start_day(index.min(INDEX_MAX), self.anchor) * DAY_S)
    }

    fn index_at(&self, unix_s: i64) -> i64 {
        match self.latest.get() {
            Some((index, begin_s, end_s)) if (begin_s..end_s).contains(&unix_s) => index,
            _ => self.find_index_at(unix_s.min(UNIX_MAX_S)),
        }
    }

    #[cold]
    fn find_index_at(&self, unix_s: i64) -> i64 {
        let mut index = self.unit.of_day((unix_s + self.zone.offset_s(unix_s)).div_euclid(DAY_S));
        // Where clocks were set back over midnight, its window has begun and local time is in the one before. A month may not
        // have begun yet.
        while self.find_start_s(index + 1) <= unix_s {
            index += 1;
        }
        while self.find_start_s(index) > unix_s {
            index -= 1;
        }
        self.latest.put(index, self.find_start_s(index), self.find_start_s(index + 1));
        index
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Calendar) -> bool {
        let of = |calendar: &Calendar| (calendar.unit, calendar.anchor, calendar.origin_s);
        of(self) == of(other) && std::ptr::eq(self.zone, other.zone)
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.unit, self.anchor, &self.zone.name).hash(state);
    }
}

/// The one of these that equals `value`, which is added if there is none.
fn interned<T: PartialEq>(known: &Mutex<Vec<&'static T>>, value: T) -> &'static T {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(same) = known.iter().find(|known| ***known == value) {
        return same;
    }
    let value: &'static T = Box::leak(Box::new(value));
    known.push(value);
    value
}

/// Numbers and times before 1970 count as 0.
fn number(index: i64) -> u64 {
    u64::try_from(index).unwrap_or_default()
}

fn seconds(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

static ZONES: Mutex<Vec<&'static Zone>> = Mutex::new(Vec::new());
static CALENDARS: Mutex<Vec<&'static Calendar>> = Mutex::new(Vec::new());
static UTC: Zone = Zone { name: Cow::Borrowed("UTC"), offsets: Vec::new() };
const SECOND_NS: u64 = 1_000_000_000;
const DAY_S: i64 = 86_400;
/// The farthest that local time is from UTC, and a reserve.
const OFFSET_MAX_S: i64 = 28 * 3_600;
/// Days from March of the year 0 to 1970, and of 400 years.
const MARCH_DAYS: i64 = 719_468;
const ERA_DAYS: i64 = 146_097;
/// What is later counts as the end of the clock, which has 64 bits of nanoseconds: 584 years.
const UNIX_MAX_S: i64 = 1 << 36;
/// Of a word of [`LatestWindow`].
const END_BITS: u32 = 37;
const END: u64 = (1 << END_BITS) - 1;
/// More windows than days until then.
const INDEX_MAX: i64 = 1 << 20;

#[cfg(test)]
mod tests;
