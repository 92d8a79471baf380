//! Unix time as RFC 3339 text in UTC. It deliberately knows no zones and no leap seconds, as Unix time does not.

use std::time::Duration;

use time::{Date, OffsetDateTime};

/// `2026-11-21T12:26:08`: without the fraction and the `Z`.
pub(in crate::record) type Text = [u8; 19];

/// The second as text. Later ones than the year 9999 give its last second, because RFC 3339 cannot write more.
pub(in crate::record) fn text(unix_seconds: u64) -> Text {
    let seconds = unix_seconds.min(LAST_SECOND);
    let date = OffsetDateTime::from_unix_timestamp(seconds as i64).map_or(Date::MIN, OffsetDateTime::date);
    let of_day = seconds % 86_400;
    let mut text = *b"0000-00-00T00:00:00";
    put(&mut text[0..4], date.year().unsigned_abs().into());
    put(&mut text[5..7], u8::from(date.month()).into());
    put(&mut text[8..10], date.day().into());
    put(&mut text[11..13], of_day / 3_600);
    put(&mut text[14..16], of_day / 60 % 60);
    put(&mut text[17..19], of_day % 60);
    text
}

/// Appends the time with its milliseconds, whose second is `text`.
pub(in crate::record) fn push(out: &mut Vec<u8>, text: &Text, time: Duration) {
    let mut fraction = *b".000Z";
    put(&mut fraction[1..4], u64::from(time.subsec_millis()));
    out.extend_from_slice(text);
    out.extend_from_slice(&fraction);
}

/// Appends the time as the Common Log Format has it: `29/Feb/2024:00:00:00 +0000`.
pub(super) fn push_common(out: &mut Vec<u8>, text: &Text) {
    let month = usize::from(text[5] - b'0') * 10 + usize::from(text[6] - b'0');
    out.extend_from_slice(&text[8..10]);
    out.push(b'/');
    out.extend_from_slice(MONTHS[month.clamp(1, 12) - 1]);
    out.push(b'/');
    out.extend_from_slice(&text[0..4]);
    out.push(b':');
    out.extend_from_slice(&text[11..19]);
    out.extend_from_slice(b" +0000");
}

/// Writes `number` into all of `digits`, with leading zeros.
pub(super) fn put(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// 9999-12-31T23:59:59.
const LAST_SECOND: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_seconds() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (951_868_800, "2000-03-01T00:00:00"),
            (1_709_164_800, "2024-02-29T00:00:00"),
            (4_102_444_799, "2099-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
            (LAST_SECOND, "9999-12-31T23:59:59"),
            (u64::MAX, "9999-12-31T23:59:59"),
        ] {
            assert_eq!(std::str::from_utf8(&text(seconds)), Ok(expected));
        }
    }
}
