//! A stream of usage reports, from its head to its status: reports come in, and what the proxy is told goes out, with each
//! report and between two.

use std::cell::Cell;
use std::future::{Ready, ready};
use std::rc::Rc;

use http::{Request, Response};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::body::Body;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::server::{Grpc, StreamingService};
use tonic::{Status, Streaming};

use super::codec::EnvoyCodec;
use super::held::{Held, HeldBytes};
use super::limits::{
    ACTIONS_MAX, ANSWERS_WAITING, CONNECTION_QUOTA_STREAMS_MAX, FIRST_REPORT_WITHIN, QUOTA_STREAMS_MAX,
    REPORT_BYTES_MAX, REPORT_WITHIN, TAKEN_WITHIN, USAGES_MAX,
};
use super::quota_messages::{BucketAction, RateLimitQuotaResponse, RateLimitQuotaUsageReports};
use super::service::{RateLimits, Service};
use super::stats::Connected;

/// What the streams of one connection share: how many there are.
#[derive(Clone, Debug, Default)]
pub(super) struct OfConnection(Rc<Cell<usize>>);

/// A stream in both counts.
struct Counted {
    connection: OfConnection,
    _all: Connected,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let streams = &self.connection.0;
        streams.set(streams.get() - 1);
    }
}

impl<R: RateLimits> Service<R> {
    /// Begins a stream of usage reports, which goes on in a task of its own.
    pub(super) async fn stream_quotas(
        self: Rc<Self>,
        request: Request<Held>,
        connection: &OfConnection,
    ) -> Response<Body> {
        let Some(counted) = self.counted(connection) else {
            self.stats.refused_quota_stream();
            return Status::resource_exhausted("too many streams of usage reports").into_http();
        };
        let bytes = request.body().bytes();
        let (answers, taken) = mpsc::channel(ANSWERS_WAITING);
        let (begin, begun) = oneshot::channel();
        let mut grpc = Grpc::new(EnvoyCodec::new()).max_decoding_message_size(REPORT_BYTES_MAX);
        let answer = grpc.streaming(Begin { begin: Some(begin), taken: Some(taken) }, request).await;
        // Without one tonic has refused the call.
        if let Ok(reports) = begun.await {
            tokio::task::spawn_local(async move {
                let mut stream = Stream { service: self, bytes, answers, reporter: None };
                let status = stream.converse(reports).await;
                stream.end(status).await;
                drop(counted);
            });
        }
        answer
    }

    fn counted(&self, connection: &OfConnection) -> Option<Counted> {
        if connection.0.get() >= CONNECTION_QUOTA_STREAMS_MAX {
            return None;
        }
        let all = self.stats.quota_stream(QUOTA_STREAMS_MAX)?;
        connection.0.set(connection.0.get() + 1);
        Some(Counted { connection: connection.clone(), _all: all })
    }
}

type Answer = Result<RateLimitQuotaResponse, Status>;

/// The call in tonic's form: it hands the reports over, since its own task must be able to change threads.
struct Begin {
    begin: Option<oneshot::Sender<Streaming<RateLimitQuotaUsageReports>>>,
    taken: Option<mpsc::Receiver<Answer>>,
}

impl StreamingService<RateLimitQuotaUsageReports> for Begin {
    type Response = RateLimitQuotaResponse;
    type ResponseStream = ReceiverStream<Answer>;
    type Future = Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<RateLimitQuotaUsageReports>>) -> Self::Future {
        let (Some(begin), Some(taken)) = (self.begin.take(), self.taken.take()) else {
            return ready(Err(Status::internal("a call begins once")));
        };
        ready(match begin.send(request.into_inner()) {
            Ok(()) => Ok(tonic::Response::new(ReceiverStream::new(taken))),
            Err(_) => Err(Status::internal("nobody waits for the call")),
        })
    }
}

/// A stream of reports.
struct Stream<R: RateLimits> {
    service: Rc<Service<R>>,
    bytes: HeldBytes,
    answers: mpsc::Sender<Answer>,
    /// `None` until its first report has named a domain.
    reporter: Option<R::Reporter>,
}

impl<R: RateLimits> Stream<R> {
    /// Answers reports until the client ends the stream, which needs no status, or something else does.
    async fn converse(&mut self, mut reports: Streaming<RateLimitQuotaUsageReports>) -> Option<Status> {
        let mut stopped = self.service.stopped.clone();
        let mut report_by = Instant::now() + FIRST_REPORT_WITHIN;
        loop {
            let renewal =
                self.reporter.as_ref().map(|reporter| self.service.rate_limits.renewal_in(reporter));
            let renewal = Instant::now() + renewal.unwrap_or(REPORT_WITHIN);
            let told = tokio::select! {
                _ = stopped.changed() => return Some(Status::unavailable("the gateway stops")),
                () = self.answers.closed() => return None,
                report = reports.message() => match report {
                    Ok(Some(report)) => {
                        self.bytes.release();
                        report_by = Instant::now() + REPORT_WITHIN;
                        match self.report(report).await {
                            Ok(told) => told,
                            Err(status) => return Some(status),
                        }
                    }
                    Ok(None) => return None,
                    Err(status) => return Some(status),
                },
                () = sleep_until(report_by) => {
                    return Some(Status::deadline_exceeded("no report has come in time"));
                }
                () = sleep_until(renewal) => match &mut self.reporter {
                    Some(reporter) => self.service.rate_limits.renew(reporter).await,
                    None => Vec::new(),
                },
            };
            if let Err(status) = self.tell(told).await {
                return Some(status);
            }
        }
    }

    async fn report(&mut self, report: RateLimitQuotaUsageReports) -> Result<Vec<BucketAction>, Status> {
        let rate_limits = &self.service.rate_limits;
        let reporter = match &mut self.reporter {
            Some(reporter) => reporter,
            None if report.domain.is_empty() => {
                return Err(Status::invalid_argument("the first report of a stream names a domain"));
            }
            none => none.insert(rate_limits.reporter(&report.domain)),
        };
        let mut usages = report.bucket_quota_usages;
        // A proxy that has too many is served all the same: it would open the next stream with as many.
        let beyond = usages.split_off(usages.len().min(USAGES_MAX));
        let mut told = rate_limits.report(reporter, usages).await;
        told.extend(rate_limits.abandon(reporter, beyond));
        Ok(told)
    }

    async fn tell(&self, mut told: Vec<BucketAction>) -> Result<(), Status> {
        while !told.is_empty() {
            let rest = told.split_off(told.len().min(ACTIONS_MAX));
            let answer = RateLimitQuotaResponse { bucket_action: told };
            told = rest;
            match timeout(TAKEN_WITHIN, self.answers.send(Ok(answer))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Status::cancelled("the client has left")),
                Err(_) => return Err(Status::deadline_exceeded("the client does not read its answers")),
            }
        }
        Ok(())
    }

    async fn end(self, status: Option<Status>) {
        if let Some(reporter) = self.reporter {
            self.service.rate_limits.end(reporter);
        }
        if let Some(status) = status {
            // A client that does not read does not read this either.
            let _ = timeout(TAKEN_WITHIN, self.answers.send(Err(status))).await;
        }
    }
}
