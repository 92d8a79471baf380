//! The tables of docs/reference/configuration/ are those of the keys' rows. With `SLUICEGATE_WRITE_DOCS=1` they are
//! written again.
//!
//! A table stands behind a line `<!-- keys: upstream.health -->`, which may pick some of the keys:
//! `<!-- keys: route = auth require -->`. What has no table of its own stands in that of the table around it, as
//! `access.format` does in that of `[log]`. The index of all keys stands behind `<!-- every key -->`.

use crate::keys::process::ROOT;
use crate::keys::schema::value;
use crate::keys::{Key, KeyDefault, Kind, Section};
use base::units::{show_duration, show_size};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration");
const MARK: &str = "<!-- keys: ";
const INDEX_MARK: &str = "<!-- every key -->";

/// A page of the manual: its file and its text.
struct Page {
    file: String,
    text: String,
}

fn pages() -> Vec<Page> {
    let entries = std::fs::read_dir(FOLDER).expect("the manual is there");
    let files = entries.map(|entry| entry.expect("it is there").file_name().display().to_string());
    let mut files: Vec<String> = files.collect();
    files.sort();
    let page = |file: String| {
        let text = std::fs::read_to_string(format!("{FOLDER}/{file}")).expect("it is there");
        Page { file, text }
    };
    files.into_iter().map(page).collect()
}

/// Keys that are written together, and where they stand.
struct Rows {
    /// The first is where they stand in a table around them.
    paths: Vec<String>,
    keys: &'static [Key],
}

/// The rows in a value of a kind, each with the way there from its key.
fn inside(kind: &'static Kind, way: &str, found: &mut Vec<Rows>) {
    let mut of = |section: &Section, path: &str, apart: &str| {
        let apart = if section.key("acme").is_some() { "acme" } else { apart };
        let own = if apart.is_empty() { path.to_owned() } else { format!("{path} {apart}") };
        for (path, keys) in [(path.to_owned(), section.beside), (own, section.keys)] {
            match found.iter_mut().find(|rows| std::ptr::eq(rows.keys, keys)) {
                Some(known) => known.paths.push(path),
                None if keys.is_empty() => {}
                None => found.push(Rows { paths: vec![path], keys }),
            }
        }
    };
    match kind {
        Kind::Table(section) | Kind::Open(section, _) => of(section, way, ""),
        Kind::Tagged(several) => several.iter().for_each(|(word, section)| of(section, way, word)),
        Kind::Any(several) => several.iter().for_each(|one| inside(one, way, found)),
        Kind::List(of) => inside(of, &format!("{way}[]"), found),
        Kind::Map(of) => inside(of, way, found),
        _ => {}
    }
}

fn own(keys: &'static [Key]) -> impl Iterator<Item = &'static Key> {
    keys.iter().filter(|key| key.is_of_files())
}

fn all() -> Vec<Rows> {
    let mut found = vec![Rows { paths: vec!["gateway.toml".to_owned()], keys: ROOT.keys }];
    let mut at = 0;
    while at < found.len() {
        let Rows { paths, keys } = &found[at];
        let before = if at == 0 { String::new() } else { format!("{}.", paths[0]) };
        for (key, way) in own(keys).map(|key| (key, format!("{before}{}", key.name))).collect::<Vec<_>>() {
            inside(&key.kind, &way, &mut found);
        }
        at += 1;
    }
    found.iter_mut().flat_map(|rows| &mut rows.paths).for_each(|path| *path = path.replace("[]", ""));
    found
}

fn number(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|it| str::from_utf8(it).ok()).collect();
    groups.join(",")
}

