//! Protocol upgrades: WebSocket through the gateway, and what is not switched.

use crate::support::upstream::{receive, reset};
use crate::support::{Client, Directory, Gateway, Python, Upstream, python, tls};

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
fn bytes_of_a_tunnel_that_breaks_are_told() {
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
