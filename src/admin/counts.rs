//! What endpoints need to ask and change counts, as `app` fills it in.

use std::fmt;
use std::num::NonZeroU64;
use std::pin::Pin;

use crate::database::Time;
use crate::policy::Named;
use crate::policy::definition::Dimension;

/// The counts of limits.
pub struct Counts {
    /// Decides checks, as requests are decided.
    pub check: Checks,
    /// Whether a check may say at which time it is decided.
    pub takes_time: bool,
    /// Whether a policy of this name is in force, and counts by this dimension.
    pub counts_by: Box<dyn Fn(&str, &Dimension) -> bool + Send + Sync>,
}

/// Decides checks; if the second argument is true, all of them are charged or none. Returns a verdict for each.
pub type Checks =
    Box<dyn Fn(Vec<Asked>, bool) -> Pin<Box<dyn Future<Output = Vec<Verdict>> + Send>> + Send + Sync>;

/// A question whether one subject may spend units of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The policy's name.
    pub policy: String,
    /// The subject's values.
    pub named: Named,
    /// The tier that its credential would name.
    pub tier: Option<String>,
    /// Units. `None`: what the policy charges for a request that no rule is for.
    pub cost: Option<NonZeroU64>,
    /// Whether nothing is to be spent.
    pub is_dry: bool,
    /// When it is asked. `None`: now.
    pub at: Option<Time>,
}

/// The answer to a check.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The units are spent, or would be.
    Allowed {
        /// Units left of the window that has the least; `None`: no window counts this subject.
        remaining: Option<u64>,
        /// When that window is full again.
        reset_at: Option<Time>,
        /// How long the subject has to wait in a queue before it goes on; 0: not at all.
        delay_seconds: f64,
    },
    /// Nothing is spent.
    Refused {
        /// Units left of the window that refuses for the longest.
        remaining: Option<u64>,
        /// When that window is full again.
        reset_at: Option<Time>,
        /// Seconds until every window would admit it, rounded up; `None`: one never does.
        retry_after_seconds: Option<u64>,
        /// Every window that refuses; none if it is refused with others that were asked together.
        violated: Vec<Violated>,
    },
    /// It cannot be decided: there is no such policy, or its values do not fit the policy.
    Undecided(String),
}

impl Verdict {
    /// Whether the subject may go on.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Verdict::Allowed { .. })
    }
}

/// A window that refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violated {
    /// Its policy.
    pub policy: String,
    /// Its name, as `RateLimit-Policy` has it.
    pub window: String,
    /// Units in one period.
    pub limit: u64,
    /// The period, rounded up.
    pub period_seconds: u64,
    /// Seconds until it may admit the subject, rounded up; `None`: never.
    pub retry_after_seconds: Option<u64>,
}

impl fmt::Debug for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Counts").field("takes_time", &self.takes_time).finish_non_exhaustive()
    }
}
