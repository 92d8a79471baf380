//! What the gateway says: its events, and answers to questions. Two threads ask; both end with the process, which has
//! nothing to wait for.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::admin_client::{self, AdminClient, encoded};
use control::admin::{DecisionList, HotKeyList};

#[derive(Debug)]
pub(super) enum Update {
    Summary(Value),
    /// There are no events, and why.
    Away(String),
    /// `/v1/hot-keys`, or why there are none.
    HotKeyList(Result<HotKeyList, String>),
    /// `/v1/decisions`, or why there are none.
    Decisions(Result<DecisionList, String>),
    /// The text that answers a question.
    Answer(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Why the request of this id was refused.
    Refusal(String),
    /// What would happen to a request: its method and its URL.
    Explain(String, String),
}

/// Begins to ask. Questions are answered one after the other.
///
/// # Errors
/// If a thread does not start.
pub(super) fn start(client: AdminClient, tell: &Sender<Update>) -> std::io::Result<Sender<Question>> {
    let client = Arc::new(client);
    let (following, telling) = (Arc::clone(&client), tell.clone());
    thread::Builder::new().name("events".to_owned()).spawn(move || follow(&following, &telling))?;
    let (ask, asked) = mpsc::channel();
    let tell = tell.clone();
    thread::Builder::new().name("questions".to_owned()).spawn(move || {
        loop {
            let told = match asked.recv_timeout(ASK_EVERY) {
                Ok(question) => tell.send(Update::Answer(answer(&client, &question))),
                Err(RecvTimeoutError::Timeout) => look(&client, &tell),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if told.is_err() {
                return;
            }
        }
    })?;
    Ok(ask)
}

/// Follows the events, and asks again whenever they end.
fn follow(client: &AdminClient, tell: &Sender<Update>) {
    let mut is_heard = true;
    while is_heard {
        let mut events = Events::default();
        let followed = client.follow("/v1/live", &mut |piece| {
            is_heard =
                events.of(piece).into_iter().all(|summary| tell.send(Update::Summary(summary)).is_ok());
            is_heard
        });
        let why = followed.map_or_else(|error| app::error_chain(&error), |()| "reconnecting".to_owned());
        is_heard = is_heard && tell.send(Update::Away(why)).is_ok();
        // A pause, so that a gateway that is away is not asked without end.
        thread::sleep(AGAIN_AFTER);
    }
}

fn look(client: &AdminClient, tell: &Sender<Update>) -> Result<(), mpsc::SendError<Update>> {
    tell.send(Update::HotKeyList(ask(client, "/v1/hot-keys?limit=5")))?;
    tell.send(Update::Decisions(ask(client, "/v1/decisions?refused=true&limit=200")))
}

fn answer(client: &AdminClient, question: &Question) -> String {
    let target = match question {
        Question::Refusal(id) => format!("/v1/decisions/{}", encoded(id)),
        Question::Explain(method, url) => {
            admin_client::target("/v1/explain", [("method", method), ("url", url)])
        }
    };
    match client.read(&target) {
        Ok(answer) => answer["text"].as_str().unwrap_or_default().to_owned(),
        Err(error) => app::error_chain(&error),
    }
}

/// A good answer, or the reason of another.
fn ask<T: DeserializeOwned>(client: &AdminClient, target: &str) -> Result<T, String> {
    let answer = client.read(target).map_err(|error| app::error_chain(&error))?;
    serde_json::from_value(answer).map_err(|error| {
        format!("the gateway's response cannot be read, it may have another version: {error}")
    })
}

/// Takes server-sent events apart, of which a piece may hold a part or several.
#[derive(Default)]
struct Events(Vec<u8>);

impl Events {
    fn of(&mut self, piece: &[u8]) -> Vec<Value> {
        self.0.extend_from_slice(piece);
        let mut found = Vec::new();
        while let Some(end) = self.0.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = self.0.drain(..end + 2).collect();
            let data = event.strip_prefix(b"data: ").and_then(|data| serde_json::from_slice(data).ok());
            found.extend(data);
        }
        // Given up, so that what is no event does not fill memory.
        if self.0.len() > EVENT_BYTES_MAX {
            self.0.clear();
        }
        found
    }
}

/// How often keys and refusals are asked for.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// Before a stream that has ended is asked for again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Far more than any event has.
const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_found_however_they_are_split() {
        let text = b"data: {\"a\":1}\n\n: nothing\n\ndata: {\"a\":2}\n\n";
        for size in 1..=text.len() {
            let mut events = Events::default();
            let found: Vec<Value> = text.chunks(size).flat_map(|piece| events.of(piece)).collect();
            assert_eq!(found, [json!({ "a": 1 }), json!({ "a": 2 })], "{size}");
        }
    }
}
