//! The seam between `server` (connections) and `proxy` (requests): the facts of a connection that both use, why a request
//! is refused and how that is answered, and the trait [`Service`] through which the server calls the proxy.
//!
//! `server` and `proxy` never import each other; `app` joins them.

pub mod activity;
pub mod body_rest;
pub mod config;
pub mod conn;
pub mod drain;
pub mod form;
pub mod overload;
pub mod problem;
pub mod reason;
pub mod refusal;

use std::convert::Infallible;
use std::error::Error;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;

use base::cause::Cause;
use conn::Conn;
use net::wire::http2::StreamId;
use reason::Reason;

/// Answers the requests of one worker's connections, on the worker's thread. The server is generic over it, so that a
/// request costs no box and no indirect call for crossing the seam.
pub trait Service: Sized + 'static {
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + 'static;

    /// Infallible: a failure is an answer, too, and has been turned into one already. `stream` is the request's over HTTP/2.
    fn answer(
        self: Rc<Self>,
        conn: Rc<Conn>,
        request: Request<Incoming>,
        stream: Option<StreamId>,
    ) -> impl Future<Output = Result<Response<Self::Body>, Infallible>> + 'static;

    /// Counts and logs what never became a request; returns the request id under which it is logged.
    fn refuse_unread(&self, conn: &Conn, version: Version, reason: Reason, status: u16) -> HeaderValue;

    /// Counts why a TLS handshake on the listener of this name failed, and logs it if it is the client's certificate.
    fn refuse_handshake(&self, listener: &str, ends: ClientAddresses, cause: Cause);

    /// The worker's cells of the metrics.
    fn cells(&self) -> &metrics::WorkerToken;

    /// Does the service's periodic work. The server calls it at every tick of the worker.
    fn upkeep(&self, now: Instant);

    /// Hands over what is buffered (log lines, say). The server calls it when the worker ends.
    fn close(&self);
}

/// The addresses of a connection's client.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddresses {
    /// The other end of the socket.
    pub tcp_peer: IpAddr,
    /// The client that the PROXY protocol announced; the same as `tcp_peer` without it.
    pub announced_peer: IpAddr,
}
