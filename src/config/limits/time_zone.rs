//! Reads `time-zone` and `anchor`: whose calendar a limit by the day, week, month or year follows, and when months begin.

use std::env;
use std::path::PathBuf;

use base::{clock, words};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use limit::{Calendar, Quota, Zone};

use crate::load::text::Text;
use crate::reader::Table;

/// What a policy or a tier says of its calendar.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CalendarKeys {
    pub(crate) zone: Option<&'static Zone>,
    pub(crate) anchor: Option<u8>,
}

impl CalendarKeys {
    pub(crate) fn read(table: &Table<'_>) -> CalendarKeys {
        let zone = table.value("time-zone").and_then(|zone| named(&zone.text()?));
        let anchor = table.value("anchor").and_then(|anchor| u8::try_from(anchor.integer()?).ok());
        CalendarKeys { zone, anchor }
    }

    /// What is missing is as the other says.
    pub(crate) fn or(self, base: CalendarKeys) -> CalendarKeys {
        CalendarKeys { zone: self.zone.or(base.zone), anchor: self.anchor.or(base.anchor) }
    }

    pub(crate) fn of(window: &Quota) -> CalendarKeys {
        let calendar = window.calendar();
        let anchor = calendar.filter(|calendar| calendar.is_monthly()).map(Calendar::anchor);
        CalendarKeys { zone: calendar.map(Calendar::zone), anchor }
    }

    /// The window as this process counts it: on its own clock, because what reads limits as text has none. Only one of the
    /// calendar has a zone, and only a month an anchor.
    pub(crate) fn put_on(self, window: Quota) -> Quota {
        let Some(calendar) = window.calendar() else { return window };
        let calendar = calendar.moved(self.zone.unwrap_or(calendar.zone()), clock::origin_s());
        window.on_calendar(self.anchor.map_or(calendar, |anchor| calendar.anchored(anchor)))
    }
}

fn named(text: &Text<'_>) -> Option<&'static Zone> {
    // Files beside the zones, which are what the machine's administrator makes of them.
    let is_zone = |name: &str| !["factory", "localtime", "posixrules"].contains(&&*name.to_lowercase());
    let zone = TimeZone::get(&text.text).ok().filter(|_| is_zone(&text.text));
    let zone = zone.and_then(|zone| Some(Zone::new(zone.iana_name()?, offsets(&zone))));
    if let (None, Some(file)) = (zone, damaged_file(&text.text).filter(|_| is_zone(&text.text))) {
        let hint = "install the machine's time zones (the package `tzdata`) again";
        text.wrong(format!("the file of this time zone is damaged: {}", file.display()), hint);
    } else if zone.is_none() {
        let names: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| is_zone(name)).collect();
        let meant = words::did_you_mean(&text.text, &names);
        let hint = meant.unwrap_or_else(|| {
            "write `UTC` or a name of the IANA database: `time-zone = \"Europe/Berlin\"`".to_owned()
        });
        text.wrong(format!("{} is not a time zone", text.shown()), hint);
    }
    zone
}

/// The file of a zone that the machine's database cannot give: of one that this program knows by itself.
fn damaged_file(name: &str) -> Option<PathBuf> {
    let known = TimeZoneDatabase::bundled().get(name).ok()?;
    let given = env::var_os("TZDIR").map(PathBuf::from);
    let directory = given.into_iter().chain(DATABASES.map(PathBuf::from)).find(|it| it.is_dir())?;
    Some(directory.join(known.iana_name()?)).filter(|file| file.is_file())
}

/// Where the library looks for the machine's database.
const DATABASES: [&str; 3] = ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"];

