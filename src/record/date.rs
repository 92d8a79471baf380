//! Unix time as RFC 3339 text in UTC. It deliberately knows no zones and no leap seconds, as Unix time does not.

/// `2026-11-21T12:26:08`: without the fraction and the `Z`.
pub(super) type Text = [u8; 19];

/// The second as text. Beyond the year 9999, which RFC 3339 cannot write, it stands still.
pub(super) fn text(unix_seconds: u64) -> Text {
    let seconds = unix_seconds.min(LAST_SECOND);
    let (year, month, day) = civil(seconds / 86_400);
    let of_day = seconds % 86_400;
    let mut text = *b"0000-00-00T00:00:00";
    put(&mut text[0..4], year);
    put(&mut text[5..7], month);
    put(&mut text[8..10], day);
    put(&mut text[11..13], of_day / 3_600);
    put(&mut text[14..16], of_day / 60 % 60);
    put(&mut text[17..19], of_day % 60);
    text
}

/// Decimal digits, the last one last.
pub(super) fn put(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Year, month and day of a day since 1970-01-01 in the proleptic Gregorian calendar. Years are counted from
/// March, so that a leap day is the last of its year, and in eras of 400 years, which are all alike.
fn civil(day: u64) -> (u64, u64, u64) {
    let day = day + DAYS_FROM_0000_03_01;
    let (era, of_era) = (day / DAYS_OF_ERA, day % DAYS_OF_ERA);
    // Takes out the leap days: one every 4 years, but not every 100, but every 400.
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // March to July and August to December have 153 days each: the slope of the line that starts their months.
    let month_from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day_of_month)
}

const DAYS_OF_ERA: u64 = 146_097;
const DAYS_FROM_0000_03_01: u64 = 719_468;
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

    fn is_leap(year: u64) -> bool {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = civil(0);
        for day in 1..=LAST_SECOND / 86_400 {
            let (year, month, of_month) = civil(day);
            let length = match before.1 {
                4 | 6 | 9 | 11 => 30,
                2 if is_leap(before.0) => 29,
                2 => 28,
                _ => 31,
            };
            let next = match before {
                (year, 12, 31) => (year + 1, 1, 1),
                (year, month, last) if last == length => (year, month + 1, 1),
                (year, month, day) => (year, month, day + 1),
            };
            assert_eq!((year, month, of_month), next);
            before = next;
        }
    }
}
