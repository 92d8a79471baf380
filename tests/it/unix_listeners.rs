//! Listeners on Unix sockets: the file and its rights, who the client is, and what keeps the socket.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use crate::support::gateway::{binary, complete};
use crate::support::{Client, Directory, Gateway, PATIENCE, Upstream, eventually, stdout_of, text, tls};

fn connect(path: &Path) -> Client<UnixStream> {
    let stream = UnixStream::connect(path).expect("somebody listens there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
    Client::over(stream)
}

/// A listener `edge` on `edge.sock` of this directory.
fn listener(directory: &Directory, more: &str) -> String {
    format!("[listener.edge]\nbind = \"unix:{}\"\n{more}\n", directory.join("edge.sock").display())
}

const OK: &str = "[[route]]\npath = \"/{*rest}\"\nrespond = { status = 200, body = \"ok\" }\n";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("the socket is there").permissions().mode() & 0o777
}

#[test]
fn it_serves_http_over_its_socket() {
    let directory = Directory::new();
    let path = directory.join("edge.sock");
    let config = format!("workers = 2\n{}{OK}", listener(&directory, ""));
    let gateway = Gateway::start_in(directory, &config);
    assert_eq!(mode(&path), 0o660);
    assert!(gateway.stderr().iter().any(|line| line.ends_with(&format!("on unix:{}", path.display()))));
    let socket = path.to_str().expect("the path is text");
    for protocol in ["--http1.1", "--http2-prior-knowledge"] {
        let arguments = ["-s", protocol, "--unix-socket", socket, "http://a/x"];
        assert_eq!(stdout_of("curl", &arguments), "ok", "{protocol}");
    }
    // More connections than one worker takes alone; idle ones go on, too.
    let mut clients: Vec<_> = (0..8).map(|_| connect(&path)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/first").text(), "ok");
    }
    eventually("they rest", || (gateway.resting() >= 8).then_some(()));
    for client in &mut clients {
        assert_eq!(client.get("/second").text(), "ok");
    }
}

#[test]
fn it_speaks_tls_over_its_socket() {
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let file = directory.join("a").display().to_string();
    let path = directory.join("edge.sock");
    let certs = format!("certs = [{{ cert = \"{file}.pem\", key = \"{file}.key\" }}]");
    let config = format!("{}{OK}", listener(&directory, &certs));
    let _gateway = Gateway::start_in(directory, &config);
    let socket = path.to_str().expect("the path is text");
    assert_eq!(stdout_of("curl", &["-sk", "--unix-socket", socket, "https://localhost/"]), "ok");
}

/// Starts with this configuration and expects that it fails with this.
fn fails(directory: &Directory, config: &str, message: &str) {
    let file = directory.write("gateway.toml", complete(config, directory));
    let output = binary().args(["run", "--config"]).arg(&file).output().expect("it can be started");
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains(message), "{said}");
}

#[test]
fn a_stale_file_is_replaced_and_one_that_is_served_or_no_socket_is_not() {
    let directory = Directory::new();
    let path = directory.join("edge.sock");
    let config = format!("{}{OK}", listener(&directory, ""));
    fs::write(&path, "precious").expect("the directory is ours");
    fails(&directory, &config, "the file exists and is not a socket");
    assert_eq!(fs::read_to_string(&path).expect("it is still there"), "precious");
    fs::remove_file(&path).expect("the directory is ours");

    let other = UnixListener::bind(&path).expect("the directory is ours");
    fails(&directory, &config, "another process listens on this socket: stop it or choose another path");
    assert!(fs::symlink_metadata(&path).expect("it is still there").file_type().is_socket());
    drop(other);
    assert!(path.exists(), "the standard library leaves the file behind");
    let _gateway = Gateway::start_in(directory, &config);
    assert_eq!(connect(&path).get("/").text(), "ok");
}

