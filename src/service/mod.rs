//! The seam between the server of connections and the proxy of requests: facts of a connection that both see, why a
//! request is refused and how that is answered, and [`Service`], which the server is given to call.
//!
//! `server` never imports `proxy`, nor the other way round; `app` joins them.

pub mod activity;
pub mod config;
pub mod conn;
pub mod drain;
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

use crate::cause::Cause;
use crate::metrics;
use conn::Conn;
use reason::Reason;

/// What answers the requests of one worker's connections. It lives on the worker's thread, and the server is generic
/// over it: a request costs no box and no indirect call for being on the other side of the seam.
pub trait Service: Sized + 'static {
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + 'static;

    /// Answers one request.
    fn answer(
        self: Rc<Self>,
        conn: Rc<Conn>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Self::Body>, Infallible>> + 'static;

    /// Counts and logs what never became a request, under the id it gives back.
    fn refuse_unread(&self, conn: &Conn, version: Version, reason: Reason, status: u16) -> HeaderValue;

    /// Counts why a TLS handshake on the listener of this name failed, and logs it if it is the client's certificate.
    fn refuse_handshake(&self, listener: &str, ends: Ends, cause: Cause);

    /// The worker's cells of the metrics.
    fn cells(&self) -> &metrics::Worker;

    /// Does what has to be done now and then. The server calls it at every tick of the worker.
    fn upkeep(&self, now: Instant);

    /// Hands over what is kept. The server calls it when the worker ends.
    fn close(&self);
}

/// Where a connection comes from, and for whom.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The socket's other end.
    pub tcp_peer: IpAddr,
    /// The client that the PROXY protocol announced; the socket's other end if nothing did.
    pub announced_peer: IpAddr,
}
