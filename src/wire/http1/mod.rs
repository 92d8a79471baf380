//! Where one request ends and the next begins, decided once and strictly, in front of hyper.
//!
//! hyper forgives what a server behind the gateway may read otherwise: a line that ends in a bare LF, a length beside
//! chunks, codings in a list, blanks behind a chunk's size. [`Framing`] follows the bytes of an HTTP/1 connection
//! through heads and bodies and lets nothing of that pass (RFC 9112 sections 2.2, 6 and 7). What it lets pass has one
//! framing in every reader, so hyper and it cannot be out of step; what makes a field or a target valid is left to
//! hyper and to the reader behind it. It does no I/O.

mod head;

use head::Head;

/// Why a message cannot be told from the next, or is not one we serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A line ends in LF without CR.
    #[error("a line ends without CR")]
    BareLineFeed,
    /// The first line is not `method target version`.
    #[error("the request line is none")]
    RequestLine,
    /// The first line is three words, and the last names no HTTP.
    #[error("this is no HTTP")]
    OtherProtocol,
    /// HTTP, but neither 1.0 nor 1.1.
    #[error("this version of HTTP is not served here")]
    Version,
    /// The target has a fragment, which belongs to no request (RFC 9112 section 3.2).
    #[error("the request target has a fragment")]
    Fragment,
    /// A line that goes on the one before (RFC 9112 section 5.2).
    #[error("a field is folded over lines")]
    Folded,
    /// `Content-Length` that is not one plain number, or comes twice.
    #[error("Content-Length is not one number")]
    Length,
    /// `Transfer-Encoding` that is not one line with `chunked`, or comes with HTTP/1.0.
    #[error("Transfer-Encoding is not chunked alone")]
    Coding,
    /// One transfer coding that is not known (RFC 9112 section 6.1).
    #[error("the transfer coding is not known")]
    CodingUnknown,
    /// Both of them.
    #[error("Content-Length beside Transfer-Encoding")]
    LengthAndCoding,
    /// The line in front of a chunk is not `size` or `size;extension`.
    #[error("the size of a chunk is none")]
    ChunkSize,
    /// The request line is longer than a head may be.
    #[error("the request target is too long")]
    TargetTooLong,
    /// The head is longer than it may be.
    #[error("the header fields are too long")]
    HeadTooLong,
    /// A chunk is not followed by the end of a line.
    #[error("a chunk is longer than its size")]
    ChunkEnd,
}

/// Where the body of a message ends (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// After so many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
}

/// How far bytes may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// So many of them.
    pub passed: usize,
    /// So many of these are whole heads and what there is of their bodies; the rest is the begin of a head.
    pub whole: usize,
    /// Why not the rest.
    pub end: End,
}

/// Why a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All bytes may pass.
    Bytes,
    /// What follows belongs to the next protocol, if the answer switches to one: it waits for the answer.
    Upgrade,
    /// What follows is refused, and with it the message whose head has not passed whole yet.
    Head(Fault),
    /// The body of a message whose head has passed before goes wrong.
    Body(Fault),
}

/// Follows the messages of one connection, from the first byte of one.
#[derive(Debug, Default)]
pub struct Framing {
    state: State,
    head: Head,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    heads: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before a request line.
    #[default]
    Start,
    Fields,
    /// Within a body, so many bytes before its end.
    Length(u64),
    ChunkSize,
    /// Within a chunk, so many bytes before its end.
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// Behind a message that asks to switch the protocol.
    Upgrade,
}

impl Framing {
    /// Follows `bytes` as far as they may pass; after a fault nothing may. A message whose head ends among them and
    /// that has a fault among them does not pass: nobody has acted on it yet.
    pub fn scan(&mut self, bytes: &[u8]) -> Scanned {
        let mut at = 0;
        let mut message = None;
        while at < bytes.len() {
            if self.state == State::Upgrade {
                return Scanned { passed: at, whole: at, end: End::Upgrade };
            }
            if !self.is_in_body() && (at == 0 || self.state == State::Start && self.line.is_empty()) {
                message = Some((at, self.heads));
            }
            match self.step(&bytes[at..]) {
                Ok(count) => at += count,
                Err(fault) => {
                    let Some((passed, heads)) = message else {
                        return Scanned { passed: at, whole: at, end: End::Body(fault) };
                    };
                    self.heads = heads;
                    return Scanned { passed, whole: passed, end: End::Head(fault) };
                }
            }
        }
        let begin = message.map_or(at, |(begin, _)| begin);
        let whole = if self.is_in_head() { begin } else { at };
        Scanned { passed: at, whole, end: End::Bytes }
    }

    /// The fault of a head that has become too long without an end.
    pub fn too_long(&self) -> Fault {
        if self.state == State::Start { Fault::TargetTooLong } else { Fault::HeadTooLong }
    }

