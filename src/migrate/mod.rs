//! Reads the configuration of another gateway and writes a gateway.toml that does the same.
//!
//! Three rules hold for every reader. What it does not know is listed with its file and line, never dropped in silence.
//! What guards a place (a password, a list of addresses) and cannot be taken over closes that place. A place whose action
//! cannot be taken over answers 501, so that its requests do not fall to a less specific route. Nothing is resolved,
//! opened or asked: only files are read.

mod draft;
mod file;
mod haproxy;
mod nginx;
mod notes;
mod order;
mod print;
mod template;

use std::path::Path;

use crate::config;
use draft::Draft;
pub use file::Error;

/// Whose configuration it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// nginx, open source.
    Nginx,
    /// HAProxy.
    Haproxy,
}

/// What came out.
#[derive(Debug)]
pub struct Migrated {
    /// The gateway.toml, with what was left out as comments at its top.
    pub text: String,
    /// Whether everything that has an effect on answers was taken over as it was.
    pub is_whole: bool,
    /// Errors that `check` has with the text: a fault of the reader, or names that TOML has no room for.
    pub errors: Option<config::Errors>,
}

/// Reads a configuration of another gateway and what it includes.
///
/// # Errors
/// If a file cannot be read or parsed.
pub fn migrate(from: From, path: &Path) -> Result<Migrated, Error> {
    let mut draft = Draft::default();
    match from {
        From::Nginx => nginx::read(path, &mut draft)?,
        From::Haproxy => haproxy::read(path, &mut draft)?,
    }
    let text = print::text(&draft, from.word(), from.everywhere(), path);
    let errors = config::from_text("gateway.toml", &text).err();
    Ok(Migrated { is_whole: draft.notes.is_empty(), text, errors })
}

impl From {
    /// The word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            From::Nginx => "nginx",
            From::Haproxy => "haproxy",
        }
    }

    /// What differs in every configuration, whatever stands in it.
    fn everywhere(self) -> &'static [&'static str] {
        match self {
            From::Nginx => nginx::EVERYWHERE,
            From::Haproxy => haproxy::EVERYWHERE,
        }
    }
}
