//! HTTP/2 frame by frame (RFC 9113), for what whole clients hide: GOAWAY, resets, stalled windows.
//!
//! It writes fields as literals without indexing and never decodes fields: whole clients judge answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

/// One connection, preface and settings sent.
pub struct Connection<S = TcpStream> {
    stream: S,
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
/// The end of one stream by force.
pub const RST_STREAM: u8 = 3;
/// Parameters of the connection.
pub const SETTINGS: u8 = 4;
/// The end of the connection, announced.
pub const GOAWAY: u8 = 7;
/// The flag of a frame that ends its stream.
pub const END_STREAM: u8 = 1;
const PING: u8 = 6;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

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
        let mut connection = Connection { stream };
        connection.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        connection.send(SETTINGS, 0, 0, &[]);
        connection
    }

    /// Sends a request's fields; `end` when no body follows.
    pub fn request(&mut self, stream: u32, method: &str, path: &str, end: bool) {
        let fields = [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path)];
        let block: Vec<u8> = fields.iter().flat_map(|(name, value)| literal(name, value)).collect();
        let flags = END_HEADERS | if end { END_STREAM } else { 0 };
        self.send(HEADERS, flags, stream, &block);
    }

    /// Sends a piece of a body.
    pub fn data(&mut self, stream: u32, bytes: &[u8], end: bool) {
        self.send(DATA, if end { END_STREAM } else { 0 }, stream, bytes);
    }

    /// Sends one frame.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a test's frame is short").to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.write(&frame);
    }

    /// The next frame, settings and pings answered on the way; `None` at the end.
    pub fn frame(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
            let mut payload = vec![0; length];
            self.stream.read_exact(&mut payload).ok()?;
            if matches!(head[3], SETTINGS | PING) {
                if head[4] & ACK == 0 {
                    let echoed = if head[3] == PING { &payload[..] } else { &[] };
                    self.send(head[3], ACK, 0, echoed);
                }
                continue;
            }
            return Some(Frame { kind: head[3], flags: head[4], stream, payload });
        }
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

/// A field as HPACK's literal without indexing, new name, no Huffman code (RFC 7541, 6.2.2).
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for part in [name, value] {
        bytes.push(u8::try_from(part.len()).ok().filter(|length| *length < 127).expect("a short field"));
        bytes.extend(part.as_bytes());
    }
    bytes
}
