//! What a node and Redis say to each other of shared keys. Plain values; how they travel is the global tier's.
//!
//! Redis has the only clock: a node is told durations, which it counts from when it asked.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Charge, Key, Outcome, Plan};

/// What a node asks Redis about its shared windows.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A lease: what the node used and wants of one key.
    Renew(Renewal),
    /// All or none of these, at once: exact windows that live on one shard.
    Take(SmallVec<[ExactCharge; 2]>),
    /// Undoes a `Take`, or ends what a concurrency window counted. Applied at most once.
    Return {
        /// The charges that were taken, with the units that go back.
        parts: SmallVec<[ExactCharge; 2]>,
        /// When they were taken, microseconds of Redis's clock, as `TakeReply::at_us` said.
        taken_us: u64,
    },
    /// What is left, with nothing spent: for operators.
    Peek(ExactCharge),
    /// Spends what is known only now, whether it fits or not.
    Debit(SmallVec<[ExactCharge; 2]>),
    /// Counts what a node admitted before Redis refused it, or what is kept in mind: as `Debit`, but no more than one whole
    /// limit is owed then.
    Repay(SmallVec<[ExactCharge; 2]>),
    /// Counts what a node admitted while Redis was away, in the window in which it was spent and as much of it as is left: an
    /// outage keeps nobody out of a window after it.
    Report {
        /// What was admitted, with its units.
        parts: SmallVec<[ExactCharge; 2]>,
        /// When the last of it was, microseconds of Redis's clock.
        spent_us: u64,
    },
    /// What Redis holds of one window, for operators: nothing is spent and nothing written.
    Look(ExactCharge),
    /// All this node has in flight of one window, and `cost` more if they fit. Answered as a `Take`.
    Hold(Hold),
}

/// What a node has in flight of a concurrency window. It is said in full each time, so that what is said twice, or
/// lost, is right again with the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// The window, and the units it wants more; 0: none, it gave some back or says that it is still there.
    pub part: ExactCharge,
    /// Units that the node's requests hold, all of them together.
    pub held: u64,
    /// How long it holds them unless it says so again, microseconds.
    pub lasts_us: u64,
}

/// One exact charge, as Redis is asked for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ExactCharge {
    /// The key that Redis counts the window by.
    pub key: Key,
    /// The window, and how the fleet shares it.
    pub plan: Arc<Plan>,
    /// Units that the charge takes.
    pub cost: u64,
    /// Counted and reported; it keeps no other part from being taken.
    pub shadow: bool,
    /// Counted even when it is refused (`count-denied`).
    pub count_denied: bool,
}

impl ExactCharge {
    /// A charge as Redis is asked for it.
    pub fn of(charge: &Charge, plan: &Arc<Plan>) -> ExactCharge {
        ExactCharge {
            key: charge.key,
            plan: Arc::clone(plan),
            cost: charge.cost,
            shadow: charge.is_lenient(),
            count_denied: charge.count_denied,
        }
    }
}

/// What a node says of its share of one key. Rates are units a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Renewal {
    /// The key of the window that is leased.
    pub key: Key,
    /// The window, and how the fleet shares it.
    pub plan: Arc<Plan>,
    /// The epoch of the lease it holds, 24 bits; 0: it holds none.
    pub epoch: u32,
    /// The demand that the node has measured.
    pub demand: f64,
    /// The demand it told earlier in that epoch.
    pub reported: f64,
    /// The rate that accrues to the lease it holds.
    pub rate: f64,
    /// Units that requests wait for: each is granted all it costs, or nothing.
    pub pending: u64,
    /// What each of them costs, in the order in which they came; none: a unit each.
    pub costs: SmallVec<[u64; 2]>,
    /// Units it could use at once beyond its demand; 0: none.
    pub hint: f64,
    /// Units it has spent since its last report, no more than it has, and without those that requests waited for.
    pub spent: f64,
    /// How many of these would have refilled since, had Redis known. As far as the bucket was too full to refill then, it
    /// refills now.
    pub refilled: f64,
    /// Units it spent without holding them, less those it gives back.
    pub delta: f64,
    /// Units that it holds and keeps for requests to come.
    pub keep: f64,
    /// It wants no lease any more: its rate goes back too.
    pub release: bool,
    /// It wants a lease even of a limit so small that others may miss what it holds: there are no others, or answers
    /// take long.
    pub ahead: bool,
}

