//! What is heard of changes that other nodes make.

use std::time::Duration;

use super::error::Error;

/// What was heard last. Many hints at once are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestHint {
    /// The version that the last hint named; `None`: no hint yet, or one that named none.
    pub version: Option<i64>,
    /// Whether hints can be heard now. After a time without, anything may have changed.
    pub ear: HintConnection,
}

/// The connection that hints come by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HintConnection {
    /// It is being made for the first time.
    Opening,
    /// What this node tells itself comes back by it.
    Open,
    /// It is lost, could not be made, or brings nothing, as behind a pooler of transactions. It is tried again as long
    /// as there are `DatabaseHints`.
    Lost(Error),
}

/// The channel of `NOTIFY` on which nodes tell of changes.
pub const CHANNEL: &str = "sluicegate";
/// How often it is tested whether hints come.
pub const HINTS_TESTED_EACH: Duration = Duration::from_secs(30);
