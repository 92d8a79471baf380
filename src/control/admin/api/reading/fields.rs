//! Reads a JSON object as a type, and collects what is wrong with it instead of stopping at the first.
//!
//! The schema of the type, which the OpenAPI document has, too, says what its fields may be. A field that is `null` is not
//! there. What a schema cannot say, such as fields that exclude each other, a handler looks at before it reads.

use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::admin::api::schema;
use crate::database::Time;
use auth::strict_json;
use base::units;
use base::words::{did_you_mean, listed, plain};

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

    /// Of the body as a whole.
    pub fn of_body(detail: impl Into<String>) -> Flaw {
        Flaw { at: At::Body(String::new()), detail: detail.into() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// In the body: a JSON Pointer without its `#`; empty for the whole body.
    Body(String),
    /// A parameter of the query, or of the path.
    Parameter(String),
    Header(&'static str),
}

/// An object, and what is wrong with it.
#[derive(Clone, Debug)]
pub struct BodyFields {
    entries: Map<String, Value>,
    flaws: Vec<Flaw>,
}

impl BodyFields {
    pub fn parse(body: &[u8]) -> Result<BodyFields, Vec<Flaw>> {
        match strict_json::parse(body) {
            _ if body.is_empty() => Err(vec![Flaw::of_body("the body is empty: send a JSON object")]),
            Ok(Value::Object(entries)) => Ok(BodyFields { entries, flaws: Vec::new() }),
            Ok(_) => Err(vec![Flaw::of_body("the body must be a JSON object")]),
            Err(error) => {
                let why = error.to_string().replace("EOF while parsing", "it ends within");
                Err(vec![Flaw::of_body(format!("the body is not JSON: {why}"))])
            }
        }
    }

    /// The object as it came, for who reads it by other means.
    pub fn whole(self) -> Value {
        Value::Object(self.entries)
    }

    /// Reports what is wrong with a field.
    pub fn wrong(&mut self, name: &str, detail: impl Into<String>) {
        self.flaws.push(Flaw::in_body(name, detail));
    }

    /// Reports what is wrong with the object as a whole.
    pub fn wrong_together(&mut self, detail: impl Into<String>) {
        self.flaws.push(Flaw::of_body(detail));
    }

    /// Reports fields of which more than one is there.
    pub fn exclude_each_other(&mut self, names: &[&str]) {
        if names.iter().filter(|name| self.has(name)).count() > 1 {
            self.wrong_together(format!("{} exclude each other", all(names)));
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The value of a field that is there.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.entries.get(name).filter(|value| !value.is_null())
    }

    pub fn is_null(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(Value::is_null)
    }

    /// Reads the object. `Err` has all that was found wrong.
    pub fn read<T: DeserializeOwned + JsonSchema + 'static>(mut self) -> Result<T, Vec<Flaw>> {
        object(&schema::of::<T>(), &mut self.entries, "", &mut self.flaws);
        if !self.flaws.is_empty() {
            return Err(self.flaws);
        }
        // This does not fail, because what the schema lets pass is what the type takes.
        serde_json::from_value(Value::Object(self.entries))
            .map_err(|error| vec![Flaw::of_body(format!("the body cannot be read: {error}"))])
    }
}

/// Looks at the fields of an object at this JSON Pointer.
fn object(schema: &Value, entries: &mut Map<String, Value>, within: &str, flaws: &mut Vec<Flaw>) {
    entries.retain(|_, value| !value.is_null());
    let at = |name: &str| At::Body(format!("{within}{}", pointer(name)));
    let none = Map::new();
    let known = schema["properties"].as_object().unwrap_or(&none);
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !entries.contains_key(name) {
            let what = known.get(name).map(about).unwrap_or_default();
            flaws.push(Flaw { at: at(name), detail: format!("`{name}` is missing: {what}") });
        }
    }
    for (name, value) in entries.iter_mut() {
        let of_others = &schema["additionalProperties"];
        let Some(schema) = known.get(name).or(Some(of_others).filter(|schema| schema.is_object())) else {
            continue;
        };
        let within = format!("{within}{}", pointer(name));
        check(schema, name, value, &within, flaws);
    }
    if let Some(most) = schema["maxProperties"].as_u64().filter(|most| entries.len() as u64 > *most) {
        let detail = format!("it must have at most {most} values");
        flaws.push(Flaw { at: At::Body(within.to_owned()), detail });
    }
    if schema["additionalProperties"].is_object() || known.is_empty() {
        return;
    }
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    for name in entries.keys().filter(|name| !known.contains_key(*name)).take(UNKNOWN_MAX) {
        let hint = did_you_mean(name, &names).unwrap_or_else(|| format!("it takes {}", all(&names)));
        flaws.push(Flaw { at: at(name), detail: format!("unknown field `{}`: {hint}", plain(name)) });
    }
}

/// Looks at a value of this name at this JSON Pointer.
fn check(schema: &Value, name: &str, value: &mut Value, at: &str, flaws: &mut Vec<Flaw>) {
    let kind = schema::type_of(schema);
    match (kind, &mut *value) {
        ("object", Value::Object(entries)) => return object(schema, entries, at, flaws),
        ("array", Value::Array(values)) => {
            let bound = |name: &str| schema[name].as_u64();
            let (least, most) = (bound("minItems").unwrap_or(0), bound("maxItems").unwrap_or(u64::MAX));
            if (least..=most).contains(&(values.len() as u64)) {
                for (number, value) in values.iter_mut().enumerate() {
                    // No more are looked for, because whoever has made so many mistakes has made them all alike.
                    if flaws.len() < UNKNOWN_MAX {
                        check(&schema["items"], name, value, &format!("{at}/{number}"), flaws);
                    }
                }
                return;
            }
        }
        _ => {}
    }
    if let Err(detail) = scalar(schema, name, value) {
        flaws.push(Flaw { at: At::Body(at.to_owned()), detail });
    }
}

/// Looks at a value that holds no others. A whole number may be written with a fraction of 0.
///
/// # Errors
/// What is wrong with it.
pub(in crate::admin::api) fn scalar(schema: &Value, name: &str, value: &mut Value) -> Result<(), String> {
    let must_be = |what: &str| Err(format!("`{name}` must be {what}"));
    if let Some(words) = schema::words(schema) {
        let Some(word) = value.as_str() else { return must_be("a string") };
        if words.contains(&word) {
            return Ok(());
        }
        let hint = did_you_mean(word, &words).unwrap_or_else(|| format!("write {}", listed(&words)));
        return Err(format!("unknown value of `{name}`: {hint}"));
    }
    match (schema::type_of(schema), &*value) {
        ("string", Value::String(text)) => match schema["format"].as_str().unwrap_or_default() {
            "date-time" => text.parse::<Time>().map(drop).map_err(|error| format!("`{name}` is {error}")),
            schema::SPAN => match units::duration(text) {
                Ok(span) if span >= Duration::from_secs(1) => Ok(()),
                Ok(_) => Err(format!("`{name}` is too short: write `1s` or more")),
                Err(hint) => Err(format!("`{name}` is not a duration: write {hint}")),
            },
            _ => {
                let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
                text_flaw(text, most as usize).map_or(Ok(()), |flaw| Err(format!("`{name}` {flaw}")))
            }
        },
        ("string", _) => must_be(match schema["format"].as_str().unwrap_or_default() {
            "date-time" => "a date and time in a string, for example \"2027-01-31T12:00:00Z\"",
            schema::SPAN => "a duration in a string, for example \"10m\"",
            _ => "a string",
        }),
        ("integer", number) => {
            let bound = |name: &str| schema[name].as_u64();
            let range = bound("minimum").unwrap_or(0)..=bound("maximum").unwrap_or(INTEGER_MAX);
            match number.as_f64().and_then(whole).filter(|whole| range.contains(whole)) {
                Some(whole) => *value = whole.into(),
                None => {
                    return must_be(&format!("a whole number from {} to {}", range.start(), range.end()));
                }
            }
            Ok(())
        }
        ("number", Value::Number(number)) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            let bound = |name: &str| schema[name].as_f64();
            let (above, least, most) = (bound("exclusiveMinimum"), bound("minimum"), bound("maximum"));
            let is_in = above.is_none_or(|above| number > above)
                && least.is_none_or(|least| number >= least)
                && most.is_none_or(|most| number <= most);
            match (above, least, most) {
                _ if is_in => Ok(()),
                (Some(above), _, Some(most)) => must_be(&format!("above {above} and at most {most}")),
                (Some(above), _, None) => must_be(&format!("above {above}")),
                (None, least, most) => {
                    must_be(&format!("from {} to {}", least.unwrap_or(f64::MIN), most.unwrap_or(f64::MAX)))
                }
            }
        }
        ("number", _) => must_be("a number"),
        ("boolean", Value::Bool(_)) => Ok(()),
        ("boolean", _) => must_be("true or false"),
        ("object", _) => must_be("an object"),
        ("array", Value::Array(_)) => {
            let (least, most) = (&schema["minItems"], &schema["maxItems"]);
            Err(format!("`{name}` must have {least} to {most} elements"))
        }
        ("array", _) => must_be("an array"),
        // Whatever it is.
        _ => Ok(()),
    }
}

