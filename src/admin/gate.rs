//! Checks every request before its handler: host, credentials, method, role, a free place among the pages being shown;
//! then reads the body.
//!
//! The order matters: a client that may not see an endpoint must not learn its methods, nor take a place.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{self, Request};
use axum::middleware::Next;
use axum::response::IntoResponse;
use http::header::{AUTHORIZATION, CONNECTION};
use http::{HeaderValue, Method, Response};
use http_body::Body as _;
use tokio::sync::Semaphore;

use super::access::Role;
use super::activity::Activity;
use super::readiness::Phase;
use super::refusal::Refusal;
use super::state::State;
use super::{body, host};
use crate::{clock, descriptors};

/// The gate of one endpoint.
#[derive(Clone)]
pub(super) struct Gate {
    pub state: Arc<State>,
    /// Permits for pages being shown, on all connections together.
    pub places: Arc<Semaphore>,
    pub body_deadline: Duration,
    /// The operations behind it; empty for paths that are no endpoint.
    pub operations: Arc<[Permit]>,
}

/// What an operation requires of a request.
#[derive(Clone, Debug)]
pub(super) struct Permit {
    /// GET allows HEAD too.
    pub method: Method,
    pub role: Role,
    /// 0: the operation takes no body. One that comes stays unread, and the connection closes.
    pub body_bytes_max: usize,
}

/// The middleware: passes a request to its operation, or refuses it.
pub(super) async fn pass(
    extract::State(gate): extract::State<Gate>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let has_body = !request.body().is_end_stream();
    let mut is_unread = has_body;
    let mut response = match gate.check(&request) {
        Err(refusal) => refusal.into_response(),
        Ok(permit) if has_body && permit.body_bytes_max > 0 => {
            let (head, body) = request.into_parts();
            match body::read(body, permit.body_bytes_max, gate.body_deadline).await {
                Err(refusal) => refusal.into_response(),
                Ok(body) => {
                    is_unread = false;
                    next.run(Request::from_parts(head, body.into())).await
                }
            }
        }
        Ok(_) => next.run(request).await,
    };
    if is_unread || gate.ends_connections() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

impl Gate {
    fn check(&self, request: &Request) -> Result<&Permit, Refusal> {
        let (access, headers) = (&self.state.access, request.headers());
        let is_probe = self.operations.iter().any(|operation| operation.role == Role::Probe);
        if !access.hosts.as_ref().is_none_or(|own| host::is_served(request, own, is_probe)) {
            return Err(Refusal::WrongHost);
        }
        if headers.get_all(AUTHORIZATION).iter().count() > 1 {
            return Err(Refusal::TwoAuthorizations);
        }
        let least = self.operations.iter().map(|operation| operation.role).min();
        access.check(least.ok_or(Refusal::NoSuchPage)?, headers)?;
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let operation = self.operations.iter().find(|operation| operation.method == *method);
        let operation = operation.ok_or_else(|| self.other_method())?;
        access.check(operation.role, headers)?;
        if operation.role > Role::Probe && !self.takes_place(request) {
            return Err(Refusal::Busy);
        }
        Ok(operation)
    }

    fn takes_place(&self, request: &Request) -> bool {
        let activity = request.extensions().get::<Arc<Activity>>();
        activity.is_some_and(|activity| activity.takes_place(&self.places))
    }

    fn other_method(&self) -> Refusal {
        let methods = self.operations.iter().map(|operation| match operation.method {
            Method::GET => "GET, HEAD",
            ref other => other.as_str(),
        });
        let allow = methods.collect::<Vec<_>>().join(", ");
        let is_read = self.operations.iter().all(|operation| operation.method == Method::GET);
        // Cannot fail: methods are tokens (RFC 9110 section 9.1), which are valid in a field value.
        let allow = HeaderValue::try_from(allow).unwrap_or(HeaderValue::from_static(""));
        if is_read { Refusal::OnlyRead(allow) } else { Refusal::Method(allow) }
    }

    /// Whether connections must not be kept alive: the process drains, or descriptors are scarce.
    fn ends_connections(&self) -> bool {
        self.state.readiness.phase() == Phase::Draining || descriptors::is_short(clock::now_ns())
    }
}
