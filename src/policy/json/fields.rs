//! Fields at the beginning of a request's body.

use std::borrow::Cow;
use std::sync::Arc;

use super::number::{canonical, units};
use super::path::JsonPath;
use super::scanner::{JsonValue, Scanner};

#[derive(Clone, Debug, Default)]
pub struct JsonFields {
    paths: Arc<[JsonPath]>,
    values: Vec<Option<JsonField>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonField {
    /// Its value: a string's text, or a number in the form that all of its spellings have. Empty if it is no number of JSON,
    /// or one that is too long to be kept.
    pub text: Box<str>,
    /// Whether another reader may find another value: it came again with another one or with none that counts, it is
    /// a number that is not JSON's or too long, or what stands behind it is no JSON. It is marked, because servers
    /// differ in what they take then.
    pub differs: bool,
    /// The largest number that it was.
    pub units: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct FieldProgress {
    field: Option<JsonField>,
    /// It came once with a value that does not count, or that readers take for different ones.
    is_void_once: bool,
}

impl JsonFields {
    /// Reads them from a body that begins with these pieces. A string, a number or a boolean is a value; `null`, an object
    /// and an array are not, nor is what is too long to be read.
    pub fn read<'b>(paths: &Arc<[JsonPath]>, pieces: impl IntoIterator<Item = &'b [u8]>) -> JsonFields {
        let mut found = vec![FieldProgress::default(); paths.len()];
        let mut scanner = Scanner::of_one(Arc::clone(paths));
        for piece in pieces {
            scanner.push(piece, |index, value| found[index].add(value));
        }
        let is_broken = scanner.is_broken();
        let values = found.into_iter().map(|found| {
            let differs = found.is_void_once || is_broken;
            found.field.map(|field| JsonField { differs: field.differs || differs, ..field })
        });
        JsonFields { paths: Arc::clone(paths), values: values.collect() }
    }

    pub fn get(&self, path: &JsonPath) -> Option<&JsonField> {
        let index = self.paths.iter().position(|known| known == path)?;
        self.values.get(index)?.as_ref()
    }
}

impl FieldProgress {
    fn add(&mut self, value: JsonValue<'_>) {
        let (text, number) = match value {
            JsonValue::Word("null") | JsonValue::Nothing => {
                self.is_void_once = true;
                return;
            }
            // Of paths with lists, which no field has.
            JsonValue::List | JsonValue::ListEnd | JsonValue::Member { .. } => return,
            JsonValue::Word(text) => (Some(Cow::Borrowed(text)), None),
            JsonValue::Text(text) => (Some(Cow::Borrowed(text)), units(text.as_bytes())),
            JsonValue::Number(text) => (canonical(text), units(text)),
            JsonValue::LongNumber { is_negative } => (None, (!is_negative).then_some(u64::MAX)),
        };
        self.is_void_once |= text.is_none();
        let text = text.unwrap_or_default();
        match &mut self.field {
            Some(known) => {
                known.differs |= *known.text != text;
                known.units = known.units.max(number);
            }
            unknown => *unknown = Some(JsonField { text: text.into(), differs: false, units: number }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(path: &str, body: &str) -> Option<JsonField> {
        let path = JsonPath::parse(path).expect("a path");
        let paths: Arc<[JsonPath]> = [JsonPath::parse("other").expect("a path"), path.clone()].into();
        let (before, behind) = body.as_bytes().split_at(body.len() / 2);
        JsonFields::read(&paths, [before, behind]).get(&path).cloned()
    }

    fn text(path: &str, body: &str) -> Option<String> {
        field(path, body).filter(|field| !field.differs).map(|field| field.text.into())
    }

    #[test]
    fn fields_are_found_in_what_has_come() {
        let body =
            r#"{"model":"large","max_tokens":500,"stream":true,"user":null,"meta":{"app":"x"},"messages":["#;
        assert_eq!(text("model", body).as_deref(), Some("large"));
        assert_eq!(text("meta.app", body).as_deref(), Some("x"));
        assert_eq!(text("stream", body).as_deref(), Some("true"));
        assert_eq!([text("user", body), text("messages", body), text("app", body)], [None, None, None]);
        assert_eq!(field("max_tokens", body).and_then(|field| field.units), Some(500));
        assert_eq!(text("model", "model=large&x={\"model\":\"small\"}"), None);
        assert_eq!(text("model", &format!("{{\"model\":\"{}\"}}", "m".repeat(257))), None);
    }

    #[test]
    fn a_field_that_comes_twice_counts_only_if_it_says_the_same() {
        assert_eq!(text("model", r#"{"model":"a","model":"a"}"#).as_deref(), Some("a"));
        assert_eq!(text("model", r#"{"model":"a","model":"b"}"#), None);
        let twice = field("n", r#"{"n":7,"n":3,"n":"9"}"#).expect("a field");
        assert_eq!((twice.units, twice.differs), (Some(9), true));
    }

    #[test]
    fn a_value_beside_one_that_does_not_count_is_ambiguous() {
        let long = format!("\"{}\"", "b".repeat(257));
        for void in ["null", "{}", "[]", "[\"b\"]", "{\"b\":1}", &long, "\"\\ud800\""] {
            for body in [
                format!(r#"{{"model":"b","model":{void}}}"#),
                format!(r#"{{"model":{void},"x":1,"model":"b"}}"#),
            ] {
                assert!(field("model", &body).is_some_and(|field| field.differs), "{body}");
            }
            assert_eq!(field("model", &format!(r#"{{"model":{void},"model":{void}}}"#)), None, "{void}");
            let deep = format!(r#"{{"meta":{{"app":"x"}},"meta":{void}}}"#);
            assert!(field("meta.app", &deep).is_some_and(|field| field.differs), "{deep}");
        }
        for (body, differs) in [
            (r#"{"meta":{"app":"x"},"meta":{"app":"x"}}"#, false),
            (r#"{"meta":{"app":"x","b":{}},"b":{"app":"y"}}"#, false),
            (r#"{"meta":{"app":"x"},"meta":5}"#, true),
            (r#"{"meta":{},"meta":{"app":"x"}}"#, true),
        ] {
            assert_eq!(field("meta.app", body).map(|field| field.differs), Some(differs), "{body}");
        }
    }

    #[test]
    fn only_one_whole_document_is_believed() {
        for body in ["{}{\"model\":\"b\"}", "[] {\"model\":\"b\"}", "1\n{\"model\":\"b\"}"] {
            assert_eq!(field("model", body), None, "{body}");
        }
        for behind in ["{\"model\":\"b\"}", "{}", " x", "\n\n0", "}", ",", "\0"] {
            let body = format!("{{\"model\":\"a\"}}{behind}");
            assert!(field("model", &body).is_some_and(|field| field.differs), "{body}");
        }
        for broken in [",}", ", \"b\"}", "/*", ",'model':'b'}", ";"] {
            let body = format!("{{\"model\":\"a\"{broken}");
            assert!(field("model", &body).is_some_and(|field| field.differs), "{body}");
        }
        for cut in ["", "}", "} \r\n\t", ",\"x", ",\"x\":\"\\u00"] {
            assert_eq!(text("model", &format!("{{\"model\":\"a\"{cut}")).as_deref(), Some("a"), "{cut:?}");
        }
    }

    #[test]
    fn a_number_too_long_to_be_read_is_beyond_every_bound() {
        let of =
            |number: &str| field("max_tokens", &format!("{{\"max_tokens\":{number}}}")).expect("a field");
        for digits in [257, 300, 9_000] {
            let long = of(&"9".repeat(digits));
            assert_eq!((long.units, long.differs), (Some(u64::MAX), true), "{digits} digits");
            assert_eq!(of(&format!("-{}", "9".repeat(digits))).units, None);
        }
        let both = format!(r#"{{"max_tokens":1,"max_tokens":{}}}"#, "9".repeat(300));
        assert!(field("max_tokens", &both).is_some_and(|field| field.differs));
    }

    #[test]
    fn a_number_is_read_in_a_string_too() {
        for (value, units) in [
            ("100", Some(100)),
            ("\"100\"", Some(100)),
            ("0100", Some(100)),
            ("\"1e2\"", Some(100)),
            ("\"large\"", None),
        ] {
            let found = field("max_tokens", &format!("{{\"max_tokens\":{value}}}")).expect("a field");
            assert_eq!(found.units, units, "{value}");
        }
    }

    #[test]
    fn spellings_of_one_value_are_one_and_what_is_no_number_is_ambiguous() {
        for one in ["7", "7.0", "7e0", "70e-1", "\"7\"", "\"\\u0037\"", "7,\"user\":7.0"] {
            assert_eq!(text("user", &format!("{{\"user\":{one}}}")).as_deref(), Some("7"), "{one}");
        }
        let long = format!("7.{}", "0".repeat(300));
        for wrong in ["07", "-07", "7.", "7e", "1-2", "-", "1e999", &long] {
            let found = field("user", &format!("{{\"user\":{wrong}}}"));
            assert!(found.is_some_and(|field| field.differs), "{wrong}");
        }
    }
}