fn type_of(kind: &Kind) -> String {
    let word = |word: &str| format!("`\"{word}\"`");
    match kind {
        Kind::Text | Kind::Secret | Kind::Url | Kind::Pattern(_) => "text".to_owned(),
        Kind::Texts => "text(s)".to_owned(),
        Kind::Field(inner) | Kind::Entry(inner) => type_of(inner),
        Kind::Path => "path".to_owned(),
        Kind::Bool => "true, false".to_owned(),
        Kind::Only(only) => format!("`{only}`"),
        Kind::Word(only) => word(only),
        Kind::Words(words) => words().into_iter().map(word).collect::<Vec<_>>().join(", "),
        Kind::Number(0, 1) => "0 or 1".to_owned(),
        Kind::Number(min, max) => format!("{} to {}", number(*min), number(*max)),
        Kind::Size(0, max) => format!("size, up to {}", show_size(*max)),
        Kind::Size(min, max) => format!("size, {} to {}", show_size(*min), show_size(*max)),
        Kind::Time(min) if min.as_millis() > 1 => format!("duration from `\"{}\"`", show_duration(*min)),
        Kind::TimeWithin(min, max, _) => {
            format!("duration, `\"{}\"` to `\"{}\"`", show_duration(*min), show_duration(*max))
        }
        Kind::Time(_) => "duration".to_owned(),
        Kind::TimeOrOff(_) => "duration or `\"off\"`".to_owned(),
        Kind::Share => "share".to_owned(),
        Kind::Table(_) | Kind::Open(..) | Kind::Map(_) | Kind::Tagged(_) => "table".to_owned(),
        Kind::List(_) => "array".to_owned(),
        Kind::Any(several) => {
            let mut types: Vec<String> = several.iter().map(type_of).collect();
            types.dedup();
            types.join(" or ")
        }
        Kind::Added(_) | Kind::Elsewhere(..) => String::new(),
    }
}

fn unwritten(key: &Key) -> String {
    match key.unwritten {
        KeyDefault::Nothing => "none".to_owned(),
        KeyDefault::Defaults => "its keys' defaults".to_owned(),
        KeyDefault::Value(text) | KeyDefault::ValueBeside(_, text)
            if value(text).is_string() && !text.starts_with('"') =>
        {
            format!("`\"{text}\"`")
        }
        KeyDefault::Value(text) | KeyDefault::ValueBeside(_, text) => format!("`{text}`"),
        KeyDefault::Means(said) => said.to_owned(),
        KeyDefault::Required | KeyDefault::Needs(..) => "required".to_owned(),
        KeyDefault::RequiredBut(other) => format!("required, except with `{other}`"),
        KeyDefault::Beside(other) => format!("none; only with `{other}`"),
    }
}

/// The lines of a key, and of what stands in it and has no table of its own.
fn lines(key: &'static Key, before: &str, apart: &[&'static [Key]], out: &mut String) {
    let name = format!("{before}{}", key.name);
    *out += &format!("| `{name}` | {} | {} | {} |\n", type_of(&key.kind), unwritten(key), key.doc());
    let mut found = Vec::new();
    inside(&key.kind, &name, &mut found);
    for Rows { paths, keys } in
        found.iter().filter(|rows| !apart.iter().any(|it| std::ptr::eq(*it, rows.keys)))
    {
        own(keys).for_each(|inner| lines(inner, &format!("{}.", paths[0]), apart, out));
    }
}

/// The pages with their tables as the rows have them, and which keys those are.
struct ReferencePages {
    all: Vec<Rows>,
    /// Keys that have a table of their own on some page.
    apart: Vec<&'static [Key]>,
    shown: Vec<&'static Key>,
    /// The lines of the index, by the path of the table.
    index: Vec<(String, String)>,
}

impl ReferencePages {
    fn new(pages: &[Page]) -> ReferencePages {
        let mut written =
            ReferencePages { all: all(), apart: Vec::new(), shown: Vec::new(), index: Vec::new() };
        let marked = pages.iter().flat_map(|page| page.text.lines());
        written.apart = marked.filter_map(|line| Some(written.marked(line)?.0)).collect();
        written
    }

