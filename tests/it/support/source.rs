//! Source of the repository, as a tree of files and what each of them takes from others.
//!
//! It reads words and signs, not Rust: no macro is expanded. A name that a file passes on by `pub use` is taken from
//! the file that it comes from; the one that passes it on takes it only if it uses it, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A path from above all crates: `[gateway, proxy, forward]`, and behind a module what is taken from it.
pub type Names = Vec<String>;

/// The files under a folder: a crate's, or those of several crates, each in a folder with its name.
pub struct Tree(BTreeMap<Names, File>);

/// One of them.
pub struct File {
    /// `proxy/forward.rs`.
    pub name: String,
    /// Whether all of it is compiled for tests alone.
    pub is_test: bool,
    /// What stands in it.
    pub text: String,
    tokens: Vec<String>,
    /// Names that it has from others, with their paths.
    shown: BTreeMap<String, Names>,
    /// The crates of the tree; none if it is one itself.
    crates: Rc<BTreeSet<String>>,
}

impl Tree {
    /// Reads a folder of the repository: `src`, which holds crates, or `tests/it`, which is one.
    pub fn read(folder: &str) -> Tree {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut texts = Vec::new();
        for path in files_under(&source) {
            let name = path.strip_prefix(&source).expect("it was found there").display().to_string();
            texts.push((name, fs::read_to_string(&path).expect("it was found there")));
        }
        let roots = texts.iter().filter_map(|(name, _)| name.strip_suffix("/lib.rs"));
        let crates = roots.filter_map(|folder| folder.rsplit('/').next()).map(str::to_owned).collect();
        Tree::of(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())), crates)
    }

    /// A tree of these files, by their names below the folder, which is one crate.
    pub fn new<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Tree {
        Tree::of(texts, BTreeSet::new())
    }

    fn of<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>, crates: BTreeSet<String>) -> Tree {
        let crates = Rc::new(crates);
        let read = |(name, text): (&str, &str)| {
            let (module, tokens) = (module_of(name), tokens(text));
            let shown = Reading::within(&without_tests(&tokens), &module, &crates).imported;
            let (name, text) = (name.to_owned(), text.to_owned());
            (module, File { name, is_test: false, text, tokens, shown, crates: Rc::clone(&crates) })
        };
        let mut files: BTreeMap<Names, File> = texts.into_iter().map(read).collect();
        let tests: BTreeSet<Names> =
            files.iter().flat_map(|(module, file)| file.tests_below(module)).collect();
        for (module, file) in &mut files {
            file.is_test = (1..=module.len()).any(|length| tests.contains(&module[..length]));
        }
        Tree(files)
    }

    /// Every file with its module's path.
    pub fn files(&self) -> impl Iterator<Item = (&[String], &File)> {
        self.0.iter().map(|(module, file)| (module.as_slice(), file))
    }

    /// The file of a module.
    pub fn file(&self, module: &[String]) -> Option<&File> {
        self.0.get(module)
    }

    /// The module that a path leads to, through names that others show, and what it names there.
    pub fn find(&self, path: &[String]) -> Option<(&[String], Names)> {
        let mut path = path.to_vec();
        // Names that show each other would lead round for ever.
        for _ in 0..8 {
            let length = (0..=path.len()).rev().find(|length| self.0.contains_key(&path[..*length]))?;
            let (module, file) = self.0.get_key_value(&path[..length])?;
            let shown = path.get(length).and_then(|name| file.shown.get(name));
            let Some(origin) = shown.filter(|origin| **origin != path[..=length]) else {
                return Some((module, path[length..].to_vec()));
            };
            path = [origin, &path[length + 1..]].concat();
        }
        None
    }
}

impl File {
    /// Every path into the crate that this file of `module` names.
    pub fn imports(&self, module: &[String]) -> Vec<Names> {
        let reading = Reading::within(&self.tokens, module, &self.crates);
        reading.found.into_iter().chain(reading.passed_on.into_values()).collect()
    }

    /// The paths that it uses itself, but for what is compiled for tests alone.
    pub fn uses(&self, module: &[String]) -> Vec<Names> {
        if self.is_test {
            return Vec::new();
        }
        Reading::within(&without_tests(&self.tokens), module, &self.crates).found
    }

