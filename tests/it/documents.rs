//! What documents show and name is what there is: configurations, messages, metrics, other documents.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Output;

use crate::auth::keys::hashed;
use crate::support::gateway::binary;
use crate::support::tls::certify;
use crate::support::{Directory, text};

/// Every document for operators, with its name: the pages of docs/ and its folders, and those beside the code's root.
pub fn documents() -> Vec<(String, String)> {
    let beside = ["README.md", "SECURITY.md", "CONTRIBUTING.md"].map(str::to_owned);
    beside.into_iter().chain(pages_below("docs")).map(read).collect()
}

/// Documents about the code, with their names.
pub fn documents_of_the_code() -> Vec<(String, String)> {
    let beside = ["ARCHITECTURE.md", "benches/README.md", "certs/README.md"].map(str::to_owned);
    beside.into_iter().chain(pages_below("src")).map(read).collect()
}

fn read(name: String) -> (String, String) {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&name)).expect("it is there");
    (name, text)
}

/// The pages in a folder and in those below it, by name.
fn pages_below(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("it is there");
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.expect("it is there");
        let name = format!("{folder}/{}", entry.file_name().display());
        if entry.path().is_dir() {
            found.extend(pages_below(&name));
        } else if name.ends_with(".md") {
            found.push(name);
        }
    }
    found.sort();
    found
}

/// The documents that hold this text, which at least one does.
pub fn documents_with(text: &str) -> Vec<(String, String)> {
    let holding: Vec<_> = documents().into_iter().filter(|(_, document)| document.contains(text)).collect();
    assert!(!holding.is_empty(), "no document has {text:?}");
    holding
}

/// A fenced block: where it begins, what stands behind the fence, what is in it.
pub struct Block<'a> {
    pub place: String,
    pub kind: &'a str,
    pub text: &'a str,
}

/// The admin's token that examples take from `SLUICEGATE_TOKEN`.
pub const ADMIN_TOKEN: &str = "a-token-of-the-documents";

pub fn blocks<'a>(name: &str, document: &'a str) -> Vec<Block<'a>> {
    let mut found = Vec::new();
    let mut line = 1;
    for (at, piece) in document.split("```").enumerate() {
        if at % 2 == 1 {
            let (kind, text) = piece.split_once('\n').expect("a fence ends its line");
            found.push(Block { place: format!("{name}:{line}"), kind: kind.trim(), text });
        }
        line += piece.matches('\n').count();
    }
    found
}

/// `sluicegate check` in a directory with the files that documents name.
pub fn check(directory: &Directory, config: &str) -> Output {
    directory.write("gateway.toml", config);
    let mut command = binary();
    command.env("SLUICEGATE_TOKEN", ADMIN_TOKEN);
    command.current_dir(directory.join("")).args(["check", "--config", "gateway.toml"]);
    command.output().expect("the binary under test can be started")
}

/// A configuration around what is only a part of one.
pub fn completed(block: &Block<'_>, directory: &Directory) -> String {
    let route = "[[route]]\nname = \"around\"\npath = \"/around\"\nto = \"echo\"\n";
    match block.kind {
        "toml files" => {
            let entry = hashed("a key that is long enough", &["--consumer", "ann", "--tier", "pro"]);
            directory.write("keys.toml", entry);
            block.text.to_owned()
        }
        "toml" if block.text.contains("[[route]]") => block.text.to_owned(),
        "toml" => format!("{}\n{route}", block.text),
        "toml key-file" => {
            directory.write("keys.toml", block.text);
            format!("[auth.a]\nkind = \"api-key\"\nkeys = {{ file = \"keys.toml\" }}\n{route}auth = \"a\"\n")
        }
        "toml user-file" => {
            let whole = hashed("a password", &["--basic", "--consumer", "ann"]);
            let hash = whole.split('"').find(|part| part.starts_with("$argon2id")).expect("a hash was made");
            let parts: Vec<&str> = block.text.split('"').collect();
            let shown = parts.iter().find(|part| part.starts_with("$argon2id")).expect("a hash is shown");
            directory.write("users.toml", block.text.replace(shown, hash));
            format!("[auth.a]\nkind = \"basic\"\nusers = {{ file = \"users.toml\" }}\n{route}auth = \"a\"\n")
        }
        kind => panic!("{}: nobody knows how to complete `{kind}`", block.place),
    }
}

