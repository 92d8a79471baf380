//! Numbers of JSON: as units of a limit, and as a part of its key.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// The units that a JSON number says, be it in a string or not: a fraction counts as a whole unit, and what is beyond `u64`
/// as its most. `None` if it is negative, or no number of JSON (RFC 8259, section 6). Zeros before it do not matter, and
/// blanks around it, because servers that read them find the number.
pub fn units(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let zeros = text.windows(2).take_while(|pair| pair[0] == b'0' && pair[1].is_ascii_digit()).count();
    let text = number(&text[zeros..]).filter(|text| !text.starts_with('-'))?;
    // Rounded up, so that a part of a unit is not free; `as` stops at the most a u64 holds.
    text.parse().ok().or_else(|| Some(text.parse::<f64>().ok()?.ceil() as u64))
}

/// The one text of all spellings of a JSON number: `7`, `7.0`, `7e0` and `70e-1` are `7`. Whole numbers of 64 bits
/// are told apart exactly; others are what a reader in double precision finds, as most are, because otherwise they
/// could be varied in digits that it does not see. `None` if it is no number of JSON, or too large for such a reader.
pub fn canonical(text: &[u8]) -> Option<Cow<'_, str>> {
    let text = number(text)?;
    let size = text.strip_prefix('-').unwrap_or(text);
    let (digits, rest) = size.split_at(size.find(['.', 'e', 'E']).unwrap_or(size.len()));
    if rest.is_empty() && digits.len() <= WHOLE_DIGITS_MAX {
        return Some(Cow::Borrowed(if digits == "0" { "0" } else { text }));
    }
    if let Some(whole) = whole(digits, rest) {
        let sign = if size.len() < text.len() && whole > 0 { "-" } else { "" };
        return Some(Cow::Owned(format!("{sign}{whole}")));
    }
    match text.parse::<f64>().ok()? {
        0.0 => Some(Cow::Borrowed("0")),
        number => number.is_finite().then(|| Cow::Owned(number.to_string())),
    }
}

/// The size of a number in these digits and this tail, if it is whole and fits 64 bits.
fn whole(digits: &str, tail: &str) -> Option<u64> {
    let (fraction, exponent) = tail.split_once(['e', 'E']).unwrap_or((tail, "0"));
    let fraction = fraction.strip_prefix('.').unwrap_or(fraction);
    let all = [digits, fraction].concat();
    let significant = all.trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let dropped = i64::try_from(all.len() - significant.len()).ok()?;
    let exponent = exponent.parse::<i64>().ok()?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let zeros = u32::try_from(exponent.checked_add(dropped)?).ok()?;
    significant.parse::<u64>().ok()?.checked_mul(10_u64.checked_pow(zeros)?)
}

/// A whole number of so many digits stays as it is, because it always fits 64 bits.
const WHOLE_DIGITS_MAX: usize = 19;

/// The text if it is a number of JSON. Of what a scanner takes for one, no other text is JSON.
fn number(text: &[u8]) -> Option<&str> {
    serde_json::from_slice::<IgnoredAny>(text).ok()?;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_units_and_at_least_what_they_say() {
        let said = |text: &str| units(text.as_bytes());
        assert_eq!([said("0"), said("7"), said("100000")], [Some(0), Some(7), Some(100_000)]);
        assert_eq!([said("0.1"), said("7.0"), said("7.01"), said("1.5e3")], [1, 7, 8, 1_500].map(Some));
        assert_eq!([said("1e2"), said("1E+2"), said("1e-2"), said("0e0")], [100, 100, 1, 0].map(Some));
        let most = Some(u64::MAX);
        assert_eq!([said("18446744073709551616"), said("1e30"), said("1e999")], [most, most, most]);
        assert_eq!(said(&"9".repeat(300)), most);
        assert_eq!(
            [said("01"), said("0100"), said("000"), said("00.5"), said(" 100\n")],
            [1, 100, 0, 1, 100].map(Some)
        );
        for wrong in [
            "", "-1", "-0", "+1", "0x10", "true", "[1]", "NaN", "-01", "1 0", "1.", ".5", "1e", "1e+",
            "1.e3", "1-2", "1.2.3", "1e2e3",
        ] {
            assert_eq!(said(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn spellings_of_one_number_have_one_text() {
        let said = |text: &str| canonical(text.as_bytes()).map(Cow::into_owned);
        let zeros = format!("7.{}", "0".repeat(200));
        for (one, spellings) in [
            ("7", &["7", "7.0", "7e0", "7E+0", "70e-1", "0.7e1", "0.07E2", "700.00e-2", &zeros][..]),
            ("7", &["7.00000000000000000001", "6.9999999999999999999"]),
            ("-7", &["-7", "-7.0", "-70e-1"]),
            ("0", &["0", "-0", "0.0", "-0.0", "0e9", "0e999", "-0E-3", "1e-400", "0e99999999999999999999"]),
            ("0.1", &["0.1", "0.10", "1e-1", "0.1000000000000000055", "10E-2"]),
            ("1000", &["1000", "1e3", "1.0e+3", "100e1", "1000.000"]),
            ("9007199254740993", &["9007199254740993", "9007199254740993.0", "90071992547409930e-1"]),
            ("18446744073709551615", &["18446744073709551615", "184467440737095516150e-1"]),
            ("100000000000000000000", &["1e20", "100000000000000000000", "100000000000000000000.0"]),
        ] {
            for spelling in spellings {
                assert_eq!(said(spelling).as_deref(), Some(one), "{spelling}");
            }
        }
        for wrong in
            ["", "-", "07", "-07", "00", "+7", "7.", ".7", "7e", "1-2", "1.2.3", "--7", "1e999", "-1e400"]
        {
            assert_eq!(said(wrong), None, "{wrong:?}");
        }
    }
}
