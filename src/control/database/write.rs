//! One change: a transaction that takes the next version, changes a row, and says so to the other nodes and to the audit log.
//! All of it is written, or nothing.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tokio::time::{Instant, sleep};

use base::clock;

use super::connection::connections::Session;
use super::connection::sql::SqlQuery;
use super::error::Error;
use super::handle::{CALL_MAX, Database};
use super::id;
use super::time::Time;

/// Who changes something, for the audit log.
#[derive(Clone, Debug)]
pub struct Actor {
    /// The name of the token or certificate.
    pub who: String,
    /// The address that the request came from.
    pub from: Option<IpAddr>,
    /// The request's id, as its answer and the gateway's log have it.
    pub request_id: String,
    /// Of a request that may come again and must act once.
    pub once: Option<IdempotentRequest>,
}

/// A request under an `Idempotency-Key`. Keys are each actor's own and are kept for a day.
#[derive(Clone, Debug)]
pub struct IdempotentRequest {
    /// The key, up to 256 characters.
    pub key: String,
    /// What tells this request from others under the same key, such as a digest of its method, path and body.
    pub request: String,
}

/// What kind of row a change is about: one of `policies`, `rate_limit_configs`, `user_rate_tiers`,
/// `rate_limit_overrides`, `api_keys` or `count_resets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RowKind {
    Policy,
    Tier,
    Assignment,
    Override,
    ApiKey,
    Reset,
}

impl RowKind {
    const WORDS: [(RowKind, &str); 6] = [
        (RowKind::Policy, "policy"),
        (RowKind::Tier, "tier"),
        (RowKind::Assignment, "assignment"),
        (RowKind::Override, "override"),
        (RowKind::ApiKey, "api-key"),
        (RowKind::Reset, "reset"),
    ];

    /// The word in `changes`.
    pub fn word(self) -> &'static str {
        RowKind::WORDS[self as usize].1
    }

    /// The word in front of an audited id: a grant is kept as a reset is, and is none to who reads of it.
    fn audited(self) -> &'static str {
        if self == RowKind::Reset { "usage" } else { self.word() }
    }

    pub(super) fn of(word: &str) -> Option<RowKind> {
        RowKind::WORDS.into_iter().find(|(_, known)| *known == word).map(|(kind, _)| kind)
    }
}

/// Which version of a row a change is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Anything,
    /// There must be no row: `If-None-Match: *`.
    Nothing,
    /// There must be a row: `If-Match: *`.
    Something,
    /// The row must have this version: `If-Match`.
    Version(i64),
}

impl Expect {
    /// Whether a row at this version, or none, is what is expected.
    pub fn is_met(self, present: Option<i64>) -> bool {
        match self {
            Expect::Anything => true,
            Expect::Nothing => present.is_none(),
            Expect::Something => present.is_some(),
            Expect::Version(version) => present == Some(version),
        }
    }

    /// # Errors
    /// [`Error::Conflict`] if the present row is another.
    pub(super) fn check(self, present: Option<i64>) -> Result<(), Error> {
        if self.is_met(present) { Ok(()) } else { Err(Error::Conflict { version: present }) }
    }
}

/// A transaction that is being made. Dropped before [`WriteTransaction::commit`] it never was.
pub(super) struct WriteTransaction<'a> {
    pub(super) session: Session,
    database: &'a Database,
    by: &'a Actor,
    pub(super) version: i64,
    pub(super) at: Time,
    deadline: Instant,
}

/// A request that may come again, at its beginning.
pub(super) enum WriteStart<'a, T> {
    /// It has not come before, and goes on.
    New(WriteTransaction<'a>),
    /// It has, and this was the answer.
    Repeated(T),
}

pub struct ChangeEntry {
    pub(super) kind: RowKind,
    /// The row's key, as `changes` has it.
    pub(super) id: String,
    /// The row's key, as the audit log shows it.
    pub(super) shown: String,
    pub(super) action: &'static str,
    pub(super) old: Option<Json>,
    pub(super) new: Option<Json>,
}

impl ChangeEntry {
    pub(super) fn of<T: Serialize>(kind: RowKind, id: &str, old: Option<&T>, new: Option<&T>) -> ChangeEntry {
        let action = match (old, new) {
            (None, _) => "create",
            (Some(_), Some(_)) => "replace",
            (Some(_), None) => "delete",
        };
        // This does not fail, because rows are made of texts and numbers, which JSON can hold.
        let json = |row: Option<&T>| row.and_then(|row| serde_json::to_value(row).ok());
        ChangeEntry { kind, id: id.to_owned(), shown: id.to_owned(), action, old: json(old), new: json(new) }
    }
}

