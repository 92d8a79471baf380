//! Names with addresses of both families, of which one leads nowhere any more: no request waits long for it.

use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::support::dns::{Dns, Record, Reply};
use crate::support::h2::{Connection, HEADERS};
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Upstream, eventually};

/// An IPv6 listener at a port that a server on 127.0.0.1 has too. It can be made to answer no further connection.
struct Listener {
    socket: Socket,
    held: Vec<TcpStream>,
}

impl Listener {
    fn start(port: u16) -> Listener {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, None).expect("there is IPv6");
        socket.set_only_v6(true).expect("it can be had without IPv4");
        socket.bind(&SocketAddr::from((Ipv6Addr::LOCALHOST, port)).into()).expect("the port is free");
        // A queue of one: the kernel lets handshakes beyond it hang.
        socket.listen(0).expect("it is bound");
        Listener { socket, held: Vec::new() }
    }

    fn addr(&self) -> SocketAddr {
        self.socket.local_addr().ok().and_then(|addr| addr.as_socket()).expect("it is bound")
    }

    /// From now on connections neither come to be nor fail.
    fn hang(&mut self) {
        let (addr, short) = (self.addr(), Duration::from_millis(100));
        while let Ok(stream) = TcpStream::connect_timeout(&addr, short) {
            self.held.push(stream);
        }
    }

    /// From now on they come to be, and requests are answered.
    fn serve(self) {
        let listener = TcpListener::from(self.socket);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(|| answer(stream));
            }
        });
    }
}

/// Answers every request over HTTP/1.1.
fn answer(stream: TcpStream) {
    let mut peer = Client::over(stream);
    while receive(&mut peer).is_some() {
        peer.try_send("HTTP/1.1 204 X\r\n\r\n");
    }
}

/// A gateway before a name with both families. `keys` are the upstream's.
fn gateway(dns: &Dns, port: u16, keys: &str) -> Gateway {
    let both = vec![Record::A([127, 0, 0, 1].into()), Record::Aaaa(Ipv6Addr::LOCALHOST)];
    dns.set("u.test", Reply::Records(300, both));
    let gateway = Gateway::start(&format!(
        "workers = 1\n{}[upstream.u]\nservers = [\"http://u.test:{port}\"]\nbalance = \"round-robin\"\n\
         timeouts = {{ connect = \"10s\" }}\n{keys}\n[[route]]\nto = \"u\"\n",
        dns.config()
    ));
    eventually("both families are servers", || {
        let servers = gateway.admin("/v1/upstreams").json()[0]["servers"].clone();
        (servers.as_array()?.len() == 2).then_some(())
    });
    gateway
}

/// How many of so many requests took longer than connecting does.
fn slow(gateway: &Gateway, requests: usize, status: u16) -> usize {
    let mut client = gateway.client();
    let is_slow = |_: &usize| {
        let began = Instant::now();
        assert_eq!(client.get("/").status, status);
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        began.elapsed() >= Duration::from_millis(200)
    };
    (0..requests).filter(is_slow).count()
}

#[test]
fn a_family_that_does_not_answer_any_more_costs_a_quarter_of_a_second_now_and_then() {
    let h1 = Upstream::raw(answer);
    let h2 = Upstream::raw(|stream| {
        let mut peer = Connection::serve(stream);
        while let Some(frame) = peer.frame() {
            if frame.kind == HEADERS {
                // `:status: 204` of HPACK's static table.
                peer.send(HEADERS, 5, frame.stream, &[0x89]);
            }
        }
    });
    for (v4, keys) in [(h1, "http = \"h1\""), (h2, "http = \"h2\"")] {
        let port = v4.addr().port();
        let (dns, mut v6) = (Dns::start(), Listener::start(port));
        let gateway = gateway(&dns, port, &format!("{keys}\neject = {{ after = 1 }}"));
        v6.hang();
        let slow = slow(&gateway, 200, 204);
        assert!((1..=4).contains(&slow), "{keys}: {slow} of 200 were slow");
        // Nothing failed that would be told to a client, use up retries or be held against a server.
        assert_eq!(gateway.metric("sluicegate_upstream_retries_total", &[]), 0.0);
        assert_eq!(gateway.metric("sluicegate_upstream_ejections_total", &[]), 0.0);
        assert_eq!(gateway.metric("sluicegate_upstream_connections", &["state=\"open\""]), 1.0);
        // But operators see it.
        let around = |family: &str| {
            gateway.metric("sluicegate_upstream_family_fallbacks_total", &[&format!("family=\"{family}\"")])
        };
        assert!((1.0..=4.0).contains(&around("ipv6")) && around("ipv4") == 0.0, "{keys}: {}", around("ipv6"));
        assert_eq!((said(&gateway, "server time out:"), said(&gateway, "no longer time out")), (1, 0));
        assert!(hangs(&gateway));
        let shown = gateway.admin("/v1/explain?url=/").json();
        assert!(shown["text"].as_str().is_some_and(|it| it.contains(" of u hang")), "{shown}");
    }
}

/// Whether operators are shown that connections to the server at the IPv6 address hang.
fn hangs(gateway: &Gateway) -> bool {
    let shown = gateway.admin("/v1/upstreams").json();
    let servers = shown[0]["servers"].as_array().expect("a list").clone();
    let is_hanging = |is_v6: bool| {
        let is_v6 = |server: &serde_json::Value| server["addresses"][0].to_string().contains('[') == is_v6;
        servers.iter().find(|server| is_v6(server)).is_some_and(|server| server["hangs"] == true)
    };
    assert!(!is_hanging(false), "{shown}");
    is_hanging(true)
}

fn said(gateway: &Gateway, part: &str) -> usize {
    gateway.stderr().iter().filter(|line| line.contains(part)).count()
}

#[test]
fn that_a_family_hangs_is_said_when_it_begins_and_when_it_ends() {
    let v4 = Upstream::raw(answer);
    let port = v4.addr().port();
    let (dns, mut v6) = (Dns::start(), Listener::start(port));
    let gateway = gateway(&dns, port, "");
    v6.hang();
    let mut client = gateway.client();
    eventually("it hangs", || {
        assert_eq!(client.get("/").status, 204);
        hangs(&gateway).then_some(())
    });
    v6.serve();
    eventually("it is over", || {
        assert_eq!(client.get("/").status, 204);
        (!hangs(&gateway)).then_some(())
    });
    eventually("the log says so", || (said(&gateway, "no longer time out") == 1).then_some(()));
    assert_eq!(said(&gateway, "server time out:"), 1);
}

#[test]
fn many_requests_at_once_wait_for_a_dead_family_together() {
    let v4 = Upstream::raw(|stream| {
        let mut peer = Connection::serve(stream);
        while let Some(frame) = peer.frame() {
            if frame.kind == HEADERS {
                peer.send(HEADERS, 5, frame.stream, &[0x89]);
            }
        }
    });
    let port = v4.addr().port();
    let (dns, mut v6) = (Dns::start(), Listener::start(port));
    let gateway = gateway(&dns, port, "http = \"h2\"");
    v6.hang();
    let began = Instant::now();
    let mut clients: Vec<Client> = (0..20).map(|_| gateway.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 204);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn a_family_that_refuses_costs_no_retry() {
    let v4 = Upstream::raw(answer);
    let port = v4.addr().port();
    let (dns, v6) = (Dns::start(), Listener::start(port));
    let gateway = gateway(&dns, port, "retry = { times = 0 }");
    drop(v6);
    assert_eq!(slow(&gateway, 50, 204), 0);
}
