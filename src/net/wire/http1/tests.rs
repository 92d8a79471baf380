//! One verdict for the same bytes however they come, and never another framing than the one that was written.

use proptest::prelude::*;

use super::*;

/// What becomes of bytes that come in these pieces: the fault if there is one, and whether all messages ended.
fn verdict(bytes: &[u8], cuts: &[usize]) -> (Option<FramingFault>, bool, u64) {
    let mut framing = Framing::default();
    let mut rest = bytes;
    for &cut in cuts.iter().chain([&bytes.len()]) {
        let (mut piece, behind) = rest.split_at(cut.min(rest.len()));
        rest = behind;
        while !piece.is_empty() {
            let scanned = framing.scan(piece);
            match scanned.end {
                ScanEnd::Bytes => piece = &[],
                ScanEnd::Upgrade => {
                    assert!(scanned.passed < piece.len());
                    piece = &piece[scanned.passed..];
                    framing.release();
                }
                ScanEnd::Head(fault) | ScanEnd::Body(fault) => return (Some(fault), false, framing.heads()),
            }
        }
    }
    (None, !framing.is_in_message(), framing.heads())
}

fn fault_of(bytes: impl AsRef<[u8]>) -> Option<FramingFault> {
    verdict(bytes.as_ref(), &[]).0
}

#[test]
fn messages_are_followed_to_their_ends() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab\ncd";
    let chunks = "POST / HTTP/1.1\r\nHost: a\r\ntransfer-ENCODING:\t chunked \r\n\r\n\
                  3;x=\"y\"\r\na\nc\r\nA\r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\n";
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n";
    for messages in [
        vec![get],
        vec![post, get],
        vec![chunks, "\r\n", chunks, post, get, "\r\n\r\n"],
        vec![upgrade, post, upgrade, get],
        vec!["GET / HTTP/1.0\r\nContent-Length: 0\r\n\r\n", get],
    ] {
        let heads = messages.iter().filter(|message| message.len() > 4).count() as u64;
        assert_eq!(verdict(messages.concat().as_bytes(), &[]), (None, true, heads), "{messages:?}");
    }
}