impl<'a> WriteTransaction<'a> {
    /// Begins one, and waits for its turn behind other writers.
    pub(super) async fn begin(database: &'a Database, by: &'a Actor) -> Result<WriteTransaction<'a>, Error> {
        let turn = "UPDATE control_version SET version = version + 1 RETURNING version";
        let deadline = Instant::from_std(clock::instant()) + CALL_MAX;
        let mut session = database.connections.session(WRITE_MAX).await?;
        session.begin_writing().await?;
        let Some(row) = session.one(SqlQuery::new(turn)).await? else {
            let place = Arc::clone(&database.connections.place);
            return Err(Error::Tables { place, reason: "control_version has no row".to_owned() });
        };
        let version = row.get("version")?;
        // Read behind the lock, so that the order of times is that of versions as far as the nodes' clocks agree.
        Ok(WriteTransaction { session, database, by, version, at: Time::now(), deadline })
    }

    /// Begins one, unless the same request has been answered before.
    ///
    /// # Errors
    /// [`Error::KeyReused`] if another request had the idempotency key.
    pub(super) async fn begin_once<T: DeserializeOwned>(
        database: &'a Database,
        by: &'a Actor,
    ) -> Result<WriteStart<'a, T>, Error> {
        let mut write = WriteTransaction::begin(database, by).await?;
        let Some(once) = &by.once else { return Ok(WriteStart::New(write)) };
        let query = "SELECT request, answer FROM idempotency_keys WHERE who = $1 AND key = $2 AND at > $3";
        let query = SqlQuery::new(query)
            .with(by.who.as_str())
            .with(once.key.as_str())
            .with(write.at.before(ONCE_KEPT));
        let Some(row) = write.session.one(query).await? else { return Ok(WriteStart::New(write)) };
        if row.get::<String>("request")? != once.request {
            return Err(write.refuse(Error::KeyReused).await);
        }
        let answer = serde_json::from_value(row.get("answer")?);
        write.undo().await;
        answer
            .map(WriteStart::Repeated)
            .map_err(|_| row.wrong("idempotency_keys holds a response in an unknown format"))
    }

    /// Undoes it for an error of the client's, and keeps the connection for the next call.
    pub(super) async fn refuse(self, error: Error) -> Error {
        self.undo().await;
        error
    }

    pub(super) async fn undo(self) {
        // An error is ignored, because a connection that cannot undo is closed, which undoes.
        _ = self.session.finish("ROLLBACK").await;
    }

    pub(super) async fn name(&mut self, kind: RowKind, id: &str) -> Result<(), Error> {
        let change = SqlQuery::new("INSERT INTO changes (version, kind, id, at) VALUES ($1, $2, $3, $4)")
            .with(self.version)
            .with(kind.word())
            .with(id)
            .with(self.at);
        self.session.execute(change).await.map(drop)
    }

    /// Records the change, tells the listeners, and makes it hold. `answer` is what the caller gets, now and if the same
    /// request comes again.
    pub(super) async fn commit<T: Serialize>(mut self, entry: ChangeEntry, answer: T) -> Result<T, Error> {
        self.name(entry.kind, &entry.id).await?;
        if self.session.has_listeners() {
            let hint = SqlQuery::new("SELECT pg_notify('sluicegate', $1)").with(self.version.to_string());
            self.session.all(hint).await?;
        }
        let id = id::new(self.at, self.version);
        let audited = "INSERT INTO audit_log (id, at, who, from_address, action, what, old, new, request_id) \
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let audited = SqlQuery::new(audited)
            .with(id.as_str())
            .with(self.at)
            .with(self.by.who.as_str())
            .with(self.by.from.map(|address| address.to_string()))
            .with(entry.action)
            .with(format!("{}/{}", entry.kind.audited(), entry.shown))
            .with(entry.old)
            .with(entry.new)
            .with(self.by.request_id.as_str());
        self.session.execute(audited).await?;
        if let Some(once) = &self.by.once {
            let answer = serde_json::to_value(&answer).unwrap_or_default();
            // In its place, because a key that is there by now is one that nobody has used for a day.
            let keep = "INSERT INTO idempotency_keys (who, key, request, answer, at) VALUES ($1, $2, $3, $4, $5) \
                        ON CONFLICT (who, key) DO UPDATE \
                        SET request = excluded.request, answer = excluded.answer, at = excluded.at";
            let keep = SqlQuery::new(keep)
                .with(self.by.who.as_str())
                .with(once.key.as_str())
                .with(once.request.as_str())
                .with(answer)
                .with(self.at);
            self.session.execute(keep).await?;
        }
        let WriteTransaction { session, database, version, deadline, .. } = self;
        match session.finish("COMMIT").await {
            Err(error) if error.is_outage() => find_out(database, &id, deadline).await?,
            ended => ended?,
        }
        // The greater one, because of two that were committed at once the second may come here first.
        database.committed.send_modify(|last| *last = version.max(*last));
        Ok(answer)
    }
}

/// Whether a commit that was not answered was made: its entry in the audit log is there, or never will be. The connection
/// of the commit is closed before another is asked for, because as many writers as there are connections may stand here.
async fn find_out(database: &Database, id: &str, deadline: Instant) -> Result<(), Error> {
    loop {
        let left = deadline.saturating_duration_since(Instant::from_std(clock::instant()));
        match is_audited(database, id, left).await {
            Ok(true) => return Ok(()),
            Ok(false) => {
                return Err(database.connections.unreachable("the connection broke, nothing was written"));
            }
            Err(_) if left > ASK_AGAIN => sleep(ASK_AGAIN).await,
            Err(_) => return Err(Error::Unknown { place: Arc::clone(&database.connections.place) }),
        }
    }
}

/// Looks for an entry of the audit log behind the lock that every writer holds until it is done, so that a commit
/// that the database has received is over then.
async fn is_audited(database: &Database, id: &str, within: Duration) -> Result<bool, Error> {
    let mut session = database.connections.session(within).await?;
    session.begin_writing().await?;
    session.execute(SqlQuery::new("UPDATE control_version SET version = version")).await?;
    let found = session.one(SqlQuery::new("SELECT id FROM audit_log WHERE id = $1").with(id)).await?;
    session.finish("ROLLBACK").await?;
    Ok(found.is_some())
}

/// The most that a change takes until it is committed. What is left of [`CALL_MAX`] is for finding out whether it was.
const WRITE_MAX: Duration = Duration::from_secs(3);
const ASK_AGAIN: Duration = Duration::from_millis(50);
pub(super) const ONCE_KEPT: Duration = Duration::from_secs(24 * 3_600);
