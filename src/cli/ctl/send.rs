//! Asks the gateway, and prints what it answers.

use std::io::Write;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::ETAG;
use http::{Method, Response, StatusCode};
use serde_json::{Map, Value};

use super::call::{Call, View};
use super::{table, tiers};
use crate::admin_client::{AdminClient, with_token_remedy};
use base::words;

/// Sends a request and prints the answer. Of a list all pages are read.
pub(super) fn send(
    client: &AdminClient,
    call: Call,
    as_json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut answer = ask(client, &call, None)?;
    // Not with a `limit`, because a list that was asked for a number of rows is one page.
    let is_whole = call.method == Method::GET && !call.target(None).contains("limit=");
    while let Some(next) = answer.get("next").and_then(Value::as_str).filter(|_| is_whole).map(str::to_owned)
    {
        let mut more = ask(client, &call, Some(&next))?;
        let (Some(Value::Array(rows)), Some(Value::Array(fresh))) =
            (answer.get_mut("items"), more.get_mut("items"))
        else {
            bail!("the gateway's response is not a list: it may run another version");
        };
        rows.append(fresh);
        match more.remove("next") {
            Some(next) => answer.insert("next".to_owned(), next),
            None => answer.remove("next"),
        };
    }
    let undecided =
        answer.get("error").and_then(Value::as_str).filter(|_| matches!(call.view, View::Verdict));
    let stuck = answer.get("in-force-error").filter(|_| !as_json).and_then(Value::as_str);
    let stuck = stuck.map(|why| format!("stored and not in force, because a file cannot be used: {why}"));
    let undecided = undecided.map(str::to_owned).or(stuck);
    let text = match (as_json, &call.view) {
        (true, _) => format!("{}\n", escaped(&format!("{:#}", Value::Object(answer)))),
        (false, View::Done(what)) => format!("{what}\n{}", table::row(&answer)),
        (false, View::List(of, columns)) => table::list(of, columns, &answer),
        (false, View::Inner(list, of, columns)) => table::list(list, columns, &table::flat(of, &answer)),
        (false, View::Tiers) => tiers::list(&answer),
        (false, View::Verdict) if undecided.is_some() => String::new(),
        (false, View::Row | View::Verdict) => table::row(&answer),
    };
    // Ignored, because who reads only the beginning closes the pipe: the change is done all the same.
    let _ = out.write_all(text.as_bytes());
    undecided.map_or(Ok(()), |why| bail!("{why}"))
}

/// JSON without characters that steer a terminal: they occur in strings alone, where each has an escape.
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for one in json.chars() {
        match one {
            one if one != '\n' && words::steers(one) => {
                let units = one
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}"))
                    .collect::<String>();
                escaped += &units;
            }
            one => escaped.push(one),
        }
    }
    escaped
}

pub(super) fn ask(
    client: &AdminClient,
    call: &Call,
    after: Option<&str>,
) -> anyhow::Result<Map<String, Value>> {
    if call.path.split('/').skip(1).any(str::is_empty) {
        bail!("a name of the command line is empty: write it");
    }
    let body = call.body.as_ref().map(Value::to_string);
    let answer = client.ask(&call.method, &call.target(after), &call.headers, body)?;
    if answer.status() == StatusCode::NO_CONTENT {
        return Ok(Map::new());
    }
    let read: Option<Value> = serde_json::from_slice(answer.body()).ok();
    match read {
        Some(Value::Object(fields)) if answer.status().is_success() => Ok(fields),
        // Only refusals of requests to routes have a `reason`.
        Some(problem) if problem.get("reason").is_some() => bail!("{} is {NOT_ADMIN}", client.place),
        Some(problem) if !answer.status().is_success() => bail!("{}", refusal(client, &answer, &problem)),
        _ => bail!("{} answers {} without JSON: it may be {NOT_ADMIN}", client.place, answer.status()),
    }
}

/// Why the gateway refuses, and what to do about it, from a problem (RFC 9457).
fn refusal(client: &AdminClient, answer: &Response<Bytes>, problem: &Value) -> String {
    let status = answer.status();
    let detail = problem["detail"].as_str().unwrap_or("no reason given");
    let mut said = match problem["errors"].as_array() {
        Some(errors) if !errors.is_empty() => {
            errors.iter().map(|error| error["detail"].as_str().unwrap_or("?")).collect::<Vec<_>>().join("\n")
        }
        _ => detail.to_owned(),
    };
    for (field, option) in OPTIONS {
        said = said.replace(field, option);
    }
    // One remedy: at 401 the one for who types a command, at 403 the API's own, if it names one.
    if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN && !said.contains(": ") {
        said = with_token_remedy(&said, "with the right role");
    }
    if let Some(version) = answer.headers().get(ETAG).filter(|_| status == StatusCode::PRECONDITION_FAILED) {
        let version = version.to_str().unwrap_or("?").trim_matches('"');
        said = format!("its version is {version}: read it again, then write --if-version {version}");
    } else if status == StatusCode::PRECONDITION_FAILED {
        "it does not exist: --if-version 0 creates it".clone_into(&mut said);
    }
    format!("the gateway on {} answers {}: {said}", client.place, status.as_u16())
}

/// Fields of a body, and the options that they come from.
const OPTIONS: [(&str, &str); 13] = [
    ("`limit-value`", "`--limit`"),
    ("`window-seconds`", "`--window`"),
    ("`burst-multiplier`", "`--burst`"),
    ("`algorithm`", "`--algorithm`"),
    ("`user-id`", "`--user`"),
    ("`tenant-id`", "`--tenant`"),
    ("`subject`", "`--subject`"),
    ("`duration`", "`--for`"),
    ("`reason`", "`--reason`"),
    ("`value` of a block", "`--status`"),
    ("`value` must be above 0", "`--times` must be above 0"),
    ("make the override absolute, with the value 0", "write `--value 0` instead"),
    ("`value`", "`--value`"),
];
const NOT_ADMIN: &str = "a listener for requests, not the admin listener: give --url the address of [admin]";

/// The whole of a file, or of standard input if it is `-`.
pub(super) fn content(file: &std::path::Path) -> anyhow::Result<String> {
    if file.as_os_str() == "-" {
        return std::io::read_to_string(std::io::stdin()).context("standard input cannot be read");
    }
    std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_that_is_printed_steers_no_terminal_and_says_the_same() {
        let said = serde_json::json!({ "reason": "a\u{202e}\u{9b}\u{7f}\u{e0041}\u{1b}\nZo\u{eb}" });
        let printed = escaped(&format!("{said:#}"));
        assert!(printed.chars().all(|one| one == '\n' || !words::steers(one)), "{printed:?}");
        assert_eq!(serde_json::from_str::<Value>(&printed).expect("it is JSON"), said);
    }
}
