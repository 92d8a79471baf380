//! The errors and warnings of a configuration, each shown with the line it is about.
//!
//! It only collects and shows. Secrets on a shown line are masked, and the text behind a `${...}` never gets in here.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::load::mask;
use crate::load::mask::Secrets;
use crate::settings::Config;
use base::words;

/// A configuration that cannot be used: at least one error, all of them, and the warnings beside them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Errors(Box<Report>);

/// Everything found in the files of one load, in the order of the files and their lines.
#[derive(Debug, Default)]
pub struct Report {
    sources: Vec<Source>,
    findings: Vec<Finding>,
    /// Where the parts of the configuration were written, for errors that are found later.
    pub(crate) places: DefinitionSpans,
    secrets: Secrets,
    /// Where secrets are written in the files, whatever their keys are called.
    pub(crate) secret_places: Vec<SourceSpan>,
}

#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// As the operator named it, or as an `include` found it.
    pub(crate) path: PathBuf,
    /// The absolute directory its relative paths start from.
    pub(crate) directory: PathBuf,
    pub(crate) text: Arc<str>,
    pub(crate) kind: SourceKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    File,
    /// From a row of the database, which goes before what files say.
    Added,
    /// From a row that somebody is about to write there.
    Proposed,
}

/// A piece of a file, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceSpan {
    /// Which file: an index into the sources.
    pub(crate) file: usize,
    pub(crate) start: usize,
    /// The byte after the last one.
    pub(crate) end: usize,
}

/// The part of a [`Config`](crate::Config) that a finding is about, by its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Listener(usize),
    Auth(usize),
    Upstream(usize),
    Policy(usize),
    Route(usize),
    Domain(usize),
    /// A section that is there once: `redis`.
    Section(&'static str),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    severity: Severity,
    message: String,
    /// The place, and what to write instead.
    place: Option<(SourceSpan, String)>,
    /// A second place that matters, and why.
    beside: Option<(SourceSpan, String)>,
}

/// What to write instead. The program's own words are shown as they are; a text that is put together is masked, because it
/// may quote a value.
pub(crate) struct Hint(String);

impl Hint {
    /// A text whose parts hold nothing to mask.
    pub(crate) fn plain(text: String) -> Hint {
        Hint(text)
    }
}

impl From<&'static str> for Hint {
    fn from(text: &'static str) -> Hint {
        Hint(text.to_owned())
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Hint {
        Hint(mask::message(&text))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Error,
    Warning,
}

/// Where each definition and its fields were written.
#[derive(Clone, Debug, Default)]
pub(crate) struct DefinitionSpans {
    pub(crate) listeners: Vec<Fields>,
    pub(crate) auth: Vec<Fields>,
    pub(crate) upstreams: Vec<Fields>,
    pub(crate) policies: Vec<Fields>,
    pub(crate) routes: Vec<Fields>,
    pub(crate) domains: Vec<Fields>,
    /// Those of sections that are there once, if they are written.
    pub(crate) sections: BTreeMap<&'static str, Fields>,
}

/// Where one definition and its fields were written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    /// The definition's name or heading. `None`: it was not written but is a default.
    pub(crate) whole: Option<SourceSpan>,
    /// Whether reading it found an error. Defaults then replace what could not be read.
    pub(crate) is_flawed: bool,
    /// Its keys as gateway.toml spells them, with the places of their values; nested ones as `limit[1]` and `headers.set`.
    pub(crate) fields: Vec<(String, SourceSpan)>,
}

impl Errors {
    /// How many errors there are, at least one; warnings are not counted.
    pub fn count(&self) -> usize {
        self.0.error_count()
    }

    pub(crate) fn is_in(&self, source: &Path) -> bool {
        let errors = self.0.findings.iter().filter(|finding| finding.is_error());
        let mut places = errors.filter_map(|finding| finding.place.as_ref().map(|(place, _)| *place));
        places.any(|place| self.0.sources.get(place.file).is_some_and(|of| of.path == source))
    }

    /// The same without the warnings beside them, which are about files.
    pub fn without_warnings(mut self) -> Errors {
        self.0.findings.retain(Finding::is_error);
        self
    }

