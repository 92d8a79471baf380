//! What endpoints need to change things while traffic runs, as `app` fills it in.

use std::collections::BTreeMap;

use serde_json::Value;

use super::api::Flaw;
use super::state::Asked;
use crate::database::{self, Database, NewTierLimit, Time, UsageHolder};
use metrics::usage::Amount;
use policy::Holder;

/// The database, and how a change comes into force.
#[derive(derive_more::Debug)]
#[debug("ControlPlane({writes:?})")]
pub struct ControlPlane {
    /// The database; `None` while it has not been reached since the start.
    pub database: Box<dyn Fn() -> Option<Database> + Send + Sync>,
    pub writes: Writes,
    /// Called after each change, so that this node looks for it at once.
    pub changed: Box<dyn Fn() + Send + Sync>,
    /// Waits until this node has everything up to a version in force; `false` if that cannot be.
    pub applied: Asked<i64, bool>,
    /// Says everything that would be wrong with the configuration if a row were as proposed.
    pub check: Asked<Proposal, Result<(), Vec<Flaw>>>,
    /// How this node stands to the database, in a line for `/readyz?verbose`.
    pub sentence: Box<dyn Fn() -> String + Send + Sync>,
    /// Why a file keeps policies and tiers of the database out of force; `None`: none does.
    pub stuck: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Reads usage by the minute. `None`: none is counted.
    pub minutes: Option<Asked<(Database, MinutesQuery), Result<UsageMinutes, database::Error>>>,
}

/// A row that goes before what files say, as it would be.
#[derive(Clone, Debug)]
pub enum Proposal {
    Policy {
        name: String,
        /// Its keys; `None`: it is not there.
        document: Option<Value>,
    },
    Tier {
        tier: String,
        resource: String,
        /// The limit; `None`: it is not there.
        limit: Option<NewTierLimit>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinutesQuery {
    pub holder: Holder,
    /// Only as a consumer acts for this tenant.
    pub tenant: Option<String>,
    /// The first and the last policy, by name.
    pub policies: (String, String),
    /// The last so many, the one that runs among them.
    pub minutes: u64,
}

impl MinutesQuery {
    /// Whose they are, as the database knows them.
    pub fn holder(&self) -> UsageHolder<'_> {
        match &self.holder {
            Holder::Consumer(name) => UsageHolder::Consumer(name, self.tenant.as_deref()),
            Holder::Tenant(name) => UsageHolder::Tenant(name),
        }
    }
}

/// What was decided in each minute, by when it began.
pub type ByMinute = BTreeMap<Time, Amount>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageMinutes {
    /// Of each policy, by name. Without minutes in which nothing was decided.
    pub policies: BTreeMap<String, ByMinute>,
    /// Of everybody for whom there was no room.
    pub others: ByMinute,
}

/// Whether changes reach all nodes of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    Allowed,
    /// They would not: the database is a file of this machine, and limits are shared through Redis.
    OneNodeOnly,
}

/// The most minutes that are shown: those of a day.
pub(super) const MINUTES_MAX: u64 = 24 * 60;
