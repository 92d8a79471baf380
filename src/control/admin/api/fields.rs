//! Reads the fields of a JSON object one by one, and collects what is wrong with them instead of stopping at the first.
//!
//! It records the names that it was asked for, so that unknown ones need no second list: a handler asks for every field,
//! then calls [`Fields::finish`]. A field that is `null` is not there. A value that cannot be read is reported here, once,
//! and returned as `None`; the handler goes on with whatever, because a report never becomes a change.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Map, Value};

use super::json;
use crate::database::Time;
use base::units;
use base::words::{did_you_mean, listed};

/// What is wrong at one place of a body or a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Where: a JSON Pointer (RFC 6901) as a URI fragment, or a parameter's name.
    pub at: At,
    /// What, and what to write instead. It repeats no value.
    pub detail: String,
}

impl Flaw {
    /// Of one field of the body.
    pub fn in_body(name: &str, detail: impl Into<String>) -> Flaw {
        Flaw { at: At::Body(pointer(name)), detail: detail.into() }
    }
}

/// A place in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// In the body: a JSON Pointer without its `#`; empty for the whole body.
    Body(String),
    /// A parameter of the query, or of the path.
    Parameter(String),
    /// A header field.
    Header(&'static str),
}

/// An object, and the names it was asked for.
#[derive(Clone, Debug)]
pub struct Fields {
    /// The JSON Pointer of the object in the body; empty for the body itself.
    within: String,
    entries: Map<String, Value>,
    asked: Vec<&'static str>,
    flaws: Vec<Flaw>,
}

impl Fields {
    /// Parses a body.
    pub fn parse(body: &[u8]) -> Result<Fields, Vec<Flaw>> {
        let whole = |detail: &str| vec![Flaw { at: At::Body(String::new()), detail: detail.to_owned() }];
        match json::parse(body) {
            Ok(Value::Object(entries)) => Ok(Fields::of(String::new(), entries)),
            Ok(_) => Err(whole("the body must be a JSON object")),
            Err(error) => Err(whole(&format!("the body is not JSON: {error}"))),
        }
    }

    /// An object within the body, at this JSON Pointer.
    pub fn within(pointer: String, value: Value) -> Result<Fields, Flaw> {
        match value {
            Value::Object(entries) => Ok(Fields::of(pointer, entries)),
            _ => Err(Flaw { at: At::Body(pointer), detail: "this must be an object".to_owned() }),
        }
    }

    fn of(within: String, entries: Map<String, Value>) -> Fields {
        Fields { within, entries, asked: Vec::new(), flaws: Vec::new() }
    }

    /// The object as it came, for who reads it by other means.
    pub fn whole(self) -> Value {
        Value::Object(self.entries)
    }

    /// Reports what is wrong with a field.
    pub fn wrong(&mut self, name: &str, detail: impl Into<String>) {
        let at = At::Body(format!("{}{}", self.within, pointer(name)));
        self.flaws.push(Flaw { at, detail: detail.into() });
    }

    /// Reports what is wrong with the object as a whole.
    pub fn wrong_together(&mut self, detail: impl Into<String>) {
        self.flaws.push(Flaw { at: At::Body(self.within.clone()), detail: detail.into() });
    }

    /// Whether the field is there.
    pub fn has(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|value| !value.is_null())
    }

    /// Whether the field is `null`.
    pub fn is_null(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(Value::is_null)
    }

    /// Reports a field that is not there.
    pub fn require(&mut self, name: &'static str, hint: &str) {
        if !self.has(name) {
            self.wrong(name, format!("`{name}` is missing: {hint}"));
        }
    }

    /// A text of 1 to `chars_max` characters, none of them a control character.
    pub fn text(&mut self, name: &'static str, chars_max: usize) -> Option<String> {
        let Value::String(text) = self.value(name)? else {
            return self.wrong_type(name, "a string");
        };
        match text_flaw(&text, chars_max) {
            None => Some(text),
            Some(flaw) => {
                self.wrong(name, format!("`{name}` {flaw}"));
                None
            }
        }
    }

    /// A finite number. A whole one may be written with a fraction of 0.
    pub fn number(&mut self, name: &'static str) -> Option<f64> {
        match self.value(name)?.as_f64() {
            Some(number) => Some(number),
            None => self.wrong_type(name, "a number"),
        }
    }

    /// A whole number in a range that ends below 2^53.
    pub fn integer(&mut self, name: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let number = self.number(name)?;
        let whole = whole(number).filter(|whole| range.contains(whole));
        if whole.is_none() {
            let (first, last) = range.into_inner();
            self.wrong(name, format!("`{name}` must be a whole number from {first} to {last}"));
        }
        whole
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, name: &'static str) -> Option<bool> {
        match self.value(name)? {
            Value::Bool(value) => Some(value),
            _ => self.wrong_type(name, "true or false"),
        }
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&'static str, T)]) -> Option<T> {
        let Value::String(word) = self.value(name)? else {
            return self.wrong_type(name, "a string");
        };
        if let Some((_, choice)) = choices.iter().find(|(known, _)| *known == word) {
            return Some(*choice);
        }
        let known: Vec<_> = choices.iter().map(|(known, _)| *known).collect();
        let hint = did_you_mean(&word, &known).unwrap_or_else(|| format!("write {}", listed(&known)));
        self.wrong(name, format!("this is not a value of `{name}`: {hint}"));
        None
    }

    /// A duration as gateway.toml has them, at least a second.
    pub fn duration(&mut self, name: &'static str) -> Option<Duration> {
        let Value::String(text) = self.value(name)? else {
            return self.wrong_type(name, "a duration in a string, as in \"10m\"");
        };
        match units::duration(&text) {
            Ok(duration) if duration >= Duration::from_secs(1) => Some(duration),
            Ok(_) => {
                self.wrong(name, format!("`{name}` is too short: write `1s` or more"));
                None
            }
            Err(hint) => {
                self.wrong(name, format!("`{name}` is not a duration: write {hint}"));
                None
            }
        }
    }

    /// A date and time as RFC 3339 writes it.
    pub fn instant(&mut self, name: &'static str) -> Option<Time> {
        let Value::String(text) = self.value(name)? else {
            return self.wrong_type(name, "a date and time in a string, as in \"2027-01-31T12:00:00Z\"");
        };
        let read = text.parse();
        read.map_err(|error| self.wrong(name, format!("`{name}` is {error}"))).ok()
    }

    /// The value as it is, for who reads it himself.
    pub fn value(&mut self, name: &'static str) -> Option<Value> {
        self.asked.push(name);
        self.entries.remove(name).filter(|value| !value.is_null())
    }

    /// Reports every field that was not asked for. `Err` has all that was found wrong.
    pub fn finish(mut self) -> Result<(), Vec<Flaw>> {
        let unknown: Vec<String> = self.entries.keys().take(UNKNOWN_MAX).cloned().collect();
        for name in unknown {
            let hint = did_you_mean(&name, &self.asked);
            let hint = hint.unwrap_or_else(|| format!("it takes {}", listed(&self.asked)));
            self.wrong(&name, format!("unknown field: {hint}"));
        }
        if self.flaws.is_empty() { Ok(()) } else { Err(self.flaws) }
    }

    fn wrong_type<T>(&mut self, name: &'static str, expected: &str) -> Option<T> {
        self.wrong(name, format!("`{name}` must be {expected}"));
        None
    }
}

