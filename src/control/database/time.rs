//! Times of rows: microseconds, as both databases keep them. The wall clock is read by whoever asks for [`Time::now`].

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::format_description::well_known::Rfc3339;
use time::{Date, Month, OffsetDateTime, UtcOffset};

use base::clock;

/// Microseconds since the Unix epoch, UTC. In text and JSON as RFC 3339 writes it, with six digits of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(inline, with = "String", description = "A date and time as RFC 3339 writes it.")]
#[schemars(extend("format" = "date-time"))]
pub struct Time(pub i64);

/// A text that is not a date and a time of RFC 3339.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a date and time such as `2027-01-31T12:00:00Z`")]
pub struct TimeError;

impl Time {
    pub fn now() -> Time {
        Time(i64::try_from(clock::unix().as_micros()).unwrap_or(i64::MAX))
    }

    pub fn after(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    pub fn before(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long after this one another is; nothing if it is before.
    pub fn until(self, later: Time) -> Duration {
        Duration::from_micros(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }

    /// The first moments of this time's month and of the one after it, as PostgreSQL's partitions begin and end.
    pub(super) fn month(self) -> (Time, Time) {
        let date = self.date_time().date();
        let first = |year, month| {
            let date = Date::from_calendar_date(year, month, 1).unwrap_or(Date::MIN);
            Time(date.midnight().assume_utc().unix_timestamp().saturating_mul(1_000_000))
        };
        let next = date.month().next();
        let year = if next == Month::January { date.year() + 1 } else { date.year() };
        (first(date.year(), date.month()), first(year, next))
    }

    /// A time beyond the calendar, which only a row made by hand has, is its nearest end.
    pub(super) fn date_time(self) -> OffsetDateTime {
        let held = self.0.clamp(FIRST.0, LAST.0);
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(held) * 1_000)
            .unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.date_time();
        let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
        let (hour, minute, second, micros) = (time.hour(), time.minute(), time.second(), time.microsecond());
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

impl FromStr for Time {
    type Err = TimeError;

    /// Reads any offset; parts of a microsecond are cut off.
    fn from_str(text: &str) -> Result<Time, TimeError> {
        let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| TimeError)?;
        let nanos = time.to_offset(UtcOffset::UTC).unix_timestamp_nanos();
        let micros = Time(i64::try_from(nanos.div_euclid(1_000)).map_err(|_| TimeError)?);
        if (FIRST..=LAST).contains(&micros) { Ok(micros) } else { Err(TimeError) }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Years 1 and 9999: those that RFC 3339 can write and both databases can keep.
const FIRST: Time = Time(-62_135_596_800_000_000);
const LAST: Time = Time(253_402_300_799_999_999);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_with_any_offset_and_written_in_utc() {
        for (text, shown) in [
            ("2026-11-23T02:15:00Z", "2026-11-23T02:15:00.000000Z"),
            ("2026-11-23T04:15:00.1234569+02:00", "2026-11-23T02:15:00.123456Z"),
            ("1969-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(text.parse::<Time>().expect("it is a time").to_string(), shown);
        }
        for text in ["2026-11-23", "2026-11-23T02:15:00", "0000-01-01T00:00:00Z", "now", ""] {
            assert_eq!(text.parse::<Time>(), Err(TimeError), "{text}");
        }
    }

    #[test]
    fn a_month_ends_where_the_next_begins() {
        let month = |text: &str| text.parse::<Time>().expect("it is a time").month();
        let (first, next) = month("2027-12-31T23:59:59.999999Z");
        assert_eq!(first.to_string(), "2027-12-01T00:00:00.000000Z");
        assert_eq!(next.to_string(), "2028-01-01T00:00:00.000000Z");
        assert_eq!(month("2028-02-01T00:00:00Z").0, Time(first.0 + 62 * 86_400_000_000));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(micros in FIRST.0..=LAST.0) {
            prop_assert_eq!(Time(micros).to_string().parse::<Time>(), Ok(Time(micros)));
        }

        #[test]
        fn no_number_breaks_the_calendar(micros: i64) {
            prop_assert!(Time(micros).to_string().parse::<Time>().is_ok());
        }
    }
}
