//! Reads the configuration of another gateway and writes a gateway.toml that does the same.
//!
//! Three rules hold for every reader. What it does not know is listed with its file and line, never dropped in silence.
//! What guards a place (a password, a list of addresses) and cannot be taken over closes that place. A place whose action
//! cannot be taken over answers 501, so that its requests do not fall to a less specific route. Nothing is resolved,
//! opened or asked: only files are read.

mod draft;
mod draft_repair;
mod envoy;
mod fields;
mod file;
mod haproxy;
mod kong;
mod nginx;
mod notes;
mod order;
mod other_ports;
mod print;
mod ratelimit;
mod recognise;
mod regex;
mod template;
mod values;
mod yaml;
mod yaml_file;

use std::path::Path;

use draft::Draft;
pub use file::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Nginx,
    Haproxy,
    Envoy,
    Kong,
    /// Envoy's own rate limit service: the descriptors of one domain.
    Ratelimit,
}

#[derive(Debug)]
pub struct MigrationOutput {
    /// The gateway.toml, with what was left out as comments at its top.
    pub text: String,
    /// The file of keys that the gateway.toml names, if it names one: clients' names and hashes of their keys.
    pub keys: Option<String>,
    /// Whether everything that has an effect on answers was taken over as it was.
    pub is_whole: bool,
    /// Errors that `check` has with the text: a fault of the reader, or names that TOML has no room for.
    pub errors: Option<config::Errors>,
}

/// Reads a configuration of another gateway and what it includes. `keys` is where the file of keys is going to be.
///
/// # Errors
/// If a file cannot be read or parsed.
pub fn migrate(from: From, path: &Path, keys: Option<&Path>) -> Result<MigrationOutput, Error> {
    read(from, path, &file::read(path)?, keys, true)
}

/// The same of a text, whose relative paths start from the working directory. Files that it includes are not read.
///
/// # Errors
/// If it cannot be parsed.
pub fn migrate_text(from: From, name: &str, text: &str) -> Result<MigrationOutput, Error> {
    read(from, Path::new(name), text, Some(Path::new("keys.toml")), false)
}

fn read(
    from: From,
    path: &Path,
    text: &str,
    keys: Option<&Path>,
    includes: bool,
) -> Result<MigrationOutput, Error> {
    if let Some(other) = recognise::other_than(from, text) {
        let (file, asked, other) = (path.display().to_string(), from.word(), other.word());
        return Err(Error::OtherGateway { file, asked, other });
    }
    let mut draft = Draft::default();
    match from {
        From::Nginx => nginx::read(path, text, includes, &mut draft)?,
        From::Haproxy => haproxy::read(path, text, &mut draft)?,
        From::Envoy => envoy::read(path, text, &mut draft)?,
        From::Kong => kong::read(path, text, keys, &mut draft)?,
        From::Ratelimit => ratelimit::read(path, text, &mut draft)?,
    }
    Ok(finished(draft, from, path))
}

fn finished(mut draft: Draft, from: From, path: &Path) -> MigrationOutput {
    let print = |draft: &Draft| print::text(draft, from.word(), from.everywhere(), path);
    let (text, errors) = draft_repair::settle(&mut draft, print);
    let has_keys = draft.auth.iter().any(|method| method.value("keys").is_some());
    let keys = has_keys.then(|| print::keys(&draft));
    MigrationOutput { is_whole: draft.notes.is_empty(), keys, text, errors }
}

#[cfg(test)]
impl MigrationOutput {
    /// Whether nothing is listed but how paths are read.
    fn is_whole_but_paths(&self) -> bool {
        let comments = self.text.lines().take_while(|line| line.starts_with('#'));
        let lines = comments.skip_while(|line| !line.starts_with("# Taken over"));
        let listed = lines.skip(1).take_while(|line| *line != "#").collect::<Vec<_>>();
        let is_of_paths = matches!(listed.as_slice(), [only] if only.contains("`: paths with "));
        self.is_whole || is_of_paths && !self.text.contains("\n# Left out: ")
    }
}

impl From {
    /// The word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            From::Nginx => "nginx",
            From::Haproxy => "haproxy",
            From::Envoy => "envoy",
            From::Kong => "kong",
            From::Ratelimit => "ratelimit",
        }
    }

    /// What differs in every configuration, whatever stands in it.
    fn everywhere(self) -> &'static [&'static str] {
        match self {
            From::Nginx => nginx::EVERYWHERE,
            From::Haproxy => haproxy::EVERYWHERE,
            From::Envoy => envoy::EVERYWHERE,
            From::Kong => kong::EVERYWHERE,
            From::Ratelimit => ratelimit::EVERYWHERE,
        }
    }
}
