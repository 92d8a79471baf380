//! Memory for slots: zero at first, and backed by the kernel only where it is touched.
//!
//! Keys are spread over all of it. With pages of 2 MiB a few hundred keys would make a whole table resident; with pages
//! of 4 KiB, finding one of ten million keys also waits for the page's address to be looked up: 500 ns instead of 345.
//! So a table that is configured large, and thus meant for many keys, has large pages, and a smaller one small pages.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use memmap2::{Advice, MmapMut};
use zerocopy::FromBytes;

/// A block of zeroed words.
#[derive(Debug)]
pub(super) enum ZeroedWords {
    /// In small pages, freed with the table.
    Small(Box<[AtomicU64]>),
    /// In large pages, never freed, because a gateway makes its table once, when it starts.
    Large(&'static [AtomicU64]),
}

impl ZeroedWords {
    /// A block of `count` words, in large pages from [`LARGE_WORDS`] on if the system has any.
    pub(super) fn zeroed(count: usize) -> ZeroedWords {
        let large = if count >= LARGE_WORDS { large(count) } else { None };
        large.map_or_else(|| ZeroedWords::Small(bytemuck::zeroed_slice_box(count)), ZeroedWords::Large)
    }
}

impl Deref for ZeroedWords {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        match self {
            ZeroedWords::Small(words) => words,
            ZeroedWords::Large(words) => words,
        }
    }
}

/// `None` if the system has no large pages, or too little memory in them.
fn large(count: usize) -> Option<&'static [AtomicU64]> {
    let memory = MmapMut::map_anon(count * size_of::<AtomicU64>()).ok()?;
    memory.advise(Advice::HugePage).ok()?;
    let memory: &'static mut MmapMut = Box::leak(Box::new(memory));
    <[AtomicU64]>::mut_from_bytes(memory).ok().map(|words| &*words)
}

/// From this size on pages are large: 256 MiB, which is eight million slots of 32 bytes.
const LARGE_WORDS: usize = (256 << 20) / size_of::<AtomicU64>();

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn words_are_zero_and_as_many_as_asked_for_in_either_page() {
        for count in [1000, LARGE_WORDS] {
            let words = ZeroedWords::zeroed(count);
            assert_eq!(words.len(), count);
            assert_eq!(matches!(words, ZeroedWords::Large(_)), count == LARGE_WORDS);
            for index in [0, count / 2, count - 1] {
                assert_eq!(words[index].swap(7, Relaxed), 0);
            }
        }
    }
}