    /// Its words and signs, without comments and strings.
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// The functions beside its tests, with the lines of each from `fn` to its last brace. The text is as rustfmt writes it: a
    /// function ends where the first line begins as deep as its own with a brace, one without a body with a semicolon.
    pub fn functions(&self) -> Vec<(&str, usize)> {
        let lines: Vec<&str> = self.without_tests().lines().collect();
        let function = |at: usize| {
            let name = function_of(lines[at])?;
            let depth = &lines[at][..lines[at].len() - lines[at].trim_start().len()];
            let ends = |line: &&str| {
                let own = line.strip_prefix(depth).filter(|own| !own.starts_with(' '));
                own.is_some_and(|own| {
                    own == "}" || own.ends_with(';') || own.starts_with("fn ") && own.ends_with('}')
                })
            };
            let behind = lines[at..].iter().position(ends)?;
            Some((name, behind + 1))
        };
        (0..lines.len()).filter_map(function).collect()
    }

    /// The types that get methods of their own here, those of tests apart, and how many by each `impl`.
    pub fn methods(&self) -> Vec<(String, usize)> {
        let methods = |block: &str| {
            let lines: Vec<&str> = block.split("\n}").next().unwrap_or_default().lines().collect();
            let is_method = |at: &usize| {
                let code = lines[*at].strip_prefix("    ").filter(|code| !code.starts_with(' '));
                let is_tests = *at > 0 && lines[*at - 1].trim() == "#[cfg(test)]";
                code.and_then(function_of).is_some() && !is_tests
            };
            (0..lines.len()).filter(is_method).count()
        };
        let blocks = self.without_tests().split("\nimpl").skip(1);
        blocks.filter_map(|block| Some((type_of(block)?, methods(block)))).collect()
    }

    /// Whether a type is defined in it.
    pub fn defines(&self, name: &str) -> bool {
        let is_kind = |word: &str| matches!(word, "struct" | "enum" | "union");
        self.tokens.windows(2).any(|two| is_kind(&two[0]) && two[1] == name)
    }

    /// Its text before the tests in it.
    fn without_tests(&self) -> &str {
        self.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
    }

    /// Modules in files of their own that only tests have: `#[cfg(test)] mod tests;`.
    fn tests_below(&self, module: &[String]) -> Vec<Names> {
        let declared = |tokens: &[String]| -> BTreeSet<Names> {
            let named = tokens.windows(3).filter(|three| three[0] == "mod" && three[2] == ";");
            named.map(|three| [module, &three[1..2]].concat()).collect()
        };
        let without = declared(&without_tests(&self.tokens));
        declared(&self.tokens).difference(&without).cloned().collect()
    }
}

