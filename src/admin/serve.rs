//! Connections of the admin listener: HTTP/1.1, one request each.
//!
//! A connection carries one request so that one deadline can bound it as a whole, its reader included: a scraper
//! that stands still loses its connection, and takes nothing else with it.
//!
//! Whoever says nothing keeps nobody out: a new connection is always accepted, and where too many have not shown a
//! page's head yet, the oldest of them goes. Pages that are being shown have places of their own, which are given out
//! behind the token; probes need none.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time;

use super::answer::answer;
use super::listener::Stream;
use super::{Listener, State};
use crate::{clock, descriptors};

/// Serves until `shutdown` is done, then gives answers under way a moment. What it spawned has ended when it returns.
pub async fn serve(listener: Listener, state: Arc<State>, shutdown: impl Future<Output = ()>) {
    serve_within(&Limits::default(), listener, state, shutdown).await;
}

/// Bounds of the admin listener.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections at once that are not being shown a page: silent ones, probes, refusals.
    waiting_max: usize,
    /// Pages being shown at once.
    pages_max: usize,
    /// From accepting to the last byte of the head.
    head: Duration,
    /// From accepting to the last byte of the answer.
    whole: Duration,
    /// For answers under way at the end.
    grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            waiting_max: 256,
            pages_max: 64,
            head: Duration::from_secs(2),
            whole: Duration::from_secs(30),
            grace: Duration::from_secs(1),
        }
    }
}

/// One connection, as far as others must know of it.
#[derive(Debug, Default)]
pub(super) struct Visit {
    place: OnceLock<OwnedSemaphorePermit>,
}

impl Visit {
    /// Takes a place among the pages that are shown, for as long as the connection lasts; false where there is none.
    pub(super) fn take_place(&self, places: &Arc<Semaphore>) -> bool {
        let place = Arc::clone(places).try_acquire_owned();
        place.is_ok_and(|place| self.place.set(place).is_ok())
    }
}

/// Connections that may go for newer ones, the oldest first.
#[derive(Default)]
struct Waiting(VecDeque<(AbortHandle, Weak<Visit>)>);

impl Waiting {
    /// One more; beyond `max` the oldest that is not being shown a page goes.
    fn add(&mut self, task: AbortHandle, visit: Weak<Visit>, max: usize) {
        self.0.push_back((task, visit));
        if self.0.len() > max {
            // One that has ended has no visit any more.
            self.0.retain(|(_, visit)| visit.upgrade().is_some_and(|visit| visit.place.get().is_none()));
        }
        if self.0.len() > max
            && let Some((oldest, _)) = self.0.pop_front()
        {
            oldest.abort();
        }
    }
}

async fn serve_within(
    limits: &Limits,
    listener: Listener,
    state: Arc<State>,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let mut connections = JoinSet::new();
    let mut waiting = Waiting::default();
    let places = Arc::new(Semaphore::new(limits.pages_max));
    // Whoever asks how the process is gets an answer though it has no descriptor left but this one.
    let mut spare = File::open(SPARE).ok();
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => spare = spare.or_else(|| File::open(SPARE).ok()),
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    let visit = Arc::new(Visit::default());
                    let known = Arc::downgrade(&visit);
                    let hall = Hall { state: Arc::clone(&state), places: Arc::clone(&places), visit };
                    let task = match stream {
                        Stream::Tcp(stream) => connections.spawn(converse(stream, hall, *limits)),
                        Stream::Unix(stream) => connections.spawn(converse(stream, hall, *limits)),
                    };
                    waiting.add(task, known, limits.waiting_max);
                }
                Err(error) => {
                    descriptors::ran_out("the admin listener", &error, clock::now_ns());
                    if spare.take().is_none() {
                        // To try again at once would only burn a core.
                        time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            },
        }
    }
    drop(listener);
    let under_way = async { while connections.join_next().await.is_some() {} };
    if time::timeout(limits.grace, under_way).await.is_err() {
        connections.shutdown().await;
    }
}

