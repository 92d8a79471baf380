//! Times as logs write them, in nanoseconds since 1970: RFC 3339, and the form of the Common Log Format.
//!
//! No zone has to be known, because both carry their distance from UTC.

use time::{Date, Month};

use crate::request::NoLine;

/// Reads `2026-11-20T10:00:00.123Z`, also with another number of digits of a second or with `+01:00`.
pub fn rfc3339(text: &[u8]) -> Result<u64, NoLine> {
    let (clock, rest) = text.split_at_checked(19).ok_or(NoLine::Time)?;
    if [clock[4], clock[7], clock[13], clock[16]] != *b"--::" || !matches!(clock[10], b'T' | b't' | b' ') {
        return Err(NoLine::Time);
    }
    let date = day(number(&clock[..4])?, month_of_number(number(&clock[5..7])?)?, number(&clock[8..10])?)?;
    let second = of_day(&clock[11..13], &clock[14..16], &clock[17..19])?;
    let (fraction_ns, zone) = fraction(rest)?;
    let ahead_s = match zone {
        b"Z" | b"z" => 0,
        [sign, zone @ ..] => match zone {
            [hours @ .., b':', _, _] if hours.len() == 2 => offset(*sign, hours, &zone[3..])?,
            _ => return Err(NoLine::Time),
        },
        [] => return Err(NoLine::Time),
    };
    since_1970(date, second - ahead_s, fraction_ns)
}

/// Reads `20/Nov/2026:10:00:00 +0000`.
pub fn common(text: &[u8]) -> Result<u64, NoLine> {
    let text: &[u8; 26] = text.try_into().map_err(|_| NoLine::Time)?;
    let separators = [text[2], text[6], text[11], text[14], text[17], text[20]];
    if separators != *b"//::: " {
        return Err(NoLine::Time);
    }
    let month = MONTHS.iter().position(|month| text[3..6].eq_ignore_ascii_case(*month));
    let month = month_of_number(month.map_or(0, |index| index as u64 + 1))?;
    let date = day(number(&text[7..11])?, month, number(&text[..2])?)?;
    let second = of_day(&text[12..14], &text[15..17], &text[18..20])?;
    since_1970(date, second - offset(text[21], &text[22..24], &text[24..])?, 0)
}

/// All of it as a number.
fn number(digits: &[u8]) -> Result<u64, NoLine> {
    if digits.is_empty() || digits.len() > 9 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NoLine::Time);
    }
    Ok(digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

fn month_of_number(number: u64) -> Result<Month, NoLine> {
    u8::try_from(number).ok().and_then(|number| Month::try_from(number).ok()).ok_or(NoLine::Time)
}

/// Days since 1970.
fn day(year: u64, month: Month, day: u64) -> Result<i64, NoLine> {
    let (Ok(year), Ok(day)) = (i32::try_from(year), u8::try_from(day)) else { return Err(NoLine::Time) };
    let date = Date::from_calendar_date(year, month, day).map_err(|_| NoLine::Time)?;
    Ok(i64::from(date.to_julian_day() - UNIX_EPOCH_DAY))
}

/// A leap second is the last second of its minute, as Unix time has it.
fn of_day(hours: &[u8], minutes: &[u8], seconds: &[u8]) -> Result<i64, NoLine> {
    let (hours, minutes, seconds) = (number(hours)?, number(minutes)?, number(seconds)?);
    if hours > 23 || minutes > 59 || seconds > 60 {
        return Err(NoLine::Time);
    }
    Ok((hours * 3_600 + minutes * 60 + seconds.min(59)) as i64)
}

/// How far a zone is ahead of UTC, seconds.
fn offset(sign: u8, hours: &[u8], minutes: &[u8]) -> Result<i64, NoLine> {
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let seconds = (hours * 3_600 + minutes * 60) as i64;
    match sign {
        _ if hours > 23 || minutes > 59 => Err(NoLine::Time),
        b'+' => Ok(seconds),
        b'-' => Ok(-seconds),
        _ => Err(NoLine::Time),
    }
}

/// Nanoseconds of `.123`, rounded down, and what follows.
fn fraction(text: &[u8]) -> Result<(u64, &[u8]), NoLine> {
    let Some(digits) = text.strip_prefix(b".") else { return Ok((0, text)) };
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = digits.split_at(length);
    let kept = &digits[..length.min(9)];
    let scale = 10u64.pow(9 - kept.len() as u32);
    Ok((number(kept)? * scale, rest))
}

fn since_1970(day: i64, second: i64, fraction_ns: u64) -> Result<u64, NoLine> {
    let seconds = u64::try_from(day * 86_400 + second).map_err(|_| NoLine::Time)?;
    let ns = seconds.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(fraction_ns));
    ns.filter(|ns| *ns <= TIME_MAX_NS).ok_or(NoLine::Time)
}

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
/// The Julian day of 1970-01-01.
const UNIX_EPOCH_DAY: i32 = 2_440_588;
/// The latest time: in the year 2261, so that differences of times are signed 64-bit numbers.
pub const TIME_MAX_NS: u64 = i64::MAX as u64 / 1_000_000_000 * 1_000_000_000 - 366 * 86_400 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn times_are_read_with_their_fraction_and_zone() {
        for (text, ns) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2024-02-29T00:00:00.007Z", 1_709_164_800 * S + 7_000_000),
            ("2024-02-29T01:00:00+01:00", 1_709_164_800 * S),
            ("2024-02-28T18:30:00.5-05:30", 1_709_164_800 * S + S / 2),
            ("2016-12-31T23:59:60Z", 1_483_228_799 * S),
            ("2024-02-29T00:00:00.1234567891Z", 1_709_164_800 * S + 123_456_789),
        ] {
            assert_eq!(rfc3339(text.as_bytes()), Ok(ns), "{text}");
        }
        for (text, ns) in [
            ("10/Oct/2000:13:55:36 -0700", 971_211_336 * S),
            ("29/feb/2024:00:00:00 +0000", 1_709_164_800 * S),
            ("01/Jan/1970:01:00:00 +0100", 0),
        ] {
            assert_eq!(common(text.as_bytes()), Ok(ns), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2024-02-30T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-02-29T24:00:00Z",
            "2024-02-29T00:00:00",
            "2024-02-29T00:00:00.Z",
            "2024-02-29T00:00:00+1",
            "2024-02-29T00:00:00+é1:00",
            "1969-12-31T23:59:59Z",
            "2262-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "20é4-02-29T00:00:00Z",
        ] {
            assert_eq!(rfc3339(text.as_bytes()), Err(NoLine::Time), "{text}");
        }
        for text in [
            "10/Okt/2000:13:55:36 -0700",
            "10/Oct/2000:13:55:36",
            "31/Dec/1969:23:59:59 +0000",
            "00/Oct/2000:13:55:36 -0700",
            "10/Oct/2000:13:55:36 *0700",
        ] {
            assert_eq!(common(text.as_bytes()), Err(NoLine::Time), "{text}");
        }
    }
}