/// What is wrong with a text that is stored and shown: PostgreSQL takes no NUL, and a log or a terminal no control
/// character.
pub fn text_flaw(text: &str, chars_max: usize) -> Option<String> {
    if text.is_empty() || text.chars().count() > chars_max {
        Some(format!("must have 1 to {chars_max} characters"))
    } else if text.contains(char::is_control) {
        Some("must not contain control characters".to_owned())
    } else {
        None
    }
}

/// The whole number that a JSON number is. Beyond 2^53 its sender and its reader may not mean the same one.
fn whole(number: f64) -> Option<u64> {
    let is_whole = number.fract() == 0.0 && (0.0..=INTEGER_MAX as f64).contains(&number);
    is_whole.then_some(number as u64)
}

/// The JSON Pointer of a name in an object (RFC 6901 section 3), percent-encoded for a fragment (section 6).
fn pointer(name: &str) -> String {
    let escaped = name.replace('~', "~0").replace('/', "~1");
    let mut pointer = "/".to_owned();
    policy::percent::encode_segment(&escaped, &mut pointer);
    pointer
}

/// The greatest integer that every reader of JSON takes for the same (RFC 8259 section 6).
pub const INTEGER_MAX: u64 = (1 << 53) - 1;

/// Unknown fields that an answer lists; a body of 1 MiB may have 200,000.
const UNKNOWN_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(body: &str) -> Fields {
        Fields::parse(body.as_bytes()).expect("an object")
    }

    fn said(fields: Fields) -> Vec<(String, String)> {
        let flaws = fields.finish().expect_err("something is wrong");
        flaws
            .into_iter()
            .map(|flaw| {
                let At::Body(pointer) = flaw.at else { panic!("all of it is in the body") };
                (pointer, flaw.detail)
            })
            .collect()
    }

    #[test]
    fn everything_wrong_is_found_at_once_with_its_place() {
        let mut body = fields(
            r#"{"resaon":"x","value":0.5,"name":"","kind":"gren","for":"10","~a/b c":1,"is":1,"t":"a\u0000"}"#,
        );
        assert_eq!(body.text("reason", 9), None);
        body.require("reason", "say why");
        assert_eq!(body.integer("value", 1..=9), None);
        assert_eq!(body.text("name", 9), None);
        assert_eq!(body.choice("kind", &[("red", 1), ("green", 2)]), None);
        assert_eq!(body.duration("for"), None);
        assert_eq!(body.boolean("is"), None);
        assert_eq!(body.text("t", 9), None);
        let expected = [
            ("/reason", "`reason` is missing: say why"),
            ("/value", "`value` must be a whole number from 1 to 9"),
            ("/name", "`name` must have 1 to 9 characters"),
            ("/kind", "this is not a value of `kind`: did you mean `green`?"),
            (
                "/for",
                "`for` is not a duration: write a duration: whole numbers with d, h, m, s or ms, as in `5s`, `250ms`, `1m30s`",
            ),
            ("/is", "`is` must be true or false"),
            ("/t", "`t` must not contain control characters"),
            ("/resaon", "unknown field: did you mean `reason`?"),
            ("/~0a~1b%20c", "unknown field: it takes `reason`, `value`, `name`, `kind`, `for`, `is` or `t`"),
        ];
        let expected: Vec<_> =
            expected.iter().map(|(at, detail)| ((*at).to_owned(), (*detail).to_owned())).collect();
        assert_eq!(said(body), expected);
    }

    #[test]
    fn null_is_not_there_and_whole_numbers_may_have_a_point() {
        let mut body = fields(r#"{"a":null,"b":5.0,"c":9007199254740993}"#);
        assert_eq!((body.has("a"), body.text("a", 9)), (false, None));
        assert_eq!(body.integer("b", 1..=9), Some(5));
        assert_eq!(body.integer("c", 1..=INTEGER_MAX), None);
        assert_eq!(said(body).len(), 1);
        assert!(Fields::parse(br#"{"d":1e400}"#).is_err(), "it is no number that can be kept");
        for body in ["[]", "1", "null", "\"a\"", "", "{}x"] {
            assert!(Fields::parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
