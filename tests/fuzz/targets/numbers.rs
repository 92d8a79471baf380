//! What an answer says it cost: the same in one piece and in many, and what serde_json finds in what is valid. The first
//! byte says how it comes, the rest is the answer.

#![no_main]

use std::fmt;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use policy::json::{AnswerForm, JsonPath, Numbers, TOKEN_BYTES_MAX};
use serde_json::de::{Deserializer, SliceRead, StreamDeserializer};

fuzz_target!(|input: &[u8]| {
    let Some((&kind, text)) = input.split_first() else { return };
    let form = if kind & 1 == 0 { AnswerForm::Documents } else { AnswerForm::Events };
    let mut whole = Numbers::new(Arc::clone(&PATHS), form);
    whole.push(text);
    let mut pieces = Numbers::new(Arc::clone(&PATHS), form);
    text.chunks(usize::from(kind >> 1) + 1).for_each(|piece| pieces.push(piece));
    let found = |numbers: &Numbers| (0..PATHS.len()).map(|path| numbers.last(path)).collect::<Vec<_>>();
    assert_eq!(found(&whole), found(&pieces), "pieces say the same");
    if is_beyond_bounds(text) {
        return;
    }
    let documents = match form {
        AnswerForm::Documents => vec![text.to_vec()],
        AnswerForm::Events => events(text),
    };
    // serde_json is asked for the last number, not for sums of lists.
    for (path, found) in PATHS.iter().zip(found(&whole)).filter(|(path, _)| path.adds_up_at().is_none()) {
        let mut expected = None;
        // In what is broken more may be found than serde_json hands on, so nothing is compared.
        if documents.iter().all(|document| read(document, path, &mut expected)) {
            assert!(is_alike(found, expected), "{path}: {found:?}, and serde_json finds {expected:?}");
        }
    }
});

static PATHS: LazyLock<Arc<[JsonPath]>> = LazyLock::new(|| {
    ["usage.total_tokens", "usage", "a", "a.b.c", "usage.*.tokens", "a.*"]
        .map(|path| JsonPath::parse_with_lists(path).expect("a path"))
        .into()
});

/// Deeper JSON and longer numbers are not read.
fn is_beyond_bounds(text: &[u8]) -> bool {
    let brackets = text.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
    let is_of_number = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let longest = text.split(|byte| !is_of_number(byte)).map(<[u8]>::len).max();
    brackets >= 127 || longest.unwrap_or(0) > TOKEN_BYTES_MAX
}

/// The data of each event of a stream, read at leisure.
fn events(text: &[u8]) -> Vec<Vec<u8>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let (mut events, mut data, mut at) = (Vec::new(), Vec::new(), 0);
    while at < text.len() {
        let length = text[at..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let line = &text[at..at + length.unwrap_or(text.len() - at)];
        at += line.len() + if text[at + line.len()..].starts_with(b"\r\n") { 2 } else { 1 };
        if line.is_empty() {
            events.push(std::mem::take(&mut data));
        } else if let Some(value) = line.strip_prefix(b"data:") {
            data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            // The last line of a stream may go on: no line feed is added to what has not ended.
            if length.is_some() {
                data.push(b'\n');
            }
        }
    }
    events.push(data);
    events
}

/// Reads a document, or several; false if it is not valid. What is cut off is valid to there.
fn read(document: &[u8], path: &JsonPath, last: &mut Option<u64>) -> bool {
    let values: StreamDeserializer<'_, SliceRead<'_>, serde_json::Value> =
        Deserializer::from_slice(document).into_iter();
    let mut count = 0;
    for value in values {
        match value {
            Ok(_) => count += 1,
            Err(_) => return false,
        }
    }
    let mut reader = Deserializer::from_slice(document);
    (0..count).all(|_| {
        serde::de::DeserializeSeed::deserialize(Probe { names: path.names(), last }, &mut reader).is_ok()
    })
}

/// Reads a value and keeps the last number at a path, also of names that come twice.
struct Probe<'p> {
    names: &'p [Box<str>],
    last: &'p mut Option<u64>,
}

impl<'de> serde::de::DeserializeSeed<'de> for Probe<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> serde::de::Visitor<'de> for Probe<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            match self.names.split_first() {
                Some((first, names)) if **first == *name => {
                    map.next_value_seed(Probe { names, last: self.last })?;
                }
                _ => {
                    map.next_value::<serde::de::IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Probe { names: self.names, last: self.last })?.is_some() {}
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        if self.names.is_empty() {
            *self.last = Some(number);
        }
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        if self.names.is_empty() && number.is_sign_positive() {
            *self.last = Some(number.ceil() as u64);
        }
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Equal as far as doubles tell.
fn is_alike(one: Option<u64>, other: Option<u64>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.abs_diff(other) as f64 <= 1.0 + one as f64 * 1e-9,
        (one, other) => one == other,
    }
}
