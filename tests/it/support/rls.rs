//! A client of the rate limit service, over hyper: it sends messages as a test has written them.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rls::{MapEntry, RateLimitCode, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::PATIENCE;

/// A connection to the gRPC listener.
pub struct Rls {
    runtime: Runtime,
    sender: SendRequest<Sent>,
}

/// What a call ended with instead of an answer: its status and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub code: u32,
    pub message: String,
}

impl Rls {
    /// Connects in the clear.
    pub fn connect(addr: SocketAddr) -> Rls {
        let runtime = runtime();
        let stream = runtime.block_on(TcpStream::connect(addr)).expect("it listens");
        Rls::over(runtime, stream).expect("it speaks HTTP/2")
    }

    /// Connects over a Unix socket.
    pub fn connect_unix(path: &std::path::Path) -> Rls {
        let runtime = runtime();
        let stream = runtime.block_on(UnixStream::connect(path)).expect("it listens");
        Rls::over(runtime, stream).expect("it speaks HTTP/2")
    }

    /// Connects over TLS; `None` if the gateway does not want this client.
    pub fn connect_tls(addr: SocketAddr, session: &Arc<ClientConfig>) -> Option<Rls> {
        let runtime = runtime();
        let mut session = ClientConfig::clone(session);
        session.alpn_protocols = vec![b"h2".to_vec()];
        let name = "localhost".try_into().expect("a name");
        let stream = runtime.block_on(async {
            let stream = TcpStream::connect(addr).await.expect("it listens");
            TlsConnector::from(Arc::new(session)).connect(name, stream).await
        });
        let mut rls = Rls::over(runtime, stream.ok()?)?;
        // With TLS 1.3 a client learns only by its first answer whether its certificate will do.
        rls.call("/grpc.health.v1.Health/Check", &[]).ok().map(|_| rls)
    }

    fn over(runtime: Runtime, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Option<Rls> {
        let sender = runtime.block_on(async {
            let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
            let (sender, connection) = handshake.ok()?;
            tokio::spawn(connection);
            Some(sender)
        })?;
        Some(Rls { runtime, sender })
    }

    /// Asks about descriptors.
    pub fn ask(&mut self, domain: &str, descriptors: &[RateLimitDescriptor]) -> RateLimitResponse {
        let descriptors = descriptors.to_vec();
        self.check(RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 })
            .expect("it is answered")
    }

    /// The code about one descriptor.
    pub fn code(&mut self, domain: &str, entries: &[(&str, &str)]) -> RateLimitCode {
        self.ask(domain, &[descriptor(entries)]).overall_code()
    }

