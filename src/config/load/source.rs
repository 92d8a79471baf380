//! Reads the files of a configuration: the one that was named, and those it includes.
//!
//! It understands nothing in them but `include`. The size and the number of files are bounded.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::de::DeTable;

use crate::load::context::Context;
use crate::load::expand::Variables;
use crate::load::mask::Secrets;
use crate::load::report::{Finding, Source, SourceKind, SourceSpan};
use crate::load::text::Text;
use crate::reader::Table;
use base::whole_file;

/// Reads `main` and what it includes, in that order. Returns the files that could be read, an error for each that could
/// not, and the secrets that name any.
pub(crate) fn gather(main: &Path, variables: Variables<'_>) -> (Vec<Source>, Vec<Finding>, Secrets) {
    let text = match read(main) {
        Ok(text) => text,
        Err(reason) => {
            // The whole path, because the log of a service does not say where it works.
            let path = std::path::absolute(main).unwrap_or_else(|_| main.to_owned());
            let remedy = if path.exists() { "" } else { ": put it there, or start with another --config" };
            let message = format!("cannot read {}: {reason}{remedy}", path.display());
            return (Vec::new(), vec![Finding::error(message)], Secrets::default());
        }
    };
    let mut sources = vec![source(main.to_owned(), text)];
    let (included, mut findings, secrets) = includes(&sources, variables);
    for (file, place) in included {
        match read(&file) {
            Ok(text) => sources.push(source(file, text)),
            Err(reason) => {
                let message = format!("cannot read {}: {reason}", file.display());
                findings.push(
                    Finding::error(message).at(place, "included here: create it, or remove the `include`"),
                );
            }
        }
    }
    (sources, findings, secrets)
}

/// A configuration that is not in a file; its relative paths start from the working directory.
pub(crate) fn of_text(name: &str, text: &str) -> Source {
    source(PathBuf::from(name), text.to_owned())
}

fn source(path: PathBuf, text: String) -> Source {
    let absolute = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
    let directory = absolute.parent().map(Path::to_owned).unwrap_or_default();
    Source { path, directory, text: Arc::from(text), kind: SourceKind::File }
}

/// The files that `include` matches, each once, with the place of its pattern.
fn includes(
    sources: &[Source],
    variables: Variables<'_>,
) -> (Vec<(PathBuf, SourceSpan)>, Vec<Finding>, Secrets) {
    // By the word, so that files that include nothing, as most do, are not parsed twice.
    if !sources[0].text.contains("include") {
        return Default::default();
    }
    let text = Arc::clone(&sources[0].text);
    // Not reported, because invalid TOML is reported when the whole document is read.
    let Ok(document) = DeTable::parse(&text) else { return Default::default() };
    let ctx = Context::new(sources, variables, Vec::new());
    let patterns = Table::of_document(&ctx, 0, &document).value("include").map(|value| value.texts());
    let mut included: Vec<(PathBuf, SourceSpan)> = Vec::new();
    let mut seen: Vec<PathBuf> = std::fs::canonicalize(&sources[0].path).into_iter().collect();
    'patterns: for pattern in patterns.iter().flatten() {
        for file in matching(&sources[0].path, pattern) {
            // By its real path, so that a link to a file that is there already is not read twice.
            let real = std::fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
            if seen.first() == Some(&real) {
                pattern.wrong(
                    "`include` matches the main file itself",
                    "change the pattern, so that it matches other files only",
                );
            } else if included.len() == FILES_MAX {
                pattern.wrong(format!("more than {FILES_MAX} files are included"), "merge some of them");
                break 'patterns;
            } else if !seen.contains(&real) {
                seen.push(real);
                included.push((file, pattern.place));
            }
        }
    }
    let secrets = ctx.secrets.into_inner();
    (included, ctx.findings.into_inner(), secrets)
}

/// The files that match a pattern, sorted. Only the last part of a pattern may contain `*` and `?`. A pattern without them
/// names a file that must exist.
fn matching(main: &Path, pattern: &Text<'_>) -> Vec<PathBuf> {
    let whole = main.parent().unwrap_or(Path::new("")).join(&pattern.text);
    let is_wild = |part: &str| part.contains(['*', '?', '[']);
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let directory = whole.parent().unwrap_or(Path::new("/"));
    if is_wild(&directory.to_string_lossy()) || name.contains('[') {
        pattern.wrong("only the file's name may have `*` or `?`", "write it like `conf.d/*.toml`");
        return Vec::new();
    }
    if !is_wild(&name) {
        return vec![whole];
    }
    // `.` for none, because the parent of a bare file name is an empty path, which cannot be opened.
    let opened = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries = match std::fs::read_dir(opened) {
        Ok(entries) => entries,
        Err(error) => {
            let message = format!("cannot read the directory {}: {error}", directory.display());
            pattern.wrong(message, "create it, or remove the `include`");
            return Vec::new();
        }
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| is_match(name.as_bytes(), entry.file_name().to_string_lossy().as_bytes()))
        .map(|entry| directory.join(entry.file_name()))
        .collect();
    // Sorted, because a directory has no order of its own.
    files.sort();
    files
}

/// Whether a name fits a pattern of `*` (any bytes) and `?` (one byte); a leading dot must be written.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    if name.starts_with(b".") && !pattern.starts_with(b".") {
        return false;
    }
    // The last `*` and the end of its match so far. On a mismatch it takes one more byte, so that no recursion is
    // needed.
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((star_p, star_n)) = star else { return false };
                star = Some((star_p, star_n + 1));
                p = star_p + 1;
                n = star_n + 1;
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = whole_file::read(path, FILE_BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => format!("it is longer than {} MiB", FILE_BYTES_MAX >> 20),
        io::ErrorKind::PermissionDenied => format!("{error}: let the gateway's user read it"),
        _ => error.to_string(),
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8")
    })
}

const FILE_BYTES_MAX: u64 = 8 << 20;

const FILES_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::is_match;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, matches) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".toml", false),
            ("*.toml", "a.toml~", false),
            ("?.toml", "ab.toml", false),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("*", "", true),
            (".*", ".a", true),
        ] {
            assert_eq!(is_match(pattern.as_bytes(), name.as_bytes()), matches, "{pattern} {name}");
        }
    }
}