impl Renewal {
    /// A report of units that were spent without a lease, or come back (negative), by a node that wants none.
    pub fn report(key: Key, plan: Arc<Plan>, units: f64) -> Renewal {
        Renewal {
            key,
            plan,
            epoch: 0,
            demand: 0.0,
            reported: 0.0,
            rate: 0.0,
            pending: 0,
            costs: SmallVec::new(),
            hint: 0.0,
            // Said to be granted before, so that it does not count as held by anybody.
            spent: units,
            refilled: 0.0,
            delta: units,
            keep: 0.0,
            release: true,
            ahead: false,
        }
    }
}

/// What Redis gives in answer to a renewal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Grant {
    /// The epoch it is for, 1 to 2^24 - 1.
    pub epoch: u32,
    /// Units that the node may spend without asking.
    pub tokens: f64,
    /// Units a second that accrue to the node until the lease ends.
    pub rate: f64,
    /// The lease's life from when the node asked, nanoseconds.
    pub lasts_ns: u64,
    /// When out of tokens, the node denies for so long from when it asked, nanoseconds; 0: it asks.
    pub deny_ns: u64,
    /// What is left in Redis, units; negative while debts are repaid.
    pub level: f64,
    /// How long those who waited and were refused have to wait, as far as a node cannot know it, from when it asked,
    /// nanoseconds.
    pub wait_ns: u64,
}

/// What Redis did with a `Take`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TakeReply {
    /// When it did so: Redis's clock, microseconds since 1970.
    pub at_us: u64,
    /// What each part's window said, in their order.
    pub outcomes: SmallVec<[Outcome; 2]>,
    /// Whether the parts were taken (those that only count are taken even when not).
    pub admitted: bool,
}

/// What Redis answers, each to its kind of question.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The answer to `Renew`: units and a rate, or for how long to deny.
    Grant(Grant),
    /// The answer to `Take` and `Hold`: whether all fit, and what each window said.
    Taken(TakeReply),
    /// The answer to `Return`, `Debit`, `Repay` and `Report`: it was applied.
    Returned,
    /// The answer to `Peek`: what a charge would be told.
    Peeked(Outcome),
    /// The answer to `Look`: what operators are shown.
    Seen(WindowRecord),
}

/// What Redis holds of one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowRecord {
    /// What is left, and what a charge would be told.
    pub left: WindowBalance,
    /// For how long its record is as it is, nanoseconds; `None`: there is none, or it does not say.
    pub unchanged_ns: Option<u64>,
}

/// What is left of a window in Redis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowBalance {
    /// Every admission is Redis's: the answer to the charge that was asked about.
    Exact(Outcome),
    /// Nodes hold leases of it, so what is left is in part with them.
    Leased(LentWindow),
}

/// A window of which nodes hold leases, as Redis knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LentWindow {
    /// Units that nobody holds; negative while debts are repaid.
    pub level: f64,
    /// Units the nodes hold, as far as they have told.
    pub out: f64,
    /// Units a second that accrue to nodes until the epoch ends.
    pub promised: f64,
    /// Nodes that told of themselves in this epoch or in the last, whichever were more.
    pub nodes: u32,
    /// How long the epoch goes on, nanoseconds.
    pub lasts_ns: u64,
}

/// Why there is no answer, and what is known of the question: it was certainly not acted upon, or nobody knows. It was
/// never acted upon twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Nothing was sent: the shard is known to be away, or the way to it is full. It was not acted upon.
    #[error("the shard is unreachable")]
    Down,
    /// It was sent, and whether it was acted upon is unknown.
    ///
    /// For `Take`, `Hold`, `Peek` and `Look`, which are sent once: nothing came back within a second, or the connection
    /// broke. `Renew`, `Return`, `Debit` and `Report` are sent again until there is an answer, over whatever connections and to
    /// whichever server has the shard by then. They end so only in these cases:
    /// - there was no answer for five minutes
    /// - this process ended while it waited
    /// - their slot of a cluster was on its way to another node, so that they were sent without a record, and the
    ///   connection broke
    /// - Redis forgot the record to make room for others (`maxmemory-policy` is not `noeviction`)
    /// - what came back was no reply
    ///
    /// A server that lost its data lost the effect and the record of it together, so what is sent again counts once in
    /// what it holds now.
    #[error("no answer came in time")]
    Lost,
    /// The shard refused all of it: it is loading, a replica, out of memory, or cannot make sense of it. It was not
    /// acted upon.
    #[error("the shard refused")]
    Refused,
}

impl LinkError {
    /// Whether the question was certainly not acted upon.
    pub fn is_undone(self) -> bool {
        match self {
            LinkError::Down | LinkError::Refused => true,
            LinkError::Lost => false,
        }
    }
}
