//! Attributes of spans, events and resources. What is empty is left out.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

/// Attributes that are being gathered.
#[derive(Debug, Default)]
pub struct Attributes(pub Vec<KeyValue>);

impl Attributes {
    /// Adds a text, cut after 2 KiB; bytes that are no text are replaced.
    pub fn text(&mut self, key: &str, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        let kept = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
        self.add(key, Value::StringValue(String::from_utf8_lossy(kept).into_owned()));
    }

    /// Adds a number; one that is too large becomes the largest.
    pub fn number(&mut self, key: &str, number: u64) {
        self.add(key, Value::IntValue(i64::try_from(number).unwrap_or(i64::MAX)));
    }

    fn add(&mut self, key: &str, value: Value) {
        let value = Some(AnyValue { value: Some(value) });
        self.0.push(KeyValue { key: key.to_owned(), value, ..KeyValue::default() });
    }
}

/// Bytes kept of a text.
const TEXT_BYTES_MAX: usize = 2048;
