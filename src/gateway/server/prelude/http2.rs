//! Reads the introduction of an HTTP/2 client (preface, SETTINGS, window updates) and the begin of its first head.
//!
//! The client gets our SETTINGS and the acknowledgement of its own from here, because it may wait for them before it
//! sends a request. [`ReplayStream`] then drops the copies that hyper writes. Frames are followed, not interpreted.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout_at;

use crate::server::stream::TrackedStream;
use crate::service::conn::Conn;
use base::clock;
use net::wire::http2::{
    ACK, CONTINUATION, END_HEADERS, END_STREAM, FrameHead, HEADERS, MeteredStream, SETTINGS, Splitter,
    WINDOW_UPDATE, frame,
};

pub enum PreludeEnd {
    /// It has sent a request, or something that hyper has to answer.
    In(ReplayStream),
    /// The client has gone, or went beyond a budget of [`MeteredStream`].
    Gone(io::Error),
    /// Its first head was not whole in time.
    Late,
}

/// Waits until hyper is needed. `announced` is the SETTINGS frame that hyper will send. The deadline of the first head
/// counts from `since`.
pub async fn wait(
    conn: &Conn,
    announced: &[u8],
    mut io: MeteredStream<TrackedStream>,
    since: Instant,
) -> PreludeEnd {
    let timeouts = &conn.config.timeouts;
    let mut hello = PreludeBytes::default();
    let mut answered = 0;
    let (mut standing, mut begun) = (PreludeStage::Begun, since);
    // A client that comes while others are told to leave has its first request answered; otherwise it would come again
    // at once.
    let is_late = conn.drain.wants_last_answers();
    loop {
        let before = std::mem::replace(&mut standing, hello.follow());
        if standing != before {
            begun = clock::instant();
        }
        let deadline = match standing {
            PreludeStage::Hyper => return PreludeEnd::In(ReplayStream::new(io, hello, answered)),
            PreludeStage::Begun => begun + timeouts.header,
            PreludeStage::Introduced => begun + timeouts.idle,
        };
        if standing == PreludeStage::Introduced && answered == 0 {
            answered = ANSWERED;
            let answer = [announced, &ACKNOWLEDGED].concat();
            if let Err(error) = io.write_all(&answer).await {
                return PreludeEnd::Gone(error);
            }
        }
        let told =
            async { if is_late { conn.drain.begins.wait().await } else { conn.drain.leaves.wait().await } };
        let read = tokio::select! {
            biased;
            read = timeout_at(deadline.into(), hello.read(&mut io)) => read,
            () = told => return PreludeEnd::In(ReplayStream::new(io, hello, answered)),
        };
        match read {
            Ok(Ok(0)) => return PreludeEnd::Gone(io::ErrorKind::UnexpectedEof.into()),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return PreludeEnd::Gone(error),
            // Handed to hyper, because it sends the idle client its GOAWAY.
            Err(_) if standing == PreludeStage::Introduced => {
                return PreludeEnd::In(ReplayStream::new(io, hello, answered));
            }
            Err(_) => return PreludeEnd::Late,
        }
    }
}

/// The bytes a client has sent, and how far they were followed.
#[derive(Debug, Default)]
struct PreludeBytes {
    said: BytesMut,
    /// Where the first incomplete frame begins; 0 while the preface is incomplete.
    at: usize,
    /// The stream whose head goes on in the next frame, 0 if none does.
    head: u32,
    frames: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PreludeStage {
    /// The introduction is whole and nothing has followed it.
    Introduced,
    /// A part of the introduction or of a head has come.
    Begun,
    /// hyper has to answer something, or to refuse it.
    Hyper,
}

impl PreludeBytes {
    async fn read(&mut self, io: &mut MeteredStream<TrackedStream>) -> io::Result<usize> {
        if self.said.capacity() == self.said.len() {
            self.said.reserve(self.said.len().max(FIRST_BYTES));
        }
        io.read_buf(&mut self.said).await
    }

    /// Follows what has come since the last time.
    fn follow(&mut self) -> PreludeStage {
        let begin = self.said.len().min(PREFACE.len());
        if self.said[..begin] != PREFACE[..begin] || self.said.len() > SAID_BYTES_MAX {
            return PreludeStage::Hyper;
        }
        if begin < PREFACE.len() {
            return PreludeStage::Begun;
        }
        self.at = self.at.max(begin);
        loop {
            let mut rest = &self.said[self.at..];
            if rest.is_empty() && self.frames > 0 && self.head == 0 {
                return PreludeStage::Introduced;
            }
            let Some(frame) = Splitter::new().next(&mut rest) else { return PreludeStage::Begun };
            if !self.belongs(frame) || self.frames == FRAMES_MAX {
                return PreludeStage::Hyper;
            }
            let Some(payload) = rest.get(..frame.length as usize) else { return PreludeStage::Begun };
            if !goes_on(frame, payload) {
                return PreludeStage::Hyper;
            }
            self.head = if matches!(frame.kind, HEADERS | CONTINUATION) { frame.stream } else { 0 };
            self.frames += 1;
            self.at = self.said.len() - rest.len() + payload.len();
        }
    }

