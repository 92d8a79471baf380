//! The key of one limit: who is counted, in which window of which policy, as 128 bits.
//!
//! `policy::keys::key` makes keys by a keyed hash; this type only carries them. It does not know what
//! was hashed, and nothing can be read back from it.

/// Names one counter, here and in Redis. Because its bits are as good as random, users take parts of it instead of
/// hashing again, and take different parts where one choice must not decide another: the shard of a ring and the stripe
/// of a lock come from the high half, the home slot in a table from the low half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Key(u128);

impl Key {
    /// The key with these bits, which have to be as good as random.
    pub const fn new(bits: u128) -> Key {
        Key(bits)
    }

    /// All bits, as they are written into the key's name in Redis.
    #[inline]
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// The upper 64 bits, which choose the shard of a ring and the stripe of a lock.
    #[inline]
    pub const fn high(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// The lower 64 bits. With dedicated shards the lowest byte of them is the shard's number.
    #[inline]
    pub const fn low(self) -> u64 {
        self.0 as u64
    }
}
