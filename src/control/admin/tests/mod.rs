//! The listener over sockets: its answers, its connections, bodies of requests.

mod answers;
mod api;
mod bodies;
mod connections;
mod live;

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time;

use super::access::{AdminRole, BearerToken};
use super::api::endpoint::AdminEndpoint;
use super::counts::{
    self, CheckQuestion, GrantOutcome, HotKeysShown, PenaltyShown, PolicyUsage, TierFrom, TierShown,
    WindowUsage,
};
use super::limits::AdminLimits;
use super::routes;
use super::serve::serve_within;
use super::{AccessRules, AdminState, CheckVerdict, LimitCounts, LiveFeed, ProcessPhase, Readiness, Text};
use crate::database::Time;
use metrics::Metrics;
use metrics::hot_keys::{self, KeyStanding, NamedKey, ShardNumber};
use net::listening::{Bind, BoundListener};
use policy::nat64::Nat64;

/// A listener of its own on a free port.
struct Admin {
    address: SocketAddr,
    readiness: Readiness,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Admin {
    fn start(token: Option<&str>, limits: AdminLimits) -> Admin {
        Admin::of(routes::endpoints(), token, limits)
    }

    fn of(endpoints: Vec<AdminEndpoint>, token: Option<&str>, limits: AdminLimits) -> Admin {
        let tokens = token.map(|text| BearerToken::of_text("token", text, AdminRole::Admin, None));
        Admin::of_state(endpoints, limits, |state| state.access.tokens = tokens.into_iter().collect())
    }

    fn of_state(
        endpoints: Vec<AdminEndpoint>,
        limits: AdminLimits,
        prepare: impl FnOnce(&mut AdminState),
    ) -> Admin {
        let listener =
            BoundListener::bind("admin listener", &Bind::Tcp(([127, 0, 0, 1], 0).into())).expect("bound");
        let address = listener.tcp_address().expect("TCP");
        let readiness = Readiness::default();
        let mut state = state(readiness.clone());
        prepare(&mut state);
        let state = Arc::new(state);
        let router = routes::router(endpoints, &state, &limits);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async { drop(stopped.await) };
        let task = tokio::spawn(async move { serve_within(&limits, listener, None, router, shutdown).await });
        Admin { address, readiness, stop: Some(stop), task }
    }

    /// One request on a connection of its own.
    async fn ask(&self, request: &str, headers: &str) -> RawAnswer {
        exchange(self.connect().await.0, request, headers).await
    }

    async fn connect(&self) -> TestClient<TcpStream> {
        TestClient(TcpStream::connect(self.address).await.expect("connected"))
    }
}

/// A connection that is kept.
struct TestClient<S>(S);

impl<S: AsyncRead + AsyncWrite + Unpin> TestClient<S> {
    async fn send(&mut self, bytes: &str) {
        self.0.write_all(bytes.as_bytes()).await.expect("sent");
    }

    /// Sends a request, without waiting for its answer.
    async fn request(&mut self, request: &str, headers: &str) {
        self.send(&format!("{request} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n")).await;
    }

    /// The next answer to a request that is not HEAD, by its length.
    async fn answer(&mut self) -> RawAnswer {
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\n") {
            read.push(within(self.0.read_u8()).await.expect("an answer"));
        }
        let head = String::from_utf8(read.clone()).expect("UTF-8");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().expect("a number"));
        let start = read.len();
        read.resize(start + length, 0);
        within(self.0.read_exact(&mut read[start..])).await.expect("its body");
        RawAnswer(String::from_utf8(read).expect("UTF-8"))
    }

    async fn ask(&mut self, request: &str, headers: &str) -> RawAnswer {
        self.request(request, headers).await;
        self.answer().await
    }

    /// Whether the listener closes it in order, without another byte.
    async fn closes(&mut self) -> bool {
        let mut rest = Vec::new();
        within(self.0.read_to_end(&mut rest)).await.is_ok() && rest.is_empty()
    }
}

