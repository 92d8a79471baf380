//! Where requests end on an HTTP/1 connection: one verdict however the bytes come, and a parser that knows nothing of
//! it finds the same messages in what passes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use net::wire::http1::{Framing, FramingFault, ScanEnd};

fuzz_target!(|input: ([u8; 4], &[u8])| {
    let (cuts, bytes) = input;
    let whole = verdict(bytes, &[]);
    for cuts in [&cuts[..], &[1]] {
        let cut = verdict(bytes, cuts);
        assert_eq!((cut.fault, cut.ended), (whole.fault, whole.ended));
        // A body's fault takes its head back only where both come at once.
        assert!(cut.heads == whole.heads || whole.fault.is_some() && cut.heads == whole.heads + 1);
        assert!(cut.passed >= whole.passed);
    }
    let passed = &bytes[..whole.passed];
    let (ends, read_all) = messages(passed);
    // It may refuse a head for what is none of framing's business; as far as it reads, it reads the same.
    let ours = &verdict(passed, &[1]).ends[..];
    assert!(ours.starts_with(&ends) && (ours.len() == ends.len() || !read_all), "{ours:?} {ends:?}");
});

/// What becomes of bytes.
struct Verdict {
    fault: Option<FramingFault>,
    /// Whether no message has begun that has not ended.
    ended: bool,
    /// How many may pass.
    passed: usize,
    /// Heads that have passed whole.
    heads: u64,
    /// Where the pieces end in which heads did.
    ends: Vec<usize>,
}

/// What becomes of bytes that come in pieces of these lengths, over and over; of none: at once.
fn verdict(bytes: &[u8], cuts: &[u8]) -> Verdict {
    let mut framing = Framing::default();
    let (mut at, mut heads, mut ends) = (0, 0, Vec::new());
    let mut sizes = cuts.iter().cycle();
    while at < bytes.len() {
        let size = sizes.next().map_or(bytes.len(), |size| usize::from(*size).max(1));
        let piece = &bytes[at..bytes.len().min(at + size)];
        let scanned = framing.scan(piece);
        assert!(scanned.whole <= scanned.passed && scanned.passed <= piece.len());
        at += scanned.passed;
        if framing.heads() > heads {
            ends.push(at);
        }
        heads = framing.heads();
        match scanned.end {
            ScanEnd::Bytes => assert_eq!(scanned.passed, piece.len()),
            ScanEnd::Upgrade => {
                assert!(framing.is_held());
                framing.release();
            }
            ScanEnd::Head(fault) | ScanEnd::Body(fault) => {
                return Verdict { fault: Some(fault), ended: false, passed: at, heads, ends };
            }
        }
    }
    Verdict { fault: None, ended: !framing.is_in_message(), passed: at, heads, ends }
}

/// Where the heads of these messages end, as `httparse` and the letter of RFC 9112 section 6.3 have it, and whether
/// nothing was refused on the way.
fn messages(bytes: &[u8]) -> (Vec<usize>, bool) {
    let (mut at, mut ends) = (0, Vec::new());
    loop {
        let mut fields = [httparse::EMPTY_HEADER; 256];
        let mut head = httparse::Request::new(&mut fields);
        let length = match head.parse(&bytes[at..]) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return (ends, true),
            Err(_) => return (ends, false),
        };
        let text = &bytes[at..at + length];
        assert!(!text.windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r') && text[0] != b'\n');
        assert!(head.path.is_some_and(|path| !path.contains('#')));
        at += length;
        ends.push(at);
        let Some(body) = body(&head, &bytes[at..]) else { return (ends, true) };
        at += body;
    }
}

/// The length of a body; `None` where it does not end here.
fn body(head: &httparse::Request<'_, '_>, bytes: &[u8]) -> Option<usize> {
    let values = |name: &str| -> Vec<&[u8]> {
        let named = head.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value).collect()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    match (&lengths[..], &codings[..]) {
        ([], []) => Some(0),
        ([length], []) => {
            assert!(length.iter().all(u8::is_ascii_digit), "{length:?}");
            let length: i64 = std::str::from_utf8(length).ok()?.parse().expect("a number of 63 bits");
            usize::try_from(length).ok().filter(|length| *length <= bytes.len())
        }
        ([], [coding]) => {
            assert!(coding.eq_ignore_ascii_case(b"chunked") && head.version == Some(1), "{coding:?}");
            chunks(bytes)
        }
        both => panic!("{both:?}"),
    }
}

/// The length of a chunked body with its trailers.
fn chunks(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        // A line that has not ended may still be wrong: it goes no further than the reader that says so.
        let is_whole = bytes[at..].contains(&b'\n');
        let (line, size) = match httparse::parse_chunk_size(&bytes[at..]) {
            Ok(httparse::Status::Complete(both)) => both,
            Ok(httparse::Status::Partial) => return None,
            Err(fault) if is_whole => panic!("{fault}"),
            Err(_) => return None,
        };
        at += line;
        if size == 0 {
            break;
        }
        let end = usize::try_from(size).ok().and_then(|size| at.checked_add(size)?.checked_add(2))?;
        assert_eq!(bytes.get(end - 2..end)?, b"\r\n");
        at = end;
    }
    loop {
        let line = bytes[at..].iter().position(|byte| *byte == b'\n')?;
        assert!(line > 0 && bytes[at + line - 1] == b'\r');
        at += line + 1;
        if line == 1 {
            return Some(at);
        }
    }
}
