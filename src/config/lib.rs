//! Reads gateway.toml, checks it as a whole, and turns it into each module's own configuration.
//!
//! All errors are reported at once. Nothing here opens a port, makes a certificate or resolves a name, so that a
//! configuration can be checked on another machine than the one it is for.

mod auth;
mod compile;
mod effective;
mod features;
mod keys;
pub mod limits;
mod load;
pub mod printer;
mod process;
mod reader;
mod routes;
mod row_document;
mod settings;
#[cfg(test)]
mod tests;
mod upstream;
mod warnings;

use std::ops::Range;
use std::path::Path;

use toml::de::DeTable;

use keys::Kind;
use keys::process::ROOT;
use limits::tier_table::TierTable;
use load::context::Context;
use load::expand::Variables;
use load::mask::Secrets;
use load::report::{DefinitionSpans, Finding, Source, SourceSpan, quoted};
use load::sections;
use reader::Table;
use reader::canonical;
use reader::canonical_text::Canonical;

pub use base::units::{show_share, show_size};
pub use effective::{fingerprint, policy_of};
pub use keys::process::UPGRADE_MAX;
pub use keys::schema::schema;
pub use limits::counted_key::counted_as;
pub use load::definition::{Definition, LoadedConfig};
pub use load::files::Files;
pub use load::mask::{MASK, hidden, is_secret_name};
pub use load::report::{Errors, Report, Subject};
pub use process::log::log_filter;
pub use process::running::{NODE_NAME_BYTES_MAX, is_node_name};
pub use row_document::{RowDocument, TierRow};

pub use settings::{Config, Limits, NO_SUCH_TIER, Node, Shutdown, instead_of_tier};

/// Reads what a file and those it includes define; `${...}` are variables of the process.
///
/// # Errors
/// If a file cannot be read or is not TOML. Every other error is in the definition.
pub fn read(path: &Path) -> Result<Definition, Errors> {
    Files::read(path).with(&[])
}

/// Reads and compiles a configuration from a file and those it includes.
///
/// # Errors
/// Everything that is wrong with its text. Files that it names are not read.
pub fn load(path: &Path) -> Result<LoadedConfig, Errors> {
    compiled(read(path)?)
}

/// Reads and compiles a configuration that is not in a file. Errors show it under `name`. It cannot `include`, and its
/// relative paths start from the working directory.
///
/// # Errors
/// Everything that is wrong with its text.
pub fn from_text(name: &str, text: &str) -> Result<LoadedConfig, Errors> {
    let variables: Variables<'_> = &|name| std::env::var(name).ok();
    let sources = vec![load::source::of_text(name, text)];
    compiled(read_sources(sources, Vec::new(), Secrets::default(), variables)?)
}

/// What a definition compiles to, with its warnings.
///
/// # Errors
/// Everything that is wrong with it.
pub fn compiled(mut definition: Definition) -> Result<LoadedConfig, Errors> {
    let table = definition.compile();
    definition.finish(table)
}

/// Parses the files and reads their definitions. `findings` are the errors of files that could not be read, `secrets` what
/// names them.
fn read_sources(
    sources: Vec<Source>,
    findings: Vec<Finding>,
    secrets: Secrets,
    variables: Variables<'_>,
) -> Result<Definition, Errors> {
    let ctx = Context { secrets: secrets.into(), ..Context::new(&sources, variables, findings) };
    let mut parsed = Vec::with_capacity(sources.len());
    for (file, source) in sources.iter().enumerate() {
        match DeTable::parse(&source.text) {
            Ok(document) => parsed.push(document),
            Err(error) => {
                let span = error.span().unwrap_or_default();
                let place = SourceSpan { file, start: span.start, end: span.end };
                let (message, hint) = not_toml(&source.text, span, error.message());
                ctx.wrong(place, message, hint);
            }
        }
    }
    // Sections are read only if all files are, because an unreadable one may define the names that others use: errors
    // about missing names would mislead.
    let is_whole = ctx.findings.borrow().is_empty();
    let definitions = is_whole.then(|| {
        let documents = parsed.iter().enumerate();
        define(&ctx, documents.map(|(file, document)| Table::of_document(&ctx, file, document)).collect())
    });
    drop(parsed);
    let (findings, secrets) = (ctx.findings.into_inner(), ctx.secrets.into_inner());
    let secret_places = ctx.secret_places.into_inner();
    secrets.remember();
    let mut report = Report::new(sources, findings, secrets.clone());
    report.secret_places = secret_places;
    let Some((config, places)) = definitions else { return Err(report.into_errors()) };
    report.places = places;
    Ok(Definition { config: Config { secrets, ..config }, report })
}

