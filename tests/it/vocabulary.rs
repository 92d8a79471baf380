//! Words of the source: one name for one type, the field's nouns for types and files, and comments that say something.
//!
//! Each limit is what the tree has. It moves in one direction only.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::source::{File, Tree};

/// Of a thousand type definitions, how many have a name that another definition has, too. Only ever lowered.
const SHARED_PERMILLE_MAX: usize = 125;

/// Of a thousand doc comments, how many have five words or fewer. Only ever lowered.
const SHORT_DOCS_PERMILLE_MAX: usize = 78;

/// Of ten thousand lines, how many say why. Only ever raised.
const REASONS_PER_10_000_MIN: usize = 128;

/// Names that every module may have, because a path always stands before them.
const QUALIFIED: &[&str] = &["Error", "Config", "Arguments"];

/// Participles that do not end with `ed`, and household words: as a whole name they do not say what a thing is.
const VAGUE: &[&str] = &[
    "about",
    "again",
    "ahead",
    "alike",
    "alive",
    "apart",
    "around",
    "ask",
    "asking",
    "away",
    "before",
    "begins",
    "begun",
    "below",
    "beside",
    "careful",
    "copy",
    "desk",
    "differ",
    "drawn",
    "draws",
    "driven",
    "ear",
    "ears",
    "elsewhere",
    "ends",
    "fate",
    "few",
    "foretell",
    "foretold",
    "found",
    "given",
    "glance",
    "gone",
    "had",
    "hand",
    "harmless",
    "heard",
    "held",
    "inside",
    "kept",
    "known",
    "last",
    "late",
    "later",
    "left",
    "lent",
    "look",
    "lost",
    "lot",
    "made",
    "met",
    "misfit",
    "moment",
    "most",
    "next",
    "now",
    "once",
    "part",
    "parts",
    "place",
    "places",
    "porch",
    "pot",
    "proven",
    "rest",
    "room",
    "said",
    "second",
    "seen",
    "seldom",
    "sent",
    "settle",
    "shelf",
    "shown",
    "since",
    "spent",
    "stale",
    "standing",
    "swept",
    "taken",
    "teller",
    "thing",
    "together",
    "told",
    "trouble",
    "turmoil",
    "unread",
    "unsent",
    "until",
    "which",
    "who",
    "whom",
    "wish",
    "world",
    "worlds",
    "written",
    "wrong",
];

/// Words with that end that are no participles.
const NOUNS: &[&str] = &["embed", "feed", "need", "seed", "speed"];

/// Types and files of such a name that there are. The list only gets shorter.
const REMAINING: &[&str] = &[];

/// What is identified by a type of its own.
const IDENTIFIED: &[&str] = &["listener", "policy", "route", "server", "shard", "tier", "upstream"];

/// Integers of such a name that identify nothing, each with the reason. The list only gets shorter.
const NO_IDS: &[(&str, &str)] = &[
    ("tools/replay/outcome_counts.rs no_route", "counts requests that no route matches"),
    ("tools/replay/report.rs no_route", "counts requests that no route matches"),
];

/// Where an integer stands in a type that is read from its begin: behind references, or as what may be there.
const AROUND_INTEGERS: &[&str] = &["&", "mut", "Option", "Cell", "<"];

#[test]
fn most_types_have_a_name_of_their_own() {
    let tree = Tree::read("src");
    let mut definitions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, file) in tree.files() {
        for name in types(file).filter(|name| !QUALIFIED.contains(name)) {
            definitions.entry(name).or_default().push(&file.name);
        }
    }
    let all: usize = definitions.values().map(Vec::len).sum();
    assert!(all > 1000, "the reader of the source finds {all} types");
    definitions.retain(|_, files| files.len() > 1);
    let shared: usize = definitions.values().map(Vec::len).sum();
    let permille = shared * 1000 / all;
    assert!(permille <= SHARED_PERMILLE_MAX, "{shared} of {all} types share their name: {definitions:#?}");
}

#[test]
fn no_type_and_no_file_is_named_by_a_participle_or_household_word() {
    let tree = Tree::read("src");
    let mut vague = BTreeSet::new();
    for (_, file) in tree.files() {
        let stem = file.name.trim_end_matches(".rs").rsplit('/').next().unwrap_or_default();
        if is_vague(stem) {
            vague.insert(file.name.clone());
        }
        let types = types(file).filter(|name| is_one_word(name) && is_vague(&name.to_lowercase()));
        vague.extend(types.map(|name| format!("{} {name}", file.name)));
    }
    let remaining: BTreeSet<String> = REMAINING.iter().map(|name| (*name).to_owned()).collect();
    let new: Vec<_> = vague.difference(&remaining).collect();
    let gone: Vec<_> = remaining.difference(&vague).collect();
    assert!(new.is_empty(), "names that do not say what a thing is: {new:#?}");
    assert!(gone.is_empty(), "take out of REMAINING what has another name now: {gone:#?}");
}

