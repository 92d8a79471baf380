//! Helpers that make a test five lines: a gateway process, its peers, raw clients, bounded waits.
//!
//! Everything blocks, so that a test reads from top to bottom. Nothing here asserts what a test is about.

pub mod authority;
pub mod client;
pub mod dns;
pub mod edge;
pub mod envoy;
pub mod fleet;
pub mod gateway;
pub mod h2;
pub mod named;
pub mod nginx;
pub mod pebble;
pub mod postgres;
pub mod python;
pub mod redis;
pub mod rls;
pub mod scripts;
pub mod source;
pub mod tls;
pub mod toxic;
pub mod upgraded;
pub mod upstream;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use client::{Client, Response, get};
pub use gateway::Gateway;
pub use nginx::Nginx;
pub use python::Python;
pub use upstream::Upstream;

/// How long to wait for something that should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Calls `ask` until it returns something; panics with `what` after [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Tells threads of a test to stop, also if the test fails: a scope waits for them.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Held by tests that load the machine, so that only one of them does at a time.
pub fn heavy() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory of a test's own; removed when the test passed, kept for reading when it failed.
pub struct Directory(PathBuf);

impl Directory {
    /// Makes an empty one.
    pub fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("it-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("the target directory is writable");
        Directory(path)
    }

    /// The path of something in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in one step, so that nobody reads half of it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let (path, half) = (self.join(name), self.join(&format!("{name}.half")));
        fs::write(&half, content).expect("the target directory is writable");
        fs::rename(&half, &path).expect("both are in one directory");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !thread::panicking() {
            fs::remove_dir_all(&self.0).ok();
        }
    }
}

/// Runs a client program to its end, at most a minute.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .arg("60")
        .arg(program)
        .args(arguments)
        .output()
        .expect("timeout is part of coreutils")
}

/// What a client program printed; panics with its errors when it failed.
pub fn stdout_of(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout
}

/// Bytes as text, for messages and comparisons.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Sends a signal, by its name, to one process.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
    assert!(status.expect("there is a shell").success(), "cannot send {name} to {pid}");
}

/// Ends a process of ours and waits for it.
pub fn end(child: &mut Child) {
    child.kill().ok();
    child.wait().ok();
}
