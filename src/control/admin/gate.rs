//! Checks every request before its handler: host, credentials, method, role, a free place among the pages being shown or
//! the clients that watch; then reads the body.
//!
//! The order matters, because a client that may not see an endpoint must not learn its methods, nor take a place.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{self, Request};
use axum::middleware::Next;
use axum::response::IntoResponse;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body::Body as _;
use tokio::sync::Semaphore;

use super::access::{AdminRole, ProvenClient};
use super::activity::AdminActivity;
use super::readiness::ProcessPhase;
use super::refusal::AdminRefusal;
use super::state::AdminState;
use super::{body, host};
use base::clock;
use base::random::Random;
use net::descriptors;

#[derive(Clone)]
pub(super) struct EndpointGate {
    pub state: Arc<AdminState>,
    /// Places for the answers of all connections together.
    pub places: AnswerSlots,
    pub body_deadline: Duration,
    /// The operations behind it; empty for paths that are no endpoint.
    pub operations: Arc<[Permit]>,
    /// Of a list whose rows are written one by one: what to send instead of a method that it does not have.
    pub instead: Option<&'static str>,
}

#[derive(Clone)]
pub(super) struct AnswerSlots {
    pub pages: Arc<Semaphore>,
    /// Of answers that do not end, so that those who watch do not keep scrapers out.
    pub streams: Arc<Semaphore>,
}

#[derive(Clone, Debug)]
pub(super) struct Permit {
    /// The method of the operation; GET allows HEAD too.
    pub method: Method,
    pub role: AdminRole,
    pub open_to: OpenTo,
    pub is_stream: bool,
    /// 0: the operation takes no body. One that comes stays unread, and the connection closes.
    pub body_bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenTo {
    Nobody,
    /// Who accepts HTML: gets the page, which holds no data.
    Browsers,
    Everybody,
}

impl Permit {
    fn role_of(&self, request: &Request) -> AdminRole {
        let is_open = match self.open_to {
            OpenTo::Nobody => false,
            OpenTo::Browsers => wants_html(request.headers()),
            OpenTo::Everybody => true,
        };
        if is_open { AdminRole::Probe } else { self.role }
    }
}

/// Whether `Accept` names HTML, as that of every browser does and that of no other client.
pub(super) fn wants_html(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|field| {
        let types = field.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        types
            .map(|one| one.split(|byte| *byte == b';').next().unwrap_or_default())
            .any(|one| one.trim_ascii_end().eq_ignore_ascii_case(b"text/html"))
    })
}

/// Who sends a request, for the handlers that write that down.
#[derive(Clone, Debug)]
pub(super) struct RequestAuthor {
    /// The name of a token or a certificate.
    pub who: String,
    pub role: AdminRole,
    pub expires: Option<i64>,
    /// The client's address; `None` over a Unix socket.
    pub from: Option<IpAddr>,
    /// The request's id, which its answer has as `X-Request-Id`.
    pub request_id: String,
}

