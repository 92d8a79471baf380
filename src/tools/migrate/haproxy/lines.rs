//! The language of haproxy.cfg: lines of words, in sections.

use std::cell::Cell;
use std::path::Path;

use super::super::file::Error;
use super::super::notes::{ReadLine, SourceLine};
use super::super::values::is_among;

#[derive(Debug)]
pub(super) struct Line {
    pub(super) words: Vec<String>,
    pub(super) place: SourceLine,
    used: Cell<bool>,
}

/// `frontend web`, and the lines below it.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) place: SourceLine,
    pub(super) lines: Vec<Line>,
    /// The section of defaults that holds here: the one it names, or the last one before it.
    pub(super) defaults: Option<usize>,
}

impl ReadLine for Line {
    fn listed(&self) -> (&SourceLine, String) {
        (&self.place, self.shown())
    }
}

impl Line {
    /// Marks it as read. What nobody reads is listed as left out.
    pub(super) fn taken(&self) -> &Line {
        self.used.set(true);
        self
    }

    /// The same line with more words behind its own.
    pub(super) fn with(&self, words: impl IntoIterator<Item = String>) -> Line {
        let words = self.words.iter().cloned().chain(words).collect();
        Line { words, place: self.place.clone(), used: Cell::new(true) }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.used.get()
    }

    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// Whether it begins with these words.
    pub(super) fn begins(&self, words: &str) -> bool {
        words.split(' ').enumerate().all(|(index, word)| self.word(index) == word)
    }

    /// The word behind another.
    pub(super) fn after(&self, word: &str) -> Option<&str> {
        let at = self.words.iter().position(|known| known == word)?;
        self.words.get(at + 1).map(String::as_str)
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }

    /// Whether one of its words has this text in it.
    pub(super) fn has_in(&self, text: &str) -> bool {
        self.words.iter().any(|word| word.contains(text))
    }

    pub(super) fn shown(&self) -> String {
        self.words.join(" ")
    }

    /// The words before the condition.
    pub(super) fn unconditional(&self) -> &[String] {
        let at = self.words.iter().position(|word| word == "if" || word == "unless");
        &self.words[..at.unwrap_or(self.words.len())]
    }

    /// The words behind `if`, or behind `unless` with `true`.
    pub(super) fn condition(&self) -> Option<(&[String], bool)> {
        let at = self.words.iter().position(|word| word == "if" || word == "unless")?;
        Some((&self.words[at + 1..], self.words[at] == "unless"))
    }
}

pub(super) fn read(path: &Path, text: &str) -> Result<Vec<Section>, Error> {
    let file = path.display().to_string();
    let mut sections: Vec<Section> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let place = SourceLine { file: file.clone(), line: index + 1 };
        let words = words(line).map_err(|message| Error::Syntax {
            file: file.clone(),
            line: index + 1,
            message: message.to_owned(),
        })?;
        let Some(first) = words.first() else { continue };
        if is_among(first, SECTIONS) {
            let name = words.get(1).cloned().unwrap_or_default();
            let from = words.iter().position(|word| word == "from").and_then(|at| words.get(at + 1));
            let is_defaults = |section: &Section| {
                section.kind == "defaults" && from.is_none_or(|from| section.name == *from)
            };
            let defaults = sections.iter().rposition(is_defaults);
            sections.push(Section { kind: first.clone(), name, place, lines: Vec::new(), defaults });
        } else {
            let line = Line { words, place: place.clone(), used: Cell::new(false) };
            match sections.last_mut() {
                Some(section) => section.lines.push(line),
                None => {
                    let message = "this line is before the first section".to_owned();
                    return Err(Error::Syntax { file, line: index + 1, message });
                }
            }
        }
    }
    Ok(sections)
}

/// The words of a line: quotes, backslashes, and `#` before a comment.
fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let (mut words, mut word, mut has_word) = (Vec::new(), String::new(), false);
    let mut quote = None;
    let mut signs = line.chars();
    while let Some(sign) = signs.next() {
        match (quote, sign) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (None, '"' | '\'') => {
                quote = Some(sign);
                has_word = true;
            }
            (None | Some('"'), '\\') => {
                has_word = true;
                let next = signs.next();
                // Kept in front of a letter or a dot, because it is one of an expression then.
                word.extend(Some(sign).filter(|_| !next.is_some_and(|next| " \\\"'#$".contains(next))));
                word.extend(next);
            }
            (None, '#') => break,
            (None, sign) if sign.is_whitespace() => {
                if std::mem::take(&mut has_word) {
                    words.push(std::mem::take(&mut word));
                }
            }
            (_, sign) => {
                has_word = true;
                word.push(sign);
            }
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed");
    }
    if has_word {
        words.push(word);
    }
    Ok(words)
}

const SECTIONS: &str = "\
    global defaults frontend backend listen peers resolvers userlist mailers cache program http-errors ring \
    log-forward fcgi-app crt-store traces acme log-profile";