/// What a field is, to follow a colon.
fn about(schema: &Value) -> String {
    if let Some(words) = schema::words(schema) {
        return format!("write {}", listed(&words));
    }
    let about = schema["description"].as_str().unwrap_or_default().trim_end_matches('.');
    let about = about.replace('\n', " ");
    let mut letters = about.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// Names as a list in words: "`a`, `b` and `c`".
pub(in crate::admin::api) fn all(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        names => names.concat(),
    }
}

/// What is wrong with a text that is stored and shown. Control characters are refused, because PostgreSQL takes no
/// NUL, and a log or a terminal none of them.
pub fn text_flaw(text: &str, chars_max: usize) -> Option<String> {
    if text.is_empty() && chars_max == usize::MAX {
        Some("must not be empty".to_owned())
    } else if text.is_empty() || text.chars().count() > chars_max {
        Some(format!("must have 1 to {chars_max} characters"))
    } else if text.contains(char::is_control) {
        Some("must not contain control characters".to_owned())
    } else {
        None
    }
}

/// The whole number that a JSON number is. None is beyond 2^53, because its sender and its reader may not mean the
/// same one.
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

/// Unknown fields that an answer lists. There is a bound, because a body of 1 MiB may have 200,000.
const UNKNOWN_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::admin::api::schema::{BoundedText, DurationText};

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "it is read, and not looked at")]
    struct SampleBody {
        /// Text.
        reason: BoundedText<9>,
        #[schemars(range(min = 1, max = 9))]
        value: u64,
        name: Option<BoundedText<9>>,
        kind: Option<SampleColour>,
        r#for: Option<DurationText>,
        is: Option<bool>,
        t: Option<BoundedText<9>>,
        #[serde(default)]
        many: Vec<SampleInner>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    enum SampleColour {
        Red,
        Green,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "it is read, and not looked at")]
    struct SampleInner {
        a: BoundedText<9>,
    }

    fn read(body: &str) -> Result<SampleBody, Vec<(String, String)>> {
        let said = |flaw: Flaw| {
            let At::Body(pointer) = flaw.at else { panic!("all of it is in the body") };
            (pointer, flaw.detail)
        };
        let fields = BodyFields::parse(body.as_bytes()).expect("an object");
        fields.read().map_err(|flaws| flaws.into_iter().map(said).collect())
    }

    #[test]
    fn what_is_no_json_is_told_in_words() {
        let told = BodyFields::parse(b"{\"a\": ").expect_err("it is cut");
        assert_eq!(told, [Flaw::of_body("the body is not JSON: it ends within a value at line 1 column 6")]);
    }

    #[test]
    fn everything_wrong_is_found_at_once_with_its_place() {
        let flaws = read(
            r#"{"resaon":"x","value":0.5,"name":"","kind":"gren","for":"10","~a/b c":1,"is":1,"t":"a\u0000",
                "many":[{"a":"b"},{"b":1}]}"#,
        );
        let expected = [
            ("/reason", "`reason` is missing: text"),
            (
                "/for",
                "`for` is not a duration: write whole numbers with d, h, m, s or ms, for example `5s`, `250ms`, `1m30s`",
            ),
            ("/is", "`is` must be true or false"),
            ("/kind", "unknown value of `kind`: did you mean `green`?"),
            ("/many/1/a", "`a` is missing: "),
            ("/many/1/b", "unknown field `b`: did you mean `a`?"),
            ("/name", "`name` must have 1 to 9 characters"),
            ("/t", "`t` must not contain control characters"),
            ("/value", "`value` must be a whole number from 1 to 9"),
            ("/resaon", "unknown field `resaon`: did you mean `reason`?"),
            (
                "/~0a~1b%20c",
                "unknown field `~a/b c`: it takes `for`, `is`, `kind`, `many`, `name`, `reason`, `t` and `value`",
            ),
        ];
        let mut expected: Vec<_> =
            expected.iter().map(|(at, detail)| ((*at).to_owned(), (*detail).to_owned())).collect();
        let mut flaws = flaws.expect_err("something is wrong");
        flaws.sort();
        expected.sort();
        assert_eq!(flaws, expected);
    }

    #[test]
    fn null_is_not_there_and_whole_numbers_may_have_a_point() {
        let body = read(r#"{"reason":"a","value":5.0,"kind":null,"many":[]}"#).expect("it can be read");
        assert_eq!((body.value, body.kind.is_none()), (5, true));
        for (wrong, count) in
            [(r#"{"reason":null,"value":1}"#, 1), (r#"{"reason":"a","value":9007199254740993}"#, 1)]
        {
            assert_eq!(read(wrong).expect_err(wrong).len(), count, "{wrong}");
        }
        assert!(BodyFields::parse(br#"{"d":1e400}"#).is_err(), "it is no number that can be kept");
        for body in ["[]", "1", "null", "\"a\"", "", "{}x"] {
            assert!(BodyFields::parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
