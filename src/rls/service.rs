//! What a call is: a check of the rate limit service, a question about health or about what there is to call.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, UnaryService};
use tonic::{Status, codegen::Service as _};
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use super::codec::CheckCodec;
use super::counted_body::CountedBody;
use super::descriptors::Reflection;
use super::ending_body::EndingBody;
use super::limits::{CHECK_WITHIN, DESCRIPTORS_MAX, ENTRIES_MAX, MESSAGE_BYTES_MAX};
use super::messages::{RateLimitRequest, RateLimitResponse};
use super::stats::RlsStats;

/// Decides checks. One for each thread, which it never leaves.
pub trait RateLimits: 'static {
    /// Decides one check. All descriptors of a request are charged, or none.
    fn decide(&self, request: RateLimitRequest) -> impl Future<Output = Result<RateLimitResponse, Status>>;

    /// Work that is due several times a second.
    fn upkeep(&self);
}

/// What answers the calls of one thread.
pub(super) struct RlsService<R> {
    pub(super) rate_limits: R,
    pub(super) health: HealthServer<HealthService>,
    pub(super) reflection: Reflection,
    pub(super) stats: RlsStats,
    /// Bytes of messages that calls hold.
    pub(super) held: Arc<AtomicUsize>,
    /// Answers that wait for clients to read.
    pub(super) unread: Rc<Cell<usize>>,
    /// Says when the thread ends: its sender is dropped then, and nothing is ever sent.
    pub(super) stopped: watch::Receiver<()>,
}

impl<R: RateLimits> RlsService<R> {
    /// Answers a call of a connection.
    pub(super) async fn answer(self: Rc<Self>, request: Request<Incoming>) -> Response<Body> {
        let request = request.map(|body| CountedBody::new(body, &self.held));
        match request.uri().path() {
            SHOULD_RATE_LIMIT => self.check(request).await,
            HEALTH_WATCH => {
                let answer = infallible(self.health.clone().call(request).await);
                // Ended with the thread, because a watch never ends by itself.
                answer.map(|body| Body::new(EndingBody::new(body, self.stopped.clone())))
            }
            path if path.starts_with(HEALTH) => infallible(self.health.clone().call(request).await),
            path if path.starts_with(REFLECTION_V1) => (self.reflection.v1)(request).await,
            path if path.starts_with(REFLECTION_V1ALPHA) => (self.reflection.v1alpha)(request).await,
            _ => Status::unimplemented("the service has no such method").into_http(),
        }
    }

    async fn check(self: Rc<Self>, request: Request<CountedBody>) -> Response<Body> {
        // The bound is that of what is unpacked, too.
        let mut grpc = Grpc::new(CheckCodec)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .accept_compressed(CompressionEncoding::Gzip);
        let stats = self.stats.clone();
        let answer = timeout(CHECK_WITHIN, grpc.unary(CheckCall(self), request)).await;
        let answer = answer
            .unwrap_or_else(|_| Status::deadline_exceeded("the message did not arrive in time").into_http());
        // tonic puts the status of what it refuses by itself into the head.
        if answer.headers().get(GRPC_STATUS).is_some_and(|status| status != "0") {
            stats.invalid();
        }
        answer
    }
}

struct CheckCall<R>(Rc<RlsService<R>>);

impl<R: RateLimits> UnaryService<RateLimitRequest> for CheckCall<R> {
    type Response = RateLimitResponse;
    type Future = PendingDecision<tonic::Response<RateLimitResponse>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        let service = Rc::clone(&self.0);
        PendingDecision(Box::pin(async move {
            let request = request.into_inner();
            bounded(&request)?;
            let answer = service.rate_limits.decide(request).await?;
            Ok(tonic::Response::new(answer))
        }))
    }
}

struct PendingDecision<T>(Pin<Box<dyn Future<Output = Result<T, Status>>>>);

impl<T> Future for PendingDecision<T> {
    type Output = Result<T, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

/// Refuses what no proxy sends, because each descriptor and entry costs work.
fn bounded(request: &RateLimitRequest) -> Result<(), Status> {
    if request.descriptors.len() > DESCRIPTORS_MAX {
        return Err(Status::invalid_argument(format!("more than {DESCRIPTORS_MAX} descriptors")));
    }
    let entries: usize = request.descriptors.iter().map(|descriptor| descriptor.entries.len()).sum();
    if entries > ENTRIES_MAX {
        return Err(Status::invalid_argument(format!("more than {ENTRIES_MAX} entries")));
    }
    Ok(())
}

pub(super) fn infallible(answer: Result<Response<Body>, std::convert::Infallible>) -> Response<Body> {
    let Ok(answer) = answer;
    answer
}

/// The service's full name, by which health knows it, too.
pub(super) const RATE_LIMIT_SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
const HEALTH: &str = "/grpc.health.v1.Health/";
const REFLECTION_V1: &str = "/grpc.reflection.v1.ServerReflection/";
const REFLECTION_V1ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/";
const GRPC_STATUS: &str = "grpc-status";
