//! A message of Protocol Buffers, written field by field into one buffer.
//!
//! It is written at once, because a span as a value of its own is some eighty allocations that another thread frees,
//! and is measured four times before it is written: more than everything else that a sampled request pays.

use bytes::Bytes;
use prost::encoding::{WireType, encode_varint, encoded_len_varint};

/// What is being written. Fields that are empty or 0 are left out, because readers take a missing one for that.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

/// The value of an attribute (`AnyValue`).
#[derive(Clone, Copy, Debug)]
pub(super) enum AttributeValue<'v> {
    /// UTF-8.
    Text(&'v [u8]),
    Number(i64),
}

impl Message {
    pub(super) fn with_capacity(bytes: usize) -> Message {
        Message(Vec::with_capacity(bytes))
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.nested(field, bytes);
        }
    }

    /// Adds a message, also an empty one.
    pub(super) fn message(&mut self, field: u32, message: &Message) {
        self.nested(field, &message.0);
    }

    /// Adds an integer, or a number of an enumeration.
    pub(super) fn varint(&mut self, field: u32, number: u64) {
        if number > 0 {
            put_key(field, WireType::Varint, &mut self.0);
            put_varint(number, &mut self.0);
        }
    }

    pub(super) fn fixed32(&mut self, field: u32, number: u32) {
        if number > 0 {
            put_key(field, WireType::ThirtyTwoBit, &mut self.0);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    pub(super) fn fixed64(&mut self, field: u32, number: u64) {
        if number > 0 {
            put_key(field, WireType::SixtyFourBit, &mut self.0);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Adds an attribute (`KeyValue`).
    pub(super) fn attribute(&mut self, field: u32, key: &str, value: AttributeValue<'_>) {
        let value_length = match value {
            AttributeValue::Text(text) => length(text.len()),
            AttributeValue::Number(number) => KEY_BYTES + encoded_len_varint(number.cast_unsigned()),
        };
        put_key(field, WireType::LengthDelimited, &mut self.0);
        put_varint((length(key.len()) + length(value_length)) as u64, &mut self.0);
        self.nested(KEY, key.as_bytes());
        put_key(VALUE, WireType::LengthDelimited, &mut self.0);
        put_varint(value_length as u64, &mut self.0);
        match value {
            AttributeValue::Text(text) => self.nested(TEXT, text),
            AttributeValue::Number(number) => {
                put_key(NUMBER, WireType::Varint, &mut self.0);
                put_varint(number.cast_unsigned(), &mut self.0);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn into_bytes(self) -> Bytes {
        self.0.into()
    }

    fn nested(&mut self, field: u32, bytes: &[u8]) {
        put_key(field, WireType::LengthDelimited, &mut self.0);
        put_varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
    }
}

/// Adds a key; see [`put_varint`].
#[inline]
fn put_key(field: u32, wire: WireType, out: &mut Vec<u8>) {
    put_varint(u64::from(field << 3 | wire as u32), out);
}

/// Adds a number, by hand because nearly all of the two hundred in a span are lengths and keys of one byte, which
/// prost's own function, a call for each, takes three times as long for.
#[inline]
fn put_varint(number: u64, out: &mut Vec<u8>) {
    match u8::try_from(number) {
        Ok(byte) if byte < 0x80 => out.push(byte),
        _ => encode_varint(number, out),
    }
}

/// Bytes of a field with a length, whose number is small.
fn length(bytes: usize) -> usize {
    KEY_BYTES + encoded_len_varint(bytes as u64) + bytes
}

/// Bytes of a key before a field whose number is less than sixteen.
const KEY_BYTES: usize = 1;
/// Fields of `KeyValue`.
const KEY: u32 = 1;
const VALUE: u32 = 2;
/// Fields of `AnyValue`.
const TEXT: u32 = 1;
const NUMBER: u32 = 3;
