//! The introduction of an HTTP/2 client, and a first head that has begun.
//!
//! A client that has introduced itself is answered with our SETTINGS and the acknowledgement of its own: it may wait for
//! these before it asks. hyper's are then not sent a second time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout_at;

use crate::clock;
use crate::server::stream::Tracked;
use crate::service::conn::Conn;
use crate::wire::http2::{
    ACK, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, Head, Metered, SETTINGS, Splitter, WINDOW_UPDATE,
    frame,
};

/// How a client's prelude ended.
pub enum Left {
    /// It has asked for something, or said what hyper has to answer.
    In(Handed),
    /// It has gone, or has sent what there is too much of.
    Gone(io::Error),
    /// Its head has not come whole in time.
    Late,
}

/// Waits until hyper is needed. `announced` is the frame of SETTINGS that hyper would send. The first head counts from `since`.
pub async fn wait(conn: &Conn, announced: &[u8], mut io: Metered<Tracked>, since: Instant) -> Left {
    let timeouts = &conn.config.timeouts;
    let mut hello = Hello::default();
    let mut answered = 0;
    let (mut standing, mut begun) = (Standing::Begun, since);
    loop {
        let before = std::mem::replace(&mut standing, hello.follow());
        if standing != before {
            begun = clock::instant();
        }
        let deadline = match standing {
            Standing::Hyper => return Left::In(Handed::new(io, hello, answered)),
            Standing::Begun => begun + timeouts.header,
            Standing::Introduced => begun + timeouts.idle,
        };
        if standing == Standing::Introduced && answered == 0 {
            // It may wait for this before it asks.
            answered = ANSWERED;
            let answer = [announced, &ACKNOWLEDGED].concat();
            if let Err(error) = io.write_all(&answer).await {
                return Left::Gone(error);
            }
        }
        let read = tokio::select! {
            biased;
            read = timeout_at(deadline.into(), hello.read(&mut io)) => read,
            () = conn.drain.begins() => return Left::In(Handed::new(io, hello, answered)),
        };
        match read {
            Ok(Ok(0)) => return Left::Gone(io::ErrorKind::UnexpectedEof.into()),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Left::Gone(error),
            // hyper tells who is idle to go.
            Err(_) if standing == Standing::Introduced => {
                return Left::In(Handed::new(io, hello, answered));
            }
            Err(_) => return Left::Late,
        }
    }
}

/// What a client has said, and how far it was followed.
#[derive(Debug, Default)]
struct Hello {
    said: BytesMut,
    /// Where the first frame begins that is not whole; 0 before the preface is.
    at: usize,
    /// The stream whose head goes on in the next frame, 0 if none does.
    head: u32,
    /// Frames so far.
    frames: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It has said who it is, and no more.
    Introduced,
    /// A part of its introduction or of a head has come.
    Begun,
    /// Something that is hyper's.
    Hyper,
}

impl Hello {
    async fn read(&mut self, io: &mut Metered<Tracked>) -> io::Result<usize> {
        if self.said.capacity() == self.said.len() {
            self.said.reserve(self.said.len().max(FIRST_BYTES));
        }
        io.read_buf(&mut self.said).await
    }

    /// Follows what has come since the last time.
    fn follow(&mut self) -> Standing {
        let begin = self.said.len().min(PREFACE.len());
        if self.said[..begin] != PREFACE[..begin] || self.said.len() > SAID_BYTES_MAX {
            return Standing::Hyper;
        }
        if begin < PREFACE.len() {
            return Standing::Begun;
        }
        self.at = self.at.max(begin);
        loop {
            let mut rest = &self.said[self.at..];
            if rest.is_empty() && self.frames > 0 && self.head == 0 {
                return Standing::Introduced;
            }
            let Some(frame) = Splitter::new().next(&mut rest) else { return Standing::Begun };
            if !self.belongs(frame) || self.frames == FRAMES_MAX {
                return Standing::Hyper;
            }
            let Some(payload) = rest.get(..frame.length as usize) else { return Standing::Begun };
            if !goes_on(frame, payload) {
                return Standing::Hyper;
            }
            self.head = if matches!(frame.kind, HEADERS | CONTINUATION) { frame.stream } else { 0 };
            self.frames += 1;
            self.at = self.said.len() - rest.len() + payload.len();
        }
    }

