//! Unix sockets on both sides: servers and listeners that have a path instead of an address.

use std::io::{BufRead, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use serde_json::Value;

use crate::support::upstream::{Recorded, receive};
use crate::support::{Client, Directory, Gateway, PATIENCE, end, eventually};

/// A server that tells what it was sent: the first line, `Host`, and what says who the client is.
fn telling(listener: UnixListener) {
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_read_timeout(Some(PATIENCE * 4)).expect("a socket takes a timeout");
            thread::spawn(move || {
                let mut peer = Client::over(stream);
                while let Some(request) = receive(&mut peer) {
                    let body = told(&request);
                    let length = body.len();
                    peer.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"));
                }
            });
        }
    });
}

fn told(request: &Recorded) -> String {
    let field = |name: &str| request.header(name).unwrap_or_default();
    format!("{}|{}|{}|{}", request.line, field("host"), field("x-forwarded-for"), request.body.len())
}

fn bound(path: &Path) -> UnixListener {
    UnixListener::bind(path).expect("the directory is ours")
}

#[test]
fn a_server_on_a_unix_socket_is_sent_the_clients_host_or_localhost() {
    let directory = Directory::new();
    let path = directory.join("app.sock");
    telling(bound(&path));
    let url = format!("unix:{}", path.display());
    let gateway = Gateway::start_in(
        directory,
        &format!(
            "[upstream.named]\nservers = [{{ url = \"{url}\", weight = 2 }}]\nhost = \"server\"\n\
             health = {{ path = \"/healthz\", every = \"50ms\" }}\n\
             [[route]]\npath = \"/named/{{*rest}}\"\nto = \"named\"\n[[route]]\npath = \"/{{*rest}}\"\nto = \"{url}\"\n"
        ),
    );
    let mut client = gateway.client();
    let answer = client.request("POST", "/a", &["Host: shop.example"], "four");
    assert_eq!(answer.text(), "POST /a HTTP/1.1|shop.example|127.0.0.1|4");
    let answer = client.request("GET", "/named/b", &["Host: shop.example"], "");
    assert_eq!(answer.text(), "GET /named/b HTTP/1.1|localhost|127.0.0.1|0");
    let line = gateway.logged("/a");
    assert_eq!((line["upstream"].as_str(), line["server"].as_str()), (Some(&*url), Some(&*url)), "{line}");
    eventually("checks go over the socket", || {
        let upstreams = gateway.admin("/v1/upstreams").json();
        let named = upstreams.as_array()?.iter().find(|one| one["name"] == "named")?.clone();
        assert_eq!(named["checks"]["failed"], 0, "{named}");
        (named["checks"]["good"].as_u64()? > 1).then_some(())
    });
}

/// A server in a process of its own, and what it says.
struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one on a Unix socket (an absolute path) or a port of loopback. It does not answer `/hang`, but says that
    /// it came.
    fn start(place: &str) -> Process {
        let mut child = Command::new("python3")
            .args(["-c", SERVER, place])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 is installed");
        let stdout = BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut process = Process { child, stdout };
        process.says("listens");
        process
    }

    fn says(&mut self, what: &str) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it is text");
        assert_eq!(line.trim_end(), what);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

const SERVER: &str = r#"
import socket, sys, threading
place = sys.argv[1]
if place.startswith("/"):
    server = socket.socket(socket.AF_UNIX)
    server.bind(place)
else:
    server = socket.create_server(("127.0.0.1", int(place)))
server.listen(64)
print("listens", flush=True)
def serve(peer):
    while head := peer.recv(65536):
        if b"/hang" in head:
            print("hangs", flush=True)
        else:
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
while True:
    threading.Thread(target=serve, args=server.accept()[:1], daemon=True).start()
"#;

