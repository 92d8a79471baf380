//! What the manual says of each key: the last cell of its line in a table behind a line `<!-- keys: upstream.health -->`.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The sentences, in Markdown, by where their keys stand: `upstream.health.every`.
pub static MEANINGS: LazyLock<HashMap<String, &str>> = LazyLock::new(|| {
    let mut meanings = HashMap::new();
    let mut table = None;
    for line in PAGES.iter().flat_map(|page| page.lines()) {
        let row = line.strip_prefix("| `").and_then(|row| row.strip_suffix(" |")?.split_once("` | "));
        let meaning = row.and_then(|(key, cells)| Some((key, cells.splitn(3, " | ").nth(2)?)));
        let mark = line.strip_prefix("<!-- keys: ").and_then(|mark| mark.strip_suffix(" -->"));
        match (mark, table.zip(meaning)) {
            (Some(mark), _) => table = mark.split(" = ").next(),
            (None, Some((table, (key, meaning)))) => drop(meanings.insert(format!("{table}.{key}"), meaning)),
            (None, None) if !line.starts_with('|') => table = None,
            (None, None) => {}
        }
    }
    meanings
});

macro_rules! pages {
    ($($name:literal)*) => {
        [$(include_str!(concat!("../../../docs/reference/configuration/", $name, ".md"))),*]
    };
}

/// The pages with such tables.
static PAGES: [&str; 25] = pages!(
    "access" "acme" "admin" "auth" "client-ip" "compression" "cost" "database" "dns" "health" "jwt" "listener" "log"
    "mirrors" "policy" "process" "redis" "retry" "rls" "route" "sticky-sessions" "tiers" "uploads"
    "upstream-connections" "upstream"
);
