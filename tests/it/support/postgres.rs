//! Real PostgreSQL servers on a socket of their own: one that tests share, each with a database of its own in it, and some
//! that a test may stop.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use super::redis::free_port;
use super::{eventually, signal, text};

/// A running server. It is stopped when this is dropped.
pub struct Postgres {
    child: Child,
    directory: PathBuf,
    user: Option<User>,
    port: u16,
}

/// Whom the server runs as: it refuses root.
#[derive(Clone)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
}

impl Postgres {
    /// The one that tests share. It ends with the process.
    pub fn shared() -> &'static Postgres {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| {
            // The server's parent is a thread that stays: the kernel stops the server when that ends.
            let (tell, told) = mpsc::channel();
            thread::spawn(move || {
                tell.send(Postgres::start()).expect("it is waited for");
                loop {
                    thread::park();
                }
            });
            told.recv().expect("the server has started")
        })
    }

    /// Starts one of its own. It stops at the latest when the thread that starts it ends.
    pub fn start() -> Postgres {
        let (directory, user) = place();
        let data = directory.join("data");
        let mut init = command(user.as_ref(), "initdb");
        init.args([
            "--username",
            "postgres",
            "--auth",
            "trust",
            "--no-sync",
            "--encoding",
            "UTF8",
            "--pgdata",
        ]);
        let output = init.arg(&data).output().expect("PostgreSQL is installed (tests/all does it)");
        assert!(output.status.success(), "{}", text(&output.stderr));
        // Over the socket everybody is trusted, over TCP a password is asked for.
        let rules =
            "local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(data.join("pg_hba.conf"), rules).expect("it is ours");
        let port = free_port();
        let child = launch(user.as_ref(), &directory, port);
        let postgres = Postgres { child, directory, user, port };
        postgres.answers();
        postgres
    }

    /// A standby of this one, which follows it. It stops as this one does.
    pub fn standby(&self) -> Postgres {
        let (directory, user) = place();
        let mut copy = command(user.as_ref(), "pg_basebackup");
        copy.arg("--host").arg(&self.directory).args(["--port", &self.port.to_string()]);
        copy.args(["--username", "postgres", "--write-recovery-conf", "--checkpoint", "fast", "--no-sync"]);
        let output = copy.arg("--pgdata").arg(directory.join("data")).output().expect("it is installed");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let port = free_port();
        let child = launch(user.as_ref(), &directory, port);
        let standby = Postgres { child, directory, user, port };
        standby.answers();
        standby
    }

    /// Waits until a standby has everything that this one has.
    pub fn is_followed(&self, standby: &Postgres) {
        let here = self.sql("postgres", "SELECT pg_current_wal_lsn()");
        let has = format!("SELECT pg_last_wal_replay_lsn() >= '{here}'::pg_lsn");
        eventually("the standby has everything", || (standby.sql("postgres", &has) == "t").then_some(()));
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote()"), "t");
    }

    /// The URL of a database on any of these servers, over their sockets.
    pub fn url_of_all(servers: &[&Postgres], database: &str) -> String {
        let sockets: Vec<String> = servers.iter().map(|it| it.directory.display().to_string()).collect();
        let ports: Vec<String> = servers.iter().map(|it| it.port.to_string()).collect();
        format!("postgres:///{database}?host={}&port={}&user=postgres", sockets.join(","), ports.join(","))
    }

    /// Makes a database; its name.
    pub fn database(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        name
    }

    /// The URL of a database, over the socket.
    pub fn url(&self, database: &str) -> String {
        let socket = self.directory.display();
        format!("postgres:///{database}?host={socket}&port={}&user=postgres", self.port)
    }

    /// Its port on 127.0.0.1, where users need a password.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What psql prints for a statement; panics with its errors if it fails.
    pub fn sql(&self, database: &str, statement: &str) -> String {
        let (said, failed) = self.psql(database, statement);
        assert!(failed.is_empty(), "{statement}: {failed}");
        said.trim().to_owned()
    }

    /// What psql prints for a statement, and its errors.
    pub fn psql(&self, database: &str, statement: &str) -> (String, String) {
        let mut command = Command::new("timeout");
        command.args(["30", "psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
        command.args(["--set", "ON_ERROR_STOP=1", "--username", "postgres", "--dbname", database]);
        command.arg("--host").arg(&self.directory).args(["--port", &self.port.to_string()]);
        let output = command.args(["--command", statement]).output().expect("psql comes with the server");
        (text(&output.stdout), text(&output.stderr))
    }

    /// Sends a signal to the server, by its name.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Sends a signal to all processes of the server: each connection has one.
    pub fn signal_all(&self, name: &str) {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        for child in fs::read_to_string(children).unwrap_or_default().split_whitespace() {
            // One that has ended meanwhile needs no signal.
            Command::new("sh").args(["-c", &format!("kill -{name} {child} 2>&-")]).status().ok();
        }
        self.signal(name);
    }

    /// Has it speak TLS from now on, with this certificate and its key, both PEM.
    pub fn certify(&self, cert: &str, key: &str) {
        for (name, pem) in [("server.crt", cert), ("server.key", key)] {
            let file = self.directory.join("data").join(name);
            fs::write(&file, pem).expect("it is ours");
            // It takes no key that others could read.
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
            if let Some(user) = &self.user {
                chown(&file, Some(user.uid), Some(user.gid)).expect("root gives files away");
            }
        }
        self.sql("postgres", "ALTER SYSTEM SET ssl = on");
        self.sql("postgres", "SELECT pg_reload_conf()");
        eventually("it speaks TLS", || (self.sql("postgres", "SHOW ssl") == "on").then_some(()));
    }

    /// SIGKILL to the server, whose other processes see that and end.
    pub fn kill(&mut self) {
        super::end(&mut self.child);
    }

    /// Stops it in order, with its connections broken off.
    pub fn stop(&mut self) {
        self.signal("INT");
        self.child.wait().expect("it is our child");
    }

    /// Starts it again where it was.
    pub fn restart(&mut self) {
        // What is left of a killed one holds the shared memory until it has ended.
        eventually("PostgreSQL starts again", || {
            self.child = launch(self.user.as_ref(), &self.directory, self.port);
            eventually("PostgreSQL answers or ends", || {
                if self.child.try_wait().expect("it is our child").is_some() {
                    return Some(None);
                }
                self.psql("postgres", "SELECT 1").1.is_empty().then_some(Some(()))
            })
        });
    }

    fn answers(&self) {
        eventually("PostgreSQL answers", || self.psql("postgres", "SELECT 1").1.is_empty().then_some(()));
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.signal_all("CONT");
            self.stop();
        }
        fs::remove_dir_all(&self.directory).ok();
    }
}