#[test]
fn an_id_is_a_type() {
    let tree = Tree::read("src");
    let names = |file: &File| Vec::from_iter(bare_ids(file).map(|name| format!("{} {name}", file.name)));
    let found: BTreeSet<String> = tree.files().flat_map(|(_, file)| names(file)).collect();
    let known: BTreeSet<String> = NO_IDS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let new: Vec<_> = found.difference(&known).collect();
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(new.is_empty(), "integers that another id passes for; `base::id!` declares a type: {new:#?}");
    assert!(gone.is_empty(), "take out of NO_IDS what is no integer any more: {gone:#?}");
}

#[test]
fn doc_comments_say_more_than_the_name() {
    let tree = Tree::read("src");
    let lengths: Vec<usize> = tree.files().flat_map(|(_, file)| doc_lengths(&file.text)).collect();
    assert!(lengths.len() > 1000, "the reader of the source finds {} doc comments", lengths.len());
    let short = lengths.iter().filter(|words| **words <= 5).count();
    let permille = short * 1000 / lengths.len();
    assert!(
        permille <= SHORT_DOCS_PERMILLE_MAX,
        "{short} of {} doc comments have five words or fewer",
        lengths.len()
    );
}

#[test]
fn comments_say_why() {
    let tree = Tree::read("src");
    let (mut lines, mut reasons) = (0, 0);
    for line in tree.files().flat_map(|(_, file)| file.text.lines()) {
        lines += 1;
        let comment = line.split_once("//").map_or("", |(_, comment)| comment).to_lowercase();
        reasons += usize::from(["because", "so that", "otherwise"].iter().any(|word| comment.contains(word)));
    }
    let share = reasons * 10_000 / lines;
    assert!(share >= REASONS_PER_10_000_MIN, "{reasons} of {lines} lines say why");
}

/// Names of the types that a file defines.
fn types(file: &File) -> impl Iterator<Item = &str> {
    let defines = |two: &&[String]| matches!(two[0].as_str(), "struct" | "enum" | "trait" | "union");
    let names = file.tokens().windows(2).filter(defines).map(|two| two[1].as_str());
    names.filter(|name| name.starts_with(char::is_uppercase))
}

/// Fields, parameters and variables of a file that are declared as integers, and identify something by their names.
fn bare_ids(file: &File) -> impl Iterator<Item = &str> {
    let tokens = file.tokens();
    let is_bare = |at: &usize| {
        let mut behind =
            tokens[at + 2..].iter().skip_while(|token| AROUND_INTEGERS.contains(&token.as_str()));
        let is_integer = behind.next().is_some_and(|token| {
            let bits = token.strip_prefix(['u', 'i']).unwrap_or_default();
            bits == "size" || bits.parse::<u8>().is_ok()
        });
        // Not `usize::from`, because that is the value of a field and not its type.
        is_integer && behind.next().is_none_or(|token| token != "::")
    };
    let named =
        (0..tokens.len().saturating_sub(2)).filter(|at| tokens[at + 1] == ":" && is_identified(&tokens[*at]));
    named.filter(is_bare).map(|at| tokens[at].as_str())
}

/// Whether what has this name identifies something: `upstream`, `first_upstream`, `upstream_index`.
fn is_identified(name: &str) -> bool {
    let place = ["_id", "_index", "_number"].iter().find_map(|end| name.strip_suffix(end));
    place.unwrap_or(name).rsplit('_').next().is_some_and(|noun| IDENTIFIED.contains(&noun))
}

/// Whether a type's name has one capital.
fn is_one_word(name: &str) -> bool {
    name.chars().filter(|sign| sign.is_uppercase()).count() == 1
}

/// Whether a name is one word alone, and one that could stand for anything.
fn is_vague(name: &str) -> bool {
    VAGUE.contains(&name) || (name.ends_with("ed") && !name.contains('_') && !NOUNS.contains(&name))
}

/// How many words each doc comment of an item has.
fn doc_lengths(text: &str) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut comes_next = false;
    for line in text.lines() {
        let doc = line.trim_start().strip_prefix("///");
        let words = doc.map_or(0, |doc| doc.split_whitespace().count());
        match lengths.last_mut() {
            Some(length) if comes_next => *length += words,
            _ if doc.is_some() => lengths.push(words),
            _ => {}
        }
        comes_next = doc.is_some();
    }
    lengths
}

#[test]
fn words_are_told_apart() {
    for (name, expected) in
        [("told", true), ("shared", true), ("seed", false), ("named_key", false), ("lease", false)]
    {
        assert_eq!(is_vague(name), expected, "{name}");
    }
    assert_eq!(doc_lengths("/// One two\n/// three.\nfn f() {}\n    /// Four.\n    x: u8,\n"), [3, 1]);
}

#[test]
fn bare_ids_are_found_wherever_they_are_declared() {
    let text =
        "struct A { pub upstream: usize, servers: Vec<u64>, server: Option<u32>, port: u16, tier: Tier }
        fn f(first_shard: &mut usize, by: impl Fn(usize), route_index: u32, shards: usize) {
            let is = |policy: u32| B { listener: usize::from(policy) };
        }";
    let tree = Tree::new([("a.rs", text)]);
    let (_, file) = tree.files().next().expect("there is one");
    let found: Vec<&str> = bare_ids(file).collect();
    assert_eq!(found, ["upstream", "server", "first_shard", "route_index", "policy"]);
}