/// The middleware: passes a request to its operation, or refuses it.
pub(super) async fn pass(
    extract::State(gate): extract::State<EndpointGate>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let has_body = !request.body().is_end_stream();
    let mut is_unread = has_body;
    let request_id = request_id();
    let mut response = match gate.check(&request) {
        Err(refusal) => refusal.into_response(),
        Ok((permit, proven)) => {
            let from = request.extensions().get::<Arc<AdminActivity>>().and_then(|activity| activity.from);
            let ProvenClient { who, role, expires } = proven;
            let client = RequestAuthor { who, role, expires, from, request_id: request_id.clone() };
            // Not what spends units, because that comes as often as requests do; it is counted where they are.
            let is_change = permit.method != Method::GET && permit.role > AdminRole::Read;
            let mut line = is_change.then(|| ChangeLine::of(&client, request.uri().path(), &permit.method));
            request.extensions_mut().insert(client);
            let response = if has_body && permit.body_bytes_max > 0 {
                let (head, body) = request.into_parts();
                match body::read(body, permit.body_bytes_max, gate.body_deadline).await {
                    Err(refusal) => refusal.into_response(),
                    Ok(body) => {
                        is_unread = false;
                        next.run(Request::from_parts(head, body.into())).await
                    }
                }
            } else {
                next.run(request).await
            };
            if let Some(line) = &mut line {
                line.status = Some(response.status().as_u16());
                line.is_dry_run = response.extensions().get::<DryRunAnswer>().is_some();
            }
            response
        }
    };
    // Cannot fail, because hex digits are valid in a field value.
    if let Ok(id) = HeaderValue::try_from(request_id) {
        response.headers_mut().insert(X_REQUEST_ID, id);
    }
    let is_draining = gate.state.readiness.phase() == ProcessPhase::Draining;
    if is_unread || is_draining || descriptors::is_short(clock::now_ns()) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DryRunAnswer;

/// The log's line about a change, written when it is dropped, because a client that leaves ends the request wherever it
/// is. The line has no status then.
struct ChangeLine {
    client: RequestAuthor,
    path: String,
    method: Method,
    status: Option<u16>,
    is_dry_run: bool,
}

impl ChangeLine {
    fn of(client: &RequestAuthor, path: &str, method: &Method) -> ChangeLine {
        let (client, path, method) = (client.clone(), path.to_owned(), method.clone());
        ChangeLine { client, path, method, status: None, is_dry_run: false }
    }
}

impl Drop for ChangeLine {
    fn drop(&mut self) {
        let ChangeLine {
            client: RequestAuthor { who, from, request_id, .. },
            path,
            method,
            status,
            is_dry_run,
        } = self;
        let from = from.map(tracing::field::display);
        let what = match status {
            Some(400..) => "admin change refused",
            _ if *is_dry_run => "admin dry run, nothing changed",
            _ => "admin change",
        };
        tracing::info!(who, from, %method, path, status, request_id, "{what}");
    }
}

/// 32 hex digits, as on the data plane. A client's own id is not taken, because the audit is found by it.
fn request_id() -> String {
    let random = Random::seeded();
    random.name() + &random.name()
}

impl EndpointGate {
    fn check(&self, request: &Request) -> Result<(&Permit, ProvenClient), AdminRefusal> {
        let (access, headers) = (&self.state.access, request.headers());
        let activity = request.extensions().get::<Arc<AdminActivity>>();
        let vouched = activity.and_then(|activity| activity.vouched.get());
        let is_probe = self.operations.iter().any(|operation| operation.role == AdminRole::Probe);
        if !access.hosts.as_ref().is_none_or(|own| host::is_served(request, own, is_probe)) {
            return Err(AdminRefusal::WrongHost);
        }
        if headers.get_all(AUTHORIZATION).iter().count() > 1 {
            return Err(AdminRefusal::TwoAuthorizations);
        }
        // The least role of all methods first, so that a client without it does not learn them.
        let least = self.operations.iter().map(|operation| operation.role_of(request)).min();
        let now = clock::unix_s();
        access.check(least.ok_or(AdminRefusal::NoSuchPage)?, headers, vouched, now)?;
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let operation = self.operations.iter().find(|operation| operation.method == *method);
        let operation = operation.ok_or_else(|| self.other_method())?;
        let needed = operation.role_of(request);
        let proven = access.check(needed, headers, vouched, now)?;
        let (places, is_stream, none_left) = match operation.is_stream {
            true => (&self.places.streams, true, AdminRefusal::TooManyStreams),
            false => (&self.places.pages, false, AdminRefusal::Busy),
        };
        if needed > AdminRole::Probe
            && !activity.is_some_and(|activity| activity.takes_place(places, is_stream))
        {
            return Err(none_left);
        }
        Ok((operation, proven))
    }

    fn other_method(&self) -> AdminRefusal {
        let methods = self.operations.iter().map(|operation| match operation.method {
            Method::GET => "GET, HEAD",
            ref other => other.as_str(),
        });
        let allow = methods.collect::<Vec<_>>().join(", ");
        let is_read = self.operations.iter().all(|operation| operation.method == Method::GET);
        // Cannot fail, because methods are tokens (RFC 9110 section 9.1), which are valid in a field value.
        let allow = HeaderValue::try_from(allow).unwrap_or(HeaderValue::from_static(""));
        match self.instead {
            Some(send) => AdminRefusal::OneByOne(send, allow),
            None if is_read => AdminRefusal::OnlyRead(allow),
            None => AdminRefusal::Method(allow),
        }
    }
}

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
