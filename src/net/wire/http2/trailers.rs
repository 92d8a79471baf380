//! Finds pseudo-headers where RFC 9113 forbids them and hyper silently drops them: in trailers (section 8.1), and those of
//! a request in an answer (section 8.3.2).
//!
//! It reads only as much of HPACK (RFC 7541) as that needs: it decodes no value and keeps no dynamic table. So it misses a
//! pseudo-header that an earlier head put into the table; hyper still drops that one.

use super::splitter::{FrameHead, HAS_PRIORITY, PADDED};

/// Whether the payload of HEADERS names a pseudo-header. An unreadable payload is left for hyper to refuse.
pub fn have_pseudo(head: FrameHead, payload: &[u8]) -> bool {
    let Some(mut block) = fields(head, payload) else { return false };
    while let Some(field) = next(&mut block) {
        let is_pseudo = match field {
            FieldRepresentation::Table(index) | FieldRepresentation::Named(index, _) => {
                (1..=PSEUDO_LAST).contains(&index)
            }
            FieldRepresentation::Literal(name, _) => begins_with_colon(name),
            FieldRepresentation::Resize => false,
        };
        if is_pseudo {
            return true;
        }
    }
    false
}

/// What an answer's head begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadStart {
    /// A pseudo-header that only a request may have, beside a status: without one the implementation refuses it.
    pub is_of_a_request: bool,
    /// A status that says that another answer follows (RFC 9110 section 15.2).
    pub is_interim: bool,
}

/// Looks at the pseudo-headers in the fields of a server, trailers included. This ends at the first field that is none
/// (two or three bytes, as a rule), because they come first: the implementation refuses others. A field of the dynamic
/// table may be a status that came before.
pub fn beginning(mut block: &[u8]) -> HeadStart {
    let mut found = HeadStart::default();
    let (mut is_first, mut has_status) = (true, false);
    while let Some(field) = next(&mut block) {
        has_status |= match field {
            FieldRepresentation::Table(index) | FieldRepresentation::Named(index, _) => {
                (STATUS_FIRST..=PSEUDO_LAST).contains(&index) || index >= TABLE_DYNAMIC
            }
            FieldRepresentation::Literal(name, _) => is_status(name),
            FieldRepresentation::Resize => false,
        };
        match field {
            FieldRepresentation::Table(STATUS_FIRST..=PSEUDO_LAST) | FieldRepresentation::Resize => {}
            FieldRepresentation::Table(1..=PSEUDO_LAST) | FieldRepresentation::Named(1..STATUS_FIRST, _) => {
                found.is_of_a_request = true
            }
            FieldRepresentation::Named(STATUS_FIRST..=PSEUDO_LAST, value) => {
                found.is_interim |= begins_with_one(value)
            }
            FieldRepresentation::Literal(name, value) if is_status(name) => {
                found.is_interim |= begins_with_one(value)
            }
            FieldRepresentation::Literal(name, _) if begins_with_colon(name) => found.is_of_a_request = true,
            // The name is in the dynamic table, which is not kept here. As the first field it must be the status.
            FieldRepresentation::Named(TABLE_DYNAMIC.., value) if is_first => {
                found.is_interim |= begins_with_one(value)
            }
            FieldRepresentation::Table(TABLE_DYNAMIC..) | FieldRepresentation::Named(TABLE_DYNAMIC.., _) => {}
            FieldRepresentation::Table(_)
            | FieldRepresentation::Named(..)
            | FieldRepresentation::Literal(..) => break,
        }
        is_first &= field == FieldRepresentation::Resize;
    }
    found.is_of_a_request &= has_status;
    found
}

/// The fields in the payload of HEADERS, without padding and priority (RFC 9113 section 6.2).
pub fn fields(head: FrameHead, payload: &[u8]) -> Option<&[u8]> {
    let mut block = payload;
    if head.flags & PADDED != 0 {
        let (padding, rest) = block.split_first()?;
        block = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
    }
    if head.flags & HAS_PRIORITY != 0 { block.get(5..) } else { Some(block) }
}

