//! `sluicegate ctl audit`.

use super::call::{Call, Column, View};
use crate::tips::whole;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Changes by this token
    #[arg(long)]
    who: Option<String>,
    /// Changes of a row, such as override/01H…, or of a kind, such as override
    #[arg(long)]
    what: Option<String>,
    /// Changes since this time, such as 2026-11-01T00:00:00Z
    #[arg(long)]
    since: Option<String>,
    /// The maximum number of rows to show
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = whole::<u32>(..))]
    limit: u32,
}

impl Arguments {
    pub(super) fn call(&self) -> Call {
        Call::get(&["v1", "audit"], View::List("changes", COLUMNS))
            .with("who", self.who.as_ref())
            .with("what", self.what.as_ref())
            .with("since", self.since.as_ref())
            .with("limit", Some(self.limit))
    }
}

const COLUMNS: &[Column] = &[
    ("AT", "at"),
    ("WHO", "who"),
    ("FROM", "from-address"),
    ("ACTION", "action"),
    ("WHAT", "what"),
    ("REQUEST", "request-id"),
];