    /// Each error for who has proposed a row: a JSON Pointer to the key of the row, empty if it is about something else, and
    /// what is wrong there and what to write instead.
    pub fn of_proposal(&self) -> Vec<(String, String)> {
        let errors = self.0.findings.iter().filter(|finding| finding.is_error()).take(FINDINGS_SHOWN_MAX);
        let at = |(place, _): &(SourceSpan, String)| {
            let source = self.0.sources.get(place.file).filter(|source| source.kind == SourceKind::Proposed);
            pointer(&source?.text, place.start)
        };
        errors.map(|it| (it.place.as_ref().and_then(at).unwrap_or_default(), it.said())).collect()
    }

    /// The file of each error and the line there, from 1, and what is wrong. An error without a place is about the whole.
    pub fn lines(&self) -> impl Iterator<Item = (Option<(&Path, usize)>, &str)> {
        let line = |place: &SourceSpan| {
            let source = self.0.sources.get(place.file)?;
            let before = source.text.as_bytes().get(..place.start)?;
            Some((source.path.as_path(), before.iter().filter(|byte| **byte == b'\n').count() + 1))
        };
        let errors = self.0.findings.iter().filter(|finding| finding.is_error());
        errors.map(move |finding| {
            (finding.place.as_ref().and_then(|(place, _)| line(place)), finding.message.as_str())
        })
    }
}

/// The JSON Pointer of the key at a place of a row that was written as TOML: its first header is that of the row.
fn pointer(text: &str, at: usize) -> Option<String> {
    let header = |line: &str| Some(line.strip_prefix('[')?.trim_matches(['[', ']']).to_owned());
    let row = text.lines().find_map(header)?;
    let before = text.get(..at)?;
    let table = before.lines().rev().find_map(header)?;
    let line = before.lines().last().filter(|_| !before.ends_with('\n')).unwrap_or_default();
    let line = format!("{line}{}", text.get(at..)?.lines().next()?);
    let key = line.split_once(" = ").map(|(key, _)| key)?;
    let within = table.strip_prefix(&row)?.replace('.', "/");
    Some(format!("{within}/{key}"))
}

impl Report {
    pub(crate) fn new(sources: Vec<Source>, findings: Vec<Finding>, secrets: Secrets) -> Report {
        let mut report = Report { sources, secrets, ..Report::default() };
        report.add(findings);
        report
    }

    /// Whether the files say where the admin listener is, or leave it at its default.
    pub fn has_admin(&self) -> bool {
        self.places.sections.contains_key("admin")
    }

    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// The same without what another load has found in the same places of the same texts.
    pub fn news_since(&self, before: &Report) -> Report {
        let is_news =
            |finding: &&Finding| !before.findings.iter().any(|told| self.is_told(finding, before, told));
        let findings = self.findings.iter().filter(is_news).cloned().collect();
        let (secrets, secret_places) = (self.secrets.clone(), self.secret_places.clone());
        Report { sources: self.sources.clone(), findings, secrets, secret_places, ..Report::default() }
    }

    /// Whether another report tells the same of the same text.
    fn is_told(&self, finding: &Finding, before: &Report, told: &Finding) -> bool {
        // By the line and not by its number, so that a change elsewhere in the file does not repeat every warning.
        fn line(report: &Report, place: SourceSpan) -> Option<(&Path, &str)> {
            let source = report.sources.get(place.file)?;
            let start = source.text.get(..place.start)?.rfind('\n').map_or(0, |end| end + 1);
            Some((&source.path, source.text.get(start..)?.lines().next()?))
        }
        finding.message == told.message
            && match (&finding.place, &told.place) {
                (Some(here), Some(there)) => line(self, here.0) == line(before, there.0),
                (here, there) => here.is_none() && there.is_none(),
            }
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.error_count() > 0
    }

    pub(crate) fn into_errors(self) -> Errors {
        Errors(Box::new(self))
    }

    fn error_count(&self) -> usize {
        self.findings.iter().filter(|finding| finding.is_error()).count()
    }