    /// Whether a head has begun that has not ended.
    fn is_in_head(&self) -> bool {
        self.state == State::Fields || self.state == State::Start && !self.line.is_empty()
    }

    /// Heads that have passed whole.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether what comes next waits for the answer to the message before.
    pub fn is_held(&self) -> bool {
        self.state == State::Upgrade
    }

    /// Whether a message has begun that has not ended.
    pub fn is_in_message(&self) -> bool {
        !matches!(self.state, State::Start | State::Upgrade) || !self.line.is_empty()
    }

    /// The protocol was not switched: the next message is HTTP.
    pub fn release(&mut self) {
        self.state = State::Start;
    }

    /// Whether the head of the message at hand is known.
    fn is_in_body(&self) -> bool {
        !matches!(self.state, State::Start | State::Fields | State::Upgrade)
    }

    /// Follows a line, the lines of a head, or a piece of a body: how many bytes that is, at least one.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        match self.state {
            State::Length(left) => Ok(self.skip(left, bytes.len(), State::Length)),
            State::Chunk(left) => Ok(self.skip(left, bytes.len(), State::Chunk)),
            _ => self.read_lines(bytes),
        }
    }

    /// Passes over at most `left` bytes of a body.
    fn skip(&mut self, left: u64, here: usize, more: fn(u64) -> State) -> usize {
        let count = usize::try_from(left).map_or(here, |left| left.min(here));
        let left = left - count as u64;
        match (left, self.state) {
            (0, State::Chunk(_)) => self.state = State::ChunkEnd,
            (0, _) => self.end_message(),
            (left, _) => self.state = more(left),
        }
        count
    }

    /// Takes a line, and of a head as many as there are: one search finds all their ends.
    fn read_lines(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            if self.line.is_empty() {
                self.on_line(&bytes[start..end])?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&bytes[start..end]);
                self.on_line(&line)?;
            }
            start = end + 1;
            if self.state != State::Fields {
                return Ok(start);
            }
        }
        self.line.extend_from_slice(&bytes[start..]);
        self.judge_beginning()?;
        Ok(bytes.len())
    }

    /// Bounds lines that hyper would not keep: a fault that can be seen before their end is one.
    fn judge_beginning(&self) -> Result<(), Fault> {
        match self.state {
            State::ChunkSize if self.line.len() > CHUNK_LINE_BYTES_MAX => Err(Fault::ChunkSize),
            State::ChunkEnd if !b"\r".starts_with(&self.line) => Err(Fault::ChunkEnd),
            _ => Ok(()),
        }
    }

    /// Takes a line without its LF.
    fn on_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        let Some(line) = line.strip_suffix(b"\r") else {
            return Err(if self.state == State::ChunkEnd { Fault::ChunkEnd } else { Fault::BareLineFeed });
        };
        match self.state {
            State::Start if line.is_empty() => {}
            State::Start => {
                self.head = Head::begin(line)?;
                self.state = State::Fields;
            }
            State::Fields if line.is_empty() => self.end_head()?,
            State::Fields => self.head.field(line)?,
            State::ChunkSize => {
                self.state = match chunk_size(line)? {
                    0 => State::Trailers,
                    size => State::Chunk(size),
                }
            }
            State::ChunkEnd if line.is_empty() => self.state = State::ChunkSize,
            State::ChunkEnd => return Err(Fault::ChunkEnd),
            State::Trailers if line.is_empty() => self.end_message(),
            State::Trailers => head::folded(line)?,
            State::Length(_) | State::Chunk(_) | State::Upgrade => {}
        }
        Ok(())
    }

    fn end_head(&mut self) -> Result<(), Fault> {
        let body = self.head.body()?;
        self.heads += 1;
        match body {
            BodyEnd::Chunked => self.state = State::ChunkSize,
            BodyEnd::Length(0) => self.end_message(),
            BodyEnd::Length(bytes) => self.state = State::Length(bytes),
        }
        Ok(())
    }

    fn end_message(&mut self) {
        self.state = if self.head.asks_for_upgrade() { State::Upgrade } else { State::Start };
    }
}

/// `size` or `size;extension` (RFC 9112 section 7.1). Extensions mean nothing to anybody, and are not passed on; what
/// no line may hold, they may not either.
fn chunk_size(line: &[u8]) -> Result<u64, Fault> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, extension) = line.split_at(digits);
    let is_text = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
    let is_plain = extension.is_empty() || (extension[0] == b';' && extension.iter().all(is_text));
    if !is_plain || line.len() > CHUNK_LINE_BYTES_MAX {
        return Err(Fault::ChunkSize);
    }
    // No digit at all is no number, and more than sixteen are more than any body has.
    let size = std::str::from_utf8(size).ok().filter(|size| size.len() <= 16);
    size.and_then(|size| u64::from_str_radix(size, 16).ok()).ok_or(Fault::ChunkSize)
}

/// The longest line in front of a chunk.
const CHUNK_LINE_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests;
