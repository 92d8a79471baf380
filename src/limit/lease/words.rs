//! The bit layout of a lease's six words. What the fields mean is in the files beside it.
//!
//! | word | high bits to low bits |
//! |---|---|
//! | 0 | balance at the lease's end: signed, `2^-20` units |
//! | 1 | lease's end, 48 bits of `2^10` ns; last arrival, 16 bits of `2^22` ns, wrapping |
//! | 2 | rate the lease accrues, f32, units a second (of an exact window: seconds until it was whole); epoch of the lease, 24 bits, 0: none; flags, 8 |
//! | 3 | denied until, 48 bits of `2^10` ns (in fallback with a rate: since when); demand, 16 bits |
//! | 4 | last report, 32 bits of `2^20` ns, wrapping; most held above the last grant's, 16 bits; held after that, 16 |
//! | 5 | units offered since the last report, 32 bits; level in Redis (in fallback: units owed), f32 |

/// Six words; all zero is a key never seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Words(pub(super) [u64; 6]);

impl Words {
    /// What the node may spend in the whole lease, less what it has spent: `2^-20` units.
    #[inline]
    pub(super) fn balance(&self) -> i64 {
        self.0[0] as i64
    }

    #[inline]
    pub(super) fn set_balance(&mut self, balance: i64) {
        self.0[0] = balance as u64;
    }

    #[inline]
    pub(super) fn end_ns(&self) -> u64 {
        (self.0[1] >> 16) << TICK_BITS
    }

    /// Rounds down.
    pub(super) fn set_end_ns(&mut self, end_ns: u64) {
        self.0[1] = (ticks(end_ns) << 16) | (self.0[1] & 0xffff);
    }

    #[inline]
    pub(super) fn set_seen(&mut self, now_ns: u64) {
        self.0[1] = (self.0[1] & !0xffff) | ((now_ns >> SEEN_BITS) & 0xffff);
    }

    /// Nanoseconds since the last arrival, in steps of 4 ms, modulo 275 s.
    pub(super) fn unseen_ns(&self, now_ns: u64) -> u64 {
        let steps = ((now_ns >> SEEN_BITS) as u16).wrapping_sub(self.0[1] as u16);
        u64::from(steps) << SEEN_BITS
    }

    /// Units a second.
    #[inline]
    pub(super) fn rate(&self) -> f64 {
        f64::from(f32::from_bits((self.0[2] >> 32) as u32))
    }

    #[inline]
    pub(super) fn epoch(&self) -> u32 {
        (self.0[2] >> 8) as u32 & EPOCH_MASK
    }

    /// The rate is kept as an f32.
    pub(super) fn set_lease(&mut self, rate: f64, epoch: u32) {
        let lease = (u64::from((rate as f32).to_bits()) << 32) | (u64::from(epoch & EPOCH_MASK) << 8);
        self.0[2] = lease | (self.0[2] & 0xff);
    }

    #[inline]
    pub(super) fn deny_until_ns(&self) -> u64 {
        (self.0[3] >> 16) << TICK_BITS
    }

    /// Rounds down, so that a client is let ask a microsecond early rather than kept out late.
    pub(super) fn set_deny_until_ns(&mut self, until_ns: u64) {
        self.0[3] = (ticks(until_ns) << 16) | (self.0[3] & 0xffff);
    }

    /// Units a second, to 1/256 of it; 0: unknown.
    #[inline]
    pub(super) fn demand(&self) -> f64 {
        decode(self.0[3] as u16)
    }

    pub(super) fn set_demand(&mut self, demand: f64) {
        self.0[3] = (self.0[3] & !0xffff) | u64::from(encode(demand));
    }

    /// Nanoseconds since the last report, in steps of a millisecond, modulo 52 days.
    pub(super) fn unreported_ns(&self, now_ns: u64) -> u64 {
        let steps = ((now_ns >> REPORT_BITS) as u32).wrapping_sub((self.0[4] >> 32) as u32);
        u64::from(steps) << REPORT_BITS
    }

    /// How long before `end_ns` the last report was, nanoseconds, at most a millisecond less; 0: it was after it.
    pub(super) fn reported_before_ns(&self, end_ns: u64) -> u64 {
        let steps = ((end_ns >> REPORT_BITS) as u32).wrapping_sub((self.0[4] >> 32) as u32);
        u64::from((steps as i32).max(1) as u32 - 1) << REPORT_BITS
    }

    pub(super) fn set_reported_at(&mut self, now_ns: u64) {
        self.0[4] = (u64::from((now_ns >> REPORT_BITS) as u32) << 32) | (self.0[4] & 0xffff_ffff);
    }

    /// The demand last told to Redis: the last one measured, unless the lease has been returned since.
    pub(super) fn reported(&self) -> f64 {
        if self.has(Flag::Reported) { self.demand() } else { 0.0 }
    }

    /// Units by which what was held has exceeded `last_grant` since the last report, at most.
    #[inline]
    pub(super) fn excess(&self) -> f64 {
        decode((self.0[4] >> 16) as u16)
    }

    /// Rounds up.
    pub(super) fn set_excess(&mut self, units: f64) {
        let down = encode(units);
        let up = down.saturating_add(u16::from(decode(down) < units)).min(encode(f64::MAX));
        self.0[4] = (self.0[4] & !0xffff_0000) | (u64::from(up) << 16);
    }

