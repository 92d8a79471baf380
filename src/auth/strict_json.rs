//! Parses the JSON of tokens and of bodies of the admin API. An object that has a name twice is refused, because another
//! reader of the same text (a proxy that checks it, an audit) may take the other value, and two readers of one token must
//! never see two identities in it (RFC 8725 section 2.4).

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The value of a JSON text, or what is wrong with it, for its sender.
///
/// Nesting is bounded by `serde_json`, at 128.
///
/// # Errors
/// If it is not JSON, or has a name twice.
pub fn parse(text: &[u8]) -> Result<Value, String> {
    match serde_json::from_slice(text) {
        Ok(StrictValue(value)) => Ok(value),
        // Passed on as it is, because the message names places and kinds of tokens, and repeats nothing but a name
        // that occurs twice.
        Err(error) => Err(error.to_string()),
    }
}

/// A value in which every name is there once.
struct StrictValue(Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StrictValue, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(StrictValue)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(StrictValue(value)) = elements.next_element()? {
            array.push(value);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, StrictValue(value))) = entries.next_entry::<String, StrictValue>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("an object has the same name twice"));
            }
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_that_occurs_twice_is_refused_at_any_depth() {
        assert_eq!(parse(br#"{"a":1,"b":[{"a":1}]}"#), Ok(json!({ "a": 1, "b": [{ "a": 1 }] })));
        for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"\u0061":2}}]"#] {
            let said = parse(text.as_bytes()).expect_err("it is ambiguous");
            assert!(said.starts_with("an object has the same name twice"), "{said}");
        }
        for text in ["", "{", "{}}", "{} {}", "nul", "NaN", "\u{feff}{}", "\"\\ud800\"", &"[".repeat(100_000)]
        {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(".{0,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_other_value_is_what_serde_json_reads(value in values()) {
            proptest::prop_assert_eq!(parse(value.to_string().as_bytes()), Ok(value));
        }
    }
}
