//! The gateway under test: its process, its configuration, its logs and metrics.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Client, Directory, Response, end, eventually, get, signal};

/// A running gateway. It is stopped when the test ends.
pub struct Gateway {
    child: Child,
    directory: Directory,
    stderr: Arc<Mutex<Vec<String>>>,
}

impl Gateway {
    /// Starts one and waits until it is ready.
    ///
    /// What a test does not write itself is added: a listener `plain`, the admin, an access log, a quick stop.
    pub fn start(config: &str) -> Gateway {
        Gateway::start_in(Directory::new(), config)
    }

    /// Starts one whose files are in this directory already.
    pub fn start_in(directory: Directory, config: &str) -> Gateway {
        Gateway::start_with(directory, config, &[])
    }

    /// The same with variables in its environment.
    pub fn start_with(directory: Directory, config: &str, environment: &[(&str, &str)]) -> Gateway {
        let mut command = binary();
        command.envs(environment.iter().copied());
        Gateway::start_by(command, directory, config)
    }

    /// The same by a command of its own, which takes the arguments of the binary.
    pub fn start_by(mut command: Command, directory: Directory, config: &str) -> Gateway {
        let file = directory.write("gateway.toml", complete(config, &directory));
        let mut child = command
            .args(["run", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary under test can be started");
        let pipe = child.stderr.take().expect("it was asked for");
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&stderr);
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(super::text(&line));
            }
        });
        let mut gateway = Gateway { child, directory, stderr };
        eventually("the gateway is ready", || {
            let lines = gateway.stderr();
            if let Ok(Some(status)) = gateway.child.try_wait() {
                panic!("the gateway ended with {status}:\n{}", lines.join("\n"));
            }
            lines.iter().any(|line| line.starts_with("sluicegate: ready")).then_some(())
        });
        gateway
    }

    /// The address of the listener `plain`.
    pub fn plain(&self) -> SocketAddr {
        self.listener("plain")
    }

    /// The address of a listener; waits until it is said, for a reload counts as done before its lines are read.
    pub fn listener(&self, name: &str) -> SocketAddr {
        eventually(&format!("the address of {name} is said"), || {
            let said = self.stderr();
            // The last one: a reload may have moved it.
            let found = said.iter().rev().filter_map(|line| address(line)).find(|(of, _)| of == name);
            found.map(|(_, address)| address)
        })
    }

    /// A connection to the listener `plain`.
    pub fn client(&self) -> Client {
        Client::connect(self.plain())
    }

    /// One GET at the listener `plain`.
    pub fn get(&self, target: &str) -> Response {
        get(self.plain(), target)
    }

    /// One GET at the admin listener.
    pub fn admin(&self, target: &str) -> Response {
        get(self.listener("admin"), target)
    }

    /// A request to the admin API, as the bearer of a token; a body is JSON, and `Null` is none. On a busy machine a gateway
    /// may be ready before its database has answered: it is asked again for a moment then, since nothing was done.
    pub fn ask(&self, token: &str, method: &str, path: &str, fields: &[&str], body: &Value) -> Response {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let bearer = format!("Authorization: Bearer {token}");
        let fields = [&[&*bearer, "Content-Type: application/json"], fields].concat();
        let began = Instant::now();
        loop {
            let answer = Client::connect(self.listener("admin")).request(method, path, &fields, &body);
            let is_early = answer.status == 503 && answer.text().contains("has not answered since the start");
            if !is_early || began.elapsed() > Duration::from_secs(5) {
                return answer;
            }
            thread::sleep(Duration::from_millis(25));
        }
    }

    /// The sum of all samples of a metric whose labels hold every one of `labels` (`route="a"`).
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let page = self.admin("/metrics").text();
        page.lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.rsplit_once(' '))
            .filter(|(series, _)| series.split('{').next() == Some(name))
            .filter(|(series, _)| labels.iter().all(|label| series.contains(label)))
            .map(|(_, value)| value.parse::<f64>().expect("a sample ends with its value"))
            .sum()
    }

    /// How a candidate compares with the policy that it is to replace, or a policy's algorithm with that of before: `agreed`,
    /// `only-old-denies` and `only-new-denies`.
    pub fn compared(&self, policy: &str) -> [f64; 3] {
        ["agreed", "only-old-denies", "only-new-denies"].map(|outcome| {
            let labels = [format!("policy=\"{policy}\""), format!("outcome=\"{outcome}\"")];
            self.metric("sluicegate_comparisons_total", &labels.each_ref().map(String::as_str))
        })
    }

    /// The access-log line of the first request whose path is this.
    pub fn logged(&self, path: &str) -> Value {
        eventually(&format!("a line about {path} in the access log"), || {
            self.access_log().into_iter().find(|line| line["path"] == path)
        })
    }

    /// The first line of the access log that this holds for.
    pub fn logged_where(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("a line with {what} in the access log"), || {
            self.access_log().into_iter().find(&holds)
        })
    }

    /// Every line of the access log so far; panics where one is not JSON.
    pub fn access_log(&self) -> Vec<Value> {
        let content = fs::read(self.directory.join("access.log")).unwrap_or_default();
        let whole = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = content[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let parse = |line| {
            serde_json::from_slice(line).unwrap_or_else(|error| panic!("{error} in {}", super::text(line)))
        };
        lines.map(parse).collect()
    }

    /// The access log's bytes.
    pub fn access_log_bytes(&self) -> Vec<u8> {
        fs::read(self.directory.join("access.log")).unwrap_or_default()
    }

    /// What it printed on standard error so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the configuration, sends SIGHUP and waits until the reload has succeeded.
    pub fn reload(&self, config: &str) {
        self.reload_to(config, "succeeded");
    }

    /// The same with a configuration that must be refused.
    pub fn reload_refused(&self, config: &str) {
        self.reload_to(config, "failed");
    }

    fn reload_to(&self, config: &str, result: &str) {
        let (good, bad) = (self.reloads("succeeded"), self.reloads("failed"));
        self.directory.write("gateway.toml", complete(config, &self.directory));
        self.signal("HUP");
        eventually(&format!("the reload has {result}"), || {
            let (is_good, is_bad) = (self.reloads("succeeded") > good, self.reloads("failed") > bad);
            assert!(
                !(if result == "succeeded" { is_bad } else { is_good }),
                "not {result}: {:?}",
                self.stderr()
            );
            (is_good || is_bad).then_some(())
        });
    }

    /// Reloads so far that ended so: `succeeded` or `failed`.
    pub fn reloads(&self, result: &str) -> f64 {
        self.metric("sluicegate_config_reloads_total", &[&format!("result=\"{result}\"")])
    }

    /// Sends a signal by its name: `HUP`, `TERM`.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// How many descriptors it may have from now on; `None`: plenty.
    pub fn allow_descriptors(&self, count: Option<u32>) {
        let limit = count.map_or("4096".to_owned(), |count| count.to_string());
        let arguments = ["--pid", &self.child.id().to_string(), &format!("--nofile={limit}:")];
        super::stdout_of("prlimit", &arguments);
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the gateway ends", || self.child.try_wait().expect("it is a child of ours"))
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is a child of ours").is_none()
    }

    /// The most memory of its own it ever had resident, KiB.
    pub fn memory_peak_kib(&self) -> u64 {
        let status = self.status();
        // Without mapped pages of files: how much of the program's file the kernel maps is not the gateway's doing.
        kib(&status, "VmHWM:").saturating_sub(kib(&status, "RssFile:"))
    }

    /// The memory of its own it has resident, KiB.
    pub fn memory_kib(&self) -> u64 {
        kib(&self.status(), "RssAnon:")
    }

    fn status(&self) -> String {
        fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs")
    }

    /// Idle connections: those that an epoll instance other than the runtime's watches, only for reading and under large
    /// tokens. That instance is open twice.
    pub fn resting(&self) -> usize {
        let files = fs::read_dir(format!("/proc/{}/fdinfo", self.child.id())).expect("it runs");
        let infos = files.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
        let number = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["tfd:", _, "events:", "80002019", "data:", number, ..] if number.len() > 8 => {
                Some(number.to_owned())
            }
            _ => None,
        };
        let numbers: HashSet<String> =
            infos.flat_map(|info| info.lines().filter_map(number).collect::<Vec<_>>()).collect();
        numbers.len()
    }

    /// The path of a file in its directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a file in its directory, in one step.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        self.directory.write(name, content)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the gateway said:\n{}", self.stderr().join("\n"));
        }
        end(&mut self.child);
    }
}

