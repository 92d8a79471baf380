//! A strict JSON reader: a name that occurs twice in an object is an error, because two readers of one token must never
//! see two identities in it (RFC 8725 section 2.4).

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Boolean(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads one value and nothing behind it. How deep it may nest is `serde_json`'s bound.
    pub(super) fn parse(bytes: &[u8]) -> Option<Json> {
        serde_json::from_slice(bytes).ok()
    }

    pub(super) fn member(&self, name: &str) -> Option<&Json> {
        let Json::Object(members) = self else { return None };
        members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// A member by its name, or by names with dots between them: `a.b` where no member is called that is `b` in `a`.
    pub(super) fn path(&self, path: &str) -> Option<&Json> {
        self.member(path).or_else(|| {
            let (first, rest) = path.split_once('.')?;
            self.member(first)?.path(rest)
        })
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A name: a text that is not empty, or a whole number in its digits, as issuers write ids of their database
    /// though RFC 7519 section 4.1.2 asks for a text. A fraction or an exponent is none, because it has several
    /// spellings.
    pub(super) fn name(&self) -> Option<Box<str>> {
        match self {
            Json::Text(text) => (!text.is_empty()).then(|| text.as_str().into()),
            Json::Number(number) if number.is_u64() || number.is_i64() => Some(number.to_string().into()),
            Json::Null | Json::Boolean(_) | Json::Number(_) | Json::List(_) | Json::Object(_) => None,
        }
    }

    /// A scalar as text; `None` of what is none.
    pub(super) fn scalar(&self) -> Option<Box<str>> {
        match self {
            Json::Text(text) => Some(text.as_str().into()),
            Json::Number(number) => Some(number.to_string().into()),
            Json::Boolean(boolean) => Some(boolean.to_string().into()),
            Json::Null | Json::List(_) | Json::Object(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(StrictJson)
    }
}

struct StrictJson;

impl<'de> Visitor<'de> for StrictJson {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON without a name twice")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, boolean: bool) -> Result<Json, E> {
        Ok(Json::Boolean(boolean))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        Ok(serde_json::Number::from_f64(number).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            list.push(element);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut members: Vec<(String, Json)> = Vec::new();
        while let Some((name, value)) = entries.next_entry::<String, Json>()? {
            if members.len() == MEMBERS_MAX {
                return Err(de::Error::custom("an object has too many names"));
            }
            if members.iter().any(|(known, _)| *known == name) {
                return Err(de::Error::custom("an object has the same name twice"));
            }
            members.push((name, value));
        }
        Ok(Json::Object(members))
    }
}

/// Names of one object: looking for one that is there already takes a look at all of them.
const MEMBERS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_once_at_every_depth() {
        let parse = |text: &str| Json::parse(text.as_bytes());
        assert!(parse(r#"{"a":1,"b":{"a":[{"a":null}]}}"#).is_some());
        for wrong in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"b":{"a":1,"a":2}}]"#,
            "{} {}",
            "{",
            "",
            "\u{feff}{}",
            "NaN",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(parse(&"[".repeat(100_000)), None);
        let many: String = (0..300).map(|index| format!("\"{index}\":0,")).collect();
        assert_eq!(parse(&format!("{{{}}}", many.trim_end_matches(','))), None);
    }

    #[test]
    fn a_path_prefers_the_whole_name() {
        let json = Json::parse(br#"{"a.b":1,"a":{"b":2,"c":{"d":3}}}"#).expect("JSON");
        let number = |path| json.path(path).and_then(Json::scalar);
        assert_eq!(number("a.b").as_deref(), Some("1"));
        assert_eq!(number("a.c.d").as_deref(), Some("3"));
        assert_eq!(number("a.c"), None);
        assert_eq!(number("x.y"), None);
    }
}
