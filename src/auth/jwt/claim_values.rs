//! Values of a token's JSON: where a claim is, and what it says as a name or a text.

use serde_json::Value;

/// A member by its name, or by names with dots between them: `a.b` where no member is called that is `b` in `a`.
pub(super) fn at<'j>(json: &'j Value, path: &str) -> Option<&'j Value> {
    json.get(path).or_else(|| {
        let (first, rest) = path.split_once('.')?;
        at(json.get(first)?, rest)
    })
}

/// A name: a text that is not empty, or a whole number in its digits, as issuers write ids of their database though
/// RFC 7519 section 4.1.2 asks for a text. A fraction or an exponent is none, because it has several spellings.
pub(super) fn name(json: &Value) -> Option<Box<str>> {
    match json {
        Value::String(text) => (!text.is_empty()).then(|| text.as_str().into()),
        Value::Number(number) if number.is_u64() || number.is_i64() => Some(number.to_string().into()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A scalar as text; `None` of what is none.
pub(super) fn scalar(json: &Value) -> Option<Box<str>> {
    match json {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(boolean) => Some(boolean.to_string().into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_prefers_the_whole_name() {
        let json = serde_json::json!({ "a.b": 1, "a": { "b": 2, "c": { "d": 3 } } });
        let number = |path| at(&json, path).and_then(scalar);
        assert_eq!(number("a.b").as_deref(), Some("1"));
        assert_eq!(number("a.c.d").as_deref(), Some("3"));
        assert_eq!(number("a.c"), None);
        assert_eq!(number("x.y"), None);
    }
}