    /// The keys of a mark, its path, and which of them it picks.
    fn marked<'a>(&self, line: &'a str) -> Option<(&'static [Key], &'a str, Vec<&'a str>)> {
        let mark = line.strip_prefix(MARK)?.strip_suffix(" -->").expect("it ends its line");
        let (path, picked) = mark.split_once(" = ").unwrap_or((mark, ""));
        let rows = self.all.iter().find(|rows| rows.paths.iter().any(|it| it == path));
        let rows = rows.unwrap_or_else(|| panic!("there are no keys of {path}"));
        Some((rows.keys, path, picked.split_whitespace().collect()))
    }

    /// A page with its tables. What stands under a mark is replaced, up to the first line that is no table's.
    fn page(&mut self, page: &Page) -> String {
        let (mut out, mut is_table, mut heading) = (String::new(), false, "");
        for line in page.text.lines() {
            is_table &= line.starts_with('|');
            if !is_table {
                out += &format!("{line}\n");
            }
            if line.starts_with("## ") || line.starts_with("### ") {
                heading = line;
            }
            is_table |= line == INDEX_MARK;
            let Some((keys, path, picked)) = self.marked(line) else { continue };
            is_table = true;
            let mut table = String::new();
            for key in own(keys).filter(|key| picked.is_empty() || picked.contains(&key.name)) {
                lines(key, "", &self.apart, &mut table);
                self.shown.push(key);
            }
            out += &format!("| key | type | default | meaning |\n|---|---|---|---|\n{table}");
            let names: Vec<&str> =
                table.lines().filter_map(|row| row.split(" | ").next()?.get(2..)).collect();
            let shown = if path == "gateway.toml" { "top level" } else { path };
            let link = format!("{}{}", page.file, anchor(heading));
            self.index.push((path.to_owned(), format!("| [{shown}]({link}) | {} |\n", names.join(", "))));
        }
        out
    }

    /// The pages as they should be, the index last: it lists what stands in the others.
    fn pages(&mut self, pages: &[Page]) -> Vec<String> {
        let written: Vec<String> = pages.iter().map(|page| self.page(page)).collect();
        self.index.sort();
        let rows: String = self.index.iter().map(|(_, row)| row.as_str()).collect();
        let index = format!("{INDEX_MARK}\n| table | keys |\n|---|---|\n{rows}");
        written.into_iter().map(|page| page.replace(&format!("{INDEX_MARK}\n"), &index)).collect()
    }
}

/// What follows the file's name in a link to a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|sign| sign.is_alphanumeric() || matches!(sign, ' ' | '-' | '_'));
    let anchor: String = kept.map(|sign| if sign == ' ' { '-' } else { sign }).collect();
    if anchor.is_empty() { anchor } else { format!("#{anchor}") }
}

#[test]
fn the_tables_of_the_manual_are_those_of_the_rows() {
    let pages = pages();
    let mut written = ReferencePages::new(&pages);
    let expected = written.pages(&pages);
    for (page, expected) in pages.iter().zip(&expected) {
        let Page { file, text } = page;
        if std::env::var_os("SLUICEGATE_WRITE_DOCS").is_some() {
            std::fs::write(format!("{FOLDER}/{file}"), expected).expect("the manual can be written");
            continue;
        }
        let differs = text.lines().zip(expected.lines()).find(|(is, should)| is != should);
        assert!(text == expected, "{file}: {differs:?}; SLUICEGATE_WRITE_DOCS=1 writes it again");
    }
    // Whatever is marked is shown whole, in one table or in several; all else is in that of the whole file.
    let is_shown = |key: &&'static Key| written.shown.iter().any(|it| std::ptr::eq(*it, *key));
    for rows in written.all.iter().filter(|rows| own(rows.keys).any(|key| is_shown(&key))) {
        let missing: Vec<_> = own(rows.keys).filter(|key| !is_shown(key)).map(|key| key.name).collect();
        assert!(missing.is_empty(), "{:?}: {missing:?}", rows.paths);
    }
    assert!(written.shown.iter().any(|key| key.name == "include"), "there is none of the whole file");
    assert!(expected.iter().any(|page| page.contains(INDEX_MARK)), "there is no index");
}
