//! A proxy that reports its usage over the rate limit quota service, over hyper: it sends messages as a test has written
//! them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rls::{
    Action, Blanket, BucketAction, BucketId, BucketQuotaUsage, Entry, RateLimitQuotaResponse,
    RateLimitQuotaUsageReports, Rule,
};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::PATIENCE;
use super::rls::framed;

/// A connection of proxies.
pub struct Proxies {
    runtime: Runtime,
    sender: SendRequest<Reports>,
}

/// A stream of reports.
pub struct Proxy<'c> {
    runtime: &'c Runtime,
    reports: mpsc::UnboundedSender<Bytes>,
    answers: mpsc::UnboundedReceiver<Answer>,
    domain: String,
}

/// What the gateway has said: an answer, or the status that ended the stream.
type Answer = Result<RateLimitQuotaResponse, u32>;

/// What a proxy was told about a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Spend { tokens: u32, seconds: i64 },
    Deny,
    Allow,
    Abandon,
}

impl Told {
    /// How many requests may pass.
    pub fn tokens(&self) -> u32 {
        match self {
            Told::Spend { tokens, .. } => *tokens,
            Told::Deny | Told::Allow | Told::Abandon => 0,
        }
    }
}

impl Proxies {
    pub fn connect(addr: SocketAddr) -> Proxies {
        let runtime = super::rls::runtime();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(addr).await.expect("it listens");
            let (sender, connection) =
                http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it speaks HTTP/2");
            tokio::spawn(connection);
            sender
        });
        Proxies { runtime, sender }
    }

    /// Begins a stream that reports in a domain.
    pub fn begin(&self, domain: &str) -> Proxy<'_> {
        let (reports, body) = mpsc::unbounded_channel();
        let (said, answers) = mpsc::unbounded_channel();
        let request = Request::post(format!("http://rlqs.test{STREAM_RATE_LIMIT_QUOTAS}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Reports(body))
            .expect("a request");
        let mut sender = self.sender.clone();
        self.runtime.spawn(async move {
            let Ok(response) = sender.send_request(request).await else {
                return drop(said.send(Err(BROKEN)));
            };
            let head = response.headers().get("grpc-status").and_then(|it| it.to_str().ok()?.parse().ok());
            if let Some(status) = head {
                return drop(said.send(Err(status)));
            }
            let status = read(response.into_body(), &said).await;
            let _ = said.send(Err(status));
        });
        Proxy { runtime: &self.runtime, reports, answers, domain: domain.to_owned() }
    }
}

/// The entries of a bucket.
type Bucket = Vec<(String, String)>;
/// A bucket, and how many requests of it passed and were refused.
type BucketUsage<'b> = (&'b [(&'b str, &'b str)], u64, u64);

