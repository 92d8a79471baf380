//! The keys of gateway.toml: one row a key, with its type, what holds if it is not written, and a sentence about it.
//!
//! What is read, what an unknown key is told, the JSON schema and the tables of docs/reference/configuration/ come from
//! the rows.

pub mod admin;
pub mod auth;
pub(crate) mod foreign;
pub mod listener;
pub mod log;
pub mod policy;
pub mod process;
pub mod route;
pub mod schema;
pub mod shared_tier;
pub mod upstream;

use std::time::Duration;

pub struct Section {
    /// As messages name it, with `<name>` or `<key>` for the last part of where it stands: `[listener.<name>]`.
    pub heading: &'static str,
    pub keys: &'static [Key],
    /// Keys that it has, too.
    pub beside: &'static [Key],
}

impl Section {
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> {
        self.beside.iter().chain(self.keys)
    }

    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }

    /// How many of these keys it has.
    pub fn count_of(&self, keys: &[&str]) -> usize {
        keys.iter().filter(|name| self.keys.iter().any(|key| key.name == **name && key.is_of_files())).count()
    }
}

pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub unwritten: KeyDefault,
    /// A sentence about it, in Markdown, by lines.
    doc: &'static [&'static str],
}

impl Key {
    /// Whether a file can have it.
    pub fn is_of_files(&self) -> bool {
        !matches!(self.kind, Kind::Elsewhere(..) | Kind::Added(_))
    }

    pub fn doc(&self) -> String {
        self.doc.concat().trim().to_owned()
    }
}

/// What holds if a key is not written.
pub enum KeyDefault {
    Nothing,
    /// This value. One that is no JSON is a text.
    Value(&'static str),
    /// This value, if one of these other keys is written.
    ValueBeside(&'static [&'static str], &'static str),
    /// A table of the defaults of its keys.
    Defaults,
    /// What is said so.
    Means(&'static str),
    Required,
    /// The same: what is said where it is not, and what to write.
    Needs(&'static str, &'static str),
    /// It must be written, or this other key.
    RequiredBut(&'static str),
    /// Nothing; it can stand only beside this other key.
    Beside(&'static str),
}

pub enum Kind {
    Text,
    /// One text or an array of them.
    Texts,
    Path,
    /// A text that is shown nowhere.
    Secret,
    /// A URL whose password is shown nowhere.
    Url,
    /// The value of a header field, whose name is its key: shown nowhere if the name is a secret's.
    Field(&'static Kind),
    /// The same of an entry of a descriptor, whose name has a case.
    Entry(&'static Kind),
    Bool,
    Only(&'static str),
    Word(&'static str),
    Words(fn() -> Vec<&'static str>),
    Pattern(&'static str),
    /// A whole number, from and to.
    Number(u64, u64),
    /// Bytes, from and to.
    Size(u64, u64),
    /// A duration of at least so much.
    Time(Duration),
    /// A duration from, to, and why it can be no longer.
    TimeWithin(Duration, Duration, &'static str),
    /// A duration of at least so much, or `"off"`.
    TimeOrOff(Duration),
    Share,
    Table(&'static Section),
    /// A table with further keys that the operator chooses.
    Open(&'static Section, &'static Kind),
    /// A table of nothing but keys that the operator chooses.
    Map(&'static Kind),
    /// A table whose keys depend on the word under `kind`.
    Tagged(&'static [(&'static str, &'static Section)]),
    List(&'static Kind),
    /// One of several. A text or a number in front of a table is what the table has under its first key.
    Any(&'static [Kind]),
    /// Not of a file, but of a row of the database.
    Added(&'static Section),
    /// No key: what is said of it, and where it belongs.
    Elsewhere(&'static str, &'static str),
}

impl Kind {
    /// The kinds that a value may be of.
    pub fn each(&self) -> &[Kind] {
        match self {
            Kind::Any(several) => several,
            one => std::slice::from_ref(one),
        }
    }

    /// The tables that a value may be, or hold in an array or under names that the operator chooses.
    pub fn sections(&self) -> Vec<&'static Section> {
        match self {
            Kind::Table(one) | Kind::Open(one, _) => vec![*one],
            Kind::Tagged(several) => several.iter().map(|(_, one)| *one).collect(),
            Kind::List(of) | Kind::Map(of) => of.sections(),
            Kind::Any(several) => several.iter().flat_map(Kind::sections).collect(),
            _ => Vec::new(),
        }
    }
}

/// The words of a list of words and what they stand for.
pub fn words<T>(choices: &[(&'static str, T)]) -> Vec<&'static str> {
    choices.iter().map(|(word, _)| *word).collect()
}

/// Tables of keys: for each its name here, its heading, perhaps another table whose keys it has, too, and its rows.
macro_rules! sections {
    ($($name:ident = $heading:literal $(+ $beside:ident)? { $(
        $(#[doc = $doc:literal])* $key:literal: $kind:expr $(, $unwritten:expr)?;
    )* })*) => { $(
        pub static $name: $crate::keys::Section = $crate::keys::Section {
            heading: $heading,
            keys: &[$($crate::keys::Key {
                name: $key,
                kind: $kind,
                unwritten: $crate::keys::sections!(@or $crate::keys::KeyDefault::Nothing $(, $unwritten)?),
                doc: &[$($doc),*],
            }),*],
            beside: $crate::keys::sections!(@or &[] $(, $beside.keys)?),
        };
    )* };
    (@or $default:expr) => { $default };
    (@or $default:expr, $given:expr) => { $given };
}
use sections;

/// The shortest deadline, because a shorter one is surely a typing error.
pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);
pub const ZERO: Duration = Duration::ZERO;
