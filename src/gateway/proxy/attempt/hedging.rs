//! Two tries under way at once: when a second one begins, and which of the two decides.

use std::rc::Rc;
use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::UPGRADE;
use tokio::time::timeout;

use super::hedge::{ConnectedTry, HedgeTry, PendingTry};
use super::{ResendBody, TryConnection, TryOutcome, UpstreamAttempt};
use crate::proxy::facts::UpstreamServer;
use crate::proxy::request::request_body::RequestBody;
use crate::service::refusal::Refusal;
use base::clock;
use upstream::balance::ServerPreference;
use upstream::pool::AcquireError;
use upstream::request::RequestHead;
use upstream::{Checkout, ServerIndex};

impl UpstreamAttempt<'_> {
    /// Whether a second server may be asked while the first has not answered. A client that a cookie keeps at its server stays
    /// there, and a switch of protocols is not begun twice.
    pub(super) fn may_hedge(&self, head: &RequestHead) -> bool {
        self.wish.kept.is_none() && !head.headers.contains_key(UPGRADE)
    }

    /// Tries a server, and one other as well if no head of an answer has come `after` that. `None`: the request is to be sent
    /// again.
    pub(super) async fn hedged(
        &mut self,
        after: Duration,
        head: &mut RequestHead,
        names_server: bool,
    ) -> Result<Option<(StatusCode, Checkout<RequestBody>)>, Refusal> {
        let now = self.context.facts.started + self.context.attempts.steps.ready();
        let anew = self.anew.take();
        let server = anew.unwrap_or_else(|| self.pool.choose(self.wish, now));
        let mut first = self.try_at(server, anew.is_some(), head, names_server, now);
        // Noted before the answer, because that is where its request was if the client leaves.
        self.context.attempts.server = Some(UpstreamServer { upstream: self.upstream, server });
        self.context.attempts.is_awaiting_head = true;
        let tried = match timeout(after, &mut first).await {
            Ok(tried) => tried,
            Err(_) => match self.hedge(server, head, names_server) {
                Some(second) => self.race(first, second).await,
                None => first.await,
            },
        };
        self.context.attempts.is_awaiting_head = false;
        let tried = match tried {
            Ok(tried) => tried,
            Err(error) => {
                self.wish.avoid = self.not_acquired(&error)?;
                return Ok(None);
            }
        };
        self.tried(&tried);
        let ConnectedTry { checkout, head: answered, result, .. } = tried;
        let used = TryConnection::of(&checkout);
        match self.conclude(used, result, &answered.headers, true, ResendBody::Empty)? {
            TryOutcome::Answered(status) => {
                *head = answered;
                Ok(Some((status, checkout)))
            }
            TryOutcome::Again(_) => {
                checkout.discard(clock::instant());
                self.wish.avoid = Some(used.server);
                Ok(None)
            }
        }
    }

    fn try_at(
        &self,
        server: ServerIndex,
        is_new: bool,
        head: &RequestHead,
        names_server: bool,
        now: Instant,
    ) -> PendingTry {
        let tried = HedgeTry {
            pool: Rc::clone(&self.pool),
            server,
            is_new,
            head: head.clone(),
            names_server,
            response: self.response_time(self.may_retry()),
            ends: self.context.ends(),
        };
        tried.begin(now)
    }

    /// A second try at another server, if one may be used and the budget allows it.
    fn hedge(&mut self, first: ServerIndex, head: &RequestHead, names_server: bool) -> Option<PendingTry> {
        let now = clock::instant();
        if !(self.pool.has_usable_server_beside(first, now) && self.again()) {
            return None;
        }
        let server = self.pool.choose(ServerPreference { avoid: Some(first), ..self.wish }, now);
        Some(self.try_at(server, false, head, names_server, now))
    }

    /// The first of two tries that brings an answer to go on with. The other one is dropped, which closes its connection or
    /// resets its stream, and is not held against its server. If one comes to nothing, the other decides.
    async fn race(
        &mut self,
        mut first: PendingTry,
        mut second: PendingTry,
    ) -> Result<ConnectedTry, AcquireError> {
        let (ended, other, is_second) = tokio::select! {
            biased;
            tried = &mut first => (tried, second, false),
            tried = &mut second => (tried, first, true),
        };
        let on_status = &self.retry().on_status;
        let is_good = |tried: &ConnectedTry| {
            tried.result.as_ref().is_ok_and(|status| !on_status.contains(status.as_u16()))
        };
        let (decides, is_hedge) = if ended.as_ref().is_ok_and(is_good) {
            drop(other);
            self.count().exchanged(self.cells(), metrics::ExchangeOutcome::Cancelled);
            (ended, is_second)
        } else {
            self.came_to_nothing(ended);
            (other.await, !is_second)
        };
        let is_won = is_hedge && decides.as_ref().is_ok_and(|tried| tried.result.is_ok());
        self.count().hedged(self.cells(), is_won);
        decides
    }

    /// Counts a try that has failed while another one is under way.
    fn came_to_nothing(&mut self, ended: Result<ConnectedTry, AcquireError>) {
        let tried = match ended {
            Ok(tried) => tried,
            Err(error) => {
                self.no_connection(&error);
                return;
            }
        };
        self.tried(&tried);
        // A refusal is dropped, because it would be the client's answer only if there were no other try.
        let ConnectedTry { checkout, head, result, .. } = tried;
        if let Ok(TryOutcome::Answered(_)) =
            self.conclude(TryConnection::of(&checkout), result, &head.headers, false, ResendBody::Empty)
        {
            self.forgo_answer();
            checkout.discard(clock::instant());
        }
    }

    /// Notes where the time of a try went.
    fn tried(&mut self, tried: &ConnectedTry) {
        self.connected(&tried.checkout);
        let sent = tried.sent_at.saturating_duration_since(self.context.facts.started);
        self.context.attempts.steps.sent = sent.as_nanos() as u64;
    }
}
