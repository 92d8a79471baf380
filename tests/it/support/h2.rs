//! HTTP/2 frame by frame (RFC 9113), for what complete clients hide: GOAWAY, resets, stalled windows.
//!
//! It writes fields as literals without indexing and never decodes fields; tests of answers use complete clients.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

/// One connection, preface and settings sent.
pub struct Connection<S = TcpStream> {
    stream: S,
    /// The peer neither spoke nor closed for as long as a read may take.
    timed_out: bool,
}

/// What a connection runs over.
pub trait Wire: Read + Write {}
impl<S: Read + Write> Wire for S {}

/// How a connection, or a stream of it, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A stream was reset with this code.
    Reset(u32),
    /// The connection was given up with this code.
    GoneAway(u32),
    /// It was closed without a word.
    Closed,
    /// It has not ended: the peer says nothing more.
    Silent,
}

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type: [`DATA`] and the like.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

/// A piece of a body.
pub const DATA: u8 = 0;
/// Fields of a message.
pub const HEADERS: u8 = 1;
/// A stream's place among others (deprecated by RFC 9113).
pub const PRIORITY: u8 = 2;
/// The end of one stream by force.
pub const RST_STREAM: u8 = 3;
/// Parameters of the connection.
pub const SETTINGS: u8 = 4;
/// A question whether the other end lives.
pub const PING: u8 = 6;
/// The end of the connection, announced.
pub const GOAWAY: u8 = 7;
/// More may be sent.
pub const WINDOW_UPDATE: u8 = 8;
/// More fields of the message begun.
pub const CONTINUATION: u8 = 9;
/// The flag of a frame that ends its stream.
pub const END_STREAM: u8 = 1;
/// The flag of a frame after which no fields follow.
pub const END_HEADERS: u8 = 4;
/// The flag of an answer to SETTINGS or PING.
pub const ACK: u8 = 1;

impl Connection {
    /// Connects in the clear, with prior knowledge.
    pub fn open(addr: SocketAddr) -> Connection {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE).expect("somebody listens there");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        Connection::over(stream)
    }
}

impl<S: Read + Write> Connection<S> {
    /// Begins on a stream that is connected already.
    pub fn over(stream: S) -> Connection<S> {
        let mut connection = Connection { stream, timed_out: false };
        connection.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        connection.send(SETTINGS, 0, 0, &[]);
        connection
    }

    /// Begins with nothing said.
    pub fn silent(stream: S) -> Connection<S> {
        Connection { stream, timed_out: false }
    }

    /// The other side of a connection: takes the client's preface and sends settings.
    pub fn serve(stream: S) -> Connection<S> {
        Connection::serve_with(stream, &[])
    }

    /// With these settings.
    pub fn serve_with(stream: S, settings: &[u8]) -> Connection<S> {
        let mut connection = Connection { stream, timed_out: false };
        connection.stream.read_exact(&mut [0; 24]).expect("a client begins with its preface");
        connection.send(SETTINGS, 0, 0, settings);
        connection
    }

    /// Sends a request's fields; `end` when no body follows.
    pub fn request(&mut self, stream: u32, method: &str, path: &str, end: bool) {
        let block =
            fields(&[(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path)]);
        let flags = END_HEADERS | if end { END_STREAM } else { 0 };
        self.send(HEADERS, flags, stream, &block);
    }

    /// Sends a piece of a body.
    pub fn data(&mut self, stream: u32, bytes: &[u8], end: bool) {
        self.send(DATA, if end { END_STREAM } else { 0 }, stream, bytes);
    }

    /// Sends one frame.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.write(&encoded(kind, flags, stream, payload));
    }

    /// Sends these bytes, unless the peer has closed; whether it took them.
    pub fn try_write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).is_ok()
    }

    /// The next frame, settings and pings answered on the way; `None` at the end.
    pub fn frame(&mut self) -> Option<Frame> {
        loop {
            let frame = self.any_frame()?;
            if !matches!(frame.kind, SETTINGS | PING) {
                return Some(frame);
            }
            if frame.flags & ACK == 0 {
                let echoed = if frame.kind == PING { &frame.payload[..] } else { &[] };
                self.try_write(&encoded(frame.kind, ACK, 0, echoed));
            }
        }
    }

    /// The next frame of any kind, answered by nobody; `None` at the end.
    pub fn any_frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        self.read_exact(&mut payload)?;
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Option<()> {
        let read = self.stream.read_exact(bytes);
        let is_timeout = |error: &Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        self.timed_out |= read.as_ref().is_err_and(is_timeout);
        read.ok()
    }

    /// Whether the peer closes before a read has waited too long; nothing is answered meanwhile.
    pub fn is_closed(&mut self) -> bool {
        while self.any_frame().is_some() {}
        !self.timed_out
    }

    /// How it ends: reads until a reset, GOAWAY with an error, or the close.
    pub fn end(&mut self) -> End {
        while let Some(frame) = self.frame() {
            let code =
                |at: usize| u32::from_be_bytes(frame.payload[at..at + 4].try_into().expect("four bytes"));
            match frame.kind {
                RST_STREAM => return End::Reset(code(0)),
                GOAWAY if code(4) != 0 => return End::GoneAway(code(4)),
                _ => {}
            }
        }
        if self.timed_out { End::Silent } else { End::Closed }
    }

    /// Passes frames over until one of this kind.
    pub fn until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.frame().unwrap_or_else(|| panic!("closed before a frame of kind {kind}"));
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Reads a whole answer; its body.
    pub fn answer(&mut self, stream: u32) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let frame = self.frame().unwrap_or_else(|| panic!("closed before the end of stream {stream}"));
            if frame.stream != stream {
                continue;
            }
            assert_ne!(frame.kind, RST_STREAM, "stream {stream} was reset: {frame:?}");
            if frame.kind == DATA {
                body.extend(frame.payload);
            }
            if matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0 {
                return body;
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the peer takes what is sent");
        self.stream.flush().expect("the peer takes what is sent");
    }
}

/// One frame as bytes.
pub fn encoded(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a test's frame is short").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Fields as HPACK's literals without indexing, new names, no Huffman code (RFC 7541, 6.2.2).
pub fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for part in [name, value] {
            length(part.len(), &mut bytes);
            bytes.extend(part.as_bytes());
        }
    }
    bytes
}

/// A length in a prefix of seven bits (RFC 7541, 5.1).
fn length(length: usize, bytes: &mut Vec<u8>) {
    let Some(mut rest) = length.checked_sub(127) else {
        return bytes.push(u8::try_from(length).expect("it is below 127"));
    };
    bytes.push(127);
    while rest >= 128 {
        bytes.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    bytes.push(rest as u8);
}