/// `proxy/forward.rs` is `[proxy, forward]`; `lib.rs` is empty. A folder `tools` only holds crates.
fn module_of(name: &str) -> Names {
    let parts = name.trim_start_matches("tools/").trim_end_matches(".rs").split('/');
    parts.filter(|part| *part != "mod" && *part != "lib").map(str::to_owned).collect()
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

/// What a file says of others.
#[derive(Default)]
struct Reading {
    /// The crates that a path may begin with.
    crates: BTreeSet<String>,
    /// What `crate` stands for: nothing in a tree of one crate.
    root: Names,
    /// Every path into the crate that it names, from the crate's root.
    found: Vec<Names>,
    /// Modules that it declares, with bodies or without.
    declared: BTreeSet<Names>,
    /// What an imported name stands for.
    imported: BTreeMap<String, Names>,
    /// What it takes by `pub use` and does not use itself.
    passed_on: BTreeMap<String, Names>,
}

impl Reading {
    fn of(tokens: &[String], module: &[String]) -> Reading {
        Reading::within(tokens, module, &BTreeSet::new())
    }

    fn within(tokens: &[String], module: &[String], crates: &BTreeSet<String>) -> Reading {
        let root = module.iter().take(1).filter(|name| crates.contains(*name)).cloned().collect();
        let mut reading = Reading { crates: crates.clone(), root, ..Reading::default() };
        let places = places(tokens, module);
        for (at, here) in places.iter().enumerate() {
            if tokens[at] == "mod" && tokens.get(at + 2).is_some_and(|sign| sign == ";" || sign == "{") {
                reading.declared.insert([here, &tokens[at + 1..at + 2]].concat());
            }
        }
        let mut used = BTreeSet::new();
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at] == "use" && tokens.get(at + 1).is_some_and(|next| next != "<") {
                let is_public = at > 0 && matches!(tokens[at - 1].as_str(), "pub" | ")");
                at = reading.declaration(tokens, at + 1, &places[at], is_public);
            } else if begins_path(tokens, at) {
                let words = tokens[at..].iter().step_by(2);
                let signs = tokens[at + 1..].iter().step_by(2).take_while(|sign| *sign == "::").count();
                let path: Names = words.take(signs + 1).filter(|word| is_word(word)).cloned().collect();
                reading.found.extend(reading.absolute(&path, &places[at]));
                used.insert(tokens[at].as_str());
                at += 2 * signs + 1;
            } else {
                used.insert(tokens[at].as_str());
                at += 1;
            }
        }
        let (both, passed_on) =
            reading.passed_on.into_iter().partition(|(name, _)| used.contains(name.as_str()));
        let both: BTreeMap<String, Names> = both;
        reading.found.extend(both.into_values());
        Reading { passed_on, ..reading }
    }

    /// Reads a use declaration; says where it ends.
    fn declaration(&mut self, tokens: &[String], from: usize, here: &[String], is_public: bool) -> usize {
        let mut leaves = Vec::new();
        let end = use_tree(tokens, from, &[], &mut leaves);
        for (path, name) in leaves {
            let Some(path) = self.absolute(&path, here) else { continue };
            self.imported.insert(name.clone(), path.clone());
            if is_public {
                self.passed_on.insert(name, path);
            } else {
                self.found.push(path);
            }
        }
        end
    }

    /// The same path from above all crates; none where it leads out of the tree.
    fn absolute(&self, path: &[String], here: &[String]) -> Option<Names> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some([&self.root, rest].concat()),
            "self" => Some([here, rest].concat()),
            "super" => {
                let up = path.iter().take_while(|name| *name == "super").count();
                Some([&here[..here.len().checked_sub(up)?], &path[up..]].concat())
            }
            _ => {
                let below = [here, &path[..1]].concat();
                let start = self.declared.get(&below).or_else(|| self.imported.get(first));
                let is_crate = self.crates.contains(first);
                start.map(|start| [start, rest].concat()).or_else(|| is_crate.then(|| path.to_vec()))
            }
        }
    }
}

/// The name of the function that begins in this line.
fn function_of(line: &str) -> Option<&str> {
    let (before, rest) = line.trim_start().split_once("fn ")?;
    let name = rest.split(|sign| !is_part_of_word(sign)).next().filter(|name| !name.is_empty())?;
    // `pub(in crate::a)` is `pub` and what it is in.
    let (visible, marks) = before.split_once(')').unwrap_or(("pub", before));
    let is_marked = visible.starts_with("pub") && marks.split_whitespace().all(|word| MARKS.contains(&word));
    is_marked.then_some(name)
}

/// The type of an `impl`, by what follows that word; none if it is of a trait.
fn type_of(block: &str) -> Option<String> {
    let header = block.split(" {\n").next()?.split("\nwhere").next()?.replace("->", "");
    let mut depth = 0;
    let behind = header.find(|sign| {
        depth += i32::from(sign == '<') - i32::from(sign == '>');
        depth == 0
    })?;
    let own = header.get(behind..).filter(|own| own.starts_with([' ', '>']) && !own.contains(" for "))?;
    let path =
        own.trim_start_matches(['>', ' ']).split(|sign| !is_part_of_word(sign) && sign != ':').next()?;
    path.rsplit(':').next().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// What stands before `fn`.
const MARKS: [&str; 3] = ["pub", "const", "async"];

/// Whether a path of more than one name begins here that is not a macro's variable and no visibility.
fn begins_path(tokens: &[String], at: usize) -> bool {
    let before = at.checked_sub(1).map_or("", |before| tokens[before].as_str());
    let is_variable = before == "$" && tokens[at] != "crate";
    let is_visibility = before == "in" && at > 2 && tokens[at - 2] == "(" && tokens[at - 3] == "pub";
    let goes_on = tokens.get(at + 1).is_some_and(|next| next == "::");
    is_word(&tokens[at]) && goes_on && before != "::" && !is_variable && !is_visibility
}

/// The module of each token, inline ones included.
fn places(tokens: &[String], module: &[String]) -> Vec<Names> {
    let mut here = module.to_vec();
    let mut braces = Vec::new();
    let mut places = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let opens_module = token == "{" && at >= 2 && tokens[at - 2] == "mod";
        if token == "}" && braces.pop() == Some(true) {
            here.pop();
        }
        if token == "{" {
            braces.push(opens_module);
        }
        if opens_module {
            here.push(tokens[at - 1].clone());
        }
        places.push(here.clone());
    }
    places
}

