//! One request to the admin API, and how its answer is shown.

use clap::Args;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Map, Value};

use crate::admin_client::{encoded, target};
use crate::tips::whole;
use base::units;

#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    query: Vec<(&'static str, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Value>,
    pub(super) view: View,
}

#[derive(Debug)]
pub(super) enum View {
    /// A list, by what its rows are called.
    List(&'static str, &'static [Column]),
    /// A list, by what it is of, whose rows each have several of the second: a line for each of them, beside what else a
    /// row has.
    Inner(&'static str, &'static str, &'static [Column]),
    /// The limits of tiers.
    Tiers,
    /// A row whose `error` says why there is no verdict.
    Verdict,
    /// A row: a line for each field that it has.
    Row,
    /// Nothing is left of the row but this.
    Done(&'static str),
}

/// A column: its heading, and the field of a row.
pub(super) type Column = (&'static str, &'static str);

/// What all changes take.
#[derive(Debug, Default, Args)]
pub(super) struct ChangeOptions {
    /// Print what would be done, without doing it
    #[arg(long)]
    dry_run: bool,
    /// Make the change only if the row still has this version
    #[arg(long, value_name = "VERSION", value_parser = whole::<u64>(..))]
    if_version: Option<u64>,
}

impl ChangeOptions {
    /// For what is new: there is no version to compare.
    pub(super) fn only_dry(dry_run: bool) -> ChangeOptions {
        ChangeOptions { dry_run, if_version: None }
    }
}

/// A number as it is typed; clap's own words do not say what to write.
pub(super) fn whole_number(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "write a whole number, such as 10000")
}

/// The same of a factor.
pub(super) fn factor(text: &str) -> Result<f64, &'static str> {
    text.parse().map_err(|_| "write a number")
}

/// A duration as gateway.toml has it; the gateway reads it again, and its words would name a field of the body.
pub(super) fn duration_text(text: &str) -> Result<String, String> {
    match units::duration(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(match units::duration_meant(text) {
            Some(meant) => format!("write `{meant}`"),
            None => "write whole numbers with d, h, m, s or ms, such as `1h` or `1h30m`, `366d` at most"
                .to_owned(),
        }),
    }
}

impl Call {
    /// A request for the rows or the row at these segments of a path.
    pub(super) fn get(path: &[&str], view: View) -> Call {
        Call::new(Method::GET, path, view)
    }

    pub(super) fn change(method: Method, path: &[&str], careful: &ChangeOptions, view: View) -> Call {
        let mut call = Call::new(method, path, view);
        if careful.dry_run {
            call = call.with("dry-run", Some("true"));
            call.view = View::Row;
        }
        if let Some(version) = careful.if_version {
            let (name, value) = match version {
                // It must not be there yet, because no row has the version 0.
                0 => (IF_NONE_MATCH, "*".to_owned()),
                version => (IF_MATCH, format!("\"{version}\"")),
            };
            call.headers.extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
        }
        call
    }

    pub(super) fn delete(path: &[&str], careful: &ChangeOptions) -> Call {
        Call::change(Method::DELETE, path, careful, View::Done("deleted"))
    }

    fn new(method: Method, path: &[&str], view: View) -> Call {
        // A colon stays, because it is a part of some paths' own words, and as good as encoded in a name (RFC 3986
        // section 3.3).
        let segment = |segment: &&str| format!("/{}", encoded(segment).replace("%3A", ":"));
        let path = path.iter().map(segment).collect();
        Call { method, path, query: Vec::new(), headers: HeaderMap::new(), body: None, view }
    }

    /// Adds a parameter to the query if it has a value.
    pub(super) fn with(mut self, name: &'static str, value: Option<impl ToString>) -> Call {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Adds a body of the fields that have a value.
    pub(super) fn body<const N: usize>(mut self, fields: [(&str, Option<Value>); N]) -> Call {
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        self.body = Some(Value::Object(fields.collect::<Map<_, _>>()));
        self
    }

    /// The path with its query; `after` is the cursor of a page.
    pub(super) fn target(&self, after: Option<&str>) -> String {
        let given = self.query.iter().map(|(name, value)| (*name, value.as_str()));
        target(&self.path, given.chain(after.map(|after| ("after", after))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rows_may_have_any_characters() {
        let call = Call::get(&["v1", "consumers", "a/b ?ü", "tier"], View::Row);
        assert_eq!(call.target(None), "/v1/consumers/a%2Fb%20%3F%C3%BC/tier");
        let call =
            Call::get(&["v1", "audit"], View::Row).with("who", Some("a&b=c")).with("what", None::<&str>);
        assert_eq!(call.target(Some("7 8")), "/v1/audit?who=a%26b%3Dc&after=7%208");
    }

    #[test]
    fn a_number_with_a_unit_is_told_what_to_write() {
        assert_eq!(whole_number("10000"), Ok(10_000));
        for wrong in ["10k", "-1", "1.5", ""] {
            assert_eq!(whole_number(wrong), Err("write a whole number, such as 10000"), "{wrong}");
        }
    }

    #[test]
    fn a_duration_in_words_is_told_what_to_write() {
        assert_eq!(duration_text("1h30m").as_deref(), Ok("1h30m"));
        assert!(duration_text("1hour").is_err_and(|said| said.contains("`1h`")));
    }

    #[test]
    fn versions_become_conditions() {
        let careful = |version| ChangeOptions { dry_run: false, if_version: Some(version) };
        let call = |version| Call::change(Method::PUT, &["v1"], &careful(version), View::Row).headers;
        assert_eq!(call(7)[IF_MATCH], "\"7\"");
        assert_eq!(call(0)[IF_NONE_MATCH], "*");
    }
}