/// What is said of a text that is not TOML at a place, and what to write there.
fn not_toml(text: &str, place: Range<usize>, message: &str) -> (String, String) {
    let start = text.get(..place.start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let line = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default().trim();
    if message == "duplicate key" {
        return given_twice(text, start, line, text.get(place).unwrap_or_default());
    }
    let hint = match line.contains(['\u{201c}', '\u{201d}', '\u{2018}', '\u{2019}']) {
        true => "write straight quotes, `\"`, in place of curly ones",
        false => match other_language(text) {
            hint if !hint.is_empty() => hint,
            _ if YES_OR_NO.iter().any(|word| line.ends_with(word)) => {
                "write `true` or `false`, or a text in quotes"
            }
            _ => NOT_TOML.iter().find(|(begin, _)| message.starts_with(begin)).map_or("", |(_, hint)| hint),
        },
    };
    (format!("this is not TOML: {message}"), hint.to_owned())
}

/// How messages of the parser begin, and what to write.
const NOT_TOML: [(&str, &str); 12] = [
    ("string values", "write the value in quotes"),
    ("invalid float", "write the value in quotes"),
    ("missing escaped", "write `\\\\`, or the text in single quotes"),
    ("key with no value", "write each line as `KEY = VALUE`, or `[KEY]` for a section"),
    ("missing assignment", "write each as `KEY = VALUE`"),
    ("invalid basic string", "end the text with `\"`, as it begins"),
    ("invalid literal string", "end the text with `'`, as it begins, or write both as `\"`"),
    ("unclosed table", "end the name of the section with `]`, or `]]`"),
    ("missing comma between array", "write a comma between the two, or end the array with `]`"),
    ("missing comma between key", "write a comma between the two, or end the table with `}`"),
    ("unexpected key or value", "write each key on a line of its own, with nothing behind its value"),
    ("invalid boolean", "write `true` or `false`"),
];
const YES_OR_NO: [&str; 4] = ["= yes", "= no", "= on", "= off"];

/// What is said of a section whose line begins at `start`, or of a key there, that is written above already.
fn given_twice(text: &str, start: usize, line: &str, key: &str) -> (String, String) {
    let heading = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
    let name = if line.starts_with('[') { heading(line) } else { key.to_owned() };
    let message = format!("{} is defined twice", quoted(&name));
    let bare = name.trim_matches(['[', ']']);
    match ROOT.key(bare).filter(|_| line.starts_with('[')).map(|row| &row.kind) {
        Some(Kind::List(_)) => return (message, format!("it is a list: write `[[{bare}]]` for each")),
        Some(Kind::Map(_)) => return (message, format!("write `[{bare}.NAME]` for each")),
        _ => {}
    }
    let is_first = |above: &str| match line.starts_with('[') {
        true => heading(above) == name,
        false => above.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('=')),
    };
    // The last, because another table may have a key of the name too.
    let above = text.get(..start).unwrap_or_default().lines().zip(1..);
    let first = above.filter(|(above, _)| is_first(above.trim())).last();
    let hint = first.map_or_else(
        || "merge the two".to_owned(),
        |(_, line)| format!("first in line {line}: merge the two"),
    );
    (message, hint)
}