/// The leaves of a use declaration from here on, each with the name it gets; says where it ends.
fn use_tree(tokens: &[String], from: usize, prefix: &[String], leaves: &mut Vec<(Names, String)>) -> usize {
    let mut path = prefix.to_vec();
    let mut alias = None;
    let mut at = from;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "::" => {}
            "{" => {
                while at < tokens.len() && matches!(tokens[at].as_str(), "{" | ",") {
                    at = use_tree(tokens, at + 1, &path, leaves);
                }
                // A group has no name of its own.
                return at + 1;
            }
            "," | "}" | ";" => break,
            "as" => {
                alias = tokens.get(at + 1).cloned();
                at += 1;
            }
            "self" if path.len() > prefix.len() || !prefix.is_empty() => {}
            word => path.push(word.to_owned()),
        }
        at += 1;
    }
    if let Some(last) = path.last().filter(|_| at > from) {
        leaves.push((path.clone(), alias.unwrap_or_else(|| last.clone())));
    }
    at
}

/// Tokens but for items, fields and statements under `#[cfg(test)]`.
fn without_tests(tokens: &[String]) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut left = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].iter().take(MARK.len()).eq(MARK) {
            at += marked(&tokens[at..]);
        } else {
            left.push(tokens[at].clone());
            at += 1;
        }
    }
    left
}

/// How many tokens belong together here: attributes and what they are about.
fn marked(tokens: &[String]) -> usize {
    let mut at = 0;
    while tokens.get(at).is_some_and(|sign| sign == "#") {
        at += 1 + group(&tokens[at + 1..]);
    }
    let first = tokens[at..].iter().find(|word| is_word(word) && *word != "pub" && *word != "crate");
    let first = first.map_or("", String::as_str);
    // A declaration's braces are not its end.
    let ends_with_sign = matches!(first, "use" | "let" | "static" | "const" | "type")
        && tokens.get(at + 1).is_none_or(|next| next != "fn");
    let items = ["fn", "mod", "impl", "struct", "enum", "trait", "async", "unsafe", "extern", "macro_rules"];
    let is_part = !ends_with_sign && !items.contains(&first) && first != "const";
    while at < tokens.len() {
        match tokens[at].as_str() {
            "}" | ")" | "]" => break,
            ";" => return at + 1,
            "," if is_part => return at + 1,
            "{" if !ends_with_sign => return at + group(&tokens[at..]),
            "{" | "(" | "[" => at += group(&tokens[at..]),
            _ => at += 1,
        }
    }
    at
}

