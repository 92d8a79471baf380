//! A new process takes an old one's place: sockets that systemd opened, and upgrades under load.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::dns::{Dns, Reply};
use crate::support::redis::{Redis, free_port};
use crate::support::upgraded::{Upgraded, is_running};
use crate::support::upstream::receive;
use crate::support::{
    Client, Directory, Gateway, PATIENCE, Upstream, eventually, get, heavy, run, signal, text,
};

/// Opens sockets on the ports in a file.
macro_rules! opened {
    () => {
        r#"
import fcntl, os, socket, sys
ports = open(sys.argv[1]).read().split()
opened = [socket.create_server(("127.0.0.1", int(port)), backlog=64) for port in ports]
"#
    };
}

/// Starts a program with these sockets.
macro_rules! started {
    () => {
        r#"
high = [fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, 100) for one in opened]
for place, one in enumerate(high):
    os.dup2(one, 3 + place)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)), LISTEN_FDNAMES=sys.argv[2])
os.execv(sys.argv[3], sys.argv[3:])
"#
    };
}

const OK: &str = "[[route]]\npath = \"/{*rest}\"\nrespond = { status = 200, body = \"ok\" }\n";
const UPGRADE: &[&str] = &[
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
];

/// Starts a gateway behind sockets that were open before it: of these names, on free ports.
fn activated(names: &str, config: impl Fn(&[u16]) -> String) -> (Gateway, Vec<u16>) {
    activated_by(ACTIVATE, names, config)
}

/// The same by this script.
fn activated_by(script: &str, names: &str, config: impl Fn(&[u16]) -> String) -> (Gateway, Vec<u16>) {
    let directory = Directory::new();
    let ports = directory.join("ports");
    // The configuration may name a port, so the ports are found first.
    let count = names.split(':').count();
    let free: Vec<u16> = (0..count)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()))
        .map(|addr| addr.expect("loopback has a free port").port())
        .collect();
    let numbers: Vec<String> = free.iter().map(u16::to_string).collect();
    fs::write(&ports, numbers.join(" ")).expect("the directory is ours");
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(&ports).arg(names).arg(env!("CARGO_BIN_EXE_sluicegate"));
    let text = config(&free);
    (Gateway::start_by(command, directory, &text), free)
}

/// What systemd does for a service with sockets.
const ACTIVATE: &str = concat!(opened!(), started!());

/// The same by somebody who keeps the sockets for as long as the service runs, as systemd does.
const HELD: &str = concat!(
    opened!(),
    r#"
import time
service = os.getpid()
if not os.fork():
    while os.getppid() == service:
        time.sleep(0.1)
    os._exit(0)
"#,
    started!()
);

#[test]
fn sockets_of_systemd_are_taken_by_name_and_else_by_address() {
    let (gateway, ports) = activated("plain:other:admin", |ports| {
        format!(
            "workers = 3\n[listener.plain]\nbind = \"127.0.0.1:1\"\n[listener.second]\nbind = \"127.0.0.1:{}\"\n\
             [admin]\nbind = \"127.0.0.1:2\"\n{OK}",
            ports[1]
        )
    });
    for port in &ports[..2] {
        for _ in 0..20 {
            assert_eq!(get(SocketAddr::from(([127, 0, 0, 1], *port)), "/").status, 200);
        }
    }
    assert_eq!(get(SocketAddr::from(([127, 0, 0, 1], ports[2])), "/readyz").status, 200);
    assert_eq!(gateway.plain().port(), ports[0], "it says where it listens, not where it would have");
}

#[test]
fn a_socket_that_no_listener_wants_is_closed_with_a_line() {
    let (gateway, ports) =
        activated("plain:old", |_| format!("[listener.plain]\nbind = \"127.0.0.1:1\"\n{OK}"));
    assert_eq!(gateway.get("/").status, 200);
    assert!(
        gateway.stderr().iter().any(|line| line.contains("belongs to no listener") && line.contains("old"))
    );
    assert!(TcpStream::connect(("127.0.0.1", ports[1])).is_err());
}

