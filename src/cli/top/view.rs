//! What `top` knows of the gateway, and what its user has chosen to see.

use std::collections::VecDeque;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

use super::source::{Question, Update};
use super::tables::{Pane, refused_in_all};
use control::admin::{DecisionList, HotKeyList};

pub(super) struct View {
    pub(super) place: String,
    pub(super) summary: Option<Value>,
    /// Why there are no events. `None`: they come.
    pub(super) away: Option<String>,
    pub(super) hot_keys: Result<HotKeyList, String>,
    pub(super) decisions: Result<DecisionList, String>,
    /// Requests, and those that policies refused, by second; the newest last.
    pub(super) history: VecDeque<[u64; 2]>,
    pub(super) pane: Pane,
    /// How many rows, or lines of an answer, are above what is shown.
    pub(super) scrolled: usize,
    pub(super) typing: Option<Typing>,
    /// The answer that is shown; empty until it is there.
    pub(super) answer: Option<String>,
}

/// A line that is being typed.
pub(super) struct Typing {
    pub(super) what: Prompt,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    RequestId,
    Request,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyResult {
    Go,
    Ask(Question),
    Leave,
}

impl View {
    /// What the gateway is doing; of one that does not answer nobody knows.
    pub(super) fn phase(&self) -> &str {
        match (&self.away, &self.summary) {
            (None, Some(summary)) => summary["phase"].as_str().unwrap_or_default(),
            _ => "does not answer",
        }
    }

    pub(super) fn new(place: String) -> View {
        View {
            place,
            summary: None,
            away: Some("connecting".to_owned()),
            hot_keys: Err("connecting".to_owned()),
            decisions: Err("connecting".to_owned()),
            history: VecDeque::new(),
            pane: Pane::Policies,
            scrolled: 0,
            typing: None,
            answer: None,
        }
    }

    pub(super) fn hear(&mut self, told: Update) {
        match told {
            Update::Summary(summary) => {
                self.remember(&summary);
                (self.summary, self.away) = (Some(summary), None);
            }
            Update::Away(why) => self.away = Some(why),
            Update::HotKeyList(keys) => self.hot_keys = keys,
            Update::Decisions(decisions) => self.decisions = decisions,
            Update::Answer(text) => {
                // Only where it is open, because somebody who has closed it does not want it any more.
                if self.answer.is_some() {
                    self.answer = Some(text);
                }
            }
        }
    }

