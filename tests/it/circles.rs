//! Files do not import each other in circles: to understand one file of a circle, a reader has to read all of it.
//!
//! A circle is a group of files each of which can be reached from each other by imports; three may be one. Code that is
//! compiled only for tests does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::support::source::Tree;

/// Files of a circle that is still a thing one can hold in mind.
const FILES_MAX: usize = 3;

/// Larger circles that there are: the room, and how many files. The list only gets shorter.
const KNOWN: &[(&str, usize)] = &[];

/// From a file to others, each with the names that are taken from it.
type Graph = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

#[test]
fn no_circle_of_imports_has_more_than_three_files() {
    let graph = graph(&Tree::read("src"));
    assert!(graph.values().any(|taken| !taken.is_empty()), "the reader of the source is broken");
    let circles = circles(&graph);
    let mut found: Vec<(&str, usize)> = Vec::new();
    let mut wrong = String::new();
    for circle in &circles {
        let rooms: BTreeSet<&str> = circle.iter().map(|file| room(file)).collect();
        if let (1, Some(room)) = (rooms.len(), rooms.first()) {
            if circle.len() <= FILES_MAX {
                continue;
            }
            found.push((room, circle.len()));
            if KNOWN.contains(&(room, circle.len())) {
                continue;
            }
        }
        writeln!(wrong, "a circle of {} files in {rooms:?}:\n{}", circle.len(), shown(circle, &graph))
            .expect("it is only text");
    }
    found.sort_unstable();
    let mut known = KNOWN.to_vec();
    known.sort_unstable();
    assert!(
        wrong.is_empty() && found == known,
        "{wrong}circles that there are: {found:?}\nthose that KNOWN lists, which may only get fewer and smaller: {known:?}"
    );
}

/// The crate of a file: `limit` of `limit/quota.rs`.
fn room(file: &str) -> &str {
    file.trim_start_matches("tools/").split(['/', '.']).next().unwrap_or(file)
}

/// Which file takes what from which.
fn graph(tree: &Tree) -> Graph {
    let mut graph = Graph::new();
    for (module, file) in tree.files().filter(|(_, file)| !file.is_test) {
        let taken = graph.entry(file.name.clone()).or_default();
        for path in file.uses(module) {
            let Some((other, names)) = tree.find(&path).filter(|(other, _)| *other != module) else {
                continue;
            };
            let name = tree.file(other).expect("it was found").name.clone();
            let taken: &mut BTreeSet<String> = taken.entry(name).or_default();
            taken.extend((!names.is_empty()).then(|| names.join("::")));
        }
    }
    graph
}

/// Arrows between the files of a circle, a line each.
fn shown(circle: &BTreeSet<String>, graph: &Graph) -> String {
    let mut text = String::new();
    for file in circle {
        for (other, names) in graph[file].iter().filter(|(other, _)| circle.contains(*other)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let names = if names.is_empty() { "the module" } else { &names.join(", ") };
            writeln!(text, "  {file} -> {other}: {names}").expect("it is only text");
        }
    }
    text
}

/// Strongly connected components of more than one file, by Tarjan's algorithm.
fn circles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let mut walk = Walk { graph, seen: BTreeMap::new(), open: Vec::new(), circles: Vec::new() };
    for file in graph.keys() {
        walk.lowest_reached(file);
    }
    walk.circles.sort_unstable();
    walk.circles
}

/// Where a walk through the graph stands.
struct Walk<'a> {
    graph: &'a Graph,
    /// When each file was met; `usize::MAX` once its component is known.
    seen: BTreeMap<&'a str, usize>,
    /// Files met whose component is not known.
    open: Vec<&'a str>,
    circles: Vec<BTreeSet<String>>,
}

impl<'a> Walk<'a> {
    /// The first met of the open files that this one leads to.
    fn lowest_reached(&mut self, file: &'a str) -> usize {
        if let Some(met) = self.seen.get(file) {
            return *met;
        }
        let (met, depth) = (self.seen.len(), self.open.len());
        self.seen.insert(file, met);
        self.open.push(file);
        let mut lowest = met;
        for other in self.graph.get(file).into_iter().flat_map(BTreeMap::keys) {
            lowest = lowest.min(self.lowest_reached(other));
        }
        if lowest == met {
            let component = self.open.split_off(depth);
            for file in &component {
                self.seen.insert(file, usize::MAX);
            }
            if component.len() > 1 {
                self.circles.push(component.into_iter().map(str::to_owned).collect());
            }
        }
        lowest
    }
}

#[test]
fn circles_are_found_with_what_goes_round_in_them() {
    let tree = Tree::new([
        ("lib.rs", "pub mod proxy;"),
        ("proxy/mod.rs", "mod a; mod b; mod c; mod d; mod lone; pub use a::A; use d::D; use std::fs;"),
        ("proxy/a.rs", "use super::b::{B, self}; use super::lone::Lone;"),
        ("proxy/b.rs", "fn f() { super::c::g() } #[cfg(test)] mod tests { use super::super::lone::L; }"),
        ("proxy/c.rs", "use crate::proxy::{A as First, a}; fn f() { a::late() }"),
        ("proxy/d.rs", "use super::Facts; struct D;"),
        ("proxy/lone.rs", "use super::d::D; #[cfg(test)] use super::a;"),
    ]);
    let graph = graph(&tree);
    let circles = circles(&graph);
    let shown: Vec<String> = circles.iter().map(|circle| shown(circle, &graph)).collect();
    let of_three = "  proxy/a.rs -> proxy/b.rs: B\n  proxy/b.rs -> proxy/c.rs: g\n  \
                    proxy/c.rs -> proxy/a.rs: A, late\n";
    let of_two = "  proxy/d.rs -> proxy/mod.rs: Facts\n  proxy/mod.rs -> proxy/d.rs: D\n";
    assert_eq!(shown, [of_three, of_two]);
}