#[test]
fn an_upgrade_keeps_limits_ports_and_the_admin_listener() {
    let limited =
        "[[route]]\npath = \"/limited\"\nlimit = \"5/h by ip\"\nrespond = { status = 200, body = \"ok\" }\n";
    let mut upgraded = Upgraded::start(&format!("{limited}{OK}"));
    let (plain, admin) = (upgraded.gateway.plain(), upgraded.gateway.listener("admin"));
    let left = |answer: crate::support::Response| answer.number("x-ratelimit-remaining");
    assert_eq!(left(get(plain, "/limited")), 4);
    assert_eq!(left(get(plain, "/limited")), 3);
    for expected in [2, 1, 0] {
        let before = upgraded.pid;
        upgraded.upgrade();
        eventually("the old process ends", || (!is_running(before)).then_some(()));
        assert_eq!(left(get(plain, "/limited")), expected);
        assert_eq!(get(admin, "/readyz").status, 200);
        assert_eq!(upgrades(&upgraded.gateway), (1.0, 0.0));
    }
    assert_eq!(get(plain, "/limited").status, 429);
    assert_eq!(upgraded.count("ready"), 4, "every one of them says so: {:?}", upgraded.gateway.stderr());
}

#[test]
fn processes_that_serve_beside_each_other_spend_one_limit() {
    for algorithm in ["token-bucket", "sliding-log"] {
        for is_old_first in [true, false] {
            let mut upgraded = Upgraded::start(&format!(
                "[shutdown]\ndrain = \"60s\"\n\
                 [policy.p]\nby = [\"body:user\"]\nlimit = \"20/365d\"\nalgorithm = \"{algorithm}\"\n\
                 [[route]]\npath = \"/limited\"\nlimit = \"p\"\nrespond = {{ status = 200 }}\n{OK}"
            ));
            let plain = upgraded.gateway.plain();
            // A process that drains may still take a connection, and says that it closes it.
            let fresh = || {
                let mut client = Client::connect(plain);
                client.get("/").header("connection").is_none().then_some(client)
            };
            let connected = || -> Vec<Client> {
                let mut clients: Vec<Client> =
                    (0..20).map(|_| eventually("a connection that stays", fresh)).collect();
                for client in &mut clients {
                    // The policy asks for the body, so its request is decided when the rest has come.
                    client.send("POST /limited HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n{\"user\":");
                }
                clients
            };
            let status = |client: &mut Client| client.send("\"a\"}").response().status;
            let mut processes = vec![connected()];
            for _ in 0..2 {
                upgraded.upgrade();
                processes.push(connected());
            }
            if !is_old_first {
                processes.reverse();
            }
            // Whose connections they are has heard of the others when it refuses; until then it may admit a few.
            let statuses: Vec<u16> = processes[0].iter_mut().map(status).collect();
            // Time goes by heads, which came in some order: the last unit may be there a microsecond too late.
            assert_eq!(statuses[..19], [200; 19], "{algorithm}, {is_old_first}");
            let mut more = 0;
            for others in &mut processes[1..] {
                let mut others = others.iter_mut();
                eventually("they are refused", || {
                    let status = status(others.next().expect("it hears within twenty requests"));
                    more += usize::from(status == 200);
                    (status == 429).then_some(())
                });
            }
            assert!(more <= 10, "{more} of 20 beyond, {algorithm}, {is_old_first}");
        }
    }
}

#[test]
fn an_upgrade_loses_no_unit_of_the_fleets_and_hands_out_none_twice() {
    for overshoot in ["0%", "5%"] {
        let redis = Redis::start(&[]);
        let mut upgraded = Upgraded::start(&format!(
            "[policy.p]\nby = []\nlimit = \"400/365d\"\novershoot = \"{overshoot}\"\n\
             [redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n\
             [[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nrespond = {{ status = 200 }}\n",
            redis.addr()
        ));
        let plain = upgraded.gateway.plain();
        let mut admitted = 0;
        for _ in 0..3 {
            admitted += (0..100).filter(|_| get(plain, "/").status == 200).count();
            let before = upgraded.pid;
            upgraded.upgrade();
            eventually("the old process ends", || (!is_running(before)).then_some(()));
        }
        // Of a year's limit nothing refills, so a lease that is not returned in a process's last moments would be missing.
        admitted += (0..300).filter(|_| get(plain, "/").status == 200).count();
        let most = if overshoot == "0%" { 400 } else { 420 };
        assert!((400..=most).contains(&admitted), "{admitted} of 400 were admitted with {overshoot}");
    }
}