    pub(crate) fn add(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings.into_iter().map(|finding| finding.without(&self.secrets)));
        // By place, so that an operator can walk down the file. Findings without a place concern the whole and come first.
        self.findings.sort_by_key(|finding| finding.place.as_ref().map(|(place, _)| *place));
    }

    /// A finding by code that does not see the file: checked and masked, because its message may quote a text that came
    /// out of a `${...}`, or that does not fit on a line.
    pub(crate) fn discreet(&self, mut finding: Finding) -> Finding {
        let written = |place: &SourceSpan| self.sources.get(place.file)?.text.get(place.start..place.end);
        let place = finding.place.as_ref().map(|(place, _)| place);
        let message = &mut finding.message;
        if place.and_then(written).is_some_and(|text| text.contains("${"))
            && let Some(hidden) = self.not_of_files(message)
        {
            message.replace_range(hidden, "…");
        }
        if message.contains(words::steers) {
            *message = message.escape_debug().to_string();
        }
        finding
    }

    /// What a message quotes, to its last backtick, without the names before it that a file has in
    /// quotes, because those are not of a variable.
    fn not_of_files(&self, message: &str) -> Option<Range<usize>> {
        let (mut first, last) = (message.find('`')?, message.rfind('`')?);
        let is_of_file = |part: &str| {
            let quoted = format!("\"{part}\"");
            self.sources.iter().any(|source| source.text.contains(&quoted))
        };
        while let Some((part, rest)) = message[first + 1..=last].split_once('`')
            && is_of_file(part)
        {
            first = last + 1 - rest.len() + rest.find('`')?;
        }
        (first < last).then_some(first + 1..last)
    }

    /// Each finding in a line, for a log: `gateway.toml:4:7: the message: the hint`.
    pub fn lines(&self) -> Vec<String> {
        let line = |finding: &Finding| {
            let shown = self.show(finding);
            let at = shown.lines().find_map(|line| line.trim_start().strip_prefix("--> "));
            at.map(|at| format!("{at}: ")).unwrap_or_default() + &finding.said()
        };
        self.findings.iter().take(FINDINGS_SHOWN_MAX).map(line).collect()
    }

    fn show(&self, finding: &Finding) -> String {
        let level = match finding.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = annotate_snippets::Group::with_title(level.primary_title(&*finding.message));
        if let Some((place, label)) = &finding.place {
            group = group.element(self.snippet(*place, label, AnnotationKind::Primary));
        }
        if let Some((place, label)) = &finding.beside {
            group = group.element(self.snippet(*place, label, AnnotationKind::Context));
        }
        Renderer::plain().render(&[group])
    }

    /// The lines around a place. Long places and texts are cut, so that rendering costs the same for files of any size.
    fn snippet(
        &self,
        place: SourceSpan,
        label: &str,
        kind: AnnotationKind,
    ) -> Snippet<'_, annotate_snippets::Annotation<'_>> {
        let source = &self.sources[place.file];
        let text: &str = &source.text;
        let start = text.floor_char_boundary(place.start);
        let first = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let last = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let end = text.ceil_char_boundary(place.end).clamp(start, last);
        let line_number = text.as_bytes()[..first].iter().filter(|byte| **byte == b'\n').count() + 1;
        let secrets = self
            .secret_places
            .iter()
            .filter(|secret| secret.file == place.file && secret.start < last && first < secret.end);
        let line = mask::line(text, first, last, secrets.map(|secret| secret.start..secret.end));
        let mark = kind.span(line.shown(start - first..end - first));
        let mark = if label.is_empty() { mark } else { mark.label(label.to_owned()) };
        let path = self.secrets.hide(&source.path.display().to_string());
        Snippet::source(line.text).line_start(line_number).path(path).annotation(mark)
    }
}

impl fmt::Display for Report {
    /// Every finding, an empty line between two; at most `FINDINGS_SHOWN_MAX`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.findings.iter().take(FINDINGS_SHOWN_MAX).enumerate() {
            if index > 0 {
                formatter.write_str("\n\n")?;
            }
            formatter.write_str(&self.show(finding))?;
        }
        let hidden = self.findings.len().saturating_sub(FINDINGS_SHOWN_MAX);
        if hidden > 0 { write!(formatter, "\n\n... and {hidden} more") } else { Ok(()) }
    }
}

impl Finding {
    fn said(&self) -> String {
        match &self.place {
            Some((_, hint)) if !hint.is_empty() => format!("{}: {hint}", self.message),
            _ => self.message.clone(),
        }
    }

    pub(crate) fn error(message: impl Into<String>) -> Finding {
        Finding {
            severity: Severity::Error,
            message: mask::message(&message.into()),
            place: None,
            beside: None,
        }
    }

