use std::net::SocketAddr;
use std::path::PathBuf;

use http::HeaderMap;
use tokio::sync::mpsc::{Receiver, channel};

use super::*;
use auth::cache::Cache;
use auth::{AuthRequest, MethodAnswer};
use limiter::local::Table;
use metrics::ScrapeFormat;
use observe::trace::Exporter;

/// A publisher without workers. The bench keeps the receiver of their commands, so that sending them does not fail.
struct Bench {
    publisher: Publisher,
    directory: PathBuf,
    _commands: Receiver<WorkerCommand>,
}

impl Bench {
    fn new(name: &str) -> Bench {
        let directory =
            std::env::temp_dir().join(format!("sluicegate-publisher-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let (metrics, _) = Metrics::new(1);
        let (commands, received) = channel(64);
        let first = defined("[log]\naccess = { to = \"off\" }").config;
        let logs = Logs::open(&first, &metrics).expect("there is nothing to open");
        let exporter = Exporter::start(Arc::new(Dns::new(first.dns.clone())).connect(), &metrics.spans);
        let process = Process {
            limiter: Arc::new(Limiter::new(Table::with_memory(1 << 20))),
            metrics,
            overload: Arc::new(Overload::new(first.overload.clone())),
            logs,
            samples: Arc::default(),
            exporter: Arc::new(exporter),
            commands: vec![commands],
            fleet_values: None,
            salt: [7; 16],
        };
        let publisher = Publisher::new(process, &first).expect("nothing is wrong with nothing");
        Bench { publisher, directory, _commands: received }
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.directory.join(name);
        std::fs::write(&path, text).expect("the temporary directory is writable");
        path.display().to_string()
    }

    /// Everything that a failed publication must not change.
    fn in_force(&self) -> (u64, Arc<Snapshot>, String, Option<SocketAddr>, String) {
        (
            self.publisher.published,
            self.publisher.current.load_full(),
            self.publisher.text.load().text.clone(),
            self.publisher.listeners.address("main"),
            String::from_utf8(self.publisher.process.metrics.encode(ScrapeFormat::Prometheus)).expect("text"),
        )
    }

    /// Whether this API key is known.
    fn knows(&self, key: &str) -> bool {
        let headers = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-api-key"),
            key.parse().expect("it is a field's value"),
        )]);
        let asked = AuthRequest { headers: &headers, query: None, certificate: None, now: clock::unix() };
        let snapshot = self.publisher.current.load();
        let method = snapshot.auth.first().expect("there is one");
        matches!(method.check(&asked, &Cache::new(method.id)), MethodAnswer::Known(_))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A definition that no file holds.
fn defined(text: &str) -> Definition {
    let text = format!("admin = false\n{text}");
    match config::from_text("a test", &text) {
        Ok(loaded) => Definition::new(loaded.config),
        Err(errors) => panic!("{errors}"),
    }
}

fn serving(keys: &str, rest: &str) -> String {
    format!(
        "[listener.main]\nbind = \"127.0.0.1:0\"\n[auth.keys]\nkind = \"api-key\"\nkeys = {{ file = \"{keys}\" }}\n\
         [policy.p]\nby = [\"ip\"]\nlimit = \"10/s\"\n[[route]]\nname = \"r\"\npath = \"/\"\nto = \"http://127.0.0.1:1\"\n\
         auth = \"keys\"\nlimit = \"p\"\n{rest}"
    )
}

fn keys_of(key: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[[key]]\nsha256 = \"{hex}\"\nconsumer = \"a\"\n")
}

#[tokio::test]
async fn a_publication_reports_what_changed() {
    let mut bench = Bench::new("changes");
    let keys = bench.write("keys.toml", &keys_of("one"));
    let off = "[log]\naccess = { to = \"off\" }";
    let first = bench.publisher.publish(defined(&serving(&keys, off))).await.expect("it is valid");
    assert_eq!(
        first.to_string(),
        "listener: 1 added (main); auth: 1 added (keys); upstream: 1 added (http://127.0.0.1:1); policy: 1 added (p); \
         route: 1 added (r)"
    );
    let again = bench.publisher.publish(defined(&serving(&keys, off))).await.expect("it is valid");
    assert_eq!(again.to_string(), "nothing changed");
    let text =
        serving(&keys, "[[route]]\nname = \"s\"\npath = \"/s\"\nto = \"echo\"\n[shutdown]\ndrain = \"1s\"\n");
    let text = text.replace("10/s", "20/s").replace("[listener.main]", "[listener.other]") + off;
    let changes = bench.publisher.publish(defined(&text)).await.expect("it is valid");
    assert_eq!(
        changes.to_string(),
        "listener: 1 added (other), 1 removed (main); policy: 1 changed (p); route: 1 added (s); shutdown"
    );
    assert_eq!(bench.publisher.published, 3);
}

