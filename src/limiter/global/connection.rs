//! One connection to a server: TCP, TLS if configured, login, scripts, and proof that it may be written to.
//!
//! It never retries: the pipeline that opens connections knows when that makes sense. A connection is handed out only
//! after a write has succeeded on it, so that a replica, a server that is loading or one that is out of memory counts
//! as down.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError,
    RedisResult, Value,
};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::condition::{Condition, is_elsewhere};
use super::config::{Config, Server, Topology};
use super::probe::Probe;
use super::script::Script;

pub(super) struct Connector {
    tls: Option<Arc<rustls::ClientConfig>>,
    /// Whether the topology is a cluster; otherwise a server that is a cluster node is refused.
    is_clustered: bool,
    pub(super) script: Arc<Script>,
    /// Servers whose ACL denies us `INFO`. They are not asked again, because each refusal is an entry in their ACL log.
    denied: Mutex<HashSet<String>>,
}

/// An open connection. Dropping the last of its clones closes it.
#[derive(Clone)]
pub(super) struct Connection {
    redis: MultiplexedConnection,
    pub(super) server: Server,
    pub(super) about: Arc<ServerInfo>,
    _driver: Arc<Driver>,
}

pub(super) type Pushes = mpsc::UnboundedReceiver<PushInfo>;

pub(super) struct Subscription {
    connection: Connection,
    pushes: Pushes,
}

/// What a server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerInfo {
    /// Name and version, as in `valkey 8.0.1` or `redis 7.0.15`.
    pub(super) version: String,
    /// Its `maxmemory-policy` if that evicts keys.
    pub(super) eviction: Option<String>,
    pub(super) is_clustered: bool,
}

/// Why there is no connection that could be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The certificates of `ca` are unreadable, or the system has none.
    #[error("certificates for rediss://: {0}")]
    Certificates(String),
    /// The operating system reports an error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It took longer than a connection may take.
    #[error("connecting and the login took longer than {0:?}: it is silent, too slow or too far away")]
    Timeout(Duration),
    /// Its port speaks something else, or it is far away.
    #[error("it does not answer the TLS handshake")]
    Handshake,
    /// What listens there may be anything.
    #[error("it closed the connection at the login ({0})")]
    Closed(RedisError),
    /// The server answers with an error. The text does not hold the command, because that may contain a password.
    #[error("{0}")]
    Redis(#[from] RedisError),
    /// It is a node of a cluster, which refuses calls whose keys are in several slots.
    #[error("the server is a node of a cluster; write `topology = \"cluster\"` in [redis]")]
    Clustered,
    /// The login succeeded, but the charge of the probe did not.
    #[error("{0}")]
    Probe(String),
    /// None of the sentinels that answer names a primary.
    #[error("no sentinel names a primary of `{0}`: {1}")]
    Unnamed(String, String),
}

impl ConnectError {
    pub(super) fn condition(&self) -> Condition {
        match self {
            ConnectError::Redis(error) => Condition::of(error).unwrap_or(Condition::Failing),
            ConnectError::Probe(text) => Condition::of_text(text).unwrap_or(Condition::Failing),
            ConnectError::Clustered => Condition::Failing,
            ConnectError::Timeout(_) | ConnectError::Handshake => Condition::Silent,
            ConnectError::Unnamed(_, why) => Condition::of_answer(why),
            // What comes back is no TLS, or its certificate is not trusted.
            ConnectError::Io(error) if error.kind() == io::ErrorKind::InvalidData => Condition::Failing,
            ConnectError::Certificates(_) | ConnectError::Closed(_) | ConnectError::Io(_) => {
                Condition::Unreachable
            }
        }
    }
}

