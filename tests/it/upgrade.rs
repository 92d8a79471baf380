//! Protocol upgrades: WebSocket through the gateway, and what is not switched.

use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::upstream::{receive, reset};
use crate::support::{Client, Directory, Gateway, PATIENCE, Python, Upstream, eventually, python, tls};

const UPGRADE: &[&str] = &[
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
];

#[test]
fn a_websocket_client_talks_to_a_websocket_server() {
    let server = Python::serve("websocket_server.py");
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/ws\"\nto = \"http://{}\"\nupgrade = true",
        server.addr()
    ));
    let url = format!("ws://{}/ws", gateway.plain());
    assert_eq!(python::client("websocket_client.py", &[&url]), "echoed\n");
    assert_eq!(gateway.logged("/ws")["status"], 101);
}

#[test]
fn a_websocket_client_talks_over_tls() {
    let server = Python::serve("websocket_server.py");
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let file = directory.join("a").display().to_string();
    let text = format!(
        "[listener.tls]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"{file}.pem\", key = \"{file}.key\" }}]\n\
         [[route]]\npath = \"/ws\"\nto = \"http://{}\"\nupgrade = true",
        server.addr()
    );
    let gateway = Gateway::start_in(directory, &text);
    let url = format!("wss://localhost:{}/ws", gateway.listener("tls").port());
    assert_eq!(python::client("websocket_client.py", &[&url, &format!("{file}.pem")]), "echoed\n");
}

#[test]
fn bytes_pass_both_ways_after_101_and_the_end_too() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        let Some(request) = receive(&mut peer) else { return };
        assert_eq!(request.header("upgrade").as_deref(), Some("websocket"));
        // The first bytes of the new protocol may come in the packet of the answer.
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello",
        );
        let question = peer.bytes(4);
        peer.send(question);
    });
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/ws\"\nto = \"http://{}\"\nupgrade = true",
        upstream.addr()
    ));
    let mut client = gateway.client();
    let answer = client.request("GET", "/ws", UPGRADE, "");
    assert_eq!((answer.status, answer.header("upgrade")), (101, Some("websocket")));
    assert_eq!(client.bytes(5), b"hello");
    client.send("ping");
    assert_eq!(client.bytes(4), b"ping");
    assert!(client.is_closed());
}

#[test]
fn bytes_of_a_tunnel_that_breaks_are_logged() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            peer.send(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            );
            let question = peer.bytes(4);
            peer.send(question);
            peer.rest();
        }
    });
    let mut gateway = Gateway::start(&format!(
        "[shutdown]\ndrain = \"100ms\"\n[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"\nupgrade = true",
        upstream.addr()
    ));
    let talk = |path: &str| {
        let mut client = gateway.client();
        assert_eq!(client.request("GET", path, UPGRADE, "").status, 101);
        client.send("ping");
        assert_eq!(client.bytes(4), b"ping");
        client
    };
    reset(talk("/reset").into_stream());
    let line = gateway.logged("/reset");
    assert_eq!((&line["bytes_in"], &line["bytes_out"]), (&4.into(), &4.into()), "{line}");

    let _client = talk("/drained");
    gateway.signal("TERM");
    gateway.wait();
    let line = gateway.logged("/drained");
    assert_eq!((&line["bytes_in"], &line["bytes_out"]), (&4.into(), &4.into()), "{line}");
    assert_eq!((&line["status"], &line["reason"]), (&101.into(), &"drain".into()), "{line}");
}

const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// A gateway with this upstream that has half a minute to drain, and a client whose tunnel stands.
fn tunnel(upstream: &Upstream) -> (Gateway, Client) {
    let gateway = Gateway::start(&format!(
        "[shutdown]\nready-delay = \"0s\"\ndrain = \"30s\"\n\
         [[route]]\npath = \"/ws\"\nto = \"http://{}\"\nupgrade = true",
        upstream.addr()
    ));
    let mut client = gateway.client();
    assert_eq!(client.request("GET", "/ws", UPGRADE, "").status, 101);
    (gateway, client)
}

