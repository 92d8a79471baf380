//! A real nginx on a free port, configured for one test.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use super::{Directory, end, eventually};

/// A running nginx. It is stopped when the test ends.
pub struct Nginx {
    child: Child,
    addr: SocketAddr,
    directory: Directory,
}

impl Nginx {
    /// Starts one with this inside its only `server { }`.
    ///
    /// `@ROOT@` stands for its directory. With `ssl_certificate` in it, it speaks TLS; with
    /// `http2_max_concurrent_streams`, HTTP/2.
    pub fn start(server: &str) -> Nginx {
        let directory = Directory::new();
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let addr = port.expect("loopback has a free port");
        let tls = if server.contains("ssl_certificate") { " ssl" } else { "" };
        let h2 = if server.contains("http2_max_concurrent_streams") { " http2" } else { "" };
        let root = directory.join("").display().to_string();
        let config = format!(
            "daemon off; master_process off; worker_processes 1; pid {root}nginx.pid; error_log stderr;\n\
             events {{ worker_connections 4096; }}\n\
             http {{\n\
               access_log off; client_max_body_size 0; keepalive_requests 1000000; default_type text/plain;\n\
               client_body_temp_path {root}body; proxy_temp_path {root}proxy; fastcgi_temp_path {root}fastcgi;\n\
               uwsgi_temp_path {root}uwsgi; scgi_temp_path {root}scgi;\n\
               server {{ listen {addr}{tls}{h2}; root {root}; {} }}\n\
             }}\n",
            server.replace("@ROOT@", &root)
        );
        let file = directory.write("nginx.conf", config);
        let mut child = Command::new("nginx")
            .arg("-c")
            .arg(&file)
            .args(["-e", "stderr", "-p"])
            .arg(directory.join(""))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nginx is installed (tests/all does it)");
        eventually("nginx listens", || {
            if let Ok(Some(status)) = child.try_wait() {
                let mut said = String::new();
                std::io::Read::read_to_string(child.stderr.as_mut().expect("it was asked for"), &mut said)
                    .ok();
                panic!("nginx ended with {status}: {said}");
            }
            TcpStream::connect(addr).ok()
        });
        Nginx { child, addr, directory }
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Makes a file under its root, so long and empty of content.
    pub fn file(&self, name: &str, bytes: u64) {
        let file =
            std::fs::File::create(self.directory.join(name)).expect("the target directory is writable");
        file.set_len(bytes).expect("a file may have holes");
    }
}

impl Nginx {
    /// What a file under its root holds; nothing where there is none yet.
    pub fn read(&self, name: &str) -> String {
        std::fs::read(self.directory.join(name)).map(|bytes| super::text(&bytes)).unwrap_or_default()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