#[test]
fn a_successor_goes_on_with_addresses_while_dns_is_down() {
    let upstream = Upstream::ok();
    let dns = Dns::start();
    dns.addresses("u.test", &[[127, 0, 0, 1]]);
    let port = upstream.addr().port();
    let mut gateway = Upgraded::start(&format!(
        "{}[upstream.u]\nservers = [\"http://u.test:{port}\"]\n[[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\n",
        dns.config()
    ));
    eventually("the name resolves", || (gateway.gateway.get("/").status == 200).then_some(()));
    dns.set("u.test", Reply::Silence);
    gateway.upgrade();
    assert_eq!(gateway.gateway.get("/").status, 200);
    let is_failing =
        || gateway.gateway.metric("sluicegate_upstream_unresolved_names", &["upstream=\"u\""]) == 1.0;
    eventually("the successor has asked in vain", || is_failing().then_some(()));
    assert_eq!(gateway.gateway.get("/").status, 200);
    dns.addresses("u.test", &[[127, 0, 0, 1]]);
    eventually("the name is back", || (!is_failing()).then_some(()));
}

#[test]
fn an_upgrade_keeps_what_is_known_of_servers() {
    let (good, checked, ejected) = (
        Upstream::ok(),
        Upstream::answering("HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"),
        Upstream::answering("HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"),
    );
    let upstream = |name: &str, bad: &Upstream, keys: &str| {
        format!(
            "[upstream.{name}]\nservers = [\"http://{}\", \"http://{}\"]\nbalance = \"round-robin\"\n{keys}\n\
             [[route]]\npath = \"/{name}\"\nto = \"{name}\"\n",
            good.addr(),
            bad.addr()
        )
    };
    let mut upgraded = Upgraded::start(&format!(
        "{}{}",
        upstream("checked", &checked, "health = { path = \"/\", every = \"30s\", unhealthy-after = 1 }"),
        upstream("ejected", &ejected, "eject = { after = 3, for = \"300s\", most = \"100%\" }"),
    ));
    let plain = upgraded.gateway.plain();
    for path in ["/checked", "/ejected"] {
        let is_out = || (0..10).all(|_| get(plain, path).status == 200);
        eventually("the bad server is left out", || is_out().then_some(()));
    }
    for _ in 0..2 {
        let before = upgraded.pid;
        upgraded.upgrade();
        eventually("the old process ends", || (!is_running(before)).then_some(()));
        for path in ["/checked", "/ejected"] {
            assert!((0..20).all(|_| get(plain, path).status == 200), "{path}");
        }
    }
}

#[test]
fn an_upgrade_keeps_a_unix_socket() {
    let directory = Directory::new();
    let path = directory.join("edge.sock");
    let listeners = format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\n[listener.edge]\nbind = \"unix:{}\"\n",
        path.display()
    );
    let mut upgraded = Upgraded::start(&format!("{listeners}{OK}"));
    let ask = || Client::over(UnixStream::connect(&path).expect("somebody listens")).get("/").status;
    assert_eq!(ask(), 200);
    for _ in 0..2 {
        let before = upgraded.pid;
        upgraded.upgrade();
        eventually("the old process ends", || (!is_running(before)).then_some(()));
        assert_eq!(ask(), 200);
    }
}

/// Upgrades that the process that serves has counted, as succeeded and failed.
fn upgrades(gateway: &Gateway) -> (f64, f64) {
    let count =
        |result: &str| gateway.metric("sluicegate_upgrades_total", &[&format!("result=\"{result}\"")]);
    (count("succeeded"), count("failed"))
}

#[test]
fn what_is_no_gateway_does_not_take_its_place() {
    let mut upgraded = Upgraded::start(OK);
    let plain = upgraded.gateway.plain();
    let good = fs::read(upgraded.binary()).expect("it is there");
    let not_upgraded = "not upgraded, this process continues to serve";
    for (round, (content, why)) in [
        (&b"neither a program nor a script"[..], "cannot start"),
        (b"#!/bin/sh\nexit 0\n", "ended with exit status: 0 without a message"),
        (b"#!/bin/sh\necho no room >&2; exit 3\n", "ended with exit status: 3: no room"),
        (b"#!/bin/sh\nexec cat >&0\n", "gateway was stopped: "),
    ]
    .into_iter()
    .enumerate()
    {
        upgraded.replace_binary(content);
        signal(upgraded.pid, "USR2");
        eventually(why, || (upgraded.count(not_upgraded) == round + 1).then_some(()));
        upgraded.says(why);
        assert_eq!(get(plain, "/").status, 200);
        assert_eq!(upgrades(&upgraded.gateway), (0.0, round as f64 + 1.0));
    }
    // A configuration that is wrong by now is the successor's to refuse.
    upgraded.replace_binary(&good);
    let config = fs::read(upgraded.gateway.file("gateway.toml")).expect("it is there");
    upgraded.gateway.write("gateway.toml", "nonsense = true");
    signal(upgraded.pid, "USR2");
    upgraded.says("ended with exit status: 78: error");
    upgraded.gateway.write("gateway.toml", config);
    fs::remove_file(upgraded.binary()).expect("it is there");
    signal(upgraded.pid, "USR2");
    upgraded.says("No such file");
    upgraded.replace_binary(&good);
    upgraded.upgrade();
    assert_eq!(get(plain, "/").status, 200);
}