/// What is said of a file that is in another language by its first line.
fn other_language(text: &str) -> &'static str {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    match lines.next() {
        Some(line) if line.starts_with('{') || line == "[" || line.replace(' ', "").starts_with("[{") => {
            "this looks like JSON; write TOML: `[listener.main]`"
        }
        Some(line) if line.ends_with(['{', ';']) && !line.contains('=') => {
            "this looks like nginx or Caddy: `sluicegate migrate nginx FILE` converts a file of nginx"
        }
        Some(line) if line == "---" || (line.contains(':') && !line.contains(['=', '['])) => {
            "this looks like YAML; write TOML: `[listener.main]`. `sluicegate migrate` converts files of Kong and Envoy"
        }
        Some(line) if ["global", "defaults"].contains(&line) || line.starts_with("frontend ") => {
            "this looks like HAProxy: `sluicegate migrate haproxy FILE` converts it"
        }
        _ => "",
    }
}

/// Reads every section of every file.
fn define(ctx: &Context<'_>, documents: Vec<Table<'_>>) -> (Config, DefinitionSpans) {
    let mut places = DefinitionSpans::default();
    features::check(&documents);
    let (auth, auth_places, auth_names) = auth::read_all(&documents);
    let (log_level, access_log, decisions) = process::log::read(&documents, &auth);
    let rows = TierTable::read(&documents);
    let (admin, grpc) = process::admin::read(&documents);
    let mut config = Config {
        files: ctx.files().map(|source| source.path.clone()).collect(),
        workers: process::running::read_workers(&documents),
        listeners: Vec::new(),
        client_ip: process::listener::read_client_ip(&documents),
        overload: process::running::read_overload(&documents),
        auth,
        upstreams: Vec::new(),
        dns: process::running::read_dns(&documents),
        limits: process::running::read_limits(&documents),
        tiers: limits::tiers::read_all(&documents, &rows),
        policies: Vec::new(),
        routes: Vec::new(),
        domains: Vec::new(),
        admin,
        grpc,
        redis: process::redis::read(&documents),
        database: process::database::read(&documents),
        error_pages: routes::errors::read(&documents),
        shutdown: process::running::read_shutdown(&documents),
        node: process::running::read_node(&documents),
        privacy: process::running::read_privacy(&documents),
        log_level,
        access_log,
        decisions,
        trace: process::trace::read(&documents),
        secrets: Secrets::default(),
        canonical: Canonical::default(),
    };
    (config.listeners, places.listeners) = process::listener::read_all(&documents);
    config.listeners.iter_mut().for_each(|listener| listener.nat64 = config.client_ip.nat64.clone());
    places.auth = auth_places;
    places.sections = sections::places(&documents);
    process::database::check(ctx, &config, &places);
    process::listener::check_admin(ctx, &config, &places);
    process::acme::check(ctx, &config, &places);
    (config.upstreams, places.upstreams) = upstream::read_all(&documents);
    (config.policies, places.policies) = limits::policy::read_all(&documents, &config.tiers, &rows);
    // Last, because routes name upstreams and policies, and add those that they write in place.
    routes::route::read_all(&documents, &auth_names, &mut config, &mut places);
    limits::rls::read_all(&documents, &mut config, &mut places);
    warnings::warn(ctx, &config, &places);
    check_documents(&documents);
    if !ctx.has_errors() {
        config.canonical = canonical::written(ctx, &documents);
    }
    (config, places)
}

/// Reports what an included file includes, and files without anything.
fn check_documents(documents: &[Table<'_>]) {
    for (file, document) in documents.iter().enumerate() {
        match document.value("include") {
            Some(include) if file > 0 => {
                include.wrong_key(
                    "an included file cannot have `include`",
                    "list the files in `include` of the main file",
                );
            }
            _ => {}
        }
        match document.is_empty() {
            // An error, because one that was emptied by accident would close every listener by the next reload.
            true if file == 0 => {
                let hint =
                    "write a `[[route]]`, or `route = []` for a gateway that answers 404 to everything";
                document.wrong(NOTHING, hint);
            }
            true => document.warn(NOTHING, "write a `[[route]]`, or do not include it"),
            false => {}
        }
    }
}

/// What is said of a file without any key or table.
const NOTHING: &str = "the file has no keys";