/// What one connection needs to be answered.
#[derive(Clone)]
struct Hall {
    state: Arc<State>,
    places: Arc<Semaphore>,
    visit: Arc<Visit>,
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, hall: Hall, limits: Limits) {
    let service = service_fn(|request: Request<Incoming>| {
        let Hall { state, places, visit } = hall.clone();
        async move {
            // Bodies are not looked at.
            let head = request.into_parts().0;
            Ok::<_, Infallible>(answer(&head, &state, || visit.take_place(&places)).await)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match time::timeout(limits.whole, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "admin connection broke off"),
        Err(_) => tracing::debug!("admin connection took too long"),
    }
}

/// Fields of a request's head.
const HEADERS_MAX: usize = 64;
/// A request's head, and what is buffered of an answer, bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// A file that is always there.
const SPARE: &str = "/dev/null";
/// Between two tries to accept after one that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpStream, UnixStream};
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::admin::{Access, Bind, Phase, Readiness, Text};
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn health_and_readiness_need_no_token() {
        let admin = Admin::start(Some("secret"), Limits::default());
        assert_eq!(admin.ask("GET /healthz", "").await.first_line(), "HTTP/1.1 200 OK");
        let starting = admin.ask("GET /readyz", "").await;
        assert_eq!(
            (starting.first_line(), starting.body()),
            ("HTTP/1.1 503 Service Unavailable", "starting\n")
        );
        admin.readiness.enter(Phase::Ready);
        assert_eq!(admin.ask("GET /readyz", "").await.body(), "ready\n");
        admin.readiness.enter(Phase::Draining);
        let draining = admin.ask("GET /readyz", "").await;
        assert_eq!(
            (draining.first_line(), draining.body()),
            ("HTTP/1.1 503 Service Unavailable", "draining\n")
        );
    }

    #[tokio::test]
    async fn everything_else_asks_for_the_token() {
        let admin = Admin::start(Some("secret"), Limits::default());
        for page in ["/", "/metrics", "/config", "/v1/explain?url=/a"] {
            let request = format!("GET {page}");
            for wrong in ["", "authorization: Bearer secreT\r\n", "authorization: Basic secret\r\n"] {
                let refused = admin.ask(&request, wrong).await;
                assert_eq!(refused.first_line(), "HTTP/1.1 401 Unauthorized", "{page} with {wrong}");
                assert!(refused.has_header("www-authenticate: Bearer"));
            }
            let shown = admin.ask(&request, "authorization: bearer secret\r\n").await;
            assert_eq!(shown.first_line(), "HTTP/1.1 200 OK", "{page}");
        }
    }

    #[tokio::test]
    async fn pages_show_what_they_are_given() {
        let admin = Admin::start(None, Limits::default());
        assert!(admin.ask("GET /", "").await.body().contains("/metrics"));
        assert_eq!(admin.ask("GET /config", "").await.body(), "workers = 2\n");
        let explained =
            admin.ask("GET /v1/explain?method=PUT&url=/a%3Fb&from=192.0.2.7&header=x-a:1", "").await;
        assert!(explained.has_header("content-type: application/json"));
        assert_eq!(explained.body(), r#"{"asked":"PUT /a?b from Some(192.0.2.7) with 1"}"#);
        let refused = admin.ask("GET /v1/explain?url=nowhere", "").await;
        assert_eq!(refused.first_line(), "HTTP/1.1 400 Bad Request");
        assert!(refused.has_header("content-type: application/problem+json"));
    }

    #[tokio::test]
    async fn a_key_is_named_by_its_policy_and_its_values() {
        let admin = Admin::start(None, Limits::default());
        let shown = admin.ask("GET /v1/keys/p/a%2Fb/192.0.2.7", "").await;
        assert!(shown.has_header("content-type: application/json"));
        assert_eq!(shown.body(), r#"{"key":["a/b", "192.0.2.7"]}"#);
        assert_eq!(admin.ask("GET /v1/keys/q/a", "").await.first_line(), "HTTP/1.1 404 Not Found");
        assert_eq!(admin.ask("GET /v1/keys/p/%FF", "").await.first_line(), "HTTP/1.1 400 Bad Request");
    }

    #[tokio::test]
    async fn metrics_come_in_the_format_asked_for() {
        let admin = Admin::start(None, Limits::default());
        let plain = admin.ask("GET /metrics", "").await;
        assert!(plain.has_header("content-type: text/plain; version=0.0.4; charset=utf-8"));
        assert!(plain.body().contains("# TYPE sluicegate_config_reloads_total counter\n"));
        let open_metrics = admin.ask("GET /metrics", "accept: application/openmetrics-text\r\n").await;
        assert!(
            open_metrics
                .has_header("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8")
        );
        assert!(open_metrics.body().ends_with("# EOF\n"));
    }

    #[tokio::test]
    async fn only_reading_is_possible() {
        let admin = Admin::start(None, Limits::default());
        let refused = admin.ask("POST /metrics", "content-length: 0\r\n").await;
        assert_eq!(refused.first_line(), "HTTP/1.1 405 Method Not Allowed");
        assert!(refused.has_header("allow: GET, HEAD"));
        assert_eq!(admin.ask("DELETE /nowhere", "").await.first_line(), "HTTP/1.1 404 Not Found");
        let head = admin.ask("HEAD /config", "").await;
        assert_eq!((head.first_line(), head.body()), ("HTTP/1.1 200 OK", ""));
        assert!(head.has_header("content-length: 12"));
    }

    #[tokio::test]
    async fn too_large_a_head_is_refused() {
        let admin = Admin::start(None, Limits::default());
        let answered =
            admin.ask("GET /healthz", &format!("x-long: {}\r\n", "a".repeat(HEAD_BYTES_MAX))).await;
        assert_eq!(answered.first_line(), "HTTP/1.1 431 Request Header Fields Too Large");
        let many = "x: y\r\n".repeat(HEADERS_MAX);
        let answered = admin.ask("GET /healthz", &many).await;
        assert_eq!(answered.first_line(), "HTTP/1.1 431 Request Header Fields Too Large");
    }

    #[tokio::test]
    async fn half_a_head_ends_with_its_deadline() {
        let admin = Admin::start(None, Limits { head: SHORT, ..Limits::default() });
        let mut stream = TcpStream::connect(admin.address).await.expect("connected");
        stream.write_all(b"GET /healthz HTT").await.expect("sent");
        let mut rest = Vec::new();
        within(stream.read_to_end(&mut rest)).await.expect("closed in order");
        assert!(!rest.starts_with(b"HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn of_many_that_say_nothing_the_oldest_goes() {
        let limits = Limits { waiting_max: 2, head: LONG, whole: LONG, ..Limits::default() };
        let admin = Admin::start(None, limits);
        let mut silent = Vec::new();
        for _ in 0..3 {
            silent.push(TcpStream::connect(admin.address).await.expect("connected"));
        }
        assert_eq!(within(silent[0].read(&mut [0])).await.unwrap_or(0), 0, "the oldest is closed");
        assert_eq!(within(admin.ask("GET /healthz", "")).await.first_line(), "HTTP/1.1 200 OK");
        assert_eq!(within(silent[1].read(&mut [0])).await.unwrap_or(0), 0, "the next one went for it");
        silent[2].write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it is open");
        assert!(within(silent[2].read(&mut [0])).await.expect("an answer") > 0);
    }

    #[tokio::test]
    async fn pages_that_are_shown_keep_no_probe_out() {
        let limits = Limits { pages_max: 1, waiting_max: 2, head: LONG, whole: LONG, ..Limits::default() };
        let admin = Admin::start(Some("secret"), limits);
        let token = "authorization: Bearer secret\r\n";
        // The key of this policy is never told.
        let stuck = TcpStream::connect(admin.address).await.expect("connected");
        let stuck = tokio::spawn(exchange(stuck, "GET /v1/keys/slow", token));
        let refused = loop {
            let answer = admin.ask("GET /metrics", token).await;
            if answer.first_line() != "HTTP/1.1 200 OK" {
                break answer;
            }
        };
        assert_eq!(refused.first_line(), "HTTP/1.1 503 Service Unavailable");
        assert!(refused.has_header("retry-after: 1"));
        for _ in 0..5 {
            assert_eq!(admin.ask("GET /healthz", "").await.first_line(), "HTTP/1.1 200 OK");
            // Who has no token takes no place, and makes nobody go who has one.
            assert_eq!(admin.ask("GET /metrics", "").await.first_line(), "HTTP/1.1 401 Unauthorized");
        }
        assert!(!stuck.is_finished(), "it is still waited for");
        stuck.abort();
    }

    #[tokio::test]
    async fn a_stuck_page_ends_with_its_deadline() {
        let admin = Admin::start(None, Limits { whole: SHORT, ..Limits::default() });
        let stuck = TcpStream::connect(admin.address).await.expect("connected");
        assert_eq!(within(exchange(stuck, "GET /v1/keys/slow", "")).await.0, "");
    }

    #[tokio::test]
    async fn two_authorizations_are_none() {
        for token in [None, Some("secret")] {
            let admin = Admin::start(token, Limits::default());
            let both = "authorization: Bearer secret\r\nauthorization: Bearer other\r\n";
            for page in ["/", "/config", "/healthz"] {
                let refused = admin.ask(&format!("GET {page}"), both).await;
                assert_eq!(refused.first_line(), "HTTP/1.1 400 Bad Request", "{page}");
            }
        }
    }

    #[tokio::test]
    async fn it_ends_when_told_even_with_a_connection_open() {
        let mut admin = Admin::start(None, Limits { grace: SHORT, ..Limits::default() });
        let mut idle = TcpStream::connect(admin.address).await.expect("connected");
        admin.ask("GET /healthz", "").await;
        admin.stop.take().expect("running").send(()).expect("listening");
        within(&mut admin.task).await.expect("ended in order");
        assert_eq!(
            within(idle.read_u8()).await.expect_err("closed").kind(),
            std::io::ErrorKind::UnexpectedEof
        );
        TcpStream::connect(admin.address).await.expect_err("no longer listening");
    }

    #[tokio::test]
    async fn a_unix_socket_answers_too() {
        let path = std::env::temp_dir().join(format!("sluicegate-admin-serve-{}.sock", std::process::id()));
        let listener = Listener::bind(&Bind::Unix(path.clone())).expect("bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let task =
            tokio::spawn(serve(listener, state(None, Readiness::default()), async { drop(stopped.await) }));
        let stream = UnixStream::connect(&path).await.expect("connected");
        assert_eq!(exchange(stream, "GET /healthz", "").await.body(), "ok\n");
        stop.send(()).expect("listening");
        within(task).await.expect("ended in order");
        assert!(!path.exists());
    }

    struct Admin {
        address: SocketAddr,
        readiness: Readiness,
        stop: Option<oneshot::Sender<()>>,
        task: JoinHandle<()>,
    }

    impl Admin {
        fn start(token: Option<&str>, limits: Limits) -> Admin {
            let listener = Listener::bind(&Bind::Tcp(([127, 0, 0, 1], 0).into())).expect("bound");
            let address = listener.tcp_address().expect("TCP");
            let readiness = Readiness::default();
            let state = state(token, readiness.clone());
            let (stop, stopped) = oneshot::channel::<()>();
            let shutdown = async { drop(stopped.await) };
            let task = tokio::spawn(async move { serve_within(&limits, listener, state, shutdown).await });
            Admin { address, readiness, stop: Some(stop), task }
        }

        async fn ask(&self, request: &str, headers: &str) -> Answer {
            let stream = TcpStream::connect(self.address).await.expect("connected");
            exchange(stream, request, headers).await
        }
    }

    fn state(token: Option<&str>, readiness: Readiness) -> Arc<State> {
        Arc::new(State {
            metrics: Metrics::new(1).0,
            readiness,
            config: Box::new(|| "workers = 2\n".to_owned()),
            explain: Box::new(|request| {
                let (method, url, headers) = (&request.method, &request.url, request.headers.len());
                let said = format!(r#"{{"asked":"{method} {url} from {:?} with {headers}"}}"#, request.from);
                Box::pin(std::future::ready(said))
            }),
            key: Box::new(|policy, values| {
                let said = format!(r#"{{"key":{values:?}}}"#);
                match policy {
                    "p" => Some(Box::pin(std::future::ready(said)) as Text),
                    "slow" => Some(Box::pin(std::future::pending())),
                    _ => None,
                }
            }),
            access: Access { token: token.map(str::to_owned), hosts: None },
        })
    }

    async fn exchange(
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        request: &str,
        headers: &str,
    ) -> Answer {
        let request = format!("{request} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        // An answer that stands before the end of its request may be followed by a reset instead of an end.
        while within(stream.read_buf(&mut answer)).await.is_ok_and(|read| read > 0) {}
        Answer(String::from_utf8(answer).expect("UTF-8"))
    }

    /// An answer as it came.
    struct Answer(String);

    impl Answer {
        fn first_line(&self) -> &str {
            self.0.lines().next().unwrap_or_default()
        }

        fn has_header(&self, line: &str) -> bool {
            self.0.lines().take_while(|found| !found.is_empty()).any(|found| found == line)
        }

        fn body(&self) -> &str {
            self.0.split_once("\r\n\r\n").expect("a whole head").1
        }
    }

    async fn within<T>(future: impl Future<Output = T>) -> T {
        time::timeout(Duration::from_secs(30), future).await.expect("in time")
    }

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);
}
