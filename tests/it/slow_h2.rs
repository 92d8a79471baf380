//! Slow and greedy HTTP/2 clients: what never goes on is closed at its deadline, and what a connection can pin of
//! memory is bounded.

use std::net::{SocketAddr, TcpStream};

use crate::support::h2::{
    ACK, CONTINUATION, Connection, DATA, END_HEADERS, END_STREAM, End, Frame, HEADERS, PING, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, Wire, encoded, fields,
};
use crate::support::upstream::receive;
use crate::support::{Client, Directory, Gateway, PATIENCE, Upstream, eventually, heavy, stdout_of, tls};

/// A gateway with a listener `plain` and one `tls`, both with these deadlines, in front of this address.
fn before(upstream: SocketAddr, timeouts: &str) -> Gateway {
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let config = format!(
        "workers = 1\n[listener.plain]\nbind = \"127.0.0.1:0\"\ntimeouts = {{ {timeouts} }}\n\
         [listener.tls]\nbind = \"127.0.0.1:0\"\ntimeouts = {{ {timeouts} }}\n\
         certs = [{{ cert = \"{0}.pem\", key = \"{0}.key\" }}]\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{upstream}\"",
        directory.join("a").display()
    );
    Gateway::start_in(directory, &config)
}

/// A request's head, as a frame.
fn head(stream: u32, flags: u8, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let line = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", path)];
    encoded(HEADERS, flags, stream, &fields(&[&line[..], more].concat()))
}

/// Settings under which nothing of a body may be sent.
fn shut() -> Vec<u8> {
    encoded(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])
}

/// An upstream whose every answer is a mebibyte.
fn large() -> Upstream {
    let body = "x".repeat(1 << 20);
    Upstream::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

#[test]
fn heads_that_do_not_end_are_closed_at_their_deadline() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "header = \"300ms\", idle = \"1m\"");
    let whole = head(1, END_HEADERS | END_STREAM, "/", &[]);
    for begun in [
        head(1, END_STREAM, "/", &[]),
        [head(1, END_STREAM, "/", &[]), encoded(CONTINUATION, 0, 1, &fields(&[("a", "b")]))].concat(),
        whole[..whole.len() - 1].to_vec(),
        whole[..9].to_vec(),
    ] {
        let mut slow = Connection::open(gateway.plain());
        slow.try_write(&begun);
        assert!(slow.is_closed());
        let mut secured = tls::connect(gateway.listener("tls"), "localhost", &["h2"]).map(Connection::over);
        let slow = secured.as_mut().expect("TLS is served");
        slow.try_write(&begun);
        assert!(slow.is_closed());
    }
    let told =
        |line: &serde_json::Value| line["reason"] == "header-timeout" && line["protocol"] == "HTTP/2.0";
    eventually("each has its line", || {
        (gateway.access_log().iter().filter(|line| told(line)).count() == 8).then_some(())
    });
    assert!(upstream.is_quiet());
}

#[test]
fn a_head_that_does_not_end_is_closed_under_requests_that_run() {
    let upstream = Upstream::raw(|stream| drop(Client::over(stream).rest()));
    let gateway = before(upstream.addr(), "header = \"300ms\", idle = \"1m\"");
    let mut slow = Connection::open(gateway.plain());
    slow.request(1, "GET", "/waits", true);
    slow.try_write(&head(3, END_STREAM, "/", &[]));
    assert!(slow.is_closed());
}

#[test]
fn half_a_preface_behind_tls_is_closed_at_its_deadline() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "header = \"300ms\", idle = \"1m\"");
    for begun in [&b""[..], b"PRI * HTTP/2.0\r\n\r\nSM"] {
        let mut slow =
            tls::hasten(gateway.listener("tls"), "localhost", &["h2"], begun).expect("TLS is served");
        let mut said = Vec::new();
        let ended = std::io::Read::read_to_end(&mut slow, &mut said);
        let is_silence = |error: std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!ended.is_err_and(is_silence), "still open");
    }
}

#[test]
fn a_connection_with_frames_but_no_requests_is_idle() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "idle = \"500ms\"");
    // Neither silence, nor settings that are not answered, nor PING keep it.
    let mut mute = Connection::open(gateway.plain());
    assert!(mute.is_closed());
    let mut talker = Connection::open(gateway.plain());
    for _ in 0..50 {
        talker.try_write(&encoded(PING, 0, 0, &[0; 8]));
    }
    assert!(talker.is_closed());
    assert_eq!(gateway.metric("sluicegate_refused_requests_total", &[]), 0.0, "and none of it is a flood");
}