#[test]
fn heads_that_could_be_read_in_two_ways_are_faults() {
    let with = |fields: &str| fault_of(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
    for (fields, fault) in [
        ("Content-Length: 4\r\nTransfer-Encoding: chunked", FramingFault::LengthAndCoding),
        ("Transfer-Encoding: chunked\r\ncontent-length: 4", FramingFault::LengthAndCoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", FramingFault::Coding),
        ("Transfer-Encoding: chunked, chunked", FramingFault::Coding),
        ("Transfer-Encoding: identity", FramingFault::Coding),
        ("Transfer-Encoding: chunked,", FramingFault::Coding),
        ("Transfer-Encoding: ,chunked", FramingFault::Coding),
        ("Transfer-Encoding: \u{b}chunked", FramingFault::Coding),
        ("Transfer-Encoding: chunked;q=1", FramingFault::Coding),
        ("Transfer-Encoding:", FramingFault::Coding),
        ("Transfer-Encoding: gzip, chunked", FramingFault::Coding),
        ("Transfer-Encoding: gzip", FramingFault::CodingUnknown),
        ("Content-Length: 4\r\nContent-Length: 4", FramingFault::Length),
        ("Content-Length: 4, 4", FramingFault::Length),
        ("Content-Length: +4", FramingFault::Length),
        ("Content-Length: -4", FramingFault::Length),
        ("Content-Length: 0x4", FramingFault::Length),
        ("Content-Length: 4_0", FramingFault::Length),
        ("Content-Length: 04", FramingFault::Length),
        ("Content-Length:", FramingFault::Length),
        ("Content-Length: 4 4", FramingFault::Length),
        ("Content-Length: 9223372036854775808", FramingFault::Length),
        ("Content-Length: 99999999999999999999999", FramingFault::Length),
        ("X: a\nY: b", FramingFault::BareLineFeed),
        ("X: a\r\n b", FramingFault::Folded),
        ("X: a\r\n\tb", FramingFault::Folded),
    ] {
        assert_eq!(with(fields), Some(fault), "{fields:?}");
    }
    for (line, fault) in [
        ("GET / HTTP/1.2", FramingFault::Version),
        ("PRI * HTTP/2.0", FramingFault::Version),
        ("GET / HTTP/0.9", FramingFault::Version),
        ("GET /", FramingFault::RequestLine),
        ("GET / http/1.1", FramingFault::RequestLine),
        ("GET / HTTP/1.1 ", FramingFault::RequestLine),
        ("GET / HTTP/1.10", FramingFault::RequestLine),
        ("GET  PREFACES", FramingFault::RequestLine),
        ("GET / TO PREFACE", FramingFault::RequestLine),
        ("INVALID CONNECTION PREFACE", FramingFault::OtherProtocol),
        ("SOURCE /radio ICE/1.0", FramingFault::OtherProtocol),
        ("GET /a#b HTTP/1.1", FramingFault::Fragment),
        ("GET / HTTP/1.1\n", FramingFault::BareLineFeed),
    ] {
        assert_eq!(fault_of(format!("{line}\r\nHost: a\r\n\r\n")), Some(fault), "{line:?}");
    }
    assert_eq!(fault_of("\nGET / HTTP/1.1\r\n\r\n"), Some(FramingFault::BareLineFeed));
    assert_eq!(fault_of("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Some(FramingFault::Coding));
}

#[test]
fn chunks_that_could_be_read_in_two_ways_are_faults() {
    let with = |body: &str| {
        fault_of(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"))
    };
    for body in [
        "\r\n",
        "5 \r\n",
        " 5\r\n",
        "\t5\r\n",
        "0x5\r\n",
        "+5\r\n",
        "-5\r\n",
        "5_0\r\n",
        "g\r\n",
        ";a\r\n",
        "5 ;a\r\n",
        "5;a\u{0}\r\n",
        "5;a\rb\r\n",
        "11111111111111111\r\n",
    ] {
        assert_eq!(with(body), Some(FramingFault::ChunkSize), "{body:?}");
    }
    assert_eq!(with(&format!("5;{}", "x".repeat(70_000))), Some(FramingFault::ChunkSize));
    for (body, fault) in [
        ("5\nhello\r\n", FramingFault::BareLineFeed),
        ("5;a\nb\r\n", FramingFault::BareLineFeed),
        ("5\r\nhello\n", FramingFault::ChunkEnd),
        ("5\r\nhelloo\r\n", FramingFault::ChunkEnd),
        ("5\r\nhello0\r\n\r\n", FramingFault::ChunkEnd),
        ("0\r\nX: a\n\r\n", FramingFault::BareLineFeed),
        ("0\r\nX: a\r\n b\r\n", FramingFault::Folded),
        ("0\r\n\n", FramingFault::BareLineFeed),
    ] {
        assert_eq!(with(body), Some(fault), "{body:?}");
    }
    assert_eq!(with("5;a=b\r\nhello\r\n0;c\r\nX: y\r\n\r\n"), None);
}

#[test]
fn a_fault_takes_its_message_with_it_and_no_other() {
    let good = "GET /good HTTP/1.1\r\nHost: a\r\n\r\n";
    for bad in [
        "GET /bad HTTP/1.1\r\nHost: a\n\r\n",
        "POST /bad HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nz\r\n",
    ] {
        let mut framing = Framing::default();
        let scanned = framing.scan(format!("{good}{bad}").as_bytes());
        assert_eq!(scanned.passed, good.len(), "{bad:?}");
        assert!(matches!(scanned.end, ScanEnd::Head(_)), "{bad:?}");
        assert_eq!(framing.heads(), 1);
    }
    let mut framing = Framing::default();
    let begun = b"POST /bad HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n";
    assert_eq!(
        framing.scan(begun),
        ScanProgress { passed: begun.len(), whole: begun.len(), end: ScanEnd::Bytes }
    );
    assert_eq!(
        framing.scan(b"a\r\nz\r\n"),
        ScanProgress { passed: 3, whole: 3, end: ScanEnd::Body(FramingFault::ChunkSize) }
    );
}

#[test]
fn what_follows_an_upgrade_waits() {
    let upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n";
    let mut framing = Framing::default();
    let both = [&upgrade[..], b"\x81\x00anything\n"].concat();
    assert_eq!(
        framing.scan(&both),
        ScanProgress { passed: upgrade.len(), whole: upgrade.len(), end: ScanEnd::Upgrade }
    );
    assert!(framing.is_held());
    framing.release();
    assert_eq!(framing.scan(b"x\n").end, ScanEnd::Head(FramingFault::BareLineFeed));
    let both = b"GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\nGET / HTTP/1.1\r\n\r\n";
    assert_eq!(Framing::default().scan(both).end, ScanEnd::Bytes, "HTTP/2 is not switched to");
}

/// Pieces that requests and attacks are made of.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST /x HTTP/1.1\r\n",
        "GET / HTTP/1.0\r\n",
        "Host: a\r\n",
        "\r\n",
        "\n",
        "\r",
        "Content-Length: 3\r\n",
        "Content-Length: 0\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Upgrade: x\r\n",
        "3\r\nabc\r\n",
        "0\r\n\r\n",
        "0\r\n",
        "abc",
        "a: b\r\n",
        " b\r\n",
        "1;x\r\n",
        "5 \r\n",
        "a",
    ]);
    prop_oneof![9 => known.prop_map(|text| text.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..5)]
}

proptest! {
    #[test]
    fn the_verdict_does_not_depend_on_how_bytes_come(
        pieces in prop::collection::vec(piece(), 0..14),
        cuts in prop::collection::vec(0_usize..40, 0..12),
    ) {
        let bytes = pieces.concat();
        let whole = verdict(&bytes, &[]);
        let (fault, ended, heads) = verdict(&bytes, &cuts);
        prop_assert_eq!((fault, ended), (whole.0, whole.1));
        // A body's fault takes its head back only where both come at once.
        prop_assert!(heads == whole.2 || (fault.is_some() && heads == whole.2 + 1));
        let single: Vec<usize> = vec![1; bytes.len()];
        let (fault, ended, _) = verdict(&bytes, &single);
        prop_assert_eq!((fault, ended), (whole.0, whole.1));
    }

    #[test]
    fn no_message_hides_in_another(bodies in prop::collection::vec((any::<bool>(), "[ -~\r\n]{0,40}"), 0..6)) {
        let mut bytes = Vec::new();
        for (chunked, body) in &bodies {
            let framed = match (*chunked, body.len()) {
                (true, 0) => "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
                (true, size) => format!("Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n"),
                (false, size) => format!("Content-Length: {size}\r\n\r\n{body}"),
            };
            bytes.extend_from_slice(format!("POST / HTTP/1.1\r\nHost: a\r\n{framed}").as_bytes());
        }
        prop_assert_eq!(verdict(&bytes, &[]), (None, true, bodies.len() as u64));
    }
}

/// The bodies of the messages that end among these bytes, by length.
fn bodies(bytes: &[u8]) -> Vec<usize> {
    let mut framing = Framing::default();
    let (mut bodies, mut body, mut heads) = (Vec::new(), 0, 0);
    for byte in bytes {
        let is_body = matches!(framing.state, FramingState::Length(_) | FramingState::Chunk(_));
        if framing.scan(&[*byte]).end != ScanEnd::Bytes {
            break;
        }
        body += usize::from(is_body);
        if !framing.is_in_message() && framing.heads() > heads {
            heads = framing.heads();
            bodies.push(std::mem::take(&mut body));
            framing.release();
        }
    }
    bodies
}

/// The same as hyper sees it.
fn bodies_by_hyper(bytes: &[u8]) -> Vec<usize> {
    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let seen = std::cell::RefCell::new(Vec::new());
    let serve = async {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let service = hyper::service::service_fn(async |request: http::Request<hyper::body::Incoming>| {
            let body = request.into_body().collect().await?;
            seen.borrow_mut().push(body.to_bytes().len());
            Ok::<_, hyper::Error>(http::Response::new(http_body_util::Empty::<bytes::Bytes>::new()))
        });
        let io = hyper_util::rt::TokioIo::new(server);
        let mut builder = hyper::server::conn::http1::Builder::new();
        let served = builder.half_close(true).serve_connection(io, service);
        let talk = async {
            client.write_all(bytes).await.expect("it fits the pipe");
            client.shutdown().await.expect("it is open");
            let mut answers = Vec::new();
            client.read_to_end(&mut answers).await.ok();
        };
        let (result, ()) = tokio::join!(served, talk);
        drop(result);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(serve);
    seen.into_inner()
}

/// Messages as they should be, and now and then something else among them.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let text =
        |all: &'static [&'static str]| prop::sample::select(all).prop_map(|text| text.as_bytes().to_vec());
    let head =
        text(&["GET / HTTP/1.1\r\nHost: a\r\n", "POST / HTTP/1.1\r\nHost: a\r\n", "PUT / HTTP/1.0\r\n"]);
    let field = text(&[
        "X: y\r\n",
        "Connection: keep-alive\r\n",
        "Expect: 100-continue\r\n",
        "TE: trailers\r\n",
        "X:\r\n",
    ]);
    let end = text(&[
        "\r\n",
        "Content-Length: 0\r\n\r\n",
        "Content-Length: 3\r\n\r\nabc",
        "Content-Length: 3\r\n\r\n\r\n\r",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n",
        "transfer-encoding:chunked\r\n\r\n01\r\na\r\n00\r\n\r\n",
    ]);
    let message = (head, prop::collection::vec(field, 0..4), end)
        .prop_map(|(head, fields, end)| [head, fields.concat(), end].concat());
    let noisy = prop_oneof![12 => message, 1 => piece()];
    prop::collection::vec(noisy, 1..6).prop_map(|all| all.concat())
}

#[test]
fn hyper_and_we_count_alike() {
    let bytes = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\
                 PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(bodies(bytes.as_bytes()), [5, 0, 3]);
    assert_eq!(bodies_by_hyper(bytes.as_bytes()), [5, 0, 3]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn hyper_sees_the_messages_that_were_followed(bytes in messages()) {
        let passed = Framing::default().scan(&bytes).passed;
        let (ours, hypers) = (bodies(&bytes[..passed]), bodies_by_hyper(&bytes[..passed]));
        // It may refuse a head for what is none of framing's business, or close behind a message; it never sees one
        // more, nor another body.
        prop_assert!(hypers.len() <= ours.len() && hypers[..] == ours[..hypers.len()], "{ours:?} {hypers:?}");
    }
}