#[test]
fn a_second_upgrade_is_refused_while_one_is_under_way_and_in_a_drain() {
    let mut upgraded = Upgraded::start(&format!("[shutdown]\nready-delay = \"20s\"\n{OK}"));
    let good = fs::read(upgraded.binary()).expect("it is there");
    upgraded.replace_binary(b"#!/bin/sh\nread line\nexit 1\n");
    // It reads what it is given, which has no end of line, until the old process gives it up.
    signal(upgraded.pid, "USR2");
    upgraded.says("upgrading");
    signal(upgraded.pid, "USR2");
    upgraded.says("SIGUSR2 is ignored: an upgrade is under way");
    signal(upgraded.pid, "HUP");
    upgraded.says("upgrading, SIGHUP is ignored");
    assert_eq!(upgraded.gateway.get("/").status, 200);
    signal(upgraded.pid, "TERM");
    upgraded.says("draining");
    upgraded.replace_binary(&good);
    signal(upgraded.pid, "USR2");
    upgraded.says("SIGUSR2 is ignored: this process is already draining");
    assert!(upgraded.gateway.is_running());
}

#[test]
fn the_command_says_how_it_ended() {
    let mut upgraded = Upgraded::start(OK);
    let config = upgraded.gateway.file("gateway.toml");
    let command = |more: &[&str]| {
        let config = config.to_str().expect("the path is text");
        run(env!("CARGO_BIN_EXE_sluicegate"), &[&["upgrade", "--config", config], more].concat())
    };
    let output = command(&["--pid", &upgraded.pid.to_string()]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    assert!(said.ends_with(&format!(" serves, process {} drains\n", upgraded.pid)), "{said}");
    upgraded.pid = said.split(' ').nth(1).and_then(|pid| pid.parse().ok()).expect("it names the successor");
    upgraded.successors.push(upgraded.pid);
    upgraded.replace_binary(b"#!/bin/sh\necho no room >&2; exit 3\n");
    let output = command(&["--pid", &upgraded.pid.to_string()]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("process {} continues to serve", upgraded.pid)) && said.contains("no room"),
        "{said}"
    );
    // Without a process id it is found by where the configuration says that it listens.
    let plain = upgraded.gateway.plain();
    upgraded
        .gateway
        .write("gateway.toml", format!("admin = false\n[listener.plain]\nbind = \"{plain}\"\n{OK}"));
    let said = text(&command(&[]).stderr);
    assert!(said.contains(&format!("process {} continues to serve", upgraded.pid)), "{said}");
}

#[test]
fn a_proxy_that_has_not_announced_its_client_yet_is_waited_for_after_an_upgrade() {
    let mut upgraded = Upgraded::start(&format!(
        "workers = 1\n[listener.plain]\nbind = \"127.0.0.1:0\"\nproxy-protocol = {{ from = [\"127.0.0.2\"] }}\n\
         [shutdown]\nready-delay = \"0s\"\ndrain = \"60s\"\n{OK}"
    ));
    let plain = upgraded.gateway.plain();
    let mut announced = Client::connect_from([127, 0, 0, 2], plain);
    announced.send("PROXY TCP4 203.0.113.7 ");
    // The one worker accepts in the order of connections, so the first is accepted when the second is answered.
    assert_eq!(get(plain, "/").status, 200);
    let before = upgraded.pid;
    upgraded.upgrade();
    assert_eq!(get(plain, "/").status, 200);
    announced.send("10.0.0.1 4000 443\r\n");
    assert_eq!(announced.get("/announced").status, 200);
    drop(announced);
    eventually("the old process ends", || (!is_running(before)).then_some(()));
}

