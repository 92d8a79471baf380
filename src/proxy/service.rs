//! The proxy as the server of connections sees it.

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Request, Response, Version};
use hyper::body::Incoming;

use super::response_body::ResponseBody;
use super::services::Services;
use super::{context, headers, pipeline};
use crate::cause::Cause;
use crate::metrics;
use crate::service::conn::Conn;
use crate::service::reason::Reason;
use crate::service::{Ends, Service};

impl Service for Services {
    type Body = ResponseBody;

    fn answer(
        self: Rc<Self>,
        conn: Rc<Conn>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> + 'static {
        pipeline::handle(self, conn, request)
    }

    fn refuse_unread(&self, conn: &Conn, version: Version, reason: Reason, status: u16) -> HeaderValue {
        let request_id = headers::request_id(&HeaderMap::new(), false, || self.random());
        context::tell_unread(self, conn, version, &request_id, reason, status);
        request_id
    }

    fn refuse_handshake(&self, listener: &str, ends: Ends, cause: Cause) {
        context::tell_handshake(self, listener, ends, cause);
    }

    fn cells(&self) -> &metrics::Worker {
        &self.metrics
    }

    fn upkeep(&self, now: Instant) {
        Services::upkeep(self, now);
    }

    fn close(&self) {
        self.log.hand_over();
    }
}