struct Driver(tokio::task::AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connector {
    /// A connector for the servers of `config`; reads the certificates to trust if a server speaks TLS.
    pub(super) fn new(config: &Config, script: Arc<Script>) -> Result<Connector, ConnectError> {
        let tls =
            config.topology.servers().iter().any(|server| server.tls).then(|| trust(config)).transpose()?;
        let is_clustered = matches!(config.topology, Topology::Cluster(_));
        Ok(Connector { tls: tls.map(Arc::new), is_clustered, script, denied: Mutex::default() })
    }

    /// Opens a connection for scripts and proves it with `call`, a charge of `probe`. If the server's name has several
    /// addresses, each `round` begins with another.
    pub(super) async fn open(
        &self,
        server: &Server,
        round: u32,
        probe: &Probe,
        call: &Cmd,
    ) -> Result<Connection, ConnectError> {
        let opened = async {
            let mut connection = self.connect(server, round, None).await?;
            // Every ACL user may send `HELLO`. It comes first because it is short: to a client without a login, Redis
            // answers a longer command such as SCRIPT LOAD with an error about its length instead of `NOAUTH`.
            match connection.call(redis::cmd("HELLO").arg(2)).await {
                Ok(answer) => connection.about = Arc::new(ServerInfo::of_hello(&answer)),
                Err(error) if error.code() == Some("NOAUTH") => return Err(error.into()),
                Err(_) => {}
            }
            if let Some(about) = self.look(&connection).await {
                connection.about = Arc::new(about);
            }
            if connection.about.is_clustered && !self.is_clustered {
                return Err(ConnectError::Clustered);
            }
            connection.call(redis::cmd("SCRIPT").arg("LOAD").arg(&self.script.text)).await?;
            match connection.call(call).await {
                Ok(reply) => probe.read(&reply).map_err(ConnectError::Probe)?,
                // The probe's slot is on another node. Only a working node of a cluster answers that.
                Err(error) if is_elsewhere(&error) => {}
                Err(error) => return Err(error.into()),
            }
            Ok(connection)
        };
        tokio::time::timeout(CONNECT_WITHIN, opened)
            .await
            .unwrap_or(Err(ConnectError::Timeout(CONNECT_WITHIN)))
    }

    /// A connection that has logged in and has not been proven by a write: for sentinels and for questions.
    pub(super) async fn plain(&self, server: &Server) -> Result<Connection, ConnectError> {
        self.connect(server, 0, None).await
    }

    /// The same; if `pushes` is given, messages that the server pushes go there (RESP3).
    pub(super) async fn connect(
        &self,
        server: &Server,
        round: u32,
        pushes: Option<mpsc::UnboundedSender<PushInfo>>,
    ) -> Result<Connection, ConnectError> {
        let connected = async {
            match (&self.tls, server.tls) {
                (Some(tls), true) => {
                    let tcp = tcp(server, round).await?;
                    let name = ServerName::try_from(server.host.clone()).map_err(io::Error::other)?;
                    let secured = tokio_rustls::TlsConnector::from(Arc::clone(tls)).connect(name, tcp);
                    let secured = tokio::time::timeout(HANDSHAKE_WITHIN, secured).await;
                    login(server, secured.map_err(|_| ConnectError::Handshake)??, pushes).await
                }
                _ => login(server, tcp(server, round).await?, pushes).await,
            }
        };
        tokio::time::timeout(CONNECT_WITHIN, connected)
            .await
            .unwrap_or(Err(ConnectError::Timeout(CONNECT_WITHIN)))
    }

    /// The kept connection, if it is open and still leads to this server; else a new one as [`Connector::plain`] opens it.
    pub(super) async fn again(&self, kept: Option<Connection>, server: &Server) -> Option<Connection> {
        match kept.filter(|kept| kept.is_open() && kept.server == *server) {
            Some(kept) => Some(kept),
            None => self.plain(server).await.ok(),
        }
    }

    /// What the server says of itself; `None` if it fails or our user may not ask.
    pub(super) async fn look(&self, connection: &Connection) -> Option<ServerInfo> {
        Some(ServerInfo::of(&self.info(connection).await?))
    }

    /// Reads the server's `INFO`; `None` if it fails or our user may not.
    pub(super) async fn info(&self, connection: &Connection) -> Option<String> {
        if self.denied().contains(&connection.server.to_string()) {
            return None;
        }
        // Redis 7 can say whether it would deny a command. Because an older server can only be tried, and a refusal
        // would be an entry in its ACL log, `INFO` is not sent there under a configured ACL user.
        let may_ask = redis::cmd("EVAL").arg(MAY_ASK).arg(0).to_owned();
        let is_denied = match connection.call(&may_ask).await {
            Ok(Value::Int(0)) => true,
            Ok(Value::Int(2)) => connection.server.login.username.is_some(),
            _ => false,
        };
        let answer = if is_denied { None } else { Some(connection.call(&redis::cmd("INFO")).await) };
        match answer {
            Some(Ok(info)) => redis::from_redis_value(info).ok(),
            Some(Err(error)) if error.code() != Some("NOPERM") => None,
            _ => {
                self.denied().insert(connection.server.to_string());
                None
            }
        }
    }

    fn denied(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    pub(super) fn is_open(&self) -> bool {
        !self._driver.0.is_finished()
    }

    /// Sends a command and waits for its reply without a limit; deadlines are the pipeline's.
    pub(super) async fn call(&self, command: &Cmd) -> RedisResult<Value> {
        self.redis.clone().send_packed_command(command).await?.extract_error()
    }

    /// Sends a command that is no operation, and waits as long as a connection may take to open.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, ConnectError> {
        let answer = tokio::time::timeout(CONNECT_WITHIN, self.call(command)).await;
        Ok(answer.map_err(|_| ConnectError::Timeout(CONNECT_WITHIN))??)
    }

    /// Sends a command with `ASKING`: this node of a cluster takes it although the slot is still moving to it.
    pub(super) async fn call_asking(&self, command: &Cmd) -> RedisResult<Value> {
        let mut pipeline = redis::Pipeline::with_capacity(2);
        pipeline.cmd("ASKING");
        pipeline.add_command(command.clone());
        let replies = self.redis.clone().send_packed_commands(&pipeline, 1, 1).await?;
        replies.into_iter().next().unwrap_or(Value::Nil).extract_error()
    }

    /// Listens to a channel. `pushes` is where this connection's messages go.
    pub(super) async fn subscribe(
        &self,
        channel: &str,
        pushes: Pushes,
    ) -> Result<Subscription, ConnectError> {
        self.ask(redis::cmd("SUBSCRIBE").arg(channel)).await?;
        Ok(Subscription { connection: self.clone(), pushes })
    }
}

impl Subscription {
    /// Waits for the next message, or for so long; whether one came. `None`: the connection is lost. A quiet server is asked
    /// whether it is there, because one whose host is lost closes nothing.
    pub(super) async fn next(&mut self, quiet: Duration) -> Option<bool> {
        loop {
            match tokio::time::timeout(quiet, self.pushes.recv()).await {
                Ok(push) => match push?.kind {
                    PushKind::Disconnection => return None,
                    PushKind::Message => return Some(true),
                    _ => {}
                },
                Err(_) => return self.connection.ask(&redis::cmd("PING")).await.is_ok().then_some(false),
            }
        }
    }
}

/// Connects to one of the name's addresses; each `round` begins with another.
async fn tcp(server: &Server, round: u32) -> io::Result<TcpStream> {
    let mut addresses: Vec<SocketAddr> =
        tokio::net::lookup_host((server.host.as_str(), server.port)).await?.collect();
    let first = round as usize % addresses.len().max(1);
    addresses.rotate_left(first);
    let tcp = first_of(addresses.into_iter().map(TcpStream::connect)).await;
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "the name of the server does not resolve");
    let tcp = tcp.ok_or_else(unknown)??;
    tcp.set_nodelay(true)?;
    let socket = socket2::SockRef::from(&tcp);
    let keepalive =
        socket2::TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(tcp)
}