    /// Sends one check.
    pub fn check(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, Failed> {
        let answer = self.call(SHOULD_RATE_LIMIT, &request.encode_to_vec())?;
        Ok(RateLimitResponse::decode(answer.as_slice()).expect("an answer of this type"))
    }

    /// Sends one message and waits for the one that answers it.
    pub fn call(&mut self, path: &str, message: &[u8]) -> Result<Vec<u8>, Failed> {
        let sent = self.sender.send_request(request(path, framed(message)));
        self.runtime
            .block_on(async { timeout(PATIENCE, answer(sent)).await.expect("it is answered in time") })
    }

    /// Sends one message packed by gzip.
    pub fn call_gzip(&mut self, path: &str, message: &[u8]) -> Result<Vec<u8>, Failed> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut gzip, message).expect("into memory");
        let mut framed = framed(&gzip.finish().expect("into memory")).to_vec();
        framed[0] = 1;
        let mut request = request(path, framed.into());
        request.headers_mut().insert("grpc-encoding", http::HeaderValue::from_static("gzip"));
        let sent = self.sender.send_request(request);
        self.runtime
            .block_on(async { timeout(PATIENCE, answer(sent)).await.expect("it is answered in time") })
    }

    /// Asks so often at once, and returns how many were answered with each code, and how many not at all.
    pub fn ask_at_once(&mut self, request: &RateLimitRequest, times: usize) -> [usize; 4] {
        let body = framed(&request.encode_to_vec());
        let mut sender = self.sender.clone();
        self.runtime.block_on(async {
            let calls =
                (0..times).map(|_| sender.send_request(self::request(SHOULD_RATE_LIMIT, body.clone())));
            let calls: Vec<_> = calls.map(|sent| tokio::spawn(answer(sent))).collect();
            let mut counts = [0; 4];
            for call in calls {
                let answer = timeout(PATIENCE, call).await.expect("in time").expect("no panic");
                let place = match answer {
                    Ok(answer) => RateLimitResponse::decode(answer.as_slice())
                        .map_or(3, |answer| answer.overall_code as usize),
                    Err(_) => 3,
                };
                counts[place] += 1;
            }
            counts
        })
    }

    /// Sends one message; the answer may take long.
    pub fn begin(&self, path: &str, message: &[u8]) -> JoinHandle<Result<Vec<u8>, Failed>> {
        let (mut sender, _inside) = (self.sender.clone(), self.runtime.enter());
        let sent = sender.send_request(request(path, framed(message)));
        self.runtime.spawn(answer(sent))
    }

    /// How a call ends that was begun.
    pub fn end(&self, call: JoinHandle<Result<Vec<u8>, Failed>>) -> Result<Vec<u8>, Failed> {
        let ended = self.runtime.block_on(async { timeout(PATIENCE, call).await.expect("it ends in time") });
        ended.expect("no panic")
    }

    /// Begins so many calls and sends half of each message.
    pub fn hang(&mut self, calls: usize) {
        let (mut sender, _inside) = (self.sender.clone(), self.runtime.enter());
        for _ in 0..calls {
            let half = Sent { bytes: Some(Bytes::from_static(&[0, 0, 0, 0, 9])), ends: false };
            let sent = sender.send_request(request(SHOULD_RATE_LIMIT, Bytes::new()).map(|_| half));
            self.runtime.spawn(timeout(PATIENCE, answer(sent)));
        }
    }

    /// Whether the gateway ends the connection within a while.
    pub fn is_closed_within(&mut self, within: Duration) -> bool {
        let began = std::time::Instant::now();
        while began.elapsed() < within {
            if self.sender.is_closed() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

/// The body of a call: one piece, and then its end or nothing more.
struct Sent {
    bytes: Option<Bytes>,
    ends: bool,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ends && self.bytes.is_none()
    }
}

/// A descriptor with these entries.
pub fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entries: Vec<_> = entries.iter().map(|(key, value)| (*key, value.as_bytes())).collect();
    descriptor_of_bytes(&entries)
}

/// The same with values that need not be texts.
pub fn descriptor_of_bytes(entries: &[(&str, &[u8])]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &[u8])| MapEntry { key: (*key).into(), value: value.to_vec() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

/// A message as gRPC frames it: not compressed, its length, its bytes.
pub fn framed(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).expect("a test's message is short"));
    framed.extend_from_slice(message);
    framed.freeze()
}

fn request(path: &str, body: Bytes) -> Request<Sent> {
    Request::post(format!("http://rls.test{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Sent { bytes: Some(body), ends: true })
        .expect("a request")
}

async fn answer(
    sent: impl Future<Output = hyper::Result<http::Response<hyper::body::Incoming>>>,
) -> Result<Vec<u8>, Failed> {
    let broken = |error: hyper::Error| Failed { code: u32::MAX, message: error.to_string() };
    let response = sent.await.map_err(broken)?;
    let head = response.headers().clone();
    let body = response.into_body().collect().await.map_err(broken)?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let field = |name: &str| {
        let value = trailers.get(name).or_else(|| head.get(name));
        value.and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let code = field("grpc-status").and_then(|code| code.parse().ok()).unwrap_or(u32::MAX);
    let bytes = body.to_bytes();
    match bytes.get(5..) {
        Some(message) if code == 0 => Ok(message.to_vec()),
        _ => Err(Failed { code, message: field("grpc-message").unwrap_or_default() }),
    }
}

pub(super) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
