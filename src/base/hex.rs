//! Numbers as small hexadecimal digits, eight digits at a time: ids of requests and traces are written with every request.

/// A long number and its digits: ids that are written several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HexNumber {
    pub number: u128,
    /// Its digits, the highest first.
    pub digits: [u8; 32],
}

impl HexNumber {
    pub fn of(number: u128) -> HexNumber {
        HexNumber { number, digits: long_digits(number) }
    }

    /// The number of these two halves.
    pub fn of_halves(high: u64, low: u64) -> HexNumber {
        HexNumber::of(u128::from(high) << 64 | u128::from(low))
    }
}

/// The digits of a number, the highest first.
pub fn digits(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    let (high, low) = digits.split_at_mut(8);
    high.copy_from_slice(&eight((number >> 32) as u32));
    low.copy_from_slice(&eight(number as u32));
    digits
}

/// The digits of a long one.
fn long_digits(number: u128) -> [u8; 32] {
    let mut all = [0; 32];
    let (high, low) = all.split_at_mut(16);
    high.copy_from_slice(&digits((number >> 64) as u64));
    low.copy_from_slice(&digits(number as u64));
    all
}

fn eight(number: u32) -> [u8; 8] {
    // Each of the eight halves of a byte comes into a byte of its own.
    let mut spread = u64::from(number);
    spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    spread = (spread | spread << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 in the bytes from ten on: six more than nine reaches the upper half.
    let letters = (spread + ALL * 6) >> 4 & ALL;
    (spread + ALL * u64::from(b'0') + letters * LETTERS_BEGIN).to_be_bytes()
}

const ALL: u64 = 0x0101_0101_0101_0101;
/// From the digit that would follow `9` to the letter that does.
const LETTERS_BEGIN: u64 = (b'a' - b'0' - 10) as u64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_those_of_the_formatter(number: u128) {
            let expected = format!("{number:032x}");
            let (long, short) = (long_digits(number), digits(number as u64));
            prop_assert_eq!(&long[..], expected.as_bytes());
            prop_assert_eq!(&short[..], &expected.as_bytes()[16..]);
        }
    }
}
