//! What a failed try means: what is counted, whose fault it was, whether another try may do better, and what the client is
//! told if not.

use super::{ResendBody, UpstreamAttempt};
use crate::proxy::facts::UpstreamServer;
use crate::proxy::request::gather;
use crate::proxy::request::request_body::RequestBody;
use crate::service::refusal::Refusal;
use base::cause::Cause;
use base::clock;
use upstream::connect::ConnectError;
use upstream::error::UnsentRequest;
use upstream::pool::AcquireError;
use upstream::{Error, ServerIndex};

impl UpstreamAttempt<'_> {
    /// No answer came in time; says whether there is time for another try.
    pub(super) fn timed_out(&mut self, server: ServerIndex) -> bool {
        let is_past_total = self.context.is_past_total();
        if !is_past_total {
            self.pool.failed(server, clock::now_ns());
        }
        self.count().exchanged(
            self.cells(),
            match is_past_total {
                true => metrics::ExchangeOutcome::TotalTimeout,
                false => metrics::ExchangeOutcome::ResponseTimeout,
            },
        );
        !is_past_total
    }

    /// Handles a failure to get a connection. Nothing was sent, so another server may be tried: returns the one to avoid.
    pub(super) fn not_acquired(&mut self, error: &AcquireError) -> Result<Option<ServerIndex>, Refusal> {
        let Some((refusal, server)) = self.no_connection(error) else { return Ok(self.wish.avoid) };
        // Free, because a server that takes no requests has done no work for this one.
        let is_free = matches!(refusal, Refusal::UpstreamNoStreams);
        let may_go = server.is_some() && self.retry().on_connect;
        if may_go && (is_free && self.again_unprocessed() || self.again()) {
            return Ok(server);
        }
        Err(refusal)
    }

    /// Counts a failure to get a connection. Returns how a client is told, and the server that it is the fault of, if another
    /// one may do better; `None` if the servers there are now are to be asked.
    pub(super) fn no_connection(&mut self, error: &AcquireError) -> Option<(Refusal, Option<ServerIndex>)> {
        tracing::debug!(upstream = %self.pool.upstream.config.name, %error, "connecting to the upstream failed");
        let (refusal, outcome, index) = match error {
            AcquireError::Full { wait_ns, index, .. } => {
                self.context.attempts.steps.wait += wait_ns;
                self.context.attempts.server =
                    Some(UpstreamServer { upstream: self.upstream, server: *index });
                (Refusal::UpstreamPoolFull, metrics::ExchangeOutcome::PoolExhausted, None)
            }
            AcquireError::Left { wait_ns } => {
                self.context.attempts.steps.wait += wait_ns;
                return None;
            }
            AcquireError::Late => (Refusal::UpstreamTimeout, metrics::ExchangeOutcome::TotalTimeout, None),
            AcquireError::Connect { source, index, .. } => {
                self.count().connect_failed(self.cells());
                self.context.attempts.server =
                    Some(UpstreamServer { upstream: self.upstream, server: *index });
                match source {
                    ConnectError::Unresolved => {
                        (Refusal::UpstreamUnresolved, metrics::ExchangeOutcome::Unresolved, Some(*index))
                    }
                    ConnectError::Timeout { cause, .. } => (
                        Refusal::UpstreamConnectTimeout(*cause),
                        metrics::ExchangeOutcome::ConnectTimeout,
                        Some(*index),
                    ),
                    ConnectError::Descriptors(_) => {
                        (Refusal::Overloaded, metrics::ExchangeOutcome::ConnectFailed, None)
                    }
                    // It has been waited for already, if there is no other one.
                    ConnectError::NoStreams => {
                        let is_another = self.pool.has_usable_server_beside(*index, clock::instant());
                        let elsewhere = is_another.then_some(*index);
                        (Refusal::UpstreamNoStreams, metrics::ExchangeOutcome::PoolExhausted, elsewhere)
                    }
                    // Only at another server, because the handshake would fail again at the same one. The other is
                    // checked in the same way, so that going there weakens nothing.
                    ConnectError::Tls { cause, .. } => {
                        let is_another = self.pool.has_usable_server_beside(*index, clock::instant());
                        let elsewhere = is_another.then_some(*index);
                        (Refusal::UpstreamConnect(*cause), metrics::ExchangeOutcome::ConnectFailed, elsewhere)
                    }
                    ConnectError::Io(_) | ConnectError::Http(_) => {
                        let cause = source.cause().unwrap_or(Cause::ConnectFailed);
                        let refusal = Refusal::UpstreamConnect(cause);
                        (refusal, metrics::ExchangeOutcome::ConnectFailed, Some(*index))
                    }
                }
            }
        };
        self.count().exchanged(self.cells(), outcome);
        Some((refusal, index))
    }

    /// The refusal if it was the request's own body that ended the exchange.
    pub(super) fn own_fault(&mut self) -> Result<(), Refusal> {
        let Some(refusal) = gather::body_fault(self.context) else { return Ok(()) };
        if !matches!(refusal, Refusal::BodyTooLarge) {
            self.count().exchanged(self.cells(), metrics::ExchangeOutcome::ClientGone);
        }
        Err(refusal)
    }

    /// Counts a connection that broke against its server. One that was idle may be closed at any time, and one that is shared
    /// when it has served its time; what broke then says nothing of the server.
    pub(super) fn blame(&self, server: ServerIndex, error: &Error, unsent: &UnsentRequest<RequestBody>) {
        let is_unprocessed =
            matches!(unsent, UnsentRequest::Request(_) | UnsentRequest::Unprocessed { is_graceful: true });
        if !is_unprocessed || error.is_bad_answer() || error.tls_cause().is_some() {
            self.pool.failed(server, clock::now_ns());
        }
    }

    /// Handles a connection that broke before an answer. Returns the body to send again with, if the request was never
    /// sent or may be sent twice.
    pub(super) fn broken(
        &mut self,
        server: ServerIndex,
        error: &Error,
        unsent: UnsentRequest<RequestBody>,
        may_repeat: bool,
        whole: ResendBody,
    ) -> Result<RequestBody, Refusal> {
        tracing::debug!(upstream = %self.pool.upstream.config.name, %error, "upstream connection failed before the response");
        // Looked at here, too, because over TLS 1.3 a server refuses our certificate only after our side has finished
        // the handshake.
        if let Some(cause) = error.tls_cause() {
            self.count().exchanged(self.cells(), metrics::ExchangeOutcome::ConnectFailed);
            self.pool.upstream.servers[server].last_connect.failed(cause);
            let is_another = self.pool.has_usable_server_beside(server, clock::instant());
            return match unsent {
                UnsentRequest::Request(body) if is_another => Ok(body.unwrap_or(RequestBody::Empty)),
                UnsentRequest::Nothing if is_another && may_repeat => Ok(RequestBody::Empty),
                _ => Err(Refusal::UpstreamConnect(cause)),
            };
        }
        let is_answer = error.is_bad_answer();
        let cause = if let Error::Unreadable(cause) = error { Some(*cause) } else { None };
        if let Some(cause @ Cause::SpeaksTls) = cause {
            self.pool.upstream.servers[server].last_connect.failed(cause);
        }
        self.count().exchanged(
            self.cells(),
            if is_answer { metrics::ExchangeOutcome::BadAnswer } else { metrics::ExchangeOutcome::Reset },
        );
        match unsent {
            _ if is_answer => Err(Refusal::UpstreamBadResponse(cause)),
            UnsentRequest::Request(body) => Ok(body.unwrap_or(RequestBody::Empty)),
            UnsentRequest::Unprocessed { .. } => whole.again().ok_or(Refusal::UpstreamReset),
            UnsentRequest::Nothing if may_repeat && self.retry().on_reset => Ok(RequestBody::Empty),
            UnsentRequest::Nothing | UnsentRequest::Answered => Err(Refusal::UpstreamReset),
        }
    }
}