/// The first attempt that succeeds, or the last that failed. Each begins as soon as the one before has failed or has been silent
/// for [`ATTEMPTS_APART`] (RFC 8305, section 5).
pub(super) async fn first_of<T, E, F>(attempts: impl Iterator<Item = F>) -> Option<Result<T, E>>
where
    F: Future<Output = Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    let (mut next, mut begun, mut last) = (attempts.peekable(), JoinSet::new(), None);
    loop {
        match next.next() {
            Some(attempt) => drop(begun.spawn(attempt)),
            None if begun.is_empty() => return last,
            None => {}
        }
        tokio::select! {
            Some(Ok(ended)) = begun.join_next() => match ended {
                Ok(_) => return Some(ended),
                Err(_) => last = Some(ended),
            },
            () = tokio::time::sleep(ATTEMPTS_APART), if next.peek().is_some() => {}
            else => {}
        }
    }
}

pub(super) async fn login<S>(
    server: &Server,
    stream: S,
    pushes: Option<mpsc::UnboundedSender<PushInfo>>,
) -> Result<Connection, ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut settings = RedisConnectionInfo::default().set_db(server.login.db.into()).set_skip_set_lib_name();
    if let Some(username) = &server.login.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = &server.login.password {
        settings = settings.set_password(&password.0);
    }
    // The crate sets no deadlines and sends nothing again, because both are the pipeline's, by call.
    let mut config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    if let Some(pushes) = pushes {
        settings = settings.set_protocol(ProtocolVersion::RESP3);
        config = config.set_push_sender(pushes);
    }
    let connected = MultiplexedConnection::new_with_config(&settings, stream, config).await;
    let (redis, driver) =
        connected.map_err(|error| match error.is_io_error() || error.is_connection_dropped() {
            true => ConnectError::Closed(error),
            false => error.into(),
        })?;
    let driver = Driver(tokio::spawn(driver).abort_handle());
    Ok(Connection { redis, server: server.clone(), about: Arc::default(), _driver: Arc::new(driver) })
}