#[test]
fn mode_and_owner_are_as_written_and_follow_a_reload() {
    let directory = Directory::new();
    let path = directory.join("edge.sock");
    let plain = "[listener.plain]\nbind = \"127.0.0.1:0\"\n";
    let config = |rights: &str| format!("{plain}{}{OK}", listener(&directory, rights));
    fails(&directory, &config("owner = \"nobody-of-that-name\""), "there is no user \"nobody-of-that-name\"");
    let (open, closed, own) = (config("mode = \"0666\""), config("mode = \"0600\""), {
        let made = fs::metadata(directory.join("")).expect("the directory is ours");
        config(&format!("owner = \"{}\"\ngroup = \"{}\"", made.uid(), made.gid()))
    });
    let gateway = Gateway::start_in(directory, &open);
    assert_eq!(mode(&path), 0o666);
    let inode = fs::metadata(&path).expect("it is there").ino();
    let mut client = connect(&path);
    assert_eq!(client.get("/").text(), "ok");
    gateway.reload(&closed);
    assert_eq!(mode(&path), 0o600);
    gateway.reload(&own);
    assert_eq!(mode(&path), 0o660);
    assert_eq!(fs::metadata(&path).expect("it is there").ino(), inode, "the socket stays");
    assert_eq!(client.get("/").text(), "ok", "and so do connections");
    // Under another name it is the same socket.
    gateway.reload(&own.replace("[listener.edge]", "[listener.front]"));
    assert_eq!(connect(&path).get("/").text(), "ok");
    assert_eq!(fs::metadata(&path).expect("it is there").ino(), inode);
    gateway.reload(&format!("{plain}{OK}"));
    eventually("the file goes with its listener", || (!path.exists()).then_some(()));
}

#[test]
fn its_clients_have_no_address_unless_a_trusted_hop_names_one() {
    let upstream = Upstream::ok();
    let directory = Directory::new();
    let path = directory.join("edge.sock");
    let plain = "[listener.plain]\nbind = \"127.0.0.1:0\"\n";
    let route = format!(
        "[[route]]\npath = \"/{{*rest}}\"\nlimit = \"100/d by ip\"\nheaders = {{ set = {{ x-client = \"{{ip}}\" }} }}\n\
         to = \"http://{}\"\n",
        upstream.addr()
    );
    let listener = listener(&directory, "max-connections-per-ip = 1");
    let gateway = Gateway::start_in(directory, &format!("{plain}{listener}{route}"));
    let left = |path: &str, fields: &[&str]| {
        let answer = connect(&gateway.file("edge.sock")).request("GET", path, fields, "");
        (answer.number("x-ratelimit-remaining"), upstream.request())
    };
    // Nobody is believed, and all count as one.
    let (count, request) = left("/a", &["X-Forwarded-For: 203.0.113.7"]);
    assert_eq!((count, request.header("x-forwarded-for"), request.header("x-client")), (99, None, None));
    assert_eq!(left("/b", &["X-Forwarded-For: 203.0.113.8"]).0, 98);
    let line = gateway.logged("/a");
    assert_eq!((line["client"].as_str(), line.get("peer")), (Some("unix"), None), "{line}");
    // The cap for one address is not one for all clients.
    let mut both = [connect(&path), connect(&path)];
    both.iter_mut().for_each(|client| assert_eq!(client.get("/c").status, 200));
    drop((upstream.request(), upstream.request()));

    gateway.reload(&format!("[client-ip]\ntrust = [\"unix\"]\n{plain}{listener}{route}"));
    let (count, request) = left("/d", &["X-Forwarded-For: 203.0.113.7"]);
    assert_eq!(count, 99, "an address of its own");
    assert_eq!(request.header("x-forwarded-for").as_deref(), Some("203.0.113.7"));
    assert_eq!(request.header("x-client").as_deref(), Some("203.0.113.7"));
    let line = gateway.logged("/d");
    assert_eq!(
        (line["client"].as_str(), line["peer"].as_str()),
        (Some("203.0.113.7"), Some("unix")),
        "{line}"
    );
    // What calls itself by the address that stands for none is no hop of this host.
    let (_, request) = left("/e", &["X-Forwarded-For: 198.51.100.1, 0.0.0.0"]);
    assert_eq!(request.header("x-client"), None);
    // `trust` of Unix sockets trusts no address.
    let answer = gateway.client().request("GET", "/f", &["X-Forwarded-For: 203.0.113.7"], "");
    assert_eq!(
        (answer.status, upstream.request().header("x-forwarded-for").as_deref()),
        (200, Some("127.0.0.1"))
    );

    gateway.reload(&format!(
        "[client-ip]\nheader = \"forwarded\"\n{plain}{listener}{}",
        route.replace("{ip}", "-")
    ));
    let forwarded = left("/g", &[]).1.header("forwarded");
    assert!(forwarded.as_deref().is_some_and(|it| it.starts_with("for=unknown;")), "{forwarded:?}");
}

#[test]
fn the_proxy_protocol_names_its_clients() {
    let upstream = Upstream::ok();
    let directory = Directory::new();
    let path = directory.join("edge.sock");
    let listener = listener(&directory, "proxy-protocol = { from = [\"unix\"] }");
    let config = format!("{listener}[[route]]\nto = \"http://{}\"\n", upstream.addr());
    let gateway = Gateway::start_in(directory, &config);
    let get = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut client = connect(&path);
    client.send(format!("PROXY TCP4 203.0.113.7 10.0.0.1 4000 443\r\n{get}"));
    assert_eq!(client.response().status, 200);
    assert_eq!(upstream.request().header("x-forwarded-for").as_deref(), Some("203.0.113.7"));
    let line = gateway.logged("/x");
    assert_eq!(
        (line["client"].as_str(), line["peer"].as_str()),
        (Some("203.0.113.7"), Some("unix")),
        "{line}"
    );
    let mut silent = connect(&path);
    silent.send(get);
    assert!(silent.is_closed(), "the header is required");
}

