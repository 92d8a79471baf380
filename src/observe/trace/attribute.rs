//! Attributes of spans, events and resources. What is empty is left out.

use super::message::{AttributeValue, Message};

#[derive(Debug)]
pub struct Attributes<'m> {
    message: &'m mut Message,
    field: u32,
}

impl Attributes<'_> {
    pub(super) fn of(message: &mut Message, field: u32) -> Attributes<'_> {
        Attributes { message, field }
    }

    /// Adds a text, cut after 2 KiB; bytes that are no text are replaced.
    pub fn text(&mut self, key: &str, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        let kept = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
        // Told apart, because nearly all is ASCII, and to decode it would take five times as long.
        if kept.is_ascii() {
            self.message.attribute(self.field, key, AttributeValue::Text(kept));
        } else {
            self.message.attribute(
                self.field,
                key,
                AttributeValue::Text(String::from_utf8_lossy(kept).as_bytes()),
            );
        }
    }

    /// Adds a number; one that is too large becomes the largest.
    pub fn number(&mut self, key: &str, number: u64) {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        self.message.attribute(self.field, key, AttributeValue::Number(number));
    }
}

const TEXT_BYTES_MAX: usize = 2048;