#[test]
fn a_tunnel_whose_upstream_has_closed_ends_with_the_drain() {
    for is_before in [true, false] {
        let (close, closes) = mpsc::channel::<()>();
        let closes = Mutex::new(closes);
        let upstream = Upstream::raw(move |stream| {
            let mut peer = Client::over(stream);
            if receive(&mut peer).is_some() {
                // A frame that does not end: nothing can be put behind it.
                peer.send(SWITCHED).send([0x82, 100, b'x']);
                closes.lock().expect("nobody panics with it").recv().ok();
            }
        });
        let (mut gateway, mut client) = tunnel(&upstream);
        assert_eq!(client.bytes(3), [0x82, 100, b'x']);
        if is_before {
            close.send(()).expect("the upstream waits for it");
            assert!(client.is_closed(), "the end has come through; this side stays open");
        }
        let began = Instant::now();
        gateway.signal("TERM");
        eventually("it drains", || std::net::TcpStream::connect(gateway.plain()).is_err().then_some(()));
        if !is_before {
            assert!(gateway.is_running(), "the tunnel still stands");
            close.send(()).expect("the upstream waits for it");
        }
        assert_eq!(gateway.wait().code(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert_eq!(gateway.logged("/ws")["reason"], "drain");
    }
}

#[test]
fn a_websocket_gets_a_close_frame_between_two_frames_when_the_gateway_drains() {
    let (go, goes) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let (goes, tell) = (Mutex::new(goes), Mutex::new(tell));
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            peer.send(SWITCHED).send([0x82, 4, b'o', b'n']);
            goes.lock().expect("nobody panics with it").recv().ok();
            peer.send([b'l', b'y', 0x81, 1, b'x']);
            tell.lock().expect("nobody panics with it").send(peer.rest()).ok();
        }
    });
    let (mut gateway, mut client) = tunnel(&upstream);
    assert_eq!(client.bytes(4), [0x82, 4, b'o', b'n']);
    gateway.signal("TERM");
    eventually("it drains", || std::net::TcpStream::connect(gateway.plain()).is_err().then_some(()));
    go.send(()).expect("the upstream waits for it");
    // The frame under way ends, and the next is the gateway's: 1001, going away.
    assert_eq!(client.bytes(6), [b'l', b'y', 0x88, 2, 0x03, 0xe9]);
    let answer = [0x88, 0x82, 1, 2, 3, 4, 0x03 ^ 1, 0xe9 ^ 2];
    client.send(answer);
    assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok(&answer[..]), "the server hears of it");
    assert!(client.is_closed());
    assert_eq!(gateway.wait().code(), Some(0));
    let line = gateway.logged("/ws");
    assert_eq!((&line["status"], &line["reason"]), (&101.into(), &"drain".into()), "{line}");
}

#[test]
fn an_idle_websocket_gets_a_close_frame_and_does_not_hold_the_drain_up() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            peer.send(SWITCHED);
            peer.rest();
        }
    });
    let (mut gateway, mut client) = tunnel(&upstream);
    gateway.signal("TERM");
    let began = Instant::now();
    assert_eq!(client.bytes(4), [0x88, 2, 0x03, 0xe9]);
    // It never answers.
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_websocket_has_its_farewell_also_when_the_drain_is_over_by_then() {
    for shutdown in ["drain = \"1s\"\ndrain-tunnels = \"1s\"", "drain = \"1s\"\ndrain-tunnels = \"900ms\""] {
        let upstream = Upstream::raw(|stream| {
            let mut peer = Client::over(stream);
            if receive(&mut peer).is_some() {
                peer.send(SWITCHED);
                peer.rest();
            }
        });
        let mut gateway = Gateway::start(&format!(
            "[shutdown]\nready-delay = \"0s\"\n{shutdown}\n[[route]]\npath = \"/ws\"\nto = \"http://{}\"\nupgrade = true",
            upstream.addr()
        ));
        let mut client = gateway.client();
        assert_eq!(client.request("GET", "/ws", UPGRADE, "").status, 101);
        gateway.signal("TERM");
        assert_eq!(client.bytes(4), [0x88, 2, 0x03, 0xe9], "{shutdown}");
        let answer = [0x88, 0x82, 1, 2, 3, 4, 0x03 ^ 1, 0xe9 ^ 2];
        client.send(answer);
        assert!(client.is_closed());
        assert_eq!(gateway.wait().code(), Some(0));
    }
}