fn state(readiness: Readiness) -> AdminState {
    AdminState {
        metrics: Metrics::new(1).0,
        readiness,
        config: Box::new(|| "workers = 2\n".to_owned()),
        policy: Box::new(|_| None),
        upstreams: Box::new(|| "[]".to_owned()),
        live: LiveFeed::new(Box::new(|| "{}".to_owned())),
        explain: Box::new(|request| {
            let (method, url, headers) = (&request.method, &request.url, request.headers.len());
            let said = format!(r#"{{"asked":"{method} {url} from {:?} with {headers}"}}"#, request.from);
            Box::pin(std::future::ready(said))
        }),
        key: Box::new(|policy, values, _| {
            let said = format!(r#"{{"key":{values:?}}}"#);
            match policy {
                "p" => Some(Box::pin(std::future::ready(said)) as Text),
                "slow" => Some(Box::pin(std::future::pending())),
                _ => None,
            }
        }),
        counts: LimitCounts {
            check: Box::new(|(asked, _)| {
                let verdict = |asked: &CheckQuestion| match asked.policy.as_str() {
                    "p" => CheckVerdict::allowed((Some(1), None), 0.0),
                    _ => CheckVerdict::undecided("no policy of this name is in force".to_owned()),
                };
                Box::pin(std::future::ready(asked.iter().map(verdict).collect()))
            }),
            usage: Box::new(|_| {
                let window = WindowUsage {
                    window: "p".to_owned(),
                    quota: limit::Quota::new(
                        limit::Algorithm::TokenBucket,
                        NonZeroU64::MIN,
                        NonZeroU64::MIN,
                        NonZeroU64::MIN,
                    ),
                    limit: 5,
                    capacity: 5,
                    period_seconds: Some(60.0),
                    used: 2,
                    leased: 1,
                    remaining: 2,
                    reset_at: Some(Time::now()),
                    from: counts::CountSource::Redis,
                    overridden: None,
                    tenant_limit: None,
                    hot_key: Some(counts::HotKeyUsage { instead_of: 7 }),
                };
                let of = |windows| PolicyUsage {
                    policy: "p".to_owned(),
                    by: vec!["consumer".to_owned()],
                    is_shadow: false,
                    replaces: None,
                    tier: Some(TierShown { name: "pro".to_owned(), from: TierFrom::Assumed }),
                    has_own_months: false,
                    penalty: Some(PenaltyShown { node: "edge-1".to_owned(), ends_at: Some(Time::now()) }),
                    outranked: Vec::new(),
                    windows,
                };
                Box::pin(std::future::ready(vec![of(Some(vec![window])), of(None)]))
            }),
            grant: Box::new(|_| Box::pin(std::future::ready(GrantOutcome::Carried(0)))),
            takes_time: false,
            counts_by: Box::new(|policy, _| policy == "p"),
            nat64: Box::new(|| Nat64::new(vec!["2001:db8:64::/96".parse().expect("a prefix")])),
            standing: Box::new(|_, _| Vec::new()),
            names: Box::new(|| counts::NamesInForce {
                policies: vec!["p".to_owned()],
                tiers: vec!["free".to_owned(), "pro".to_owned()],
            }),
            hot_keys: Some(Box::new(|asked| {
                let key = NamedKey::new(7, "p", "consumer=ann".to_owned(), Some(ShardNumber(1)));
                let shown = hot_keys::HotKeyReport {
                    key: Arc::new(key),
                    is_hot: true,
                    requests_per_second: 150.0,
                    denied_per_second: 50.0,
                    standing: Some(KeyStanding { of_policy: 0.5, ..KeyStanding::default() }),
                    minutes: vec![(asked.minutes, hot_keys::KeyCounts { requests: 9_000, denied: 3_000 })],
                };
                let row = hot_keys::FleetRow {
                    key: 7,
                    policy: "p".to_owned(),
                    name: String::new(),
                    requests: 9_000,
                    denied: 3_000,
                };
                let shards = [(ShardNumber(1), "b".to_owned())].into();
                let shown =
                    HotKeysShown { is_known: true, own: vec![shown], shards, fleet: Some((2, vec![row])) };
                Box::pin(std::future::ready(shown))
            })),
        },
        decisions: Arc::default(),
        shown_key: Box::new(str::to_owned),
        nodes: Box::new(|| None),
        control: None,
        access: AccessRules { without_token: AdminRole::Read, ..AccessRules::default() },
    }
}

/// One request, and all that comes until the connection ends.
async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
    headers: &str,
) -> RawAnswer {
    let request = format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    // An answer that stands before the end of its request may be followed by a reset instead of an end.
    while within(stream.read_buf(&mut answer)).await.is_ok_and(|read| read > 0) {}
    RawAnswer(String::from_utf8(answer).expect("UTF-8"))
}

struct RawAnswer(String);

impl RawAnswer {
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
