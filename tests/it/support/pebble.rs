//! Pebble, the test authority of Let's Encrypt, with a DNS server of its own that finds every name on this machine.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::{Directory, end, eventually, redis::free_port, tls};

/// A running Pebble. It is stopped when the test ends, and with it its authority.
pub struct Pebble {
    child: Child,
    dns: Child,
    port: u16,
    /// Where it looks for answers to http-01 and to tls-alpn-01.
    pub http: u16,
    pub tls: u16,
    directory: Directory,
}

impl Pebble {
    /// Starts one whose certificates are valid for so many seconds.
    pub fn start(valid_seconds: u64) -> Pebble {
        let directory = Directory::new();
        tls::certify(&directory, "pebble", &["127.0.0.1"]);
        let [port, management, http, tls, dns_port, dns_management] = std::array::from_fn(|_| free_port());
        let file = |name: &str| directory.join(name).display().to_string();
        let config = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": file("pebble.pem"),
            "privateKey": file("pebble.key"),
            "httpPort": http,
            "tlsPort": tls,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
            "retryAfter": { "authz": 1, "order": 1 },
            "certificateValidityPeriod": valid_seconds,
        }});
        let config = directory.write("pebble.json", config.to_string());
        let loopback = |port: u16| format!("127.0.0.1:{port}");
        let dns = program("pebble-challtestsrv")
            .args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-http01", "", "-https01", ""])
            .args(["-tlsalpn01", "", "-doh", "", "-dns01", &loopback(dns_port)])
            .args(["-management", &loopback(dns_management)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pebble-challtestsrv can be started");
        let log = File::create(directory.join("pebble.log")).expect("the target directory is writable");
        let child = program("pebble")
            .args(["-strict", "-dnsserver", &loopback(dns_port), "-config"])
            .arg(&config)
            // It would wait some seconds before each look.
            .env("PEBBLE_VA_NOSLEEP", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be opened twice"))
            .stderr(log)
            .spawn()
            .expect("pebble can be started");
        let pebble = Pebble { child, dns, port, http, tls, directory };
        for port in [port, dns_management] {
            eventually("pebble and its DNS answer", || {
                TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).ok()
            });
        }
        pebble
    }

    /// `certs` of a listener whose certificate for these names is ordered here and kept in `state`.
    pub fn certs(&self, names: &[&str], state: &Path, more: &str) -> String {
        let (port, ca) = (self.port, self.directory.join("pebble.pem"));
        format!(
            "certs = {{ acme = \"https://127.0.0.1:{port}/dir\", names = {names:?}, email = \"ops@example.com\", \
             agree = true, ca = {ca:?}, state = {state:?}{more} }}\n"
        )
    }

    /// Where its directory is.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("pebble.log")).unwrap_or_default()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("pebble said:\n{}", self.log());
        }
        end(&mut self.child);
        end(&mut self.dns);
    }
}

/// A program of Pebble's package, which is unpacked beside the system the first time.
fn program(name: &str) -> Command {
    static UNPACKED: OnceLock<PathBuf> = OnceLock::new();
    let folder = UNPACKED.get_or_init(|| {
        let top = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target directory");
        let folder = target.join("servers/pebble");
        let status = Command::new(top.join("tests/unpack")).arg("trixie").arg(&folder).arg("pebble").status();
        assert!(status.expect("bash is there").success(), "pebble cannot be unpacked");
        folder.join("root/usr/bin")
    });
    Command::new(folder.join(name))
}