    /// Whether a frame belongs to an introduction or a first head, and is not too long for one.
    fn belongs(&self, frame: FrameHead) -> bool {
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

/// Whether a frame is valid and more must come before hyper has something to do. An invalid one is left for hyper to
/// refuse.
fn goes_on(frame: FrameHead, payload: &[u8]) -> bool {
    match frame.kind {
        SETTINGS if frame.flags == ACK => payload.is_empty(),
        SETTINGS => {
            let (settings, rest) = payload.as_chunks::<SETTING_BYTES>();
            rest.is_empty() && settings.iter().all(is_setting)
        }
        // Only small ones, so that even FRAMES_MAX of them cannot overflow a window.
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

/// A connection as it is handed to hyper: hyper first reads what the client sent in its prelude, and the SETTINGS frames
/// that the prelude has sent are not sent again.
#[derive(Debug)]
pub struct ReplayStream {
    io: MeteredStream<TrackedStream>,
    said: Bytes,
    /// SETTINGS frames that hyper will still write and that have been sent already.
    answered: u8,
    /// Bytes left of another frame that hyper writes before them.
    passing: usize,
}

impl ReplayStream {
    fn new(io: MeteredStream<TrackedStream>, hello: PreludeBytes, answered: u8) -> ReplayStream {
        ReplayStream { io, said: hello.said.freeze(), answered, passing: 0 }
    }

    /// Writes frames, but swallows SETTINGS that have been sent already.
    fn poll_answer(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.passing == 0 {
            let mut rest = buf;
            match Splitter::new().next(&mut rest) {
                // Whole, because h2 writes a SETTINGS frame in one piece: it is never split over two calls.
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

impl AsyncRead for ReplayStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.said.is_empty() {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        let count = this.said.len().min(buf.remaining());
        buf.put_slice(&this.said.split_to(count));
        if this.said.is_empty() {
            // A new one, because an empty `Bytes` would keep the whole buffer alive.
            this.said = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReplayStream {
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

/// A SETTINGS frame with these parameters.
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

/// The acknowledgement of a client's SETTINGS (RFC 9113 section 6.5).
const ACKNOWLEDGED: [u8; 9] = [0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0];
/// SETTINGS frames that the prelude sends: ours and the acknowledgement.
const ANSWERED: u8 = 2;
/// The client connection preface (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Parameters of SETTINGS (RFC 9113 section 6.5.2).
const ENABLE_PUSH: u16 = 2;
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
pub const INITIAL_WINDOW_SIZE: u16 = 4;
pub const MAX_FRAME_SIZE: u16 = 5;
pub const MAX_HEADER_LIST_SIZE: u16 = 6;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
const SETTING_BYTES: usize = 6;
/// The first buffer of a client: an introduction and half a head fit.
const FIRST_BYTES: usize = 128;
/// Bytes kept of a client at most: the largest frame that it may send.
const SAID_BYTES_MAX: usize = 16 * 1024;
/// Frames that are followed here before hyper takes over.
const FRAMES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello(frames: &[Vec<u8>]) -> Vec<u8> {
        [&PREFACE[..], &frames.concat()].concat()
    }

    fn standing(bytes: &[u8]) -> PreludeStage {
        PreludeBytes { said: bytes.into(), ..PreludeBytes::default() }.follow()
    }

    #[test]
    fn an_introduction_and_half_a_head_wait_and_hyper_gets_all_else() {
        let (settings, ack) = (settings(&[(INITIAL_WINDOW_SIZE, 7)]), ACKNOWLEDGED.to_vec());
        let window = frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
        let head = frame(HEADERS, END_STREAM, 1, b"x");
        let more = |flags| frame(CONTINUATION, flags, 1, b"x");
        let introduction = [settings.clone(), ack.clone(), window.clone()];
        assert_eq!(standing(&hello(&introduction)), PreludeStage::Introduced);
        let begun = [&introduction[..], &[head.clone(), more(0)]].concat();
        assert_eq!(standing(&hello(&begun)), PreludeStage::Begun);
        assert_eq!(standing(&hello(&begun[..4])[..60]), PreludeStage::Begun, "half a frame");
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
            assert_eq!(standing(&hello(&frames)), PreludeStage::Hyper, "{frames:x?}");
        }
        assert_eq!(standing(b"GET / HTTP/1.1\r\n"), PreludeStage::Hyper);
        let begin = [settings, frame(HEADERS, 0, 1, b"")];
        let long = [&begin[..], &vec![more(0); FRAMES_MAX]].concat();
        assert_eq!(standing(&hello(&long)), PreludeStage::Hyper, "pieces without end");
    }

    proptest! {
        #[test]
        fn bytes_are_followed_the_same_however_they_are_cut(
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
            let mut cut = PreludeBytes::default();
            let (mut rest, mut sizes) = (&bytes[..], cuts.iter().cycle());
            let mut stands = PreludeStage::Begun;
            while !rest.is_empty() && stands != PreludeStage::Hyper {
                let (piece, left) = rest.split_at(sizes.next().map_or(1, |size| *size).min(rest.len()));
                cut.said.extend_from_slice(piece);
                stands = cut.follow();
                rest = left;
            }
            prop_assert_eq!(stands, whole);
        }
    }
}
