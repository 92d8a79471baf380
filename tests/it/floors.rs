//! The floors of ARCHITECTURE.md hold: a module imports only from lower floors, never from a sibling.
//!
//! It reads the source as tokens; it does not resolve re-exports, of which the tree has hardly any.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Every module there may be, and its floor.
const FLOORS: &[(&str, u8)] = &[
    ("main", 8),
    ("cli", 7),
    ("app", 6),
    ("config", 5),
    ("proxy", 4),
    ("server", 4),
    ("admin", 4),
    ("service", 3),
    ("limiter", 3),
    ("control", 3),
    ("record", 3),
    ("local", 2),
    ("global", 2),
    ("peers", 2),
    ("database", 2),
    ("tls", 2),
    ("auth", 2),
    ("upstream", 2),
    ("policy", 1),
    ("clock", 1),
    ("limit", 0),
    ("descriptors", 0),
    ("wire", 0),
    ("cause", 0),
    ("identity", 0),
    ("metrics", 0),
    ("random", 0),
    ("trust", 0),
];

#[test]
fn modules_import_only_from_lower_floors() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let floors: BTreeMap<&str, u8> = FLOORS.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut imports = 0;
    for file in files_under(&source) {
        let inner = file.strip_prefix(&source).expect("it was found there");
        let path = module_path(inner);
        let Some(importer) = path.first() else { continue };
        let Some(floor) = floors.get(importer.as_str()) else {
            wrong.push(format!("{}: module {importer} has no floor", inner.display()));
            continue;
        };
        let text = fs::read_to_string(&file).expect("it was found there");
        for imported in imports_of(&text, path.len()) {
            imports += 1;
            match floors.get(imported.as_str()) {
                _ if imported == *importer => {}
                None => wrong.push(format!("{}: imports {imported}, which has no floor", inner.display())),
                Some(below) if below < floor => {}
                Some(below) => wrong
                    .push(format!("{}: {importer} [{floor}] imports {imported} [{below}]", inner.display())),
            }
        }
    }
    assert!(imports > 0, "no import was found at all: the reader of the source is broken");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn imports_are_found_in_every_spelling() {
    let text = r#"
        use crate::admin;
        use crate::{record, limit::{Charge, quota::Quota}, policy::definition};
        // use crate::comment; /* and */
        /* use crate::block; */
        fn f<'a>(x: crate::identity::Identity) -> &'static str { "crate::text::x" }
        use super::upstream;
        mod tests { use super::*; use super::super::tls::Pair; use sluicegate::clock; }
    "#;
    let expected = ["admin", "record", "limit", "policy", "identity", "upstream", "tls", "clock"];
    assert_eq!(imports_of(text, 1), expected);
    assert!(imports_of("use super::own; use self::below;", 2).is_empty());
}

/// `proxy/forward.rs` is `[proxy, forward]`; `lib.rs` is empty.
fn module_path(file: &Path) -> Vec<String> {
    let parts = file.with_extension("");
    let parts = parts.iter().map(|part| part.to_string_lossy().into_owned());
    parts.filter(|part| part != "mod" && part != "lib").collect()
}

fn files_under(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("the source is there") {
        let path = entry.expect("the source is there").path();
        if path.is_dir() {
            found.extend(files_under(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Top-level modules that a source text names, for a file so deep below the crate's root.
fn imports_of(text: &str, depth: usize) -> Vec<String> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    let mut braces = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at].as_str();
        match token {
            "{" => braces.push(at >= 2 && tokens[at - 2] == "mod"),
            "}" => {
                braces.pop();
            }
            "crate" | "sluicegate" => found.extend(roots(&tokens[at + 1..])),
            "super" if at == 0 || tokens[at - 1] != "::" => {
                let inline = braces.iter().filter(|is_module| **is_module).count();
                let chain = tokens[at..].iter().step_by(2).take_while(|token| *token == "super").count();
                if chain == depth + inline {
                    found.extend(roots(&tokens[at + 2 * chain - 1..]));
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The first names behind a path's root: one, or those of a group.
fn roots(tokens: &[String]) -> Vec<String> {
    if tokens.first().is_none_or(|token| token != "::") {
        return Vec::new();
    }
    let mut names = Vec::new();
    let mut nesting = 0;
    for (token, before) in tokens[1..].iter().zip(tokens) {
        match token.as_str() {
            "{" => nesting += 1,
            "}" => nesting -= 1,
            "::" | "," | "*" => {}
            name if nesting == 0 => return vec![name.to_owned()],
            name if nesting == 1 && matches!(before.as_str(), "{" | ",") => names.push(name.to_owned()),
            _ => {}
        }
        if nesting == 0 {
            break;
        }
    }
    names
}

/// Words, `::` and single signs; comments, strings and characters left out.
fn tokens(text: &str) -> Vec<String> {
    let text: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let length = match rest {
            ['/', '/', ..] => rest.iter().take_while(|sign| **sign != '\n').count(),
            ['/', '*', ..] => comment(rest),
            ['r', '"' | '#', ..] if raw_string(rest) > 0 => raw_string(rest),
            ['"', ..] => quoted(rest, '"'),
            ['\'', '\\', ..] | ['\'', _, '\'', ..] => quoted(rest, '\''),
            [':', ':', ..] => {
                tokens.push("::".to_owned());
                2
            }
            [sign, ..] if sign.is_alphanumeric() || *sign == '_' => {
                let word: String =
                    rest.iter().take_while(|sign| sign.is_alphanumeric() || **sign == '_').collect();
                let length = word.chars().count();
                tokens.push(word);
                length
            }
            [sign, ..] => {
                if !sign.is_whitespace() {
                    tokens.push(sign.to_string());
                }
                1
            }
            [] => 1,
        };
        at += length.max(1);
    }
    tokens
}

/// Length of a block comment, those inside it included.
fn comment(text: &[char]) -> usize {
    let (mut nesting, mut at) = (0, 0);
    while at < text.len() {
        match text[at..] {
            ['/', '*', ..] => (nesting, at) = (nesting + 1, at + 2),
            ['*', '/', ..] => (nesting, at) = (nesting - 1, at + 2),
            _ => at += 1,
        }
        if nesting == 0 {
            break;
        }
    }
    at
}

/// Length of a string or character, its quotes included.
fn quoted(text: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != quote {
        at += if text[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Length of a raw string; 0 where none begins.
fn raw_string(text: &[char]) -> usize {
    let hashes = text[1..].iter().take_while(|sign| **sign == '#').count();
    if text.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let mut end = vec!['"'];
    end.extend(std::iter::repeat_n('#', hashes));
    let body = &text[2 + hashes..];
    let length = body.windows(end.len()).position(|window| window == end).unwrap_or(body.len());
    2 + hashes + length + end.len()
}
