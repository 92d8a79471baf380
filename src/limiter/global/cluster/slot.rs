//! Slots of Redis Cluster, and the hash tags that keep the fleet's keys in few of them.
//!
//! The keys of one call must be in one slot. So a key's name carries one of [`TAGS`] tags, which are spread evenly over
//! the slots: few enough that calls gather many operations, and enough that every primary has some.

/// The slot of a key or tag: CRC-16/XMODEM modulo 16,384 (Redis Cluster specification, "Key distribution model").
pub(super) fn slot(text: &[u8]) -> u16 {
    let crc =
        text.iter().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            })
        });
    crc % SLOTS
}

/// The tags. The slots are divided into [`TAGS`] equal parts, and the tag of each part is the least number whose slot
/// is in it.
pub(in crate::global) fn tags() -> Vec<String> {
    let mut tags = vec![None; TAGS];
    let mut missing = TAGS;
    for number in 0_u32.. {
        let text = number.to_string();
        let part = usize::from(slot(text.as_bytes())) * TAGS / usize::from(SLOTS);
        if tags[part].is_none() {
            tags[part] = Some(text);
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags.into_iter().flatten().collect()
}

/// How many hash tags there are, and so shards of a cluster.
pub(super) const TAGS: usize = 64;
const SLOTS: u16 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
    }

    #[test]
    fn tags_are_short_and_spread_evenly() {
        let tags = tags();
        assert_eq!(tags.len(), TAGS);
        for (part, tag) in tags.iter().enumerate() {
            assert!(tag.len() <= 3);
            assert_eq!(usize::from(slot(tag.as_bytes())) / 256, part);
        }
    }
}