#[test]
fn shut_windows_are_given_up_at_the_deadline_however_they_drip() {
    let upstream = large();
    let gateway = before(upstream.addr(), "body-stall = \"300ms\"");
    let mut shut_ones = Connection::open(gateway.plain());
    shut_ones.try_write(&shut());
    for stream in [1, 3, 5] {
        shut_ones.try_write(&head(stream, END_HEADERS | END_STREAM, "/shut", &[]));
    }
    assert_eq!(shut_ones.end(), End::Closed);
    assert_eq!(gateway.logged("/shut")["reason"], "body-stall");

    let mut drips = Connection::open(gateway.plain());
    drips.try_write(&shut());
    drips.try_write(&head(1, END_HEADERS | END_STREAM, "/drip", &[]));
    assert_eq!(drips.until(HEADERS).stream, 1);
    let mut bytes = 0;
    while drips.try_write(&encoded(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])) {
        match drips.frame() {
            Some(frame) if frame.kind == DATA => bytes += frame.payload.len(),
            Some(_) => {}
            None => break,
        }
    }
    assert!(bytes < 1 << 20, "it has had the whole answer");
    assert_eq!(gateway.logged("/drip")["reason"], "body-stall");
}

/// Settings that give every stream a window of so many bytes.
fn windows(bytes: u32) -> Vec<u8> {
    encoded(SETTINGS, 0, 0, &[&[0, 4][..], &bytes.to_be_bytes()].concat())
}

/// Asks for this on twenty streams.
fn ask(client: &mut Connection<Box<dyn Wire>>, path: &str) {
    for stream in (101..141).step_by(2) {
        client.try_write(&head(stream, END_HEADERS | END_STREAM, path, &[]));
    }
}

#[test]
fn small_answers_that_are_not_read_are_given_up_at_the_deadline_however_windows_shut() {
    let (small, upstream) = (Upstream::ok(), large());
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let certs = directory.join("a").display().to_string();
    let gateway = Gateway::start_in(
        directory,
        &format!(
            "workers = 1\n[listener.plain]\nbind = \"127.0.0.1:0\"\ntimeouts = {{ body-stall = \"300ms\" }}\n\
             [listener.tls]\nbind = \"127.0.0.1:0\"\ntimeouts = {{ body-stall = \"300ms\" }}\n\
             certs = [{{ cert = \"{certs}.pem\", key = \"{certs}.key\" }}]\n\
             [[route]]\npath = \"/own\"\nrespond = {{ body = \"own\" }}\n\
             [[route]]\npath = \"/limited\"\nlimit = \"1/h by ip\"\nrespond = {{ body = \"own\" }}\n\
             [[route]]\npath = \"/small\"\nto = \"http://{}\"\n\
             [[route]]\npath = \"/large\"\nto = \"http://{}\"",
            small.addr(),
            upstream.addr()
        ),
    );
    type Shut = fn(&mut Connection<Box<dyn Wire>>);
    let ways: [(&str, Shut); 4] = [
        ("shut from the start", |client| _ = client.try_write(&windows(0))),
        ("open for a byte, so that the answer is handed over", |client| _ = client.try_write(&windows(1))),
        ("shut later", |client| {
            client.request(1, "GET", "/own", true);
            client.answer(1);
            client.try_write(&windows(0));
        }),
        ("the connection's used up by another answer", |client| {
            client.try_write(&windows(1 << 20));
            client.request(1, "GET", "/large", true);
            let mut bytes = 0;
            while bytes < 65_535 {
                bytes += client.until(DATA).payload.len();
            }
        }),
    ];
    let mut shut = Vec::new();
    for secured in [false, true] {
        for path in ["/own", "/limited", "/small", "/nowhere"] {
            for (way, how) in ways {
                let stream: Box<dyn Wire> = match secured {
                    true => {
                        Box::new(tls::connect(gateway.listener("tls"), "localhost", &["h2"]).expect("TLS"))
                    }
                    false => Box::new(wire(gateway.plain())),
                };
                let mut client = Connection::over(stream);
                how(&mut client);
                ask(&mut client, path);
                shut.push((format!("{path}, {way}, TLS: {secured}"), client));
            }
        }
    }
    for (number, (what, client)) in shut.iter_mut().enumerate() {
        // Neither PING nor a byte now and then keeps it.
        let kept = match number % 3 {
            0 => vec![],
            1 => encoded(PING, 0, 0, &[0; 8]),
            _ => encoded(WINDOW_UPDATE, 0, 101, &[0, 0, 0, 1]),
        };
        client.try_write(&kept.repeat(20));
        assert!(client.is_closed(), "{what}");
    }
    let deadlines = ["plain", "tls"].map(|listener| {
        let labels = [&*format!("listener=\"{listener}\""), "deadline=\"body-stall\""];
        gateway.metric("sluicegate_connection_deadlines_total", &labels)
    });
    assert_eq!(deadlines, [16.0; 2]);
}

