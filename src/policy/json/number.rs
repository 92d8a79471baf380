//! Numbers of JSON as units of a limit.

/// The units that a JSON number says: a fraction counts as a whole unit, and what is beyond `u64` as its most. `None` if it
/// is negative, or no number of JSON (RFC 8259, section 6).
pub fn units(text: &[u8]) -> Option<u64> {
    let (digits, rest) = text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count());
    if !is_whole(digits) {
        return None;
    }
    if rest.is_empty() {
        let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
        return Some(digits.iter().fold(0, add));
    }
    if !is_tail(rest) {
        return None;
    }
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    // Rounded up, so that a part of a unit is not free; `as` stops at the most a u64 holds.
    Some(number.ceil() as u64)
}

/// Digits without a leading zero.
fn is_whole(digits: &[u8]) -> bool {
    matches!(digits, [b'0'] | [b'1'..=b'9', ..])
}

/// A fraction, an exponent, or both.
fn is_tail(text: &[u8]) -> bool {
    let behind_digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = match text {
        [b'.', fraction @ ..] => match behind_digits(fraction) {
            0 => return false,
            count => &fraction[count..],
        },
        rest => rest,
    };
    match rest {
        [] => true,
        [b'e' | b'E', b'+' | b'-', digits @ ..] | [b'e' | b'E', digits @ ..] => {
            !digits.is_empty() && behind_digits(digits) == digits.len()
        }
        _ => false,
    }
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
        for wrong in ["", "-1", "-0", "+1", "01", "1.", ".5", "1e", "1e+", "1.e3", "1-2", "1.2.3", "1e2e3"] {
            assert_eq!(said(wrong), None, "{wrong:?}");
        }
    }
}
