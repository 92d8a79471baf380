//! Fields at the beginning of a request's body.

use std::sync::Arc;

use super::number::units;
use super::path::Path;
use super::scanner::{Scanner, Value};

/// What was found of some fields.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    paths: Arc<[Path]>,
    values: Vec<Option<Field>>,
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its value: a string's text, or a number as it is written.
    pub text: Box<str>,
    /// Whether it came again with another value. Servers differ in which of them they take.
    pub differs: bool,
    /// The largest number that it was.
    pub units: Option<u64>,
}

impl Fields {
    /// Reads them from a body that begins with these pieces. A string, a number or a boolean is a value; `null`, an object
    /// and an array are not.
    pub fn read<'b>(paths: &Arc<[Path]>, pieces: impl IntoIterator<Item = &'b [u8]>) -> Fields {
        let mut fields = Fields { paths: Arc::clone(paths), values: vec![None; paths.len()] };
        let mut scanner = Scanner::new(Arc::clone(paths));
        for piece in pieces {
            scanner.push(piece, |index, value| fields.add(index, value));
        }
        fields
    }

    /// The field at a path that was looked for.
    pub fn get(&self, path: &Path) -> Option<&Field> {
        let index = self.paths.iter().position(|known| known == path)?;
        self.values.get(index)?.as_ref()
    }

    fn add(&mut self, index: usize, value: Value<'_>) {
        let (text, number) = match value {
            Value::Word("null") => return,
            Value::Word(text) | Value::Text(text) => (text, None),
            Value::Number(text) => (std::str::from_utf8(text).unwrap_or_default(), units(text)),
        };
        match &mut self.values[index] {
            Some(known) => {
                known.differs |= *known.text != *text;
                known.units = known.units.max(number);
            }
            unknown => *unknown = Some(Field { text: text.into(), differs: false, units: number }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(path: &str, body: &str) -> Option<Field> {
        let path = Path::parse(path).expect("a path");
        let paths: Arc<[Path]> = [Path::parse("other").expect("a path"), path.clone()].into();
        let (before, behind) = body.as_bytes().split_at(body.len() / 2);
        Fields::read(&paths, [before, behind]).get(&path).cloned()
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
        assert_eq!(text("model", r#"{"model":"a"}{"model":"b"}"#), None);
        let twice = field("n", r#"{"n":7,"n":3,"n":"9"}"#).expect("a field");
        assert_eq!((twice.units, twice.differs), (Some(7), true));
    }
}