#[test]
fn an_answer_that_waits_for_its_source_is_not_one_that_is_not_read() {
    let upstream = Upstream::raw(|stream| {
        let mut client = Client::over(stream);
        while receive(&mut client).is_some() {
            client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
            // Longer than the client may leave an answer unread.
            std::thread::sleep(std::time::Duration::from_secs(1));
            client.send("1\r\nb\r\n0\r\n\r\n");
        }
    });
    let gateway = before(upstream.addr(), "body-stall = \"200ms\"");
    let mut client = Connection::open(gateway.plain());
    for stream in [1, 3] {
        client.request(stream, "GET", "/", true);
    }
    // One that is taken back, in the middle of its answer, leaves nothing behind.
    client.until(DATA);
    client.send(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    let mut body = Vec::new();
    loop {
        let frame = client.frame().expect("it is open");
        if frame.kind == DATA && frame.stream == 3 {
            body.extend(&frame.payload);
            if frame.flags & END_STREAM != 0 {
                break;
            }
        }
    }
    assert!(body.ends_with(b"b"), "{body:?}");
}

#[test]
fn a_reader_that_takes_what_it_can_is_not_given_up() {
    let upstream = large();
    let gateway = before(upstream.addr(), "body-stall = \"1s\"");
    let mut slow = Connection::open(gateway.plain());
    slow.try_write(&shut());
    slow.try_write(&head(1, END_HEADERS | END_STREAM, "/slow", &[]));
    let mut bytes = 0;
    // Always with its window full, and always going on.
    while bytes < 1 << 20 {
        slow.try_write(&encoded(WINDOW_UPDATE, 0, 1, &2_048_u32.to_be_bytes()));
        slow.try_write(&encoded(WINDOW_UPDATE, 0, 0, &2_048_u32.to_be_bytes()));
        bytes += slow.until(DATA).payload.len();
    }
    assert_eq!(gateway.logged("/slow").get("reason"), None);
}

/// A connection on which nothing has been said.
fn wire(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&addr, PATIENCE).expect("somebody listens there");
    stream.set_nodelay(true).expect("a socket sends at once");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
    stream
}

/// Frames of SETTINGS until an answer to a request on stream 1 begins: what they announce, in order of the names, and
/// how many acknowledge ours.
fn settings_until_answered(
    client: &mut Connection<TcpStream>,
    said: &mut Vec<Frame>,
) -> (Vec<[u8; 6]>, usize) {
    while let Some(frame) = client.any_frame() {
        let is_answer = frame.kind == HEADERS;
        said.push(frame);
        if is_answer {
            break;
        }
    }
    assert_eq!(said.last().map(|frame| (frame.kind, frame.stream)), Some((HEADERS, 1)), "{said:?}");
    let (acknowledging, announcing): (Vec<_>, Vec<_>) =
        said.iter().filter(|frame| frame.kind == SETTINGS).partition(|frame| frame.flags & ACK != 0);
    assert_eq!(announcing.len(), 1, "{said:?}");
    let mut announced = announcing[0].payload.as_chunks::<6>().0.to_vec();
    announced.sort_unstable();
    (announced, acknowledging.len())
}