/// Length of a group in brackets, with them.
fn group(tokens: &[String]) -> usize {
    let mut nesting = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" | "(" | "[" => nesting += 1,
            "}" | ")" | "]" => nesting -= 1,
            _ => {}
        }
        if nesting == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

fn is_word(token: &str) -> bool {
    token.starts_with(|sign: char| sign.is_alphabetic() || sign == '_')
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
            ['b' | 'c', 'r', '"' | '#', ..] if raw_string(&rest[1..]) > 0 => 1 + raw_string(&rest[1..]),
            ['b' | 'c', '"', ..] => 1 + quoted(&rest[1..], '"'),
            ['b', '\'', ..] => 1 + quoted(&rest[1..], '\''),
            ['r', '"' | '#', ..] if raw_string(rest) > 0 => raw_string(rest),
            ['r', '#', sign, ..] if is_part_of_word(*sign) => 2,
            ['"', ..] => quoted(rest, '"'),
            ['\'', '\\', ..] | ['\'', _, '\'', ..] => quoted(rest, '\''),
            [':', ':', ..] => {
                tokens.push("::".to_owned());
                2
            }
            [sign, ..] if is_part_of_word(*sign) => {
                let word: String = rest.iter().take_while(|sign| is_part_of_word(**sign)).collect();
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

fn is_part_of_word(sign: char) -> bool {
    sign.is_alphanumeric() || sign == '_'
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

mod tests {
    use super::{Reading, Tree, tokens, without_tests};

    /// What a text of the module `proxy::worker` names, a word each.
    fn named(text: &str) -> Vec<String> {
        let module = ["proxy".to_owned(), "worker".to_owned()];
        Reading::of(&tokens(text), &module).found.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn use_declarations_are_read_to_their_leaves() {
        let text = "use crate::{record, limit::{Charge, quota::{self, Quota as Of}}, policy::definition};
            use super::{
                body::*,
                pipeline as line,
            };
            use self::below::Deep; use super::super::tls; use crate::clock; use std::{fs, io::Read};
            use ::toml::Table; use crate::admin;";
        let expected = "record limit::Charge limit::quota limit::quota::Quota policy::definition proxy::body::* \
                        proxy::pipeline proxy::worker::below::Deep tls clock admin";
        assert_eq!(named(text).join(" "), expected);
    }

    #[test]
    fn a_path_may_begin_with_another_crate() {
        let crates = ["limit", "proxy"].map(str::to_owned).into();
        let text = "mod policy; use limit::Quota; use crate::pools::Pool; use policy::Rule; use http::Uri; fn f() { limit::now() }";
        let module = ["proxy".to_owned(), "worker".to_owned()];
        let found = Reading::within(&tokens(text), &module, &crates).found;
        let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
        assert_eq!(
            found,
            ["limit::Quota", "proxy::pools::Pool", "proxy::worker::policy::Rule", "limit::now"]
        );
    }

    #[test]
    fn what_is_passed_on_is_taken_only_where_it_is_used() {
        let text = "mod below; pub use below::{Shown, Used}; pub(crate) use super::body::Body as Other;
            fn f(used: Used) {}";
        assert_eq!(named(text), ["proxy::worker::below::Used"]);
        let tree = Tree::new([
            ("lib.rs", "mod proxy;"),
            ("proxy/mod.rs", "mod a; mod b; pub use a::{Shown, inner};"),
            ("proxy/a.rs", "pub use super::b::Deep as Shown;"),
            ("proxy/b.rs", ""),
        ]);
        let find = |path: &[&str]| {
            let path: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
            tree.find(&path).map(|(module, names)| (module.join("::"), names.join("::")))
        };
        let found = |module: &str, names: &str| Some((module.to_owned(), names.to_owned()));
        assert_eq!(find(&["proxy", "Shown", "new"]), found("proxy::b", "Deep::new"));
        assert_eq!(find(&["proxy", "inner"]), found("proxy::a", "inner"));
        assert_eq!(find(&["proxy", "b"]), found("proxy::b", ""));
    }

    #[test]
    fn paths_are_found_where_they_are_used() {
        let text = "mod below; use super::listener; use std::time;
            fn f<'a>(x: crate::identity::Identity, y: &'a super::pools::Pool) -> impl Send + use<'a> {
                below::start(); listener::Listener::admit::<crate::clock::Now>(x); time::Instant::now();
                vec![Box::new(<self::below::T as super::body::B>::C)]
            }";
        let expected = "proxy::listener identity::Identity proxy::pools::Pool proxy::worker::below::start \
                        proxy::listener::Listener::admit clock::Now proxy::worker::below::T proxy::body::B";
        assert_eq!(named(text).join(" "), expected);
    }

    #[test]
    fn modules_inside_a_file_stand_one_lower() {
        let text = "mod inner { use super::super::body; fn f() { super::own(); inmost::g() } mod inmost {} }
            use super::last;";
        let expected = "proxy::body proxy::worker::own proxy::worker::inner::inmost::g proxy::last";
        assert_eq!(named(text).join(" "), expected);
    }

    #[test]
    fn macros_are_read_as_they_stand() {
        let text =
            "macro_rules! m { ($below:ident) => { $crate::random::fill($below::X); $below::crate_word() } }
            pub(in crate::global) fn f() { tokio::select! { x = super::body::next() => {} } }";
        assert_eq!(named(text), ["random::fill", "proxy::body::next"]);
    }

    #[test]
    fn comments_and_strings_name_nothing() {
        let text = r##"// use crate::comment; /* and */
            /* use crate::block; /* use crate::inner; */ use crate::outer; */
            /// `crate::doc::Link`
            const A: &str = "crate::text::x \" crate::more::x"; const B: &[u8] = br#"" crate::raw::x"#;
            const C: [char; 3] = ['"', '\'', '\\']; const D: u8 = b'"'; fn f<'a>(x: &'a str) { 'l: loop {} }
            use crate::last;"##;
        assert_eq!(named(text), ["last"]);
    }

    #[test]
    fn code_for_tests_can_be_left_out() {
        let text = "#[cfg(test)] use crate::a::{B, C}; #[cfg(test)] #[allow(x)] mod tests { use crate::d; }
            struct S { #[cfg(test)] seen: crate::e::E, kept: crate::f::F }
            #[cfg(test)] pub(crate) const fn g<A, B>(x: [u8; 4]) -> crate::h::H { crate::i::i() }
            #[cfg(test)] pub(crate) const J: crate::j::J = crate::j::J { x: 1 }; #[cfg(test)] mod more;
            #[cfg(not(test))] use crate::k;";
        let tokens = without_tests(&tokens(text));
        let left: Vec<String> = Reading::of(&tokens, &[]).found.iter().map(|path| path.join("::")).collect();
        assert_eq!(left, ["f::F", "k"]);
    }

    #[test]
    fn functions_are_measured_to_their_last_brace() {
        let text = "pub(in super::a) const fn a<T>(\n    x: T,\n) -> T {\n    let f = |y| {\n        y\n    };\n    f(x)\n}\n\
            trait A {\n    fn b(&self);\n    fn c(\n        &self,\n    ) -> u8;\n    fn d(&self) {}\n}\n\
            /// Says fn e\ntype F = fn (u8);\n#[cfg(test)]\nmod tests {\n    fn g() {\n    }\n}\n";
        let tree = Tree::new([("lib.rs", text)]);
        let functions: Vec<_> = tree.files().flat_map(|(_, file)| file.functions()).collect();
        assert_eq!(functions, [("a", 8), ("b", 1), ("c", 3), ("d", 1)]);
    }

    #[test]
    fn files_for_tests_are_known_by_their_declaration() {
        let tree = Tree::new([
            ("lib.rs", "mod proxy;"),
            ("proxy/mod.rs", "mod body; #[cfg(test)] mod scenes;"),
            ("proxy/body.rs", ""),
            ("proxy/scenes/mod.rs", "mod far;"),
            ("proxy/scenes/far.rs", ""),
        ]);
        let tests = tree.files().filter(|(_, file)| file.is_test).map(|(_, file)| file.name.as_str());
        assert_eq!(tests.collect::<Vec<_>>(), ["proxy/scenes/mod.rs", "proxy/scenes/far.rs"]);
    }

    #[test]
    fn methods_are_counted_by_the_type_that_has_them() {
        let text = "struct One<T>(T);

impl<T: Fn() -> u32> One<T> {
    pub(in crate::a) const fn first() {
        let no_method = || ();
    }

    async fn second<'a>(&'a self) {}

    #[cfg(test)]
    fn of_tests() {}
}

impl crate::Other
where
    u32: Copy,
{
    fn third() {}
}

impl Drop for One<u32> {
    fn drop(&mut self) {}
}
";
        let tree = Tree::new([("proxy/worker.rs", text)]);
        let (_, file) = tree.files().next().expect("it is there");
        let expected = [("One".to_owned(), 2), ("Other".to_owned(), 1)];
        assert_eq!(file.methods(), expected);
        assert!(file.defines("One") && !file.defines("Other"));
    }
}