/// The anchor that a heading gets.
pub fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|sign| sign.is_alphanumeric() || matches!(sign, ' ' | '-' | '_'));
    kept.map(|sign| if sign == ' ' { '-' } else { sign }).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut followed = 0;
    let mut broken = Vec::new();
    for (name, text) in documents().into_iter().chain(documents_of_the_code()) {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (file, wanted) = link.split_once('#').unwrap_or((link, ""));
            let path = if file.is_empty() { root.join(&name) } else { root.join(&name).with_file_name(file) };
            let target = fs::read_to_string(&path).unwrap_or_default();
            let headings = target.lines().filter(|line| line.starts_with('#'));
            if !path.exists() || !wanted.is_empty() && !headings.map(anchor).any(|anchor| anchor == wanted) {
                broken.push(format!("{name}: {link}"));
            }
            followed += 1;
        }
    }
    assert!(followed > 0, "no link was found");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_configuration_that_is_shown_passes_check() {
    let mut checked = 0;
    for (name, document) in documents() {
        for block in blocks(&name, &document) {
            if !block.kind.starts_with("toml") || block.kind == "toml wrong" {
                continue;
            }
            let directory = Directory::new();
            fs::create_dir_all(directory.join("certs")).expect("the target directory is writable");
            certify(&directory, "certs/api", &["api.example.com"]);
            fs::create_dir_all(directory.join("errors")).expect("the target directory is writable");
            for page in ["404.html", "sorry.html", "sorry.json"] {
                directory.write(&format!("errors/{page}"), "sorry");
            }
            let output = check(&directory, &completed(&block, &directory));
            let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.code(), Some(0), "{}:\n{said}", block.place);
            checked += 1;
        }
    }
    assert!(checked > 0, "no configuration was found");
}

/// A configuration as the schema sees it.
fn as_json(config: &str) -> serde_json::Value {
    let table: toml::Table = config.parse().expect("it is TOML");
    serde_json::to_value(table).expect("TOML is JSON, but for dates")
}

fn schema() -> jsonschema::Validator {
    let output = binary().arg("schema").output().expect("the binary under test can be started");
    let schema = serde_json::from_slice(&output.stdout).expect("the schema is JSON");
    jsonschema::validator_for(&schema).expect("the schema is one")
}

