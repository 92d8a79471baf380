//! What a reader of the documents tries first: their small examples, what they call absent, the pages they name.

use crate::auth::keys::hashed;
use crate::documents::{check, documents};
use crate::support::{Directory, Gateway, text};

/// A page of the documents.
fn page(name: &str) -> String {
    let path = format!("docs/{name}.md");
    documents().into_iter().find(|(name, _)| *name == path).expect("it is there").1
}

/// Quoted strings between backticks: `"5s"` gives `"5s"`.
fn quoted(text: &str) -> Vec<&str> {
    let spans = text.split('`').skip(1).step_by(2);
    spans.filter(|span| span.len() > 2 && span.starts_with('"') && span.ends_with('"')).collect()
}

const ROUTE: &str = "[[route]]\npath = \"/\"\nto = \"echo\"\n";

#[test]
fn every_value_that_the_table_of_types_shows_is_taken() {
    let rows = page("reference/configuration/syntax");
    let row =
        |name: &str| rows.lines().find(|line| line.starts_with(&format!("| {name} |"))).expect("it is there");
    let configs = [
        ("duration", "[shutdown]\ndrain = ", ""),
        ("size", "[limits]\nmemory = \"64MiB\"\n[listener.a]\nbind = \"127.0.0.1:0\"\nmax = { body = ", " }"),
        ("share", "[log]\naccess = { sample = { \"2xx\" = ", " } }"),
    ];
    for (name, before, behind) in configs {
        let values = quoted(row(name));
        assert!(values.len() > 1, "no value of {name} was found");
        for value in values {
            let output = check(&Directory::new(), &format!("{before}{value}{behind}\n{ROUTE}"));
            assert_eq!(output.status.code(), Some(0), "{name} {value}: {}", text(&output.stderr));
        }
    }
}

#[test]
fn every_limit_that_is_shown_as_text_is_one() {
    let page = page("reference/configuration/limit-text");
    let limits = quoted(&page);
    let limits: Vec<&str> = limits.into_iter().filter(|limit| limit.contains(['/', ' '])).collect();
    assert!(limits.len() >= 5, "{limits:?}");
    for limit in limits {
        let output = check(&Directory::new(), &format!("{ROUTE}limit = {limit}\n"));
        assert_eq!(output.status.code(), Some(0), "{limit}: {}", text(&output.stderr));
    }
}

#[test]
fn what_is_not_there_yet_says_so() {
    let page = page("not-included");
    let (_, rows) = page.split_once("\n## Reserved keys\n").expect("the section is there");
    let mut asked = 0;
    for row in rows.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let (place, keys) = row.trim_matches('|').rsplit_once(" | ").expect("it has two cells");
        for key in keys.split('`').skip(1).step_by(2) {
            let config = match place.trim() {
                "top level" => format!("{ROUTE}[{key}]\n"),
                "policy" => {
                    format!("[policy.a]\nby = []\nlimit = \"1/s\"\n{key} = \"x\"\n{ROUTE}limit = \"a\"\n")
                }
                other => format!("{}\n{key} = \"x\"\n{ROUTE}", other.trim_matches('`')),
            };
            let output = check(&Directory::new(), &config);
            let said = text(&output.stderr);
            let is_said = said.contains(&format!("`{key}`")) && said.contains("this version");
            assert!(output.status.code() == Some(78) && is_said, "{place} {key}: {said}");
            asked += 1;
        }
    }
    assert!(asked >= 1, "no key was found");
}

#[test]
fn the_page_of_a_key_says_which_tier_a_window_is_of() {
    let directory = Directory::new();
    directory
        .write("keys.toml", hashed("a key that is long enough", &["--consumer", "ann", "--tier", "pro"]));
    let gateway = Gateway::start_in(
        directory,
        "[auth.keys]\nkind = \"api-key\"\nkeys = { file = \"keys.toml\" }\n[tier.free]\nlimit = \"5/h\"\n\
         [tier.pro]\nlimit = [\"10/h\", \"100/d\"]\n[policy.p]\nby = [\"consumer\"]\nlimit = \"tier\"\n\
         [[route]]\npath = \"/\"\nauth = \"keys\"\nlimit = \"p\"\nto = \"echo\"\n",
    );
    let answer = gateway.client().request("GET", "/", &["x-api-key: a key that is long enough"], "");
    assert_eq!(answer.status, 200);
    let shown = gateway.admin("/v1/keys/p/ann").json();
    let windows = shown["windows"].as_array().expect("it lists windows");
    let mut tiers: Vec<(&str, u64, u64)> = windows
        .iter()
        .map(|window| {
            let number = |key: &str| window[key].as_u64().expect("it is a number");
            (window["tier"].as_str().expect("it says so"), number("limit"), number("remaining"))
        })
        .collect();
    tiers.sort_unstable();
    assert_eq!(tiers, [("free", 5, 4), ("pro", 10, 9), ("pro", 100, 99)]);
}
