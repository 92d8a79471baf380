//! What Cargo does not keep of the crates that ARCHITECTURE.md draws: that the drawing is true, how large a crate, a folder
//! and a function may be, and who imports whom within a crate of several rooms.
//!
//! Re-exports are not resolved; the tree has hardly any.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::support::source::Tree;

const ARCHITECTURE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/ARCHITECTURE.md"));

/// Rooms of crates that have several, with their floors. What stands beside them in a crate is above all of them.
const ROOMS: &[(&str, &[(&str, u8)])] = &[
    ("control", &[("admin", 1), ("database", 0)]),
    ("gateway", &[("proxy", 1), ("server", 1), ("service", 0)]),
    ("limiter", &[("global", 0), ("local", 0)]),
    ("metrics", &[("hot_keys", 0), ("usage", 0)]),
    (
        "net",
        &[
            ("tls", 2),
            ("fetch", 1),
            ("listening", 1),
            ("any_stream", 0),
            ("descriptors", 0),
            ("in_place", 0),
            ("outbox", 0),
            ("trust", 0),
            ("unix_socket", 0),
            ("wire", 0),
        ],
    ),
    ("observe", &[("record", 1), ("trace", 0)]),
    ("policy", &[("json", 0)]),
];

#[test]
fn rooms_of_a_crate_import_only_from_lower_floors() {
    let rooms: BTreeMap<&str, BTreeMap<&str, u8>> =
        ROOMS.iter().map(|(name, rooms)| (*name, rooms.iter().copied().collect())).collect();
    let mut wrong = Vec::new();
    let mut imports = 0;
    for (module, file) in Tree::read("src").files() {
        let Some((floors, importer)) =
            module.first().and_then(|name| rooms.get(name.as_str())).zip(module.get(1))
        else {
            continue;
        };
        let floor = floors.get(importer.as_str());
        for path in file.imports(module).iter().filter(|path| path.first() == module.first()) {
            let Some(imported) = path.get(1).filter(|name| *name != importer) else { continue };
            imports += 1;
            let is_below = match (floor, floors.get(imported.as_str())) {
                (None, _) => true,
                (Some(floor), Some(below)) => below < floor,
                (Some(_), None) => false,
            };
            if !is_below {
                wrong.push(format!("{}: {importer} imports {}", file.name, path.join("::")));
            }
        }
    }
    assert!(imports > 0, "no import was found at all: the reader of the source is broken");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A row of the table of crates.
struct Row {
    name: String,
    /// The crates that it knows.
    knows: BTreeSet<String>,
    lines_max: usize,
}

fn rows() -> Vec<Row> {
    let (_, table) =
        ARCHITECTURE.split_once("\n| crate | knows | lines at most |").expect("the table is there");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let lines_max = cells[2].replace(',', "").parse().unwrap_or_else(|error| panic!("{error} in {row}"));
        Row { name: names(cells[0]).remove(0), knows: names(cells[1]).into_iter().collect(), lines_max }
    })
    .collect()
}

/// The crates of the tree, with the folder of each.
fn crates() -> BTreeMap<String, String> {
    let tree = Tree::read("src");
    let roots = tree.files().filter_map(|(_, file)| file.name.strip_suffix("/lib.rs").map(str::to_owned));
    roots.map(|folder| (folder.rsplit('/').next().unwrap_or_default().to_owned(), folder)).collect()
}

#[test]
fn the_table_of_crates_is_what_cargo_keeps() {
    let crates = crates();
    let drawn: BTreeMap<String, BTreeSet<String>> =
        rows().into_iter().map(|row| (row.name, row.knows)).collect();
    let mut kept = BTreeMap::new();
    for (name, folder) in &crates {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).expect("a crate has a manifest");
        let (_, dependencies) = text.split_once("[dependencies]\n").expect("a crate declares what it knows");
        let own = dependencies.split("\n[").next().unwrap_or_default().lines();
        let own =
            own.filter_map(|line| line.split(['.', ' ']).next()).filter(|name| crates.contains_key(*name));
        kept.insert(name.clone(), own.map(str::to_owned).collect());
    }
    assert_eq!(drawn, kept);
}

/// The arithmetic of limits is for whoever wants it: it brings no runtime, no HTTP and no Redis with it.
#[test]
fn the_arithmetic_of_limits_knows_no_network() {
    let manifest = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/limit/Cargo.toml"));
    let (_, dependencies) = manifest.split_once("[dependencies]\n").expect("a crate declares what it knows");
    for name in ["tokio", "hyper", "http", "redis"] {
        let own = dependencies.split("\n[").next().unwrap_or_default();
        assert!(
            !own.lines().any(|line| line.split(['.', ' ', '-']).next() == Some(name)),
            "limit knows {name}"
        );
    }
}

/// Lines of each crate, those of tests apart. A budget that rises is a commit of its own, which says what for.
#[test]
fn crates_stay_within_their_lines() {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for (module, file) in Tree::read("src").files().filter(|(_, file)| !file.is_test) {
        *lines.entry(module[0].clone()).or_default() += code(&file.text).lines().count();
    }
    let beyond: Vec<String> = rows()
        .iter()
        .filter(|row| lines[&row.name] > row.lines_max)
        .map(|row| format!("{}: {} lines of {}", row.name, lines[&row.name], row.lines_max))
        .collect();
    assert!(beyond.is_empty(), "{}", beyond.join("\n"));
}