#[tokio::test]
async fn a_failed_publication_changes_nothing() {
    let mut bench = Bench::new("failures");
    let keys = bench.write("keys.toml", &keys_of("one"));
    let off = "[log]\naccess = { to = \"off\" }";
    bench.publisher.publish(defined(&serving(&keys, off))).await.expect("it is valid");
    let before = bench.in_force();
    // Rewrites the file of keys: a failed publication must not bring the new keys either.
    bench.write("keys.toml", &keys_of("two"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = taken.local_addr().expect("it is bound");
    let more = "[policy.new]\nby = [\"ip\"]\nlimit = \"7/m\"\n[[route]]\nname = \"new\"\npath = \"/new\"\nto = \"echo\"\nlimit = \"new\"\n";
    let absent = bench.directory.join("absent");
    let absent = absent.display();
    for (stage, rest, message) in [
        (
            "credentials",
            format!("[auth.b]\nkind = \"basic\"\nusers = {{ file = \"{absent}\" }}\n{off}"),
            "auth \"b\", `users`",
        ),
        (
            "trust",
            format!("[upstream.u]\nservers = [\"https://a\"]\ntls = {{ ca = \"{absent}\" }}\n{off}"),
            "upstream \"u\", `tls.ca`",
        ),
        (
            "certificates",
            format!(
                "[listener.tls]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"{absent}\", key = \"{absent}\" }}]\n{off}"
            ),
            "listener \"tls\", `certs[0].cert`",
        ),
        ("sockets", format!("[listener.taken]\nbind = \"{taken}\"\n{off}"), "cannot bind"),
        ("access log", format!("[log]\naccess = {{ to = \"{absent}/access.log\" }}"), "absent/access.log"),
    ] {
        let definition = defined(&serving(&keys, &format!("{more}{rest}")));
        let said = bench.publisher.publish(definition).await.expect_err(stage).to_string();
        assert!(said.contains(message), "{stage}: {said}");
        check_unchanged(&bench, &before, stage);
    }
    let mut tied = defined(&serving(&keys, off));
    let twin = config_twin(&tied.config);
    tied.config.routes.push(twin);
    bench.publisher.publish(tied).await.expect_err("two routes tie");
    check_unchanged(&bench, &before, "compilation");
}

fn config_twin(config: &Config) -> policy::definition::RouteDefinition {
    policy::definition::RouteDefinition { name: "twin".to_owned(), ..config.routes[0].clone() }
}

#[track_caller]
fn check_unchanged(
    bench: &Bench,
    before: &(u64, Arc<Snapshot>, String, Option<SocketAddr>, String),
    stage: &str,
) {
    let after = bench.in_force();
    assert!(Arc::ptr_eq(&before.1, &after.1), "{stage}");
    assert_eq!((before.0, &before.2, before.3, &before.4), (after.0, &after.2, after.3, &after.4), "{stage}");
    assert!(bench.knows("one") && !bench.knows("two"), "{stage}");
}

#[tokio::test]
async fn keys_change_without_a_compilation() {
    let mut bench = Bench::new("keys");
    let keys = bench.write("keys.toml", &keys_of("one"));
    let off = "[log]\naccess = { to = \"off\" }";
    bench.publisher.publish(defined(&serving(&keys, off))).await.expect("it is valid");
    let before = bench.in_force();
    bench.write("keys.toml", &format!("{}# more\n", keys_of("two")));
    bench.publisher.read_changed_files().await;
    assert!(bench.knows("two") && !bench.knows("one"));
    assert!(Arc::ptr_eq(&before.1, &bench.publisher.current.load_full()), "the snapshot stays");
    bench.write("keys.toml", "broken");
    bench.publisher.read_changed_files().await;
    assert!(bench.knows("two"), "a broken file leaves the old keys");
}
