//! One try at a server on its own, so that two of one request can be under way at once. It counts nothing and blames nobody:
//! who drops it learns nothing, and the server learns that nobody listens. `hedging.rs` says when there is a second.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::header::HOST;
use http::{HeaderValue, StatusCode};

use crate::proxy::request::request_body::RequestBody;
use base::clock;
use upstream::error::SendError;
use upstream::pool::{AcquireError, Terms};
use upstream::request::RequestHead;
use upstream::{Checkout, Pool, ServerIndex};

/// What is tried: a request without a body, at one server.
pub struct HedgeTry {
    pub pool: Rc<Pool<RequestBody>>,
    /// The server, which has been chosen.
    pub server: ServerIndex,
    /// Over a new connection.
    pub is_new: bool,
    pub head: RequestHead,
    /// Whether `Host` is the server's own.
    pub names_server: bool,
    /// How long the answer's head may take once the request is sent.
    pub response: Duration,
    /// When the whole request is over.
    pub ends: Option<Instant>,
}

/// A try that is under way. Boxed, because it is large and two are raced.
pub type PendingTry = Pin<Box<dyn Future<Output = Result<ConnectedTry, AcquireError>>>>;

/// A try that had a connection.
pub struct ConnectedTry {
    pub checkout: Checkout<RequestBody>,
    /// The head with the answer's fields, or the request's if there is no answer.
    pub head: RequestHead,
    pub sent_at: Instant,
    /// The status, or why there is none.
    pub result: Result<StatusCode, SendError<RequestBody>>,
}

impl HedgeTry {
    /// Takes a connection and sends the request once this is polled.
    pub fn begin(self, now: Instant) -> PendingTry {
        Box::pin(async move {
            let HedgeTry { pool, server, is_new, mut head, names_server, response, ends } = self;
            let mut checkout = pool.acquire_at(server, Terms { is_upload: false, is_new }, now, ends).await?;
            if names_server && let Ok(host) = HeaderValue::from_str(checkout.host()) {
                head.headers.insert(HOST, host);
            }
            let sent_at = clock::instant();
            let until = ends.map_or(sent_at + response, |ends| ends.min(sent_at + response));
            let result = checkout.send(&mut head, RequestBody::Empty, until).await;
            Ok(ConnectedTry { checkout, head, sent_at, result })
        })
    }
}