impl Proxy<'_> {
    /// Reports what passed and what was refused of buckets, without waiting for an answer.
    pub fn send(&self, usages: &[BucketUsage<'_>]) {
        self.send_after(None, usages);
    }

    /// The same so long after the reports before.
    pub fn send_after(&self, elapsed: Option<Duration>, usages: &[BucketUsage<'_>]) {
        let usage = |(bucket, allowed, denied): &BucketUsage<'_>| BucketQuotaUsage {
            bucket_id: Some(id(bucket)),
            time_elapsed: elapsed.map(|elapsed| elapsed.try_into().expect("it is short")),
            num_requests_allowed: *allowed,
            num_requests_denied: *denied,
        };
        let report = RateLimitQuotaUsageReports {
            domain: self.domain.clone(),
            bucket_quota_usages: usages.iter().map(usage).collect(),
            ..RateLimitQuotaUsageReports::default()
        };
        self.send_bytes(framed(&report.encode_to_vec()));
    }

    /// Reports one refused request of each of these buckets.
    pub fn send_all(&self, buckets: impl IntoIterator<Item = BucketId>) {
        let usage = |id| BucketQuotaUsage {
            bucket_id: Some(id),
            num_requests_denied: 1,
            ..BucketQuotaUsage::default()
        };
        let report = RateLimitQuotaUsageReports {
            domain: self.domain.clone(),
            bucket_quota_usages: buckets.into_iter().map(usage).collect(),
            ..RateLimitQuotaUsageReports::default()
        };
        self.send_bytes(framed(&report.encode_to_vec()));
    }

    pub fn send_bytes(&self, bytes: Bytes) {
        // The stream may be over.
        let _ = self.reports.send(bytes);
    }

    /// Reports about one bucket, and returns what the proxy is told.
    pub fn report(&mut self, bucket: &[(&str, &str)], allowed: u64, denied: u64) -> Told {
        self.send(&[(bucket, allowed, denied)]);
        self.next().expect("it is answered").pop().expect("about the bucket").1
    }

    /// The next answer, or the status that ended the stream.
    pub fn next(&mut self) -> Result<Vec<(Bucket, Told)>, u32> {
        let answer = self.runtime.block_on(async { timeout(PATIENCE, self.answers.recv()).await });
        let answer = answer.expect("it is answered in time").expect("a stream ends with a status")?;
        Ok(answer.bucket_action.into_iter().map(told).collect())
    }

    /// The answer that comes within a while, if one does.
    pub fn next_within(&mut self, within: Duration) -> Option<Vec<(Bucket, Told)>> {
        let answer = self.runtime.block_on(async { timeout(within, self.answers.recv()).await });
        Some(answer.ok()??.ok()?.bucket_action.into_iter().map(told).collect())
    }
}

/// The body of a call: messages as a test sends them. It ends with its sender.
struct Reports(mpsc::UnboundedReceiver<Bytes>);

impl Body for Reports {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Passes on the messages of an answer; returns its status.
async fn read(mut body: Incoming, said: &mpsc::UnboundedSender<Answer>) -> u32 {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return BROKEN };
        if let Some(trailers) = frame.trailers_ref() {
            let status = trailers.get("grpc-status").and_then(|status| status.to_str().ok()?.parse().ok());
            return status.unwrap_or(BROKEN);
        }
        bytes.extend_from_slice(frame.data_ref().expect("data or trailers"));
        while let Some(head) = bytes.get(1..5) {
            let length = u32::from_be_bytes(head.try_into().expect("four bytes")) as usize;
            if bytes.len() < 5 + length {
                break;
            }
            let message = bytes.split_to(5 + length);
            let answer = RateLimitQuotaResponse::decode(&message[5..]).expect("an answer of this type");
            let _ = said.send(Ok(answer));
        }
    }
    BROKEN
}

/// A bucket's name.
pub fn id(bucket: &[(&str, &str)]) -> BucketId {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    BucketId { entries: bucket.iter().map(entry).collect() }
}

fn told(action: BucketAction) -> (Vec<(String, String)>, Told) {
    let id = action.bucket_id.expect("it says which");
    let texts = id.texts().expect("an Envoy reads nothing else").into_iter();
    let mut bucket: Vec<_> = texts.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    bucket.sort();
    let told = match action.action.expect("it says what") {
        Action::Abandon(_) => Told::Abandon,
        Action::Assign(assignment) => {
            let seconds = assignment.assignment_time_to_live.expect("it says how long").seconds;
            let strategy = assignment.rate_limit_strategy.expect("it says what passes");
            match strategy.rule.expect("one of them") {
                Rule::Blanket(rule) if rule == i32::from(Blanket::AllowAll) => Told::Allow,
                Rule::Blanket(_) => Told::Deny,
                Rule::Bucket(bucket) => Told::Spend { tokens: bucket.max_tokens, seconds },
            }
        }
    };
    (bucket, told)
}

/// The stream or its connection broke off.
pub const BROKEN: u32 = u32::MAX;
const STREAM_RATE_LIMIT_QUOTAS: &str =
    "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
