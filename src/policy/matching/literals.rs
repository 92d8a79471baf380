//! The literal children of all nodes of a tree, in one hash table from (parent, text) to child.
//!
//! A lookup touches two cache lines, the slot and its text; texts that several parents share are stored once. Open
//! addressing, linear probing, at most half full. The hash is fast and not keyed, because the operator's routes fill
//! the table, so a client can neither add to it nor make a probe longer than the longest run in it.

use std::collections::HashMap;
use std::num::NonZeroU32;

#[derive(Clone, Debug, Default)]
pub struct Literals {
    /// A power of two of them, or none.
    slots: Vec<Option<Slot>>,
    count: usize,
    texts: String,
    /// The position of each text in `texts`; used only while building.
    interned: HashMap<Box<str>, u32>,
    /// Length of the longest text, bytes, so that a longer segment is not even hashed.
    text_bytes_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    child: NonZeroU32,
    parent: u32,
    text_start: u32,
    text_bytes: u32,
    /// The upper half of the hash, which rules out nearly every other text without a look at it.
    tag: u32,
}

impl Literals {
    /// The child of a parent under this text.
    pub fn find(&self, parent: u32, text: &str) -> Option<NonZeroU32> {
        if self.slots.is_empty() || text.len() > self.text_bytes_max {
            return None;
        }
        let hash = hash(parent, text);
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        // It ends, because at least half of the slots are empty.
        while let Some(slot) = &self.slots[at] {
            if slot.tag == tag(hash) && slot.parent == parent && self.text(slot) == text.as_bytes() {
                return Some(slot.child);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Adds a child that is not there yet.
    pub fn insert(&mut self, parent: u32, text: &str, child: NonZeroU32) {
        if (self.count + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let text_start = match self.interned.get(text) {
            Some(&start) => start,
            None => {
                let start =
                    u32::try_from(self.texts.len()).expect("patterns of 4 GiB exceed any configuration");
                self.texts.push_str(text);
                self.interned.insert(text.into(), start);
                start
            }
        };
        let text_bytes = u32::try_from(text.len()).expect("patterns of 4 GiB exceed any configuration");
        self.text_bytes_max = self.text_bytes_max.max(text.len());
        self.count += 1;
        let hash = hash(parent, text);
        self.place(hash, Slot { child, parent, text_start, text_bytes, tag: tag(hash) });
    }

    fn grow(&mut self) {
        let room = (self.slots.len() * 2).max(16);
        let old = std::mem::replace(&mut self.slots, vec![None; room]);
        for slot in old.into_iter().flatten() {
            let start = slot.text_start as usize;
            let hash = hash(slot.parent, &self.texts[start..start + slot.text_bytes as usize]);
            self.place(hash, slot);
        }
    }

    fn place(&mut self, hash: u64, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at].is_some() {
            at = (at + 1) & mask;
        }
        self.slots[at] = Some(slot);
    }

    fn text(&self, slot: &Slot) -> &[u8] {
        let start = slot.text_start as usize;
        &self.texts.as_bytes()[start..start + slot.text_bytes as usize]
    }
}

/// Multiplies and folds eight bytes at a time.
fn hash(parent: u32, text: &str) -> u64 {
    let mut state = mix(u64::from(parent) << 32 | text.len() as u64);
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    for word in words {
        state = mix(state ^ u64::from_le_bytes(*word));
    }
    let last = rest.iter().fold(0, |last, byte| last << 8 | u64::from(*byte));
    mix(state ^ last)
}

/// The upper and lower half of a product depend on every bit of the factors (2^64 divided by the golden
/// ratio).
fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ 0x2545_f491_4f6c_dd1d) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn holds_what_a_map_holds(pairs in prop::collection::vec((0_u32..8, "[ab]{0,9}"), 0..200)) {
            let (mut literals, mut map) = (Literals::default(), HashMap::new());
            for ((parent, text), child) in pairs.into_iter().zip(1..) {
                let child = NonZeroU32::new(child).expect("counted from 1");
                prop_assert_eq!(literals.find(parent, &text), map.get(&(parent, text.clone())).copied());
                if map.insert((parent, text.clone()), child).is_none() {
                    literals.insert(parent, &text, child);
                } else {
                    map.insert((parent, text.clone()), literals.find(parent, &text).expect("inserted before"));
                }
            }
            for ((parent, text), child) in &map {
                prop_assert_eq!(literals.find(*parent, text), Some(*child));
                prop_assert_eq!(literals.find(*parent, &format!("{text}c")), None);
                prop_assert_eq!(literals.find(parent + 8, text), None);
            }
        }
    }
}