    pub(crate) fn warning(message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warning, ..Finding::error(message) }
    }

    pub(crate) fn into_warning(self) -> Finding {
        Finding { severity: Severity::Warning, ..self }
    }

    fn without(mut self, secrets: &Secrets) -> Finding {
        let places = [&mut self.place, &mut self.beside].into_iter().flatten().map(|(_, text)| text);
        for text in places.chain([&mut self.message]) {
            *text = secrets.hide(text);
        }
        self
    }

    pub(crate) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Where it is, and what to write there instead (may be empty).
    pub(crate) fn at(mut self, place: SourceSpan, hint: impl Into<Hint>) -> Finding {
        self.place = Some((place, hint.into().0));
        self
    }

    pub(crate) fn beside(mut self, place: SourceSpan, why: impl Into<String>) -> Finding {
        self.beside = Some((place, why.into()));
        self
    }
}

impl DefinitionSpans {
    /// Where a field of a definition was written, or what is nearest to it.
    pub(crate) fn find(&self, subject: Subject, field: &str) -> Option<SourceSpan> {
        self.of(subject)?.place(field)
    }

    pub(crate) fn is_flawed(&self, subject: Subject) -> bool {
        self.of(subject).is_some_and(|fields| fields.is_flawed)
    }

    fn of(&self, subject: Subject) -> Option<&Fields> {
        match subject {
            Subject::Listener(index) => self.listeners.get(index),
            Subject::Auth(index) => self.auth.get(index),
            Subject::Upstream(index) => self.upstreams.get(index),
            Subject::Policy(index) => self.policies.get(index),
            Subject::Route(index) => self.routes.get(index),
            Subject::Domain(index) => self.domains.get(index),
            Subject::Section(name) => self.sections.get(name),
        }
    }
}

impl Fields {
    /// The place of a field such as `limit`, `limit[1]` or `headers.set`. If the field was not written, the place of the field
    /// around it, and at last of the whole definition.
    pub(crate) fn place(&self, field: &str) -> Option<SourceSpan> {
        let mut field = field;
        loop {
            if let Some((_, place)) = self.fields.iter().find(|(name, _)| name == field) {
                return Some(*place);
            }
            match field.rfind(['.', '[']) {
                Some(at) => field = &field[..at],
                None => return self.whole,
            }
        }
    }
}

/// An error at a place of a file. If the part comes from no file, or is a default, the message names the part instead.
pub(crate) fn error_in(
    config: &Config,
    places: &DefinitionSpans,
    subject: Subject,
    field: &str,
    message: &str,
    hint: &str,
) -> Finding {
    if let Some(place) = places.find(subject, field) {
        return Finding::error(message).at(place, hint.to_owned());
    }
    let hint = if hint.is_empty() { String::new() } else { format!("; {hint}") };
    Finding::error(format!("{}, `{field}`: {message}{hint}", named(config, subject)))
}

fn named(config: &Config, subject: Subject) -> String {
    let name = |kind: &str, name: Option<&String>| match name {
        Some(name) => format!("{kind} {name:?}"),
        None => kind.to_owned(),
    };
    match subject {
        Subject::Listener(index) => name("listener", config.listeners.get(index).map(|it| &it.name)),
        Subject::Auth(index) => name("auth", config.auth.get(index).map(|it| &it.name)),
        Subject::Upstream(index) => name("upstream", config.upstreams.get(index).map(|it| &it.name)),
        Subject::Policy(index) => name("policy", config.policies.get(index).map(|it| &it.name)),
        Subject::Route(index) => name("route", config.routes.get(index).map(|it| &it.name)),
        Subject::Domain(index) => name("rls", config.domains.get(index).map(|it| &it.name)),
        Subject::Section(name) => format!("[{name}]"),
    }
}

/// A text as a message quotes it: in backticks, escaped, cut to a readable length, and without what may be a password.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown = String::from("`");
    for (index, character) in mask::value(text).chars().enumerate() {
        if index == QUOTED_CHARS_MAX {
            shown.push('…');
            break;
        }
        match character {
            '"' | '\'' => shown.push(character),
            _ => write!(shown, "{}", character.escape_debug()).expect("writing to a string cannot fail"),
        }
    }
    shown.push('`');
    shown
}

/// A report shows this many findings and counts the rest.
const FINDINGS_SHOWN_MAX: usize = 200;

const QUOTED_CHARS_MAX: usize = 80;
