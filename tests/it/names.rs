//! Names in documents that speak of the code are those of the tree: files, modules, types, functions, constants, keys,
//! tests, fuzz targets.

use std::collections::BTreeSet;
use std::path::Path;

use crate::documents::{documents, documents_of_the_code};
use crate::support::source::{File, Names, Tree};

/// Documents for operators that speak of the code, too: what their paths hold.
const OF_THE_CODE: &[&str] = &["CONTRIBUTING.md", "SECURITY.md", "bounds", "hostile-input"];

/// Names of others that the code does not have: fields of HTTP as they are written, commands of Redis, parts of
/// names, what stands for a number, and what of a crate is left out.
const FOREIGN: &[&str] = &[
    "0x",
    "MGET",
    "Retry-After",
    "SETRANGE",
    "X-RateLimit-Reset",
    "axum::serve",
    "has_",
    "is_",
    "unwrap",
    "worker-N",
    "grpc-N",
];

#[test]
fn every_name_in_the_documents_is_in_the_tree() {
    let trees = [Tree::read("src"), Tree::read("tests/it")];
    let known = trees.each_ref().map(Known::of);
    let (mut checked, mut missing) = (0, Vec::new());
    let of_the_code = documents_of_the_code()
        .into_iter()
        .filter(|(name, _)| name == "ARCHITECTURE.md" || name.starts_with("src/"));
    let speaking = |name: &str| OF_THE_CODE.iter().any(|part| name.contains(part));
    for (document, text) in of_the_code.chain(documents().into_iter().filter(|(name, _)| speaking(name))) {
        let spans = spans(&text);
        checked += spans.len();
        let gone = spans.iter().filter(|(_, span)| !known.iter().any(|known| known.holds(span)));
        missing.extend(gone.map(|(line, span)| format!("{document}:{line}: `{span}` is not in the tree")));
    }
    assert!(checked > 500, "only {checked} names between backticks were found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// What stands between backticks, with its line. Blocks of code are for `documented`.
fn spans(text: &str) -> Vec<(usize, String)> {
    let mut line = 1;
    let mut found = Vec::new();
    let without_blocks: Vec<String> = text
        .split("```")
        .enumerate()
        .map(
            |(at, piece)| {
                if at % 2 == 1 { "\n".repeat(piece.matches('\n').count()) } else { piece.to_owned() }
            },
        )
        .collect();
    for (at, piece) in without_blocks.concat().split('`').enumerate() {
        if at % 2 == 1 {
            found.push((line, piece.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        line += piece.matches('\n').count();
    }
    found
}

/// Everything that a name may be found in.
struct Known<'a> {
    tree: &'a Tree,
    files: Vec<Content<'a>>,
    /// Keys of the configuration and other words that the code has as text.
    texts: BTreeSet<&'a str>,
}

/// The names of one file.
struct Content<'a> {
    file: &'a File,
    words: BTreeSet<&'a str>,
    /// What it defines.
    defined: BTreeSet<&'a str>,
    /// What stands between `impl` and its braces.
    implemented: BTreeSet<&'a str>,
}

impl<'a> Known<'a> {
    fn of(tree: &'a Tree) -> Known<'a> {
        let lines = tree.files().flat_map(|(_, file)| file.text.lines());
        let code = lines.map(|line| line.split("//").next().unwrap_or(line));
        let between = |sign: char| !sign.is_alphanumeric() && sign != '-' && sign != '_';
        let texts = code.flat_map(|line| line.split(between)).collect();
        Known { tree, files: tree.files().map(|(_, file)| Content::of(file)).collect(), texts }
    }

    /// Whether a quoted span is a name of the tree, or no name at all.
    fn holds(&self, span: &str) -> bool {
        // `trust::` is a module; `…::told_once` stands in the one that was named before.
        let span = span.trim_end_matches("::").trim_start_matches("…::");
        let word = span.split(' ').next().unwrap_or(span);
        // A path that begins with a slash is one of a URL.
        if FOREIGN.contains(&span) || word.starts_with('/') {
            true
        } else if word.contains('/') || [".rs", ".lua", ".md", ".toml"].iter().any(|end| word.ends_with(end))
        {
            word.starts_with("target/") || self.has_path(word)
        } else if let Some((of, by)) = span.split_once(" for ") {
            let wanted = [of, "for", by];
            self.files.iter().any(|content| content.file.tokens().windows(3).any(|three| three == wanted))
        } else if word.contains("::") {
            self.has_item(&word.split("::").map(str::to_owned).collect::<Names>())
        } else if span.chars().all(|sign| sign.is_alphanumeric() || sign == '_') {
            self.files.iter().any(|file| file.words.contains(span))
                || self.texts.contains(span)
                || self.is_fuzzed(span)
        } else if span.chars().all(|sign| sign.is_alphanumeric() || "-_.[]".contains(sign)) {
            span.trim_matches(['[', ']']).split('.').all(|part| self.texts.contains(part))
        } else {
            true
        }
    }

    /// A file or folder of the repository, below `src/`, or of any module: `frames/meter`, `connection.rs`.
    fn has_path(&self, path: &str) -> bool {
        let path = path.trim_matches('/');
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let end = format!("/{}", path.trim_end_matches(".rs"));
        root.join(path).exists()
            || self.files.iter().any(|content| {
                let name = format!("/{}/", content.file.name.trim_end_matches(".rs"));
                name.ends_with(&format!("{end}/"))
                    || !path.ends_with(".rs") && name.contains(&format!("{end}/"))
            })
    }

    /// `proxy::worker::Order`, `worker::Order`, `Limiter::decide`, `Order::Drain`: what a module has, or a type.
    fn has_item(&self, path: &[String]) -> bool {
        let modules = path.iter().take_while(|name| name.starts_with(char::is_lowercase)).count();
        let (above, names) = path.split_at(modules.min(path.len() - 1));
        if above.is_empty() {
            return self.has_member(&names[0], names.get(1));
        }
        self.tree.files().filter(|(module, _)| module.ends_with(above)).any(|(module, _)| {
            let Some((origin, left)) = self.tree.find(&[module, names].concat()) else { return false };
            let Some(name) = left.first() else { return true };
            let origin = self.tree.file(origin).map(Content::of);
            let is_defined = origin.is_some_and(|content| content.defined.contains(name.as_str()));
            is_defined && self.has_member(name, left.get(1))
        })
    }

    /// Whether a file defines or implements this, with this member.
    fn has_member(&self, name: &str, member: Option<&String>) -> bool {
        self.files.iter().any(|content| {
            (content.defined.contains(name) || content.implemented.contains(name))
                && member.is_none_or(|member| content.words.contains(member.as_str()))
        })
    }

    fn is_fuzzed(&self, name: &str) -> bool {
        self.has_path(&format!("tests/fuzz/targets/{name}.rs"))
    }
}

impl<'a> Content<'a> {
    fn of(file: &'a File) -> Content<'a> {
        const KINDS: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "union"];
        let tokens = file.tokens();
        let pairs = tokens.windows(2).filter(|pair| KINDS.contains(&pair[0].as_str()));
        let heads = tokens.split(|token| token == "impl").skip(1);
        let implemented = heads.flat_map(|rest| rest.iter().take_while(|token| *token != "{"));
        Content {
            file,
            words: tokens.iter().map(String::as_str).collect(),
            defined: pairs.map(|pair| pair[1].as_str()).collect(),
            implemented: implemented.map(String::as_str).collect(),
        }
    }
}

#[test]
fn names_that_are_not_there_are_found_out() {
    let tree = Tree::new([
        ("lib.rs", "pub mod proxy;"),
        ("proxy/mod.rs", "pub mod worker; pub use worker::Order as Command; // NOT_HERE\n"),
        (
            "proxy/worker.rs",
            "pub enum Order { Drain } impl Drop for Order { fn drop() {} } fn key() { \"max-body\" }",
        ),
        ("proxy/more.rs", "impl Order { const ORDERS_MAX: u8 = 1; pub fn send(&self) {} }"),
    ]);
    let known = Known::of(&tree);
    let there = "proxy::worker::Order proxy::Command worker::Order Order::Drain Order::send worker::key proxy::worker \
                 worker.rs proxy/ proxy/worker proxy/worker.rs Cargo.toml tests/all max-body [max-body] ORDERS_MAX \
                 Order::ORDERS_MAX Retry-After target/x";
    for span in there.split_whitespace().chain(["Drop for Order", "tests/all lints", "a → b"]) {
        assert!(known.holds(span), "{span} is there");
    }
    let gone = "proxy::worker::Orders proxy::workers::Order worker::Command Order::Stop Limiter::send worker::keys \
                orker.rs proxies/ proxy/work tests/none min-body max.body-x [limits] NOT_HERE Order::ORDERS_MIN Orders";
    for span in gone.split_whitespace().chain(["Drop for Command", "tests/none lints"]) {
        assert!(!known.holds(span), "{span} is not there");
    }
}