    /// Whether a frame is one of an introduction or of a first head, and not too long for one.
    fn belongs(&self, frame: Head) -> bool {
        let is_first = self.frames == 0;
        match frame.kind {
            _ if frame.length as usize > SAID_BYTES_MAX => false,
            CONTINUATION => self.head != 0 && frame.stream == self.head,
            _ if self.head != 0 => false,
            SETTINGS => frame.stream == 0 && frame.flags == if is_first { 0 } else { ACK },
            WINDOW_UPDATE => !is_first && frame.stream == 0,
            HEADERS => !is_first && frame.stream % 2 == 1 && frame.flags & !(END_STREAM | END_HEADERS) == 0,
            _ => false,
        }
    }
}

/// Whether more is to come before hyper has something to do; what is not as it should be is hyper's to refuse.
fn goes_on(frame: Head, payload: &[u8]) -> bool {
    match frame.kind {
        SETTINGS if frame.flags == ACK => payload.is_empty(),
        SETTINGS => {
            let (settings, rest) = payload.as_chunks::<SETTING_BYTES>();
            rest.is_empty() && settings.iter().all(is_setting)
        }
        // Windows that cannot overflow, were there as many of these as there may be frames.
        WINDOW_UPDATE => matches!(payload, [a, b, _, c] if *a < 8 && (*b, *c) != (0, 0)),
        _ => frame.flags & END_HEADERS == 0,
    }
}

/// Whether a parameter is within its bounds (RFC 9113 section 6.5.2, RFC 8441 section 3).
fn is_setting(setting: &[u8; SETTING_BYTES]) -> bool {
    let [a, b, value @ ..] = setting;
    let value = u32::from_be_bytes(*value);
    match u16::from_be_bytes([*a, *b]) {
        ENABLE_PUSH | ENABLE_CONNECT_PROTOCOL => value <= 1,
        INITIAL_WINDOW_SIZE => value < 1 << 31,
        MAX_FRAME_SIZE => (1 << 14..1 << 24).contains(&value),
        _ => true,
    }
}

/// A connection as hyper sees it: what the client said in its prelude comes first, and what was answered then is not sent again.
#[derive(Debug)]
pub struct Handed {
    io: Metered<Tracked>,
    said: Bytes,
    /// Frames of SETTINGS that hyper will send and that have gone out already.
    answered: u8,
    /// Bytes left of another frame that comes before these.
    passing: usize,
}

impl Handed {
    fn new(io: Metered<Tracked>, hello: Hello, answered: u8) -> Handed {
        Handed { io, said: hello.said.freeze(), answered, passing: 0 }
    }

    /// Sends frames, but for those that have gone out.
    fn poll_answer(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.passing == 0 {
            let mut rest = buf;
            match Splitter::new().next(&mut rest) {
                // h2 writes such a frame in one piece.
                Some(head) if head.kind == SETTINGS && rest.len() >= head.length as usize => {
                    self.answered -= 1;
                    return Poll::Ready(Ok(buf.len() - rest.len() + head.length as usize));
                }
                Some(head) => self.passing = buf.len() - rest.len() + head.length as usize,
                None => self.passing = buf.len(),
            }
        }
        let piece = &buf[..buf.len().min(self.passing)];
        let count = ready!(Pin::new(&mut self.io).poll_write(cx, piece))?;
        self.passing -= count;
        Poll::Ready(Ok(count))
    }
}