/// A text up to its module of tests, be it one that other tests see into.
fn code(text: &str) -> &str {
    let begins_tests = |rest: &str| rest.lines().next().is_some_and(|line| line.ends_with("mod tests {"));
    let mut marks = text.match_indices("#[cfg(test)]\n");
    let tests = marks.find(|(at, mark)| begins_tests(&text[at + mark.len()..]));
    tests.map_or(text, |(at, _)| &text[..at])
}

/// Files that one folder may hold, those of folders in it apart.
const FILES_MAX: usize = 25;

#[test]
fn no_folder_holds_more_files_than_a_reader_takes_in() {
    let mut files: BTreeMap<String, usize> = BTreeMap::new();
    for (_, file) in Tree::read("src").files() {
        let folder = file.name.rsplit_once('/').map_or("", |(folder, _)| folder);
        *files.entry(folder.to_owned()).or_default() += 1;
    }
    assert!(files.len() > 20, "no folder was found at all: the reader of the source is broken");
    files.retain(|_, count| *count > FILES_MAX);
    assert!(files.is_empty(), "more than {FILES_MAX} files: {files:?}");
}

/// Lines that a function may have: what fits on a screen.
const FUNCTION_LINES_MAX: usize = 70;

/// Functions that have more, and how many. The list only ever shrinks: a function that fits leaves it.
const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[
    // A `match` that is the table of refusals.
    ("gateway/service/problem.rs", "of", 80),
    // A `match` over HAProxy's words.
    ("tools/migrate/haproxy/conditions.rs", "test", 75),
];

#[test]
fn a_function_fits_on_a_screen() {
    let mut long = Vec::new();
    let tree = Tree::read("src");
    for (_, file) in tree.files().filter(|(_, file)| !file.is_test) {
        let functions = file.functions();
        let over = functions.into_iter().filter(|(_, lines)| *lines > FUNCTION_LINES_MAX);
        long.extend(over.map(|(name, lines)| (file.name.as_str(), name, lines)));
    }
    let is_listed = |(file, name, lines): &(&str, &str, usize)| {
        LONG_FUNCTIONS.iter().any(|listed| (listed.0, listed.1) == (*file, *name) && *lines <= listed.2)
    };
    let grown: Vec<_> = long.iter().filter(|function| !is_listed(function)).collect();
    assert!(grown.is_empty(), "more than {FUNCTION_LINES_MAX} lines: {grown:?}");
    let fits = |(file, name, _): &&(&str, &str, usize)| !long.iter().any(|it| (it.0, it.1) == (*file, *name));
    let shrunk: Vec<_> = LONG_FUNCTIONS.iter().filter(fits).collect();
    assert!(shrunk.is_empty(), "these fit, so they leave the list: {shrunk:?}");
}

/// Methods that a type may have, those of all files together: a type with more is a room without walls.
const METHODS_MAX: usize = 30;

/// Types that have more, where they are defined, and how many. The list only ever shrinks: a type that fits leaves it.
const WIDE_TYPES: &[(&str, &str, usize)] = &[
    ("config/reader/mod.rs", "Table", 34),
    ("config/reader/mod.rs", "Value", 36),
    ("control/database/handle.rs", "Database", 35),
    ("gateway/proxy/attempt/mod.rs", "UpstreamAttempt", 36),
    ("limit/lease/mod.rs", "Lease", 61),
    ("limiter/local/mod.rs", "Table", 35),
    ("net/wire/http2/meter/mod.rs", "Meter", 43),
    ("policy/counting/mod.rs", "Policy", 44),
    ("tools/migrate/envoy/mod.rs", "Reading", 195),
    ("upstream/pool.rs", "Pool", 36),
];

#[test]
fn no_type_has_more_methods_than_a_reader_takes_in() {
    let tree = Tree::read("src");
    let mut methods: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for (module, file) in tree.files().filter(|(_, file)| !file.is_test) {
        for (name, count) in file.methods() {
            let mut crates = tree.files().filter(|(other, it)| other[0] == module[0] && it.defines(&name));
            let definition = if file.defines(&name) { Some(file) } else { crates.next().map(|(_, it)| it) };
            let place = definition.map_or(file.name.as_str(), |file| file.name.as_str());
            *methods.entry((place, name)).or_default() += count;
        }
    }
    assert!(methods.len() > 500, "the reader of the source finds {} types", methods.len());
    methods.retain(|_, count| *count > METHODS_MAX);
    let listed = |place: &str, name: &str| WIDE_TYPES.iter().find(|it| (it.0, it.1) == (place, name));
    let is_new = |place: &str, name: &str, count: usize| listed(place, name).is_none_or(|it| count > it.2);
    let grown: Vec<_> =
        methods.iter().filter(|((place, name), count)| is_new(place, name, **count)).collect();
    assert!(grown.is_empty(), "more than {METHODS_MAX} methods, or than the list says: {grown:?}");
    let shrunk: Vec<_> = WIDE_TYPES
        .iter()
        .filter(|it| methods.get(&(it.0, it.1.to_owned())).is_none_or(|count| *count < it.2))
        .collect();
    assert!(shrunk.is_empty(), "these have fewer, so the list says less: {shrunk:?}");
}