/// An upstream that switches to WebSocket and echoes, and one that never ends its stream of events.
fn long_lived() -> Upstream {
    Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        let Some(request) = receive(&mut peer) else { return };
        if request.header("upgrade").is_some() {
            peer.send(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            );
            loop {
                let question = peer.bytes(7);
                if question.len() < 7 {
                    return;
                }
                peer.send([0x81, 1, question[6] ^ question[2]]);
            }
        }
        peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        while peer.is_taking("8\r\ndata: x\n\r\n") {
            thread::sleep(Duration::from_millis(20));
        }
    })
}

/// Sends a frame of one byte and reads it back.
fn echoes(client: &mut Client) {
    client.send([0x81, 0x81, 1, 2, 3, 4, b'a' ^ 1]);
    assert_eq!(client.bytes(3), [0x81, 1, b'a']);
}

#[test]
fn ten_upgrades_under_load_fail_no_request_and_reset_no_connection() {
    let _alone = heavy();
    let upstream = long_lived();
    let mut upgraded = Upgraded::start(&format!(
        "[shutdown]\nready-delay = \"0s\"\ndrain = \"60s\"\n[[route]]\npath = \"/long/{{*rest}}\"\nupgrade = true\n\
         to = \"http://{}\"\n{OK}",
        upstream.addr()
    ));
    let plain = upgraded.gateway.plain();
    let mut websocket = Client::connect(plain);
    assert_eq!(websocket.request("GET", "/long/ws", UPGRADE, "").status, 101);
    let mut events = Client::connect(plain);
    events.send("GET /long/events HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(events.head().status, 200);
    let url = format!("http://{plain}/");
    let spawn = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("timeout");
        command.arg("120").arg(program).args(arguments).arg(&url);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program is installed")
    };
    let loads = [
        spawn("wrk", &["-t1", "-c8", "-d20s", "--timeout", "10s"]),
        spawn("h2load", &["--h1", "-D", "20", "-c", "4"]),
    ];
    let until = Instant::now() + Duration::from_secs(18);
    let mut upgrades = 0;
    while upgrades < 10 {
        upgraded.upgrade();
        upgrades += 1;
        echoes(&mut websocket);
        events.bytes(13);
        // HTTP/2: a client that is told to go connects anew, as they do.
        let load = text(&run("h2load", &["-n", "200", "-c", "4", "-m", "10", &url]).stdout);
        assert!(load.contains("200 succeeded, 0 failed, 0 errored, 0 timeout"), "{load}");
    }
    assert!(Instant::now() < until, "all upgrades were under load");
    for load in loads {
        let output = load.wait_with_output().expect("it is a child of ours");
        let said = text(&output.stdout);
        assert!(output.status.success(), "{said}{}", text(&output.stderr));
        assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{said}");
        assert!(!said.contains("requests:") || said.contains(" 0 failed, 0 errored, 0 timeout"), "{said}");
    }
    echoes(&mut websocket);
    events.bytes(13);
}