    fn remember(&mut self, summary: &Value) {
        if summary["seconds"].as_f64().is_none_or(|seconds| seconds < SHORT) {
            return;
        }
        let requests = summary["requests"]["per-second"].as_f64().unwrap_or_default();
        let refused = refused_in_all(&summary["policies"]);
        self.history.push_back([requests.round() as u64, refused.round() as u64]);
        if self.history.len() > MOMENTS {
            self.history.pop_front();
        }
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> KeyResult {
        if key.kind == KeyEventKind::Release {
            return KeyResult::Go;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return KeyResult::Leave;
        }
        match self.typing.take() {
            Some(typing) => self.type_on(typing, key.code),
            None => self.command(key.code),
        }
    }

    fn type_on(&mut self, mut typing: Typing, code: KeyCode) -> KeyResult {
        match code {
            KeyCode::Esc => return KeyResult::Go,
            KeyCode::Enter => return self.asked(&typing),
            KeyCode::Backspace => drop(typing.text.pop()),
            KeyCode::Char(letter) if typing.text.len() < LINE_BYTES_MAX => typing.text.push(letter),
            _ => {}
        }
        self.typing = Some(typing);
        KeyResult::Go
    }

    fn asked(&mut self, typing: &Typing) -> KeyResult {
        let text = typing.text.trim();
        if text.is_empty() {
            return KeyResult::Go;
        }
        (self.answer, self.scrolled) = (Some(String::new()), 0);
        KeyResult::Ask(match (typing.what, text.split_once(' ')) {
            (Prompt::RequestId, _) => Question::Refusal(text.to_owned()),
            (Prompt::Request, Some((method, url))) => {
                Question::Explain(method.to_uppercase(), url.trim().to_owned())
            }
            (Prompt::Request, None) => Question::Explain("GET".to_owned(), text.to_owned()),
        })
    }

    fn command(&mut self, code: KeyCode) -> KeyResult {
        match code {
            KeyCode::Esc if self.answer.is_some() => (self.answer, self.scrolled) = (None, 0),
            KeyCode::Char('q') => return KeyResult::Leave,
            KeyCode::Tab | KeyCode::Right => self.choose(self.pane.next()),
            KeyCode::BackTab | KeyCode::Left => self.choose(self.pane.previous()),
            KeyCode::Up | KeyCode::Char('k') => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scrolled += 1,
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(PAGE),
            KeyCode::PageDown => self.scrolled += PAGE,
            KeyCode::Char('/') => self.typing = Some(Typing { what: Prompt::RequestId, text: String::new() }),
            KeyCode::Char('e') => self.typing = Some(Typing { what: Prompt::Request, text: String::new() }),
            _ => {}
        }
        KeyResult::Go
    }

    fn choose(&mut self, pane: Pane) {
        (self.pane, self.scrolled, self.answer) = (pane, 0, None);
    }
}

/// Moments that are remembered: as many as the widest terminal has columns.
const MOMENTS: usize = 500;
/// Seconds too short for a rate.
const SHORT: f64 = 0.5;
/// A line that is typed.
const LINE_BYTES_MAX: usize = 2048;
const PAGE: usize = 10;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pressed(view: &mut View, keys: &str) -> KeyResult {
        let mut next = KeyResult::Go;
        for letter in keys.chars() {
            let code = match letter {
                '\n' => KeyCode::Enter,
                '\t' => KeyCode::Tab,
                '\x1b' => KeyCode::Esc,
                other => KeyCode::Char(other),
            };
            next = view.press(KeyEvent::new(code, KeyModifiers::NONE));
        }
        next
    }

    #[test]
    fn a_gateway_that_does_not_answer_has_no_phase() {
        let mut view = View::new(String::new());
        view.hear(Update::Summary(json!({ "phase": "ready" })));
        assert_eq!(view.phase(), "ready");
        view.hear(Update::Away("connection refused".to_owned()));
        assert_eq!(view.phase(), "does not answer");
        view.hear(Update::Summary(json!({ "phase": "draining" })));
        assert_eq!(view.phase(), "draining");
    }

    #[test]
    fn lines_become_questions_and_q_leaves_only_between_them() {
        let mut view = View::new(String::new());
        assert_eq!(pressed(&mut view, "/q-1\n"), KeyResult::Ask(Question::Refusal("q-1".to_owned())));
        let explain =
            |method: &str, url: &str| KeyResult::Ask(Question::Explain(method.to_owned(), url.to_owned()));
        assert_eq!(pressed(&mut view, "epost /a b\n"), explain("POST", "/a b"));
        assert_eq!(pressed(&mut view, "e/a\n"), explain("GET", "/a"));
        view.hear(Update::Answer("because".to_owned()));
        assert_eq!(view.answer.as_deref(), Some("because"));
        assert_eq!(pressed(&mut view, "/\n"), KeyResult::Go, "nothing was typed");
        assert_eq!(pressed(&mut view, "\x1b"), KeyResult::Go);
        assert_eq!(view.answer, None);
        view.hear(Update::Answer("too late".to_owned()));
        assert_eq!(view.answer, None);
        assert_eq!(pressed(&mut view, "q"), KeyResult::Leave);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        pressed(&mut view, "/");
        assert_eq!(view.press(interrupt), KeyResult::Leave);
    }

    #[test]
    fn the_history_is_bounded_and_has_no_moment_without_a_rate() {
        let mut view = View::new(String::new());
        let event = |seconds| {
            json!({ "seconds": seconds, "requests": { "per-second": 4.0 },
            "policies": { "busiest": [{ "denied": 1.0 }], "others": { "count": 1, "penalised": 2.0 } } })
        };
        view.hear(Update::Summary(event(0.0)));
        assert!(view.history.is_empty());
        (0..MOMENTS + 9).for_each(|_| view.hear(Update::Summary(event(1.0))));
        assert_eq!((view.history.len(), view.history[0]), (MOMENTS, [4, 3]));
    }
}