#[test]
fn an_upstream_that_does_not_switch_answers_as_usual() {
    let upstream = Upstream::answering("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno");
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/ws\"\nto = \"http://{}\"\nupgrade = true",
        upstream.addr()
    ));
    let mut client = gateway.client();
    assert_eq!(client.request("GET", "/ws", UPGRADE, "").status, 426);
    assert_eq!(client.get("/ws").status, 426);
}

#[test]
fn a_route_without_upgrade_forwards_none() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!("[[route]]\npath = \"/ws\"\nto = \"http://{}\"", upstream.addr()));
    assert_eq!(gateway.client().request("GET", "/ws", UPGRADE, "").status, 200);
    let request = upstream.request();
    assert_eq!((request.header("upgrade"), request.header("connection")), (None, None));
}

#[test]
fn http_2_in_the_clear_is_not_switched_to() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/\"\nto = \"http://{}\"\nupgrade = true",
        upstream.addr()
    ));
    let fields =
        ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"];
    assert_eq!(gateway.client().request("GET", "/", &fields, "").status, 200);
    let request = upstream.request();
    assert_eq!((request.header("upgrade"), request.header("http2-settings")), (None, None));
}

/// An upstream that switches the protocol of `/ws…` and answers everything else.
fn switching() -> Upstream {
    Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while let Some(request) = receive(&mut peer) {
            if request.line.contains("/ws") {
                peer.send(SWITCHED);
                peer.rest();
                return;
            }
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    })
}

#[test]
fn tunnels_count_among_the_connections_to_their_server() {
    let upstream = switching();
    let gateway = Gateway::start(&format!(
        "[upstream.ws]\nservers = [\"http://{}\"]\nconnections = {{ max = 2, wait = \"100ms\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"ws\"\nupgrade = true",
        upstream.addr()
    ));
    let open = || {
        let mut client = gateway.client();
        let status = client.request("GET", "/ws", UPGRADE, "").status;
        (client, status)
    };
    let (first, second) = (open(), open());
    assert_eq!((first.1, second.1), (101, 101));
    assert_eq!(open().1, 503);
    assert_eq!(gateway.get("/plain").status, 503);
    drop(first);
    eventually("there is room again", || (gateway.get("/plain").status == 200).then_some(()));
}

#[test]
fn a_tunnel_may_be_idle_for_as_long_as_its_route_says() {
    let upstream = switching();
    let gateway = Gateway::start(&format!(
        "[upstream.ws]\nservers = [\"http://{}\"]\n\
         [[route]]\npath = \"/ws/short\"\nto = \"ws\"\nupgrade = true\ntimeouts = {{ tunnel-idle = \"200ms\" }}\n\
         [[route]]\npath = \"/ws/off\"\nto = \"ws\"\nupgrade = true\ntimeouts = {{ tunnel-idle = \"off\" }}\n\
         [[route]]\npath = \"/ws/default\"\nto = \"ws\"\nupgrade = true",
        upstream.addr()
    ));
    let open = |path: &str| {
        let mut client = gateway.client();
        assert_eq!(client.request("GET", path, UPGRADE, "").status, 101);
        client
    };
    let standing = ["/ws/off", "/ws/default"].map(open);
    assert!(open("/ws/short").is_closed());
    // The kernel asks after both ends of those that stand: "02" is its timer of keep-alive.
    let port = format!(":{:04X} ", gateway.plain().port());
    let server = format!(":{:04X} ", upstream.addr().port());
    eventually("keep-alive", || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux has it");
        let kept = |port: &str, column: usize| {
            let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let is_ours =
                |fields: &Vec<&str>| format!("{} ", fields[column]).ends_with(port) && fields[3] == "01";
            fields.filter(is_ours).filter(|fields| fields[5].starts_with("02:")).count()
        };
        (kept(&port, 1) == 2 && kept(&server, 2) == 2).then_some(())
    });
    for mut client in standing {
        client.shutdown();
        assert!(client.is_closed());
    }
}
