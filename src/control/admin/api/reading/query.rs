//! Reads the parameters of a query as a type, each at most once, and collects what is wrong with them.
//!
//! As with [`crate::admin::api::reading::fields`], the schema of the type says what they may be, and all others are
//! unknown, so that a misspelt `dry-run` does not become a change.

use axum::extract::FromRequestParts;
use http::request::Parts;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::admin::api::reading::fields::{At, Flaw, all, scalar};
use crate::admin::api::schema;
use crate::admin::refusal::AdminRefusal;
use base::words::did_you_mean;
use policy::percent::{self, Plus};

/// The query of an endpoint that takes no parameters.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::admin) struct NoParameters {}

/// The parameters that an endpoint takes.
#[derive(Debug)]
pub(in crate::admin) struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + JsonSchema + 'static> FromRequestParts<S> for Query<T> {
    type Rejection = AdminRefusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Query<T>, AdminRefusal> {
        read(parts.uri.query().unwrap_or_default()).map(Query).map_err(AdminRefusal::Invalid)
    }
}

/// Splits, decodes and reads a query; `+` is a space, as forms and `curl --data-urlencode` write it.
///
/// # Errors
/// Everything that is wrong with it.
pub(in crate::admin) fn read<T: DeserializeOwned + JsonSchema + 'static>(
    query: &str,
) -> Result<T, Vec<Flaw>> {
    let schema = schema::of::<T>();
    let none = Map::new();
    let known = schema["properties"].as_object().unwrap_or(&none);
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    let mut values = Map::new();
    let mut flaws = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decoded(name).unwrap_or_default();
        let read = match (decoded(value), known.get(&name)) {
            (None, _) => Err(format!("`{name}` is not percent-encoded UTF-8")),
            _ if values.contains_key(&name) => Err(format!("`{name}` was sent more than once")),
            (_, None) => {
                let hint = did_you_mean(&name, &names).unwrap_or_else(|| match names.as_slice() {
                    [] => "this endpoint takes no parameters".to_owned(),
                    names => format!("this endpoint takes {}", all(names)),
                });
                Err(format!("`{name}` is unknown: {hint}"))
            }
            (Some(text), Some(schema)) => value_of(schema, &name, text),
        };
        match read {
            Ok(value) => drop(values.insert(name, value)),
            Err(detail) => flaws.push(Flaw { at: At::Parameter(name), detail }),
        }
    }
    if !flaws.is_empty() {
        return Err(flaws);
    }
    // This does not fail, because what the schema lets pass is what the type takes.
    serde_json::from_value(Value::Object(values))
        .map_err(|error| vec![Flaw { at: At::Parameter(String::new()), detail: error.to_string() }])
}

/// A parameter's text as the value that its schema asks for.
fn value_of(schema: &Value, name: &str, text: String) -> Result<Value, String> {
    let mut value = match schema::type_of(schema) {
        // Digits alone, because `+5` and `5.0` are no numbers of a query.
        "integer" => {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_plain).into()
        }
        "boolean" => match text.as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => Value::String(text),
        },
        _ => Value::String(text),
    };
    scalar(schema, name, &mut value).map(|()| value)
}

/// A percent-encoded text of a query; `None` if it is broken, because something else was meant.
fn decoded(text: &str) -> Option<String> {
    let bytes = percent::is_well_formed(text).then(|| percent::decode(text, Plus::Space).collect())?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::api::schema::BoundedText;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    struct SampleQuery {
        who: Option<BoundedText<9>>,
        #[schemars(range(min = 1, max = 10))]
        limit: Option<u64>,
        #[serde(default)]
        dry_run: bool,
    }

    #[test]
    fn parameters_are_read_once_and_unknown_ones_refused() {
        let asked: SampleQuery = read("who=a%20b+c&limit=10&dry-run=true").expect("it can be read");
        assert_eq!(asked.who.map(|who| who.0).as_deref(), Some("a b c"));
        assert_eq!((asked.limit, asked.dry_run), (Some(10), true));
        let asked: SampleQuery = read("").expect("it can be read");
        assert!(asked.who.is_none() && asked.limit.is_none() && !asked.dry_run);
        assert!(read::<NoParameters>("").is_ok());
    }

    #[test]
    fn what_is_wrong_is_said_with_the_parameter() {
        for (text, said) in [
            ("limit=0", "`limit` must be a whole number from 1 to 10"),
            ("limit=+5", "`limit` must be a whole number from 1 to 10"),
            ("limit=5.0", "`limit` must be a whole number from 1 to 10"),
            ("limit=", "`limit` must be a whole number from 1 to 10"),
            ("limit=1&limit=1", "`limit` was sent more than once"),
            ("limti=1", "`limti` is unknown: did you mean `limit`?"),
            ("dry_run", "`dry_run` is unknown: did you mean `dry-run`?"),
            ("dry-run", "`dry-run` must be true or false"),
            ("dry-run=%zz", "`dry-run` is not percent-encoded UTF-8"),
            ("other=1", "`other` is unknown: this endpoint takes `dry-run`, `limit` and `who`"),
        ] {
            let flaws = read::<SampleQuery>(text).expect_err(text);
            assert_eq!(flaws.iter().map(|flaw| flaw.detail.as_str()).collect::<Vec<_>>(), [said], "{text}");
        }
        let flaws = read::<NoParameters>("a=1").expect_err("it takes none");
        assert_eq!(flaws[0].detail, "`a` is unknown: this endpoint takes no parameters");
    }
}
