//! A string of a configuration with its `${...}` expanded, and how messages may quote it.

use std::path::PathBuf;

use http::Uri;
use http::uri::Authority;

use net::fetch;

use crate::keys::foreign::foreign_value;
use crate::load::context::{Context, Spelling};
use crate::load::mask;
use crate::load::report::{Finding, Hint, SourceKind, SourceSpan, quoted};
use crate::printer::{self, array};
use base::words::{did_you_mean, listed};

#[derive(Clone)]
pub(crate) struct Text<'c> {
    pub(crate) ctx: &'c Context<'c>,
    pub(crate) text: String,
    pub(crate) place: SourceSpan,
    /// Whether any of it came out of a `${...}`.
    pub(crate) has_reference: bool,
    pub(crate) key: String,
}

impl Text<'_> {
    pub(crate) fn wrong(&self, message: impl Into<String>, hint: impl Into<Hint>) {
        self.ctx.wrong(self.place, message, hint);
    }

    /// Reports an error at the value, and points at another place that matters.
    pub(crate) fn wrong_beside(
        &self,
        message: impl Into<String>,
        hint: impl Into<Hint>,
        beside: SourceSpan,
        why: &str,
    ) {
        self.ctx.report(Finding::error(message).at(self.place, hint).beside(beside, why));
    }

    /// Reports what is wrong with a row of the database: an error if somebody is about to write it, a warning if it is there.
    pub(crate) fn fault(&self, message: impl Into<String>, hint: impl Into<Hint>) {
        match self.ctx.sources[self.place.file].kind {
            SourceKind::Added => self.warn(message, hint),
            SourceKind::File | SourceKind::Proposed => self.wrong(message, hint),
        }
    }

    /// Whether an authority in the value names a port that is none, which is reported, because `Authority` takes
    /// `a:99999` and then says that it has no port: whoever connects would take the default one.
    pub(crate) fn has_wrong_port(&self, authority: &Authority) -> bool {
        let place = authority.as_str().rsplit('@').next().unwrap_or_default();
        let is_written = place.len() > authority.host().len();
        let is_wrong = is_written && authority.port_u16().is_none_or(|port| port == 0);
        if is_wrong {
            self.wrong(format!("{} has no valid port", self.shown()), "write a port from 1 to 65535");
        }
        is_wrong
    }

    /// A URL that only its server can answer: over TLS, or on this machine. The hint shows how one is written; the others say
    /// what is wrong with a user in it, and with plain http, where anyone on the network path could answer.
    pub(crate) fn private_url(&self, hint: &'static str, with_user: &str, in_the_clear: &str) -> Option<Uri> {
        let parsed = self.text.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
        let Some(uri) = parsed.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https"))) else {
            self.wrong(format!("{} is not a URL", self.shown()), hint);
            return None;
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            self.wrong(with_user, hint);
            return None;
        }
        let has_wrong_port = uri.authority().is_some_and(|authority| self.has_wrong_port(authority));
        if !has_wrong_port && !fetch::is_private(&uri) {
            self.wrong(in_the_clear, "write `https://`");
            return None;
        }
        (!has_wrong_port).then_some(uri)
    }

    /// Notes the canonical form of the text: how a configuration that has been read writes it.
    pub(crate) fn spell(&self, canonical: impl ToString) {
        let spelling = Spelling::Text(canonical.to_string());
        self.ctx.spell(self.place, "", spelling);
    }

    /// The value, a secret. Reports an empty one, and warns if it is written in the file itself.
    pub(crate) fn secret(self) -> String {
        if self.text.is_empty() {
            self.empty_secret();
        } else {
            self.warn_if_plain();
        }
        self.text
    }

    /// Reports that the value, a secret, is empty.
    pub(crate) fn empty_secret(&self) {
        let hint = match self.has_reference {
            true => "the variable or file that it names is empty: put the secret there",
            false => mask::WRITE_SECRET,
        };
        self.wrong(format!("{} is empty", quoted(&self.key)), hint);
    }

    /// Reports a warning if the value, a secret, is written in the file itself.
    pub(crate) fn warn_if_plain(&self) {
        if !self.has_reference {
            self.ctx.secret_places.borrow_mut().push(self.place);
            self.warn(format!("{} is written in plain text", quoted(&self.key)), mask::OUT_OF_FILE);
        }
    }

    /// Reports a warning at the value.
    pub(crate) fn warn(&self, message: impl Into<String>, hint: impl Into<Hint>) {
        self.ctx.report(Finding::warning(message).at(self.place, hint));
    }

    /// The value as a message may quote it. A text that is, or may be, a secret is not quoted at all.
    pub(crate) fn shown(&self) -> String {
        if self.has_reference || mask::is_secret_key(&self.key) {
            format!("the value of {}", quoted(&self.key))
        } else if self.text.is_empty() {
            "an empty text".to_owned()
        } else {
            quoted(&self.text)
        }
    }

    /// The same for an unknown name.
    pub(crate) fn called(&self) -> String {
        match self.has_reference {
            true => format!("that {} names", self.shown()),
            false if self.text.is_empty() => "with an empty name".to_owned(),
            false => self.shown(),
        }
    }

    /// Reports an error at some bytes of the value, if the file has it literally, otherwise at the whole value.
    pub(crate) fn wrong_within(
        &self,
        span: std::ops::Range<usize>,
        message: impl Into<String>,
        hint: impl Into<Hint>,
    ) {
        let written = &self.ctx.sources[self.place.file].text[self.place.start..self.place.end];
        let inner = written.get(1..written.len().saturating_sub(1));
        let start = self.place.start + 1;
        let place = if inner == Some(self.text.as_str()) && span.end <= self.text.len() {
            SourceSpan { start: start + span.start, end: start + span.end, ..self.place }
        } else {
            self.place
        };
        self.ctx.wrong(place, message, hint);
    }

    /// What to write for several texts in one, in the place of which a list stands.
    pub(crate) fn each(&self) -> Option<String> {
        // Nothing out of a variable and nothing before an `@`, because it may be a secret.
        let words = self.text.split([',', ' ', ';', '|']).filter(|word| !word.is_empty());
        let is_several = words.clone().count() > 1 && !self.has_reference && !self.text.contains('@');
        is_several.then(|| format!("write `{}`", array(words.map(printer::text))))
    }

    pub(crate) fn choice<T: Clone>(&self, choices: &[(&str, T)]) -> Option<T> {
        self.choice_beside(choices, &[])
    }

    /// The same where these other texts may be written, too.
    pub(crate) fn choice_beside<T: Clone>(&self, choices: &[(&str, T)], others: &[&str]) -> Option<T> {
        let word = self.text.as_str();
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == word) {
            return Some(choice.clone());
        }
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).chain(others.iter().copied()).collect();
        let foreign = foreign_value(&self.key, word, &names).map(str::to_owned);
        let hint = match word {
            "h3" | "http/3" => Some(format!("HTTP/3 is not supported: write {}", listed(&names))),
            _ => foreign
                .or_else(|| did_you_mean(word, &names))
                .or_else(|| did_you_mean(&word.to_ascii_lowercase(), &names)),
        };
        let hint = hint.unwrap_or_else(|| format!("write {}", listed(&names)));
        self.wrong(format!("{} is not a value of {}", self.shown(), quoted(&self.key)), hint);
        None
    }
}

/// The absolute path. A relative one starts from the directory of the file that it is written in.
pub(crate) fn path(text: &Text<'_>) -> PathBuf {
    let path = path_from(text, &text.text);
    text.spell(path.to_string_lossy());
    path
}

/// The same for a path that is a part of the text.
pub(crate) fn path_from(text: &Text<'_>, path: &str) -> PathBuf {
    text.ctx.sources[text.place.file].directory.join(path)
}
