//! Trailers with pseudo-headers, which RFC 9113 section 8.1 calls malformed and hyper passes over in silence.
//!
//! This reads as much of HPACK (RFC 7541) as that takes: it decodes no value and keeps no dynamic table, so a
//! pseudo-header that an earlier head left in the table is not seen. It would not reach anybody either.

use super::splitter::{HAS_PRIORITY, Head, PADDED};

/// Whether the payload of HEADERS names a pseudo-header. What cannot be read is the protocol's to refuse.
pub fn have_pseudo(head: Head, payload: &[u8]) -> bool {
    let Some(mut block) = fields(head, payload) else { return false };
    while !block.is_empty() {
        match next_is_pseudo(&mut block) {
            Some(true) => return true,
            Some(false) => {}
            None => return false,
        }
    }
    false
}

/// The fields without padding and priority (RFC 9113 section 6.2).
fn fields(head: Head, payload: &[u8]) -> Option<&[u8]> {
    let mut block = payload;
    if head.flags & PADDED != 0 {
        let (padding, rest) = block.split_first()?;
        block = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
    }
    if head.flags & HAS_PRIORITY != 0 { block.get(5..) } else { Some(block) }
}

/// Passes over one representation (RFC 7541 section 6); `None` where it is cut short.
fn next_is_pseudo(block: &mut &[u8]) -> Option<bool> {
    let first = *block.first()?;
    let (prefix, is_literal) = match first {
        0x80.. => (7, false),
        0x40.. => (6, true),
        // A new size of the dynamic table.
        0x20.. => return integer(block, 5).map(|_| false),
        _ => (4, true),
    };
    let index = integer(block, prefix)?;
    let mut is_pseudo = (1..=PSEUDO_LAST).contains(&index);
    if is_literal {
        if index == 0 {
            is_pseudo = begins_with_colon(string(block)?);
        }
        string(block)?;
    }
    Some(is_pseudo)
}

/// An integer behind a prefix of so many bits (RFC 7541 section 5.1).
fn integer(block: &mut &[u8], prefix: u32) -> Option<usize> {
    let (first, mut rest) = block.split_first()?;
    let full = (1 << prefix) - 1;
    let mut value = usize::from(*first) & full;
    if value == full {
        for shift in [0, 7, 14, 21] {
            let (byte, behind) = rest.split_first()?;
            rest = behind;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                *block = rest;
                return Some(value);
            }
        }
        return None;
    }
    *block = rest;
    Some(value)
}

/// A string, and whether it is in Huffman's code (RFC 7541 section 5.2).
fn string<'a>(block: &mut &'a [u8]) -> Option<(bool, &'a [u8])> {
    let is_huffman = *block.first()? & 0x80 != 0;
    let length = integer(block, 7)?;
    let text = block.get(..length)?;
    *block = &block[length..];
    Some((is_huffman, text))
}

/// `:` is 1011100 in Huffman's code.
fn begins_with_colon((is_huffman, text): (bool, &[u8])) -> bool {
    let first = text.first().copied().unwrap_or_default();
    if is_huffman { first >> 1 == 0b101_1100 } else { first == b':' }
}

/// Entries of the static table up to here are pseudo-headers (RFC 7541 appendix A).
const PSEUDO_LAST: usize = 14;

#[cfg(test)]
mod tests {
    use super::*;

    fn pseudo(flags: u8, payload: &[u8]) -> bool {
        let head = Head { kind: 1, flags, stream: 1, length: payload.len() as u32, code: 0 };
        have_pseudo(head, payload)
    }

    #[test]
    fn a_pseudo_header_is_found_in_every_spelling() {
        for block in [
            &b"\x82"[..],
            b"\x42\x03200",
            b"\x0e\x03200",
            b"\x00\x05:path\x01/",
            b"\x40\x84\xb9\x58\xd3\x3f\x01/",
            b"\x40\x01a\x01b\x00\x01:\x00",
            b"\x3f\xe1\x1f\x84",
        ] {
            assert!(pseudo(4, block), "{block:x?}");
        }
        assert!(pseudo(4 | PADDED, b"\x02\x82\0\0"));
        assert!(pseudo(4 | HAS_PRIORITY, b"\0\0\0\0\x10\x82"));
    }

    #[test]
    fn other_fields_are_none_whatever_their_values_are() {
        for block in [
            &b""[..],
            b"\x00\x03a:b\x02:c",
            b"\x8f\xbe\xff\x82\x02",
            b"\x40\x81\x1f\x82\xb9\x58",
            b"\x40\x01a\x05b",
            b"\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(!pseudo(4, block), "{block:x?}");
        }
        assert!(!pseudo(4 | PADDED, b"\x01\x82"), "the padding looks like one");
        assert!(!pseudo(4 | PADDED, b"\x09\x82"));
    }
}