/// The binary with a clock that is so far off.
pub fn binary_off_by(offset: &str) -> Command {
    // Not by the program `faketime`, which would stand between: ending it would leave the gateway running.
    let mut command = binary();
    command.env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketime.so.1").env("FAKETIME", offset);
    // Only the time of day: timers count on.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command
}

/// The binary under test, to be given arguments.
pub fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sluicegate"))
}

/// The configuration with what every test needs and this one has not written.
pub fn complete(config: &str, directory: &Directory) -> String {
    let mut whole = format!("{config}\n");
    if !config.contains("[listener.") {
        whole.push_str("[listener.plain]\nbind = \"127.0.0.1:0\"\n");
    }
    if !config.contains("[admin]") && !config.contains("admin = false") {
        whole.push_str("[admin]\nbind = \"127.0.0.1:0\"\n");
    }
    if !config.contains("[log]") {
        let log = directory.join("access.log");
        // Whole queries: a line is how a test knows its request again.
        let log = log.display().to_string();
        whole.push_str(&format!("[log]\naccess = {{ to = {log:?}, query = \"keep\" }}\n"));
    }
    if !config.contains("[shutdown]") {
        whole.push_str("[shutdown]\nready-delay = \"0s\"\ndrain = \"5s\"\n");
    }
    whole
}

/// A line of a process's status, KiB.
fn kib(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux says so");
    line.trim().trim_end_matches(" kB").parse().expect("a number of kB")
}

/// `sluicegate: listener "plain" on http://127.0.0.1:41234` as a name and an address.
fn address(line: &str) -> Option<(String, SocketAddr)> {
    let (who, url) = line.strip_prefix("sluicegate: ")?.split_once(" on ")?;
    let (_, address) = url.split_once("://")?;
    let name = who.strip_prefix("listener ").map_or(who, |name| name.trim_matches('"'));
    Some((name.to_owned(), address.trim_end_matches('/').parse().ok()?))
}