impl ServerInfo {
    /// From the reply to HELLO: pairs of names and values.
    fn of_hello(hello: &Value) -> ServerInfo {
        let pairs: HashMap<String, Value> = redis::from_redis_value_ref(hello).unwrap_or_default();
        let field =
            |name: &str| pairs.get(name).and_then(|value| redis::from_redis_value_ref::<String>(value).ok());
        let unknown = || "of unknown version".to_owned();
        ServerInfo {
            version: format!(
                "{} {}",
                field("server").unwrap_or_else(|| "redis".to_owned()),
                field("version").unwrap_or_else(unknown)
            ),
            eviction: None,
            is_clustered: field("mode").as_deref() == Some("cluster"),
        }
    }

    /// From the reply to INFO: lines of `name:value`.
    fn of(text: &str) -> ServerInfo {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let version = match (field("valkey_version:"), field("redis_version:")) {
            (Some(version), _) => format!("valkey {version}"),
            (None, version) => format!("redis {}", version.unwrap_or("of unknown version")),
        };
        let eviction = field("maxmemory_policy:").filter(|policy| *policy != "noeviction");
        let is_clustered = field("cluster_enabled:") == Some("1");
        ServerInfo { version, eviction: eviction.map(str::to_owned), is_clustered }
    }
}

fn trust(config: &Config) -> Result<rustls::ClientConfig, ConnectError> {
    let mut roots = rustls::RootCertStore::empty();
    match &config.ca {
        Some(file) => {
            let wrong = |why: String| ConnectError::Certificates(format!("{}: {why}", file.display()));
            let found = rustls::pki_types::CertificateDer::pem_file_iter(file);
            for certificate in found.map_err(|error| wrong(error.to_string()))? {
                let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
                roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
        }
        None => {
            let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            tracing::debug!(added, "the system's certificates");
        }
    }
    if roots.is_empty() {
        return Err(ConnectError::Certificates("the system has none; set `ca` in [redis]".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let versions =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let versions = versions.map_err(|error| ConnectError::Certificates(error.to_string()))?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

/// Answers whether this user may send INFO: 1 or 0, or 2 if the server is too old to say. Unlike a refused INFO it
/// leaves no entry in the ACL log.
const MAY_ASK: &str =
    "if not redis.acl_check_cmd then return 2 end return redis.acl_check_cmd('INFO') and 1 or 0";
/// How long opening a connection may take, or a question that is not an operation. To a limiter with a deadline of
/// milliseconds a slower server is down.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_millis(300);
/// How long its TLS handshake may, so that it and not the whole is said to be what nobody answered.
const HANDSHAKE_WITHIN: Duration = Duration::from_millis(200);
/// How long one attempt may be silent before the next is made as well.
const ATTEMPTS_APART: Duration = Duration::from_millis(50);
/// The kernel probes an idle connection this often, and closes it after three probes without an answer.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// The kernel closes a connection whose peer has not acknowledged sent bytes for this long.
const USER_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn the_next_address_is_tried_while_one_is_silent() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be had").block_on(async {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            // Once its accept queue is full, the kernel drops new connections silently.
            let silent = Socket::new(Domain::IPV4, Type::STREAM, None).expect("descriptors can be had");
            silent.bind(&any.into()).and_then(|()| silent.listen(0)).expect("loopback has a free port");
            let deaf = silent.local_addr().ok().and_then(|addr| addr.as_socket()).expect("it is bound");
            let queued: Vec<_> = (0..4).map(|_| TcpStream::connect(deaf)).map(Box::pin).collect();
            let mut queued: JoinSet<_> = queued.into_iter().collect();
            while tokio::time::timeout(ATTEMPTS_APART, queued.join_next()).await.is_ok() {}
            let live = tokio::net::TcpListener::bind(any).await.expect("loopback has a free port");
            let addr = live.local_addr().expect("it is bound");
            let connect = |addresses: Vec<_>| first_of(addresses.into_iter().map(TcpStream::connect));
            let connected = tokio::time::timeout(CONNECT_WITHIN * 3, connect(vec![deaf, addr])).await;
            let connected = connected.expect("within a connection's time").expect("there are two");
            let tcp = connected.expect("one of them answers");
            assert_eq!(tcp.peer_addr().ok(), Some(addr));
            drop(live);
            assert!(connect(vec![addr]).await.is_some_and(|refused| refused.is_err()));
            assert!(connect(Vec::<SocketAddr>::new()).await.is_none());
        });
    }
}