/// What systemd does for a service with a Unix socket.
const ACTIVATE: &str = r#"
import fcntl, os, socket, sys
opened = socket.socket(socket.AF_UNIX)
opened.bind(sys.argv[1])
opened.listen(64)
high = fcntl.fcntl(opened.fileno(), fcntl.F_DUPFD_CLOEXEC, 100)
os.dup2(high, 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="edge")
os.execv(sys.argv[2], sys.argv[2:])
"#;

#[test]
fn a_socket_of_systemd_is_taken_and_its_file_stays() {
    let directory = Directory::new();
    let path = directory.join("edge.sock");
    let mut command = Command::new("python3");
    command.args(["-c", ACTIVATE]).arg(&path).arg(env!("CARGO_BIN_EXE_sluicegate"));
    let config = format!("workers = 3\n{}{OK}", listener(&directory, ""));
    let mut gateway = Gateway::start_by(command, directory, &config);
    for _ in 0..10 {
        assert_eq!(connect(&path).get("/").text(), "ok");
    }
    gateway.signal("TERM");
    gateway.wait();
    assert!(path.exists(), "it is systemd's");
}

/// Runs a gateway that cannot start behind a Unix socket of systemd's named `edge`: what it says.
fn refused(directory: &Directory, config: &str) -> String {
    let file = directory.write("gateway.toml", complete(config, directory));
    let mut command = Command::new("timeout");
    command
        .args(["60", "python3", "-c", ACTIVATE])
        .arg(directory.join("given.sock"))
        .arg(env!("CARGO_BIN_EXE_sluicegate"));
    let output = command.args(["run", "--config"]).arg(file).output().expect("python3 is installed");
    assert_eq!(output.status.code(), Some(1));
    text(&output.stderr)
}

#[test]
fn a_socket_of_systemd_of_another_kind_is_refused_by_name() {
    let directory = Directory::new();
    let said = refused(&directory, &format!("[listener.edge]\nbind = \"127.0.0.1:0\"\n{OK}"));
    let given = directory.join("given.sock");
    let wanted = format!("socket named \"edge\" of LISTEN_FDS listens on unix:{}", given.display());
    assert!(said.contains(&wanted) && said.contains("`bind` is 127.0.0.1:0"), "{said}");
}

#[test]
fn it_says_where_a_socket_of_systemd_listens() {
    let directory = Directory::new();
    let path = directory.join("given.sock");
    let mut command = Command::new("python3");
    command.args(["-c", ACTIVATE]).arg(&path).arg(env!("CARGO_BIN_EXE_sluicegate"));
    let config = format!("{}{OK}", listener(&directory, ""));
    let gateway = Gateway::start_by(command, directory, &config);
    let line = format!("listener \"edge\" on unix:{}", path.display());
    assert!(gateway.stderr().iter().any(|said| said.ends_with(&line)), "{:?}", gateway.stderr());
    assert_eq!(connect(&path).get("/").status, 200);
}

#[test]
fn descriptors_that_are_promised_and_not_there_are_an_error() {
    let directory = Directory::new();
    let file = directory.write("gateway.toml", complete(OK, &directory));
    let script = "LISTEN_PID=$$ LISTEN_FDS=2 exec \"$@\" 3<&- 4<&-";
    let mut command = Command::new("timeout");
    command
        .args(["60", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_sluicegate")])
        .args(["run", "--config"])
        .arg(file);
    let output = command.output().expect("sh is installed");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("LISTEN_FDS names descriptor 3, which is not open"), "{said}");
}

#[test]
fn check_says_where_a_user_or_group_is_written_that_is_not_there() {
    let directory = Directory::new();
    let rights = "owner = \"nobody-of-that-name\"\ngroup = \"none-of-that-name\"";
    let file = directory
        .write("gateway.toml", complete(&format!("{}{OK}", listener(&directory, rights)), &directory));
    let output = binary().args(["check", "--config"]).arg(&file).output().expect("it can be started");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{said}");
    for wanted in [
        "no user \"nobody-of-that-name\"",
        "no group \"none-of-that-name\"",
        "gateway.toml:3",
        "gateway.toml:4",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}