/// From when on each offset holds, and what it is: none for UTC. They are read once, so that no request asks the database.
fn offsets(zone: &TimeZone) -> Vec<(i64, i64)> {
    let begin_s = i64::from(zone.to_offset(Timestamp::UNIX_EPOCH).seconds());
    let changes = zone.following(Timestamp::UNIX_EPOCH);
    let changes = changes.map(|change| (change.timestamp().as_second(), change.offset().seconds().into()));
    let changes = changes.take_while(|(from_s, _)| *from_s < UNTIL_S);
    let mut offsets: Vec<(i64, i64)> = std::iter::once((i64::MIN, begin_s)).chain(changes).collect();
    offsets.dedup_by_key(|(_, offset_s)| *offset_s);
    if offsets == [(i64::MIN, 0)] { Vec::new() } else { offsets }
}

/// Warns of a zone that no limit follows, and of an anchor that no month has, because `d` looks as if it followed them.
pub(crate) fn warn_if_unused(table: &Table<'_>, windows: &[Quota]) {
    // None could be read: which units they were to have nobody knows.
    if windows.is_empty() {
        return;
    }
    let is_month = |window: &Quota| CalendarKeys::of(window).anchor.is_some();
    for key in ["anchor", "anchor-claim"] {
        if let Some(anchor) = table.value(key).filter(|_| !windows.iter().any(is_month)) {
            let message = format!("`{key}` changes nothing: no limit is by the calendar month");
            anchor.warn(message, format!("write `month` in the limit, or leave `{key}` out"));
        }
    }
    let text = table.value("time-zone").and_then(|zone| zone.text());
    if let Some(text) = text.filter(|_| windows.iter().all(|window| window.calendar().is_none())) {
        text.warn(
            "`time-zone` changes nothing: no limit is by the calendar",
            "write `day`, `week`, `month` or `year` in the limit, for example `1000/day`, or leave `time-zone` out",
        );
    }
}

/// The year 2200; clocks change no more after it.
const UNTIL_S: i64 = 7_258_118_400;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::civil::Date;
    use limit::CalendarUnit;
    use limit::calendar::Edges;

    use super::*;

    /// When the date begins in a zone, microseconds since 1970, as the library has it.
    fn begins_us(zone: &TimeZone, date: Date) -> u64 {
        let begins = date.to_zoned(zone.clone()).expect("a date of the calendar").start_of_day();
        begins.expect("in range").timestamp().as_microsecond().unsigned_abs()
    }

    #[test]
    fn windows_begin_as_in_another_calendar() {
        let names = [
            "UTC",
            "Europe/Berlin",
            "America/New_York",
            "Asia/Kolkata",
            "Australia/Lord_Howe",
            "Pacific/Apia",
            "America/St_Johns",
            "America/Havana",
            "Asia/Beirut",
            "Africa/Cairo",
            "America/Asuncion",
            "Antarctica/Troll",
            "Pacific/Chatham",
            "Africa/Casablanca",
        ];
        for name in names {
            let theirs = TimeZone::get(name).expect("it is in the database");
            let ours = Zone::new(name, offsets(&theirs));
            let mut date = jiff::civil::date(1972, 1, 1);
            while date.year() < 2060 {
                // A date that a zone has skipped begins when the next one does.
                let next = date.tomorrow().expect("in range");
                let (begins, ends) = (begins_us(&theirs, date), begins_us(&theirs, next));
                let starts = |unit| -> Edges {
                    Calendar::new(unit, ours, 0).edges(Duration::from_micros(ends - 1_000_000))
                };
                if begins < ends {
                    assert_eq!(starts(CalendarUnit::Day).starts_us[1..3], [begins, ends], "{name} {date}");
                }
                let monday = date.weekday().to_monday_zero_offset() == 0;
                if begins < ends && monday {
                    assert_eq!(starts(CalendarUnit::Week).starts_us[1], begins, "{name} {date}");
                }
                if next.day() == 1 {
                    let first = begins_us(&theirs, date.first_of_month());
                    assert_eq!(starts(CalendarUnit::Month).starts_us[1..3], [first, ends], "{name} {date}");
                }
                if next.day_of_year() == 1 {
                    let first = begins_us(&theirs, date.first_of_year());
                    assert_eq!(starts(CalendarUnit::Year).starts_us[1..3], [first, ends], "{name} {date}");
                }
                date = next;
            }
        }
    }
}