/// What becomes of requests to a server that answers, is killed during a request, and is gone: as (status, reason,
/// cause) each.
fn killed(gateway: &Gateway, prefix: &str, mut server: Process) -> Vec<(u16, Value, Value)> {
    let outcome = |status: u16, path: &str| {
        let line = gateway.logged(path);
        (status, line["reason"].clone(), line["cause"].clone())
    };
    let mut outcomes = Vec::new();
    let mut ask = |target: &str| {
        let path = format!("/{prefix}/{target}");
        outcomes.push(outcome(gateway.get(&path).status, &path));
    };
    ask("ok");
    let path = format!("/{prefix}/hang");
    let mut hanging = gateway.client();
    hanging.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"));
    server.says("hangs");
    drop(server);
    let status = hanging.response().status;
    ask("gone");
    outcomes.push(outcome(status, &path));
    outcomes
}

#[test]
fn a_server_on_a_unix_socket_fails_as_one_on_a_port_does() {
    let directory = Directory::new();
    let (path, none) = (directory.join("app.sock"), directory.join("none.sock"));
    let (closed, port) = (crate::support::redis::free_port(), crate::support::redis::free_port());
    let servers =
        [Process::start(path.to_str().expect("the path is text")), Process::start(&port.to_string())];
    let route = |name: &str, server: &str| {
        format!(
            "[upstream.{name}]\nservers = [\"{server}\"]\n[[route]]\npath = \"/{name}/{{*rest}}\"\nto = \"{name}\"\n"
        )
    };
    let routes = [
        route("unix", &format!("unix:{}", path.display())),
        route("tcp", &format!("http://127.0.0.1:{port}")),
        route("no-file", &format!("unix:{}", none.display())),
        route("no-port", &format!("http://127.0.0.1:{closed}")),
    ];
    let gateway = Gateway::start_in(directory, &format!("workers = 1\n{}", routes.concat()));
    let [unix, tcp] = servers;
    let unix = killed(&gateway, "unix", unix);
    assert_eq!(unix, killed(&gateway, "tcp", tcp));
    let statuses: Vec<u16> = unix.iter().map(|(status, ..)| *status).collect();
    assert_eq!(statuses, [200, 502, 502], "{unix:?}");
    assert_eq!(unix[1].2, "connect-refused", "{unix:?}");
    let absent = |name: &str| {
        let path = format!("/{name}/a");
        let status = gateway.get(&path).status;
        let line = gateway.logged(&path);
        (status, line["reason"].clone(), line["cause"].clone())
    };
    let answered = |cause: &str| (502, "upstream-connect".into(), cause.into());
    assert_eq!(absent("no-file"), answered("connect-no-socket"));
    assert_eq!(absent("no-port"), answered("connect-refused"));
    // The server comes back at its path.
    std::fs::remove_file(&path).expect("a killed server leaves its file");
    telling(bound(&path));
    eventually("the server that is back is asked", || {
        (gateway.get("/unix/back").status == 200).then_some(())
    });
}

#[test]
fn a_full_queue_of_a_unix_socket_is_waited_for_until_the_connect_timeout() {
    let directory = Directory::new();
    let path = directory.join("app.sock");
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&socket2::SockAddr::unix(&path).expect("a short path")).expect("the directory is ours");
    socket.listen(0).expect("it is bound");
    let filling = UnixStream::connect(&path).expect("a queue of length 0 holds one");
    let gateway = Gateway::start_in(
        directory,
        &format!(
            "[upstream.u]\nservers = \"unix:{}\"\ntimeouts = {{ connect = \"200ms\" }}\n\
             retry = {{ times = 0 }}\n[[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\n",
            path.display()
        ),
    );
    let status = gateway.get("/full").status;
    let line = gateway.logged("/full");
    assert_eq!((status, line["cause"].as_str()), (504, Some("connect-timeout")), "{line}");
    let mut client = gateway.client();
    client.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
    drop(filling);
    telling(UnixListener::from(std::os::fd::OwnedFd::from(socket)));
    assert_eq!(client.response().status, 200);
}
