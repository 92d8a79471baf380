//! What a migration has to say: what it left out, what it changed, what is not needed.

use std::collections::BTreeMap;

/// A line of a file that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceLine {
    pub(super) file: String,
    /// From 1.
    pub(super) line: usize,
}

/// Everything that is said so far, in the order of files and lines.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) left_out: Vec<Note>,
    pub(super) differing: Vec<Note>,
    /// Words that have no effect on answers, each with the first place where it stands.
    pub(super) needless: BTreeMap<String, SourceLine>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Note {
    pub(super) place: SourceLine,
    /// What stands there, cut.
    pub(super) what: String,
    pub(super) why: String,
}

/// What was read of a line: where it is and how it is shown.
pub(super) trait ReadLine {
    fn listed(&self) -> (&SourceLine, String);
}

impl Notes {
    /// Says that a whole line is not done by the new configuration.
    pub(super) fn left_out_line(&mut self, line: &impl ReadLine, why: impl Into<String>) {
        let (place, shown) = line.listed();
        self.left_out(place, &shown, why);
    }

    /// Says that a whole line is done, but not exactly as it was.
    pub(super) fn line_differs(&mut self, line: &impl ReadLine, why: impl Into<String>) {
        let (place, shown) = line.listed();
        self.differs(place, &shown, why);
    }

    /// Says that something is not done by the new configuration.
    pub(super) fn left_out(&mut self, place: &SourceLine, what: &str, why: impl Into<String>) {
        let note = Note::new(place, what, why.into());
        if !self.left_out.contains(&note) {
            self.left_out.push(note);
        }
    }

    /// Says that something is done, but not exactly as it was.
    pub(super) fn differs(&mut self, place: &SourceLine, what: &str, why: impl Into<String>) {
        let note = Note::new(place, what, why.into());
        if !self.differing.contains(&note) {
            self.differing.push(note);
        }
    }

    /// Says that something is not needed and changes no answer.
    pub(super) fn needless(&mut self, place: &SourceLine, word: &str) {
        self.needless.entry(one_line(word)).or_insert_with(|| place.clone());
    }

    /// Whether everything was taken over exactly.
    pub(super) fn is_empty(&self) -> bool {
        self.left_out.is_empty() && self.differing.is_empty()
    }
}

impl Note {
    fn new(place: &SourceLine, what: &str, why: String) -> Note {
        Note { place: place.clone(), what: one_line(what), why }
    }
}

/// The text in one line that can stand in a comment, cut: a longer one is not needed to find its place.
pub(super) fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let kept: String = words.chars().filter(|sign| !base::words::steers(*sign)).take(SHOWN_MAX + 1).collect();
    match kept.chars().count() > SHOWN_MAX {
        true => format!("{}…", kept.chars().take(SHOWN_MAX).collect::<String>()),
        false => kept,
    }
}

/// Characters that are shown of what was left out.
const SHOWN_MAX: usize = 72;