impl User {
    /// Somebody else if this is root.
    fn unprivileged() -> Option<User> {
        let id = |arguments: &[&str]| -> Option<u32> {
            let output = Command::new("id").args(arguments).output().ok()?;
            text(&output.stdout).trim().parse().ok()
        };
        if id(&["-u"]) != Some(0) {
            return None;
        }
        let user = ["postgres", "nobody"].into_iter().find_map(|name| {
            Some(User { name: name.to_owned(), uid: id(&["-u", name])?, gid: id(&["-g", name])? })
        });
        Some(user.expect("there is a user besides root"))
    }
}

/// A directory for a server, and whom it runs as.
fn place() -> (PathBuf, Option<User>) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    remove_leftovers();
    let name = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    // Not in the target directory: the path of a socket has 107 bytes at most, and another user has to get there.
    let directory = std::env::temp_dir().join(name);
    fs::create_dir(&directory).expect("the directory of temporary files is writable");
    let user = User::unprivileged();
    if let Some(user) = &user {
        chown(&directory, Some(user.uid), Some(user.gid)).expect("root gives files away");
    }
    (directory, user)
}

/// The server on its socket and on its port of 127.0.0.1. A test needs nothing to outlive the machine.
fn launch(user: Option<&User>, directory: &Path, port: u16) -> Child {
    let mut server = command(user, "postgres");
    server.arg("-D").arg(directory.join("data")).arg("-k").arg(directory);
    server.args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]);
    server.args(["-c", "max_connections=200", "-c", "shared_buffers=16MB", "-c", "log_min_messages=fatal"]);
    let log = fs::File::create(directory.join("log")).expect("the directory is ours");
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    server.spawn().expect("PostgreSQL is installed (tests/all does it)")
}

/// A program of the server's package, as a user it accepts. It ends when the thread that started it does.
fn command(user: Option<&User>, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig=INT");
    if let Some(user) = user {
        command.args([format!("--reuid={}", user.name), format!("--regid={}", user.gid)]);
        command.arg("--clear-groups");
    }
    command.arg(programs().join(program));
    command.current_dir("/");
    command
}

/// Where Debian keeps the programs of the newest server that is installed.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed (tests/all does it)");
    let newest = versions.filter_map(Result::ok).map(|version| version.path()).max();
    newest.expect("PostgreSQL is installed (tests/all does it)").join("bin")
}

/// Removes directories of processes that are gone: nobody drops a shared server.
fn remove_leftovers() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

const PREFIX: &str = "sluicegate-postgres-";