#[test]
fn a_client_s_preface_is_answered_once_and_it_may_wait_with_its_request() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "");
    let introduction = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), encoded(SETTINGS, 0, 0, &[])].concat();
    let request = head(1, END_HEADERS | END_STREAM, "/", &[]);
    let begin = || Connection::silent(wire(gateway.plain()));

    let mut hasty = begin();
    hasty.try_write(&[&introduction[..], &request].concat());
    let expected = settings_until_answered(&mut hasty, &mut Vec::new());
    assert_eq!(expected.1, 1);

    let mut patient = begin();
    patient.try_write(&introduction);
    let mut said: Vec<Frame> = (0..2).filter_map(|_| patient.any_frame()).collect();
    assert!(said.iter().all(|frame| frame.kind == SETTINGS), "{said:?}");
    // What may come before a request: the answer to our settings, and a window.
    patient.try_write(&encoded(SETTINGS, ACK, 0, &[]));
    patient.try_write(&encoded(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]));
    patient.try_write(&request);
    assert_eq!(settings_until_answered(&mut patient, &mut said), expected);

    let mut drips = begin();
    let (begun, rest) =
        (head(1, END_STREAM, "/", &[]), encoded(CONTINUATION, END_HEADERS, 1, &fields(&[("a", "b")])));
    for byte in [introduction, begun, rest].concat() {
        drips.try_write(&[byte]);
    }
    assert_eq!(settings_until_answered(&mut drips, &mut Vec::new()), expected);
}

#[test]
fn a_bad_introduction_is_refused_at_once() {
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "header = \"1h\", idle = \"1h\"");
    let setting =
        |name: u8, value: u32| encoded(SETTINGS, 0, 0, &[&[0, name][..], &value.to_be_bytes()].concat());
    let good = setting(3, 7);
    let with = |frame: Vec<u8>| [good.clone(), frame].concat();
    for bytes in [
        setting(2, 2),
        setting(4, 1 << 31),
        setting(5, 16_383),
        encoded(SETTINGS, 0, 0, &[0; 5]),
        encoded(SETTINGS, 0, 1, &[]),
        with(encoded(SETTINGS, ACK, 0, &[0; 6])),
        with(encoded(WINDOW_UPDATE, 0, 0, &[0; 4])),
        with(encoded(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])),
        with(encoded(DATA, 0, 0, &[])),
        with(encoded(CONTINUATION, 0, 1, &[])),
        with(head(2, END_HEADERS, "/", &[])),
        with([head(1, 0, "/", &[]), encoded(PING, 0, 0, &[0; 8])].concat()),
        with(b"\0\x40\x01\x01\x05\0\0\0\x01".to_vec()),
    ] {
        let mut client = Connection::silent(wire(gateway.plain()));
        client.try_write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        client.try_write(&bytes);
        let end = client.end();
        assert!(matches!(end, End::GoneAway(_)), "{end:?} after {bytes:x?}");
    }
    assert!(upstream.is_quiet());
}

/// How much more memory the gateway has had resident than before, KiB, for each of so many connections.
fn pinned_kib(gateway: &Gateway, connections: u64, mut pin: impl FnMut() -> Connection<TcpStream>) -> u64 {
    pin();
    let before = gateway.memory_peak_kib();
    let _open: Vec<_> = (0..connections).map(|_| pin()).collect();
    gateway.memory_peak_kib().saturating_sub(before) / connections
}

/// A connection with a hundred requests of this head, all of them read; it takes no answer and ends no body.
fn a_hundred_requests(gateway: &Gateway, block: &[u8]) -> Connection {
    let mut bomb = Connection::open(gateway.plain());
    bomb.try_write(&shut());
    for number in 0..100 {
        bomb.try_write(&encoded(HEADERS, END_HEADERS, 2 * number + 1, block));
    }
    bomb.try_write(&encoded(PING, 0, 0, b"are you?"));
    while bomb.any_frame().is_some_and(|frame| frame.payload != b"are you?") {}
    bomb
}

