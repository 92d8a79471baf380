//! Peers written in Python, for protocols whose usual clients and servers live there.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{end, stdout_of};

/// A running server from `tests/peers`. It is stopped when the test ends.
pub struct Python {
    child: Child,
    addr: SocketAddr,
}

impl Python {
    /// Starts a script that prints `ready PORT` once it listens on loopback.
    pub fn serve(script: &str) -> Python {
        let mut child = Command::new(interpreter())
            .arg(path(script))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the interpreter is there");
        let mut line = String::new();
        let pipe = child.stdout.take().expect("it was asked for");
        BufReader::new(pipe).read_line(&mut line).expect("the script says when it is ready");
        let port = line.trim().strip_prefix("ready ").and_then(|port| port.parse().ok());
        let port: u16 = port.unwrap_or_else(|| panic!("{script} said {line:?}"));
        Python { child, addr: SocketAddr::from(([127, 0, 0, 1], port)) }
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Runs a client script to its end and returns what it printed.
pub fn client(script: &str, arguments: &[&str]) -> String {
    let (interpreter, script) = (interpreter(), path(script));
    let mut all = vec![script.to_str().expect("the path is text")];
    all.extend(arguments);
    stdout_of(interpreter.to_str().expect("the path is text"), &all)
}

/// The interpreter of the environment that `tests/all` makes.
pub fn interpreter() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../venv/bin/python");
    assert!(path.exists(), "{} is missing: tests/all makes it", path.display());
    path
}

fn path(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(script)
}
