//! The floors of ARCHITECTURE.md hold: a module imports only from lower floors, never from a sibling.
//!
//! Re-exports are not resolved; the tree has hardly any.

use std::collections::BTreeMap;

use crate::support::source::Tree;

/// Every module there may be, and its floor.
pub const FLOORS: &[(&str, u8)] = &[
    ("main", 8),
    ("cli", 7),
    ("app", 6),
    ("migrate", 6),
    ("replay", 6),
    ("config", 5),
    ("proxy", 4),
    ("server", 4),
    ("admin", 4),
    ("envoy", 4),
    ("service", 3),
    ("limiter", 3),
    ("control", 3),
    ("record", 3),
    ("local", 2),
    ("global", 2),
    ("peers", 2),
    ("database", 2),
    ("acme", 2),
    ("tls", 2),
    ("trace", 2),
    ("auth", 2),
    ("upstream", 2),
    ("policy", 1),
    ("clock", 1),
    ("fetch", 1),
    ("listening", 1),
    ("limit", 0),
    ("descriptors", 0),
    ("wire", 0),
    ("cause", 0),
    ("hot_keys", 0),
    ("identity", 0),
    ("json", 0),
    ("metrics", 0),
    ("in_place", 0),
    ("outbox", 0),
    ("quota", 0),
    ("random", 0),
    ("hex", 0),
    ("rendezvous", 0),
    ("sharded", 0),
    ("trust", 0),
    ("units", 0),
    ("unix_socket", 0),
    ("usage", 0),
    ("whole_file", 0),
    ("words", 0),
];

#[test]
fn modules_import_only_from_lower_floors() {
    let floors: BTreeMap<&str, u8> = FLOORS.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut imports = 0;
    for (module, file) in Tree::read("src").files() {
        let Some(importer) = module.first() else { continue };
        let Some(floor) = floors.get(importer.as_str()) else {
            wrong.push(format!("{}: module {importer} has no floor", file.name));
            continue;
        };
        for imported in file.imports(module).iter().filter_map(|path| path.first()) {
            imports += 1;
            match floors.get(imported.as_str()) {
                _ if imported == importer => {}
                None => wrong.push(format!("{}: imports {imported}, which has no floor", file.name)),
                Some(below) if below < floor => {}
                Some(below) => {
                    wrong.push(format!("{}: {importer} [{floor}] imports {imported} [{below}]", file.name))
                }
            }
        }
    }
    assert!(imports > 0, "no import was found at all: the reader of the source is broken");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