/// One representation (RFC 7541 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldRepresentation<'a> {
    Table(usize),
    /// A name of the table with this value.
    Named(usize, Text<'a>),
    Literal(Text<'a>, Text<'a>),
    /// A new size of the dynamic table.
    Resize,
}

/// A string, and whether it is in Huffman's code.
type Text<'a> = (bool, &'a [u8]);

/// Takes one representation; `None` at the end, and where it is cut short.
fn next<'a>(block: &mut &'a [u8]) -> Option<FieldRepresentation<'a>> {
    let (prefix, is_literal) = match *block.first()? {
        0x80.. => (7, false),
        0x40.. => (6, true),
        0x20.. => return integer(block, 5).map(|_| FieldRepresentation::Resize),
        _ => (4, true),
    };
    let index = integer(block, prefix)?;
    match (is_literal, index) {
        (false, index) => Some(FieldRepresentation::Table(index)),
        (true, 0) => Some(FieldRepresentation::Literal(string(block)?, string(block)?)),
        (true, index) => Some(FieldRepresentation::Named(index, string(block)?)),
    }
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
fn string<'a>(block: &mut &'a [u8]) -> Option<Text<'a>> {
    let is_huffman = *block.first()? & 0x80 != 0;
    let length = integer(block, 7)?;
    let text = block.get(..length)?;
    *block = &block[length..];
    Some((is_huffman, text))
}

/// `:` is 1011100 in Huffman's code.
fn begins_with_colon((is_huffman, text): Text<'_>) -> bool {
    let first = text.first().copied().unwrap_or_default();
    if is_huffman { first >> 1 == 0b101_1100 } else { first == b':' }
}

/// `1` is 00001 in Huffman's code.
fn begins_with_one((is_huffman, text): Text<'_>) -> bool {
    let first = text.first().copied().unwrap_or_default();
    if is_huffman { first >> 3 == 0b00001 } else { first == b'1' }
}

fn is_status((is_huffman, name): Text<'_>) -> bool {
    name == if is_huffman { STATUS_HUFFMAN } else { STATUS }
}

/// Entries of the static table up to here are pseudo-headers (RFC 7541 appendix A), and from the first of these on they
/// are `:status`.
const PSEUDO_LAST: usize = 14;
const STATUS_FIRST: usize = 8;
/// Entries from here on are of the dynamic table.
const TABLE_DYNAMIC: usize = 62;
const STATUS: &[u8] = b":status";
const STATUS_HUFFMAN: &[u8] = b"\xb8\x84\x8d\x36\xa3";

#[cfg(test)]
mod tests {
    use super::*;

    fn pseudo(flags: u8, payload: &[u8]) -> bool {
        let head = FrameHead { kind: 1, flags, stream: 1, length: payload.len() as u32, code: 0 };
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

    #[test]
    fn what_an_answer_begins_with_is_found_in_every_spelling() {
        let begins = |block: &[u8]| {
            let HeadStart { is_of_a_request, is_interim } = beginning(block);
            (is_of_a_request, is_interim)
        };
        for block in [
            &b"\x88\x84"[..],
            b"\x88\x04\x01/",
            b"\x84\x88",
            b"\x88\x00\x05:path\x01/",
            b"\x88\x40\x84\xb9\x58\xd3\x3f\x01/",
            b"\xbe\x84",
            b"\x3f\xe1\x1f\x88\x84",
        ] {
            assert_eq!(begins(block), (true, false), "{block:x?}");
        }
        for block in [
            &b"\x08\x03103"[..],
            b"\x48\x82\x08\x19",
            b"\x00\x07:status\x03100",
            b"\x00\x85\xb8\x84\x8d\x36\xa3\x03103",
            b"\x7f\x00\x03102",
        ] {
            assert_eq!(begins(block), (false, true), "{block:x?}");
        }
        for block in [
            &b"\x88"[..],
            b"\x08\x03200",
            b"\x88\xbe\x5f\x01a",
            b"\x00\x07:status\x03301",
            b"\x88\x00\x01a\x01b\x84",
            b"\x82\x84\x86",
            b"\x88\x7f\x00\x03102",
            b"\x40\x0bgrpc-status\x010",
            b"",
        ] {
            assert_eq!(begins(block), (false, false), "{block:x?}");
        }
    }
}
