//! Ids of rows: 128 bits as 26 letters. The first 48 bits are the time, then come 32 of the version, so that the order of ids
//! is the order of changes.

use aws_lc_rs::rand;

use super::time::Time;

/// A new id, in the form of a ULID: 48 bits of milliseconds and 80 others, in Crockford's base 32.
pub(super) fn new(now: Time, version: i64) -> String {
    let mut random = [0; 16];
    // This does not fail, because a system without random bytes has ended the process before: no TLS listener would
    // have opened.
    rand::fill(&mut random).expect("the system has random bytes");
    encoded(now, version, u128::from_be_bytes(random))
}

fn encoded(now: Time, version: i64, random: u128) -> String {
    let millis = u128::try_from(now.0.max(0) / 1_000).unwrap_or_default() & mask(TIME_BITS);
    let version = u128::from(version.unsigned_abs()) & mask(VERSION_BITS);
    let bits = millis << (VERSION_BITS + RANDOM_BITS) | version << RANDOM_BITS | random & mask(RANDOM_BITS);
    (0..LETTERS).rev().map(|at| char::from(ALPHABET[(bits >> (5 * at) & 31) as usize])).collect()
}

const fn mask(bits: u32) -> u128 {
    (1 << bits) - 1
}

const TIME_BITS: u32 = 48;
const VERSION_BITS: u32 = 32;
const RANDOM_BITS: u32 = 48;
/// 26 letters of 5 bits hold 130; the first is 7 at most.
const LETTERS: u32 = 26;
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_order_of_time() {
        // The example of the specification of ULIDs.
        let now = Time(1_469_918_176_385_000);
        assert_eq!(encoded(now, 0, 0), "01ARYZ6S410000000000000000");
        assert_eq!(encoded(now, i64::from(u32::MAX), u128::MAX), "01ARYZ6S41ZZZZZZZZZZZZZZZZ");
        assert!(encoded(now, 7, u128::MAX) < encoded(now, 8, 0));
        assert!(encoded(now, 8, u128::MAX) < encoded(Time(now.0 + 1_000), 0, 0));
        assert_eq!(encoded(Time(i64::MAX), i64::MIN, u128::MAX).len(), 26);
        assert_ne!(new(now, 7), new(now, 7));
    }
}