impl AsyncRead for Handed {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.said.is_empty() {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        let count = this.said.len().min(buf.remaining());
        buf.put_slice(&this.said.split_to(count));
        if this.said.is_empty() {
            // An empty piece still keeps the whole buffer.
            this.said = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Handed {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.answered > 0 {
            return this.poll_answer(cx, buf);
        }
        Pin::new(&mut this.io).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.answered > 0 {
            let first = bufs.iter().find(|buf| !buf.is_empty());
            return first.map_or(Poll::Ready(Ok(0)), |first| this.poll_answer(cx, first));
        }
        Pin::new(&mut this.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// The frame of SETTINGS that hyper begins with: what it announces and nothing else.
pub fn settings(announced: &[(u16, u32)]) -> Vec<u8> {
    let settings: Vec<[u8; SETTING_BYTES]> = announced
        .iter()
        .map(|(name, value)| {
            let ([a, b], [c, d, e, f]) = (name.to_be_bytes(), value.to_be_bytes());
            [a, b, c, d, e, f]
        })
        .collect();
    frame(SETTINGS, 0, 0, settings.as_flattened())
}

/// What a client has its SETTINGS acknowledged with (RFC 9113 section 6.5).
const ACKNOWLEDGED: [u8; 9] = [0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0];
/// Frames of SETTINGS that the prelude sends.
const ANSWERED: u8 = 2;
/// The client connection preface (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Parameters (RFC 9113 section 6.5.2).
const ENABLE_PUSH: u16 = 2;
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
pub const INITIAL_WINDOW_SIZE: u16 = 4;
pub const MAX_FRAME_SIZE: u16 = 5;
pub const MAX_HEADER_LIST_SIZE: u16 = 6;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
const SETTING_BYTES: usize = 6;
/// What is kept of a client at first: an introduction and half a head.
const FIRST_BYTES: usize = 128;
/// What is kept of a client at most: the largest frame there is.
const SAID_BYTES_MAX: usize = 16 * 1024;
/// Frames that are followed here. The windows they open stay below 2^31.
const FRAMES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello(frames: &[Vec<u8>]) -> Vec<u8> {
        [&PREFACE[..], &frames.concat()].concat()
    }

    fn standing(bytes: &[u8]) -> Standing {
        Hello { said: bytes.into(), ..Hello::default() }.follow()
    }

    #[test]
    fn an_introduction_and_half_a_head_stay_and_all_else_is_hyper_s() {
        let (settings, ack) = (settings(&[(INITIAL_WINDOW_SIZE, 7)]), ACKNOWLEDGED.to_vec());
        let window = frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
        let head = frame(HEADERS, END_STREAM, 1, b"x");
        let more = |flags| frame(CONTINUATION, flags, 1, b"x");
        let introduction = [settings.clone(), ack.clone(), window.clone()];
        assert_eq!(standing(&hello(&introduction)), Standing::Introduced);
        let begun = [&introduction[..], &[head.clone(), more(0)]].concat();
        assert_eq!(standing(&hello(&begun)), Standing::Begun);
        assert_eq!(standing(&hello(&begun[..4])[..60]), Standing::Begun, "half a frame");
        for frames in [
            vec![ack],
            vec![window],
            vec![head.clone()],
            vec![settings.clone(), settings.clone()],
            vec![settings.clone(), frame(HEADERS, END_HEADERS, 1, b"x")],
            vec![settings.clone(), head.clone(), more(END_HEADERS)],
            vec![settings.clone(), head.clone(), frame(CONTINUATION, 0, 3, b"x")],
            vec![settings.clone(), head, frame(0, 0, 1, b"x")],
            vec![settings.clone(), more(0)],
            vec![settings.clone(), frame(6, 0, 0, &[0; 8])],
            vec![settings.clone(), frame(WINDOW_UPDATE, 0, 0, &[0; 4])],
            vec![settings.clone(), frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0])],
            vec![settings.clone(), frame(HEADERS, 0, 1, &[0; 20_000])[..9].to_vec()],
            vec![self::settings(&[(ENABLE_PUSH, 2)])],
            vec![self::settings(&[(INITIAL_WINDOW_SIZE, 1 << 31)])],
            vec![self::settings(&[(MAX_FRAME_SIZE, 1)])],
        ] {
            assert_eq!(standing(&hello(&frames)), Standing::Hyper, "{frames:x?}");
        }
        assert_eq!(standing(b"GET / HTTP/1.1\r\n"), Standing::Hyper);
        let begin = [settings, frame(HEADERS, 0, 1, b"")];
        let long = [&begin[..], &vec![more(0); FRAMES_MAX]].concat();
        assert_eq!(standing(&hello(&long)), Standing::Hyper, "pieces without end");
    }

    proptest! {
        #[test]
        fn any_cut_stands_the_same_in_the_end(
            frames in prop::collection::vec(
                (prop::sample::select(vec![1u8, 4, 8, 9, 0]), any::<bool>(), 0u32..3, prop::collection::vec(0u8..4, 0..7)),
                0..6,
            ),
            cuts in prop::collection::vec(1usize..30, 1..20),
        ) {
            let frames: Vec<_> = frames
                .iter()
                .map(|(kind, ends, stream, payload)| frame(*kind, if *ends { END_HEADERS } else { 0 }, *stream, payload))
                .collect();
            let bytes = hello(&frames);
            let whole = standing(&bytes);
            let mut cut = Hello::default();
            let (mut rest, mut sizes) = (&bytes[..], cuts.iter().cycle());
            let mut stands = Standing::Begun;
            while !rest.is_empty() && stands != Standing::Hyper {
                let (piece, left) = rest.split_at(sizes.next().map_or(1, |size| *size).min(rest.len()));
                cut.said.extend_from_slice(piece);
                stands = cut.follow();
                rest = left;
            }
            prop_assert_eq!(stands, whole);
        }
    }
}