    /// Units that Redis believes to be held since the last grant, rounded down by up to 1/256.
    pub(super) fn last_grant(&self) -> f64 {
        decode(self.0[4] as u16)
    }

    pub(super) fn set_last_grant(&mut self, units: f64) {
        self.0[4] = (self.0[4] & !0xffff) | u64::from(encode(units));
    }

    #[inline]
    pub(super) fn has(&self, flag: Flag) -> bool {
        self.0[2] & flag as u64 != 0
    }

    pub(super) fn raise(&mut self, flag: Flag) {
        self.0[2] |= flag as u64;
    }

    pub(super) fn lower(&mut self, flag: Flag) {
        self.0[2] &= !(flag as u64);
    }

    #[inline]
    pub(super) fn offered(&self) -> u32 {
        (self.0[5] >> 32) as u32
    }

    /// Saturates.
    #[inline]
    pub(super) fn add_offered(&mut self, units: u64) {
        let offered = u64::from(self.offered()).saturating_add(units).min(u64::from(u32::MAX));
        self.0[5] = (offered << 32) | (self.0[5] & 0xffff_ffff);
    }

    pub(super) fn set_offered(&mut self, units: u32) {
        self.0[5] = (u64::from(units) << 32) | (self.0[5] & 0xffff_ffff);
    }

    /// Units left in Redis; in fallback: units owed to it.
    #[inline]
    pub(super) fn level(&self) -> f64 {
        f64::from(f32::from_bits(self.0[5] as u32))
    }

    pub(super) fn set_level(&mut self, level: f64) {
        self.0[5] = (self.0[5] & !0xffff_ffff) | u64::from((level as f32).to_bits());
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Flag {
    InFlight = 1,
    /// The one unit that may be owed until Redis answers is spent.
    Overdrawn = 2,
    /// Redis is down: the words are a bucket of this node's own.
    Fallback = 4,
    /// What is left of the limit is known, from Redis or from an earlier fallback.
    Known = 8,
    /// Requests still come, but farther apart than the last reported demand says.
    Sparse = 16,
    /// The overdrawn unit is not covered by what is held, which is too old to be spent.
    Owing = 32,
    /// Redis counts the last measured demand.
    Reported = 64,
    /// Its epoch is the first after a time without a lease. In fallback: Redis was down, not only slow.
    Fresh = 128,
}

/// A demand as the words keep it, to 1/256.
pub(super) fn rounded(demand: f64) -> f64 {
    decode(encode(demand))
}

/// A binary fraction of 8 digits: the upper bits of an f32 without its sign.
fn encode(demand: f64) -> u16 {
    // A known demand is never rounded to 0, because that means unknown. The largest f32 fits 16 bits.
    (((demand.max(0.0) as f32).min(f32::MAX).to_bits() >> 15) as u16).max(u16::from(demand > 0.0))
}

#[inline]
fn decode(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 15))
}

fn ticks(ns: u64) -> u64 {
    (ns >> TICK_BITS).min((1 << 48) - 1)
}

/// A tick is 1,024 ns: 48 bits of them are nine years.
const TICK_BITS: u32 = 10;
const EPOCH_MASK: u32 = (1 << 24) - 1;
const SEEN_BITS: u32 = 22;
/// The last arrival is known to this many nanoseconds.
pub(super) const SEEN_STEP_NS: u64 = 1 << SEEN_BITS;
pub(super) const REPORT_STEP_NS: u64 = 1 << REPORT_BITS;
const REPORT_BITS: u32 = 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_field_touches_another(
            words in prop::array::uniform6(any::<u64>()), value in any::<u64>(), field in 0usize..12,
        ) {
            let (before, mut words) = (Words(words), Words(words));
            let number = f64::from(value as u32);
            let set = |words: &mut Words| match field {
                0 => words.set_balance(value as i64),
                1 => words.set_end_ns(value >> 6),
                2 => words.set_seen(value),
                3 => words.set_lease(number, value as u32),
                4 => words.set_deny_until_ns(value >> 6),
                5 => words.set_demand(number),
                6 => words.set_reported_at(value),
                7 => words.set_excess(number),
                8 => words.set_last_grant(number),
                9 => words.set_offered(value as u32),
                10 => words.set_level(number),
                _ => words.raise(Flag::Overdrawn),
            };
            set(&mut words);
            // Bits, because a field may hold a NaN of the random words.
            let fields = |words: &Words| [
                words.balance() as u64, words.end_ns(), words.0[1] & 0xffff, words.0[2] >> 8, words.deny_until_ns(),
                words.0[3] & 0xffff, words.0[4] >> 32, words.0[4] >> 16 & 0xffff, words.0[4] & 0xffff,
                u64::from(words.offered()), words.0[5] & 0xffff_ffff, words.0[2] & 0xff,
            ];
            for (index, (before, after)) in fields(&before).iter().zip(fields(&words)).enumerate() {
                prop_assert!(index == field || *before == after, "field {} changed {}", field, index);
            }
        }

        #[test]
        fn a_demand_is_kept_to_a_part_in_256(demand in 1e-6f64..1e12) {
            let kept = rounded(demand);
            prop_assert!(kept <= demand * (1.0 + 1e-6) && kept >= demand * (1.0 - 1.0 / 256.0));
            prop_assert_eq!(rounded(kept), kept);
        }
    }
}
