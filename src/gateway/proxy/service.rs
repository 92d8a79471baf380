//! Implements the trait by which `server` calls the proxy. It holds no logic of requests: see [`super::pipeline`].

use std::convert::Infallible;
use std::rc::Rc;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Request, Response, Version};
use hyper::body::Incoming;

use super::events::{self, FailedHandshake, UnreadHead};
use super::response::answer_fields;
use super::response::response_body::ResponseBody;
use super::services::Services;
use super::{headers, pipeline};
use crate::service::conn::Conn;
use crate::service::reason::Reason;
use crate::service::{ClientAddresses, Service};
use base::cause::Cause;
use metrics::usage;
use net::wire::http2::StreamId;

impl Service for Services {
    type Body = ResponseBody;

    fn answer(
        self: Rc<Self>,
        conn: Rc<Conn>,
        request: Request<Incoming>,
        stream: Option<StreamId>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> + 'static {
        pipeline::handle(self, conn, request, stream)
    }

    fn refuse_unread(&self, conn: &Conn, version: Version, reason: Reason, status: u16) -> HeaderValue {
        let (request_id, _) = headers::request_id(&HeaderMap::new(), false, || self.random());
        let event = UnreadHead { conn, version, request_id: &request_id, reason, status };
        events::unread_head(self, &event);
        answer_fields::told_id(&self.last_view().snapshot, conn, &request_id)
    }

    fn refuse_handshake(&self, listener: &str, ends: ClientAddresses, cause: Cause) {
        events::failed_handshake(self, &FailedHandshake { listener, ends, cause });
    }

    fn cells(&self) -> &metrics::WorkerToken {
        &self.metrics
    }

    fn upkeep(&self, now: Instant) {
        Services::upkeep(self, now);
    }

    fn close(&self) {
        self.log.hand_over();
        self.decisions.hand_over();
        self.usage.iter().for_each(usage::UsageTally::hand_over);
    }
}
