//! What a collector makes of a batch of spans: it takes them, or says why not.
#![cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "no collector says anything"))]

use std::time::Duration;

use net::fetch;

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// It can be sent again.
    #[error(transparent)]
    Away(#[from] fetch::Error),
    /// It can be sent again, and perhaps the collector has said when.
    #[error("the collector cannot take spans now: {status}{}", said(words))]
    Busy {
        /// Of HTTP or of gRPC.
        status: String,
        /// Its own, if it says any.
        words: String,
        again: Option<Duration>,
    },
    /// The collector will never take it.
    #[error("the collector refuses spans: {status}{}", said(words))]
    Refused {
        /// Of HTTP or of gRPC.
        status: String,
        /// Its own, if it says any.
        words: String,
    },
}

/// What a collector that took a batch says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CollectorReply {
    /// Spans that it did not take.
    pub(super) rejected: u64,
    /// Why, or another warning; often empty.
    pub(super) words: String,
}

impl Error {
    /// What tells one trouble from another: not the words, because they may differ with each batch.
    pub(super) fn kind(&self) -> String {
        match self {
            Error::Away(error) => error.to_string(),
            Error::Busy { status, .. } | Error::Refused { status, .. } => status.clone(),
        }
    }

    pub(super) fn refused(status: impl Into<String>) -> Error {
        Error::Refused { status: status.into(), words: String::new() }
    }
}

fn said(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(": {words}") }
}