#[test]
fn a_header_bomb_pins_less_than_a_mebibyte() {
    // Takes the requests and never answers: what a head holds stays held.
    let upstream = Upstream::raw(|stream| drop(Client::over(stream).rest()));
    // How much a hundred requests pin that have these fields more, and how many of them were refused.
    let pinned = |more: &[u8]| {
        let gateway = before(upstream.addr(), "");
        let line =
            [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", "/bomb")];
        let block = [&fields(&line), more].concat();
        let pinned = pinned_kib(&gateway, 10, || a_hundred_requests(&gateway, &block));
        // A request counts when it ends: those that were refused, and whose answers nobody took, with their connections.
        eventually("all have ended", || {
            (gateway.metric("sluicegate_requests_total", &[]) >= 1_100.0).then_some(())
        });
        (pinned, gateway.metric("sluicegate_refused_requests_total", &["reason=\"headers-too-large\""]))
    };
    // A hundred requests that wait for an answer cost as many connections upstream: that is no bomb.
    let (plain, refused) = pinned(b"");
    assert_eq!(refused, 0.0);
    // One field, then references of a byte to it (RFC 7541 section 6.1).
    let indexed = |count: usize| [b"\x40\x01a\x01b".to_vec(), vec![0xbe; count]].concat();
    let long = fields(&[("x-long", &"v".repeat(15_000))]);
    for (name, more) in [("95 fields", indexed(95)), ("400 fields", indexed(400)), ("a long field", long)] {
        let (bomb, refused) = pinned(&more);
        assert!(bomb < plain + 1024, "{name} each: {bomb} KiB a connection, {plain} without");
        assert!(refused >= 300.0, "{refused} of 1100 with {name} are refused");
    }
}

#[test]
fn an_answer_that_is_not_read_does_not_keep_its_head() {
    // A hundred answers that wait for a window, to heads with this target and so many fields of a thousand bytes.
    let pinned = |target: usize, fields_more: usize| {
        let gateway = Gateway::start(
            "workers = 1\n[[route]]\npath = \"/{*rest}\"\nrespond = { status = 200, body = \"ok\" }",
        );
        let path = format!("/{}", "a".repeat(target));
        let line = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", &path)];
        let value = "v".repeat(1_000);
        let block = fields(&[&line[..], &vec![("x", &*value); fields_more]].concat());
        let pinned = pinned_kib(&gateway, 10, || a_hundred_requests(&gateway, &block));
        (pinned, gateway.metric("sluicegate_refused_requests_total", &["reason=\"headers-too-large\""]))
    };
    let (plain, refused) = pinned(1, 0);
    assert_eq!(refused, 0.0);
    let (fields, refused) = pinned(1, 15);
    assert!(fields < plain + 512, "{fields} KiB a connection, {plain} without fields");
    assert_eq!(refused, 0.0, "an answered head is gone");
    let (targets, refused) = pinned(8_000, 0);
    assert!(targets < plain + 768, "{targets} KiB a connection, {plain} with short targets");
    assert_eq!(refused, 0.0, "an answered target is cut to what is logged of it");
}

#[test]
fn answers_that_are_not_read_pin_bounded_memory() {
    let upstream = large();
    let gateway = before(upstream.addr(), "");
    let pinned = pinned_kib(&gateway, 4, || {
        let mut greedy = Connection::open(gateway.plain());
        greedy.try_write(&shut());
        for number in 0..100 {
            greedy.try_write(&head(2 * number + 1, END_HEADERS | END_STREAM, "/", &[]));
        }
        for _ in 0..100 {
            greedy.until(HEADERS);
        }
        greedy
    });
    assert!(pinned < 8 * 1024, "{pinned} KiB a connection");
}

#[test]
fn slow_clients_cost_little_and_good_ones_are_served_meanwhile() {
    let _alone = heavy();
    let upstream = Upstream::ok();
    let gateway = before(upstream.addr(), "header = \"1m\", handshake = \"1m\", idle = \"1m\"");
    let url = format!("http://{}/", gateway.plain());
    stdout_of("h2load", &["-n", "2000", "-c", "20", "-m", "10", &url]);
    let memory = gateway.memory_peak_kib();
    let socket = |name: &str| {
        TcpStream::connect_timeout(&gateway.listener(name), PATIENCE).expect("somebody listens there")
    };
    let mut held = Vec::new();
    for number in 0..600 {
        // Half a head, half a frame, half a TLS hello.
        held.push(match number % 3 {
            0 => Connection::over(socket("plain")),
            1 => Connection::silent(socket("plain")),
            _ => Connection::silent(socket("tls")),
        });
        let begun = match number % 3 {
            0 => head(1, END_STREAM, "/", &[]),
            1 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04".to_vec(),
            _ => b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(),
        };
        held[number].try_write(&begun);
        if number % 100 == 0 {
            assert_eq!(gateway.get("/good").status, 200);
        }
    }
    let open = || gateway.metric("sluicegate_connections_open", &[]);
    eventually("all of them are held", || (open() >= 600.0).then_some(()));
    assert_eq!(gateway.get("/good").status, 200);
    let grown = gateway.memory_peak_kib().saturating_sub(memory) / 600;
    assert!(grown < 15, "{grown} KiB a connection are 150 MB for ten thousand");
}