#[test]
fn tunnels_have_a_bound_of_their_own_in_a_drain() {
    let upstream = long_lived();
    let mut gateway = Gateway::start(&format!(
        "[shutdown]\nready-delay = \"0s\"\ndrain = \"200ms\"\ndrain-tunnels = \"3s\"\n[[route]]\n\
         path = \"/{{*rest}}\"\nupgrade = true\nto = \"http://{}\"\n",
        upstream.addr()
    ));
    let mut websocket = gateway.client();
    assert_eq!(websocket.request("GET", "/ws", UPGRADE, "").status, 101);
    let mut events = gateway.client();
    events.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(events.head().status, 200);
    gateway.signal("TERM");
    let began = Instant::now();
    events.rest();
    assert!(began.elapsed() < Duration::from_secs(3), "requests end with `drain`: {:?}", began.elapsed());
    let line = gateway.logged("/events");
    assert_eq!(line["reason"], "drain", "{line}");
    echoes(&mut websocket);
    assert_eq!(websocket.bytes(4), [0x88, 2, 0x03, 0xe9], "then it is told");
    assert!(began.elapsed() >= Duration::from_secs(3));
    drop(websocket);
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn an_upgrade_tells_tunnels_that_they_end_after_the_drain() {
    let upstream = long_lived();
    let mut upgraded = Upgraded::start(&format!(
        "[shutdown]\nready-delay = \"0s\"\ndrain = \"1s\"\n[[route]]\npath = \"/{{*rest}}\"\nupgrade = true\nto = \"http://{}\"\n",
        upstream.addr()
    ));
    let mut websocket = upgraded.gateway.client();
    assert_eq!(websocket.request("GET", "/ws", UPGRADE, "").status, 101);
    upgraded.upgrade();
    assert_eq!(websocket.bytes(4), [0x88, 2, 0x03, 0xe9]);
}

/// The sockets that listen on this port, by the kernel's numbers.
fn sockets(port: u16) -> BTreeSet<String> {
    let table = fs::read_to_string("/proc/net/tcp").expect("/proc is there");
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let there = format!(":{port:04X}");
    lines.filter(|it| it[1].ends_with(&there) && it[3] == "0A").map(|it| it[9].to_owned()).collect()
}

#[test]
fn a_listener_that_is_renamed_keeps_its_sockets() {
    let (one, other) = (free_port(), free_port());
    let config = |first: &str, second: &str| {
        let listener = |name: &str, port: u16| format!("[listener.{name}]\nbind = \"127.0.0.1:{port}\"\n");
        format!("workers = 2\n{}{}{OK}", listener(first, one), listener(second, other))
    };
    let mut gateway = Gateway::start(&config("a", "b"));
    let before = (sockets(one), sockets(other));
    assert_eq!((before.0.len(), before.1.len()), (2, 2));
    // New names, and names that change places.
    for (first, second) in [("c", "b"), ("b", "c"), ("d", "e"), ("a", "b")] {
        gateway.reload(&config(first, second));
        assert_eq!((sockets(one), sockets(other)), before);
        for port in [one, other] {
            assert_eq!(get(SocketAddr::from(([127, 0, 0, 1], port)), "/").status, 200);
        }
    }
    gateway.signal("TERM");
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn systemd_is_told_in_the_abstract_namespace_too() {
    let name = format!("sluicegate-test-{}-{}", std::process::id(), free_port());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("it is short");
    let socket = UnixDatagram::bind_addr(&address).expect("the name is ours");
    socket.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    let _gateway = Upgraded::start_with(Directory::new(), OK, |command| {
        command.env("NOTIFY_SOCKET", format!("@{name}"));
    });
    let mut message = [0; 512];
    let length = socket.recv(&mut message).expect("something is told");
    assert_eq!(text(&message[..length]), "READY=1\n");
}

#[test]
fn a_listener_on_a_socket_of_systemd_comes_back() {
    let (gateway, ports) = activated_by(HELD, "plain:second", |ports| both(ports, true));
    let second = SocketAddr::from(([127, 0, 0, 1], ports[1]));
    assert_eq!(get(second, "/").status, 200);
    for _ in 0..3 {
        gateway.reload(&both(&ports, false));
        gateway.reload(&both(&ports, true));
        assert_eq!(get(second, "/").status, 200);
    }
}

/// A configuration with one listener, or two.
fn both(ports: &[u16], has_second: bool) -> String {
    let listener = |name: &str, port: u16| format!("[listener.{name}]\nbind = \"127.0.0.1:{port}\"\n");
    let second = if has_second { listener("second", ports[1]) } else { String::new() };
    format!("{}{second}{OK}", listener("plain", ports[0]))
}

#[test]
fn systemd_is_told_what_the_process_does() {
    let directory = Directory::new();
    let path = directory.join("notify");
    let socket = UnixDatagram::bind(&path).expect("the directory is ours");
    socket.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    let told = |wanted: &str| {
        eventually(wanted, || {
            let mut message = [0; 512];
            let length = socket.recv(&mut message).expect("something is told");
            let message = text(&message[..length]);
            message.contains(wanted).then_some(message)
        })
    };
    let mut upgraded = Upgraded::start_with(directory, OK, |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "600000");
    });
    told("READY=1");
    told("WATCHDOG=1");
    upgraded.gateway.signal("HUP");
    assert!(told("RELOADING=1").contains("MONOTONIC_USEC="));
    told("READY=1");
    let successor = upgraded.upgrade();
    told(&format!("MAINPID={successor}"));
    told("WATCHDOG=1");
    signal(successor, "TERM");
    told("STOPPING=1");
}