#[test]
fn the_schema_takes_every_configuration_that_is_shown() {
    let schema = schema();
    let own = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/gateway.toml")).to_owned();
    let mut shown = vec![("gateway.toml".to_owned(), own)];
    let directory = Directory::new();
    for (name, document) in documents() {
        for block in
            blocks(&name, &document).iter().filter(|block| matches!(block.kind, "toml" | "toml files"))
        {
            shown.push((block.place.clone(), completed(block, &directory)));
        }
    }
    for (place, config) in &shown {
        let faults: Vec<String> = schema
            .iter_errors(&as_json(config))
            .map(|fault| format!("{}: {fault}", fault.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{place}:\n{}", faults.join("\n"));
    }
    assert!(shown.len() > 5, "no configuration was found");
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    let schema = schema();
    let route = "[[route]]\npath = \"/\"\nto = \"echo\"\n";
    assert!(schema.is_valid(&as_json(route)));
    for wrong in [
        "workrs = 2\n".to_owned(),
        "workers = \"many\"\n".to_owned(),
        "workers = -1\n".to_owned(),
        "admin = true\n".to_owned(),
        format!("{route}upgrade = \"yes\"\n"),
        format!("{route}methods = [1]\n"),
        format!("{route}max-body = \"10 parrots\"\n"),
        format!("{route}headers = {{ replace = {{ a = \"b\" }} }}\n"),
        format!("{route}match = {{ header = {{ x = false }} }}\n"),
        "[listener.a]\nhttp = \"h2\"\n".to_owned(),
        "[listener.a]\nbind = \"[::]:1\"\ntimeouts = { idle = 15 }\n".to_owned(),
        "[listener.a]\nbind = \"[::]:1\"\ncerts = [{ cert = \"a\" }]\n".to_owned(),
        "[upstream.a]\n".to_owned(),
        "[upstream.a]\nservers = \"http://a\"\nbalance = \"hash\"\n".to_owned(),
        "[policy.a]\nlimit = \"1/s\"\n".to_owned(),
        "[policy.a]\nby = []\nlimit = \"1/s\"\nrollout = \"1%\"\n".to_owned(),
        "[policy.a]\nby = []\nlimit = \"1/s\"\novershoot = 1\n".to_owned(),
        "[auth.a]\nkind = \"oauth\"\n".to_owned(),
        "[auth.a]\nkind = \"mtls\"\n".to_owned(),
        "[auth.a]\nkind = \"basic\"\nusers = { file = \"a\" }\nissuer = \"b\"\n".to_owned(),
        "[log]\naccess = { sample = { \"2xx\" = 10 } }\n".to_owned(),
    ] {
        assert!(!schema.is_valid(&as_json(&wrong)), "{wrong}");
        assert_eq!(check(&Directory::new(), &wrong).status.code(), Some(78), "{wrong}");
    }
}

#[test]
fn a_wrong_configuration_that_is_shown_gives_the_errors_below_it() {
    let (name, document) = documents_with("```toml wrong\n").remove(0);
    let blocks = blocks(&name, &document);
    let wrong = blocks.iter().find(|block| block.kind == "toml wrong").expect("there is one");
    let below = blocks.iter().find(|block| block.kind == "text errors").expect("they are shown");
    let shown: Vec<&str> = below.text.lines().map(str::trim_end).collect();
    let output = check(&Directory::new(), wrong.text);
    let said = text(&output.stderr);
    let said: Vec<&str> = said.lines().map(str::trim_end).collect();
    let end = shown.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    assert!(
        said.starts_with(&shown[..end]),
        "{name} shows\n{}\n\nsaid is\n{}",
        shown.join("\n"),
        said.join("\n")
    );
    assert_eq!(output.status.code(), Some(78));
}

/// Names that a text gives to metrics, `sluicegate_up` and the two of `sluicegate_{hits,misses}_total`.
fn metrics(text: &str) -> Vec<String> {
    let is_name = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '_';
    let mut found = Vec::new();
    for after in text.split("sluicegate_").skip(1) {
        let mut names = vec![String::new()];
        let mut rest = after;
        loop {
            let length = rest.find(|sign| !is_name(sign)).unwrap_or(rest.len());
            names.iter_mut().for_each(|name| name.push_str(&rest[..length]));
            let Some((inside, behind)) =
                rest[length..].strip_prefix('{').and_then(|rest| rest.split_once('}'))
            else {
                break;
            };
            // Braces behind a whole name hold labels.
            if !inside.chars().all(|sign| is_name(sign) || sign == ',') {
                break;
            }
            let all =
                names.iter().flat_map(|name| inside.split(',').map(move |other| format!("{name}{other}")));
            names = all.collect();
            rest = behind;
        }
        found.extend(names.into_iter().filter(|name| !name.is_empty()));
    }
    found
}

#[test]
fn every_metric_that_a_document_names_stands_in_the_table() {
    let listed: BTreeSet<String> = crate::readme::metrics_listed().into_iter().collect();
    for (document, text) in documents() {
        for name in metrics(&text) {
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let is_listed = listed.contains(&name) || family.is_some_and(|family| listed.contains(family));
            assert!(
                is_listed,
                "{document} names sluicegate_{name}, which the table of metrics does not list"
            );
        }
    }
}

#[test]
fn metrics_are_found_in_every_spelling() {
    let text = "All begin with `sluicegate_`. `sluicegate_up`, sluicegate_{hits,misses}_total, \
                `sluicegate_requests_total{route=\"a\"}` and sluicegate_x_{a,b}.";
    assert_eq!(metrics(text), ["up", "hits_total", "misses_total", "requests_total", "x_a", "x_b"]);
}
