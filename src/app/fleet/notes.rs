//! The notes that nodes of a fleet leave for each other while certificates are ordered: `acme` asks, `global` answers.

use std::time::Duration;

use acme::{FleetNotes, NotesAnswer, NotesUnavailable};
use limiter::global::{self, NoteError};

pub(crate) struct InRedis(pub(crate) global::Notes);

impl FleetNotes for InRedis {
    fn take<'a>(&'a self, name: &'a str, holder: &'a str, lasts: Duration) -> NotesAnswer<'a, bool> {
        Box::pin(async move { self.0.take(name, holder, lasts).await.map_err(away) })
    }

    fn give_back<'a>(&'a self, name: &'a str, holder: &'a str) -> NotesAnswer<'a, ()> {
        Box::pin(async move { self.0.give_back(name, holder).await.map_err(away) })
    }

    fn put<'a>(&'a self, name: &'a str, value: &'a [u8], lasts: Duration) -> NotesAnswer<'a, ()> {
        Box::pin(async move { self.0.put(name, value, lasts).await.map_err(away) })
    }

    fn get<'a>(&'a self, name: &'a str) -> NotesAnswer<'a, Option<Vec<u8>>> {
        Box::pin(async move { self.0.get(name).await.map_err(away) })
    }

    fn remove<'a>(&'a self, name: &'a str) -> NotesAnswer<'a, ()> {
        Box::pin(async move { self.0.remove(name).await.map_err(away) })
    }
}

fn away(error: NoteError) -> NotesUnavailable {
    NotesUnavailable(error.to_string())
}
