//! Decides where one request ends and the next begins, once and strictly, before hyper reads the bytes.
//!
//! hyper accepts forms that a server behind the gateway may read differently, which is how requests are smuggled: a
//! line that ends in a bare LF, a length beside chunks, a list of codings, blanks after a chunk's size. [`Framing`]
//! follows the bytes of an HTTP/1 connection through heads and bodies and refuses all of these (RFC 9112 sections 2.2,
//! 6 and 7). What passes has the same framing in every reader, so that hyper and `Framing` cannot get out of step.
//! Whether a field or a target is valid is not checked here. It does no I/O.

mod head;

use head::MessageHead;

/// Why it is unclear where a message ends, or why it is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingFault {
    /// A line ends in LF without CR.
    #[error("a line ends with LF alone: it must end with CRLF")]
    BareLineFeed,
    /// The first line is not `method target version`.
    #[error("the request line must be `method target version`")]
    RequestLine,
    /// The first line is three words, and the last is not an HTTP version.
    #[error("the request is not HTTP")]
    OtherProtocol,
    /// HTTP, but neither 1.0 nor 1.1.
    #[error("the HTTP version in the request line must be 1.0 or 1.1")]
    Version,
    /// The target has a fragment, which no request may have (RFC 9112 section 3.2).
    #[error("the request target must not have a fragment (`#`)")]
    Fragment,
    /// A line continues the one before (RFC 9112 section 5.2).
    #[error("a header is folded over several lines")]
    Folded,
    /// `Content-Length` that is not one plain number, or comes twice.
    #[error("`Content-Length` must be sent once and be a plain number")]
    Length,
    /// `Transfer-Encoding` that is not one line with `chunked`, or comes with HTTP/1.0.
    #[error("`Transfer-Encoding` must be `chunked` alone, and needs HTTP/1.1")]
    Coding,
    /// One transfer coding that is not known (RFC 9112 section 6.1).
    #[error("the transfer coding is unknown: only `chunked` is supported")]
    CodingUnknown,
    #[error("`Content-Length` and `Transfer-Encoding` exclude each other")]
    LengthAndCoding,
    /// The line in front of a chunk is not `size` or `size;extension`.
    #[error("the size of a chunk is not a number")]
    ChunkSize,
    /// The request line is longer than a head may be.
    #[error("the request target is too long")]
    TargetTooLong,
    /// The head is longer than it may be.
    #[error("the request headers are too long")]
    HeadTooLong,
    /// A chunk is not followed by the end of a line.
    #[error("a chunk is longer than its size")]
    ChunkEnd,
}

/// Where the body of a message ends (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    Length(u64),
    Chunked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanProgress {
    /// How many bytes may pass, from the first.
    pub passed: usize,
    /// How many of these are whole heads and their bodies as far as they have come; the rest is the begin of a head.
    pub whole: usize,
    /// Why the bytes after `passed` may not pass.
    pub end: ScanEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanEnd {
    Bytes,
    /// A request to switch the protocol ends here. What follows must wait for its answer, which decides whether it is
    /// HTTP.
    Upgrade,
    /// The message that begins at `passed` is refused.
    Head(FramingFault),
    /// The body of a message is faulty whose head has passed in an earlier scan.
    Body(FramingFault),
}

/// Follows the messages of one connection, from the first byte of one.
#[derive(Debug, Default)]
pub struct Framing {
    state: FramingState,
    head: MessageHead,
    /// The begin of a line whose end has not come.
    line: Vec<u8>,
    heads: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FramingState {
    /// Before a request line, where a message may begin.
    #[default]
    Start,
    Fields,
    /// Within a body, this many bytes before its end.
    Length(u64),
    ChunkSize,
    /// Within a chunk, this many bytes before its end.
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// After a request to switch the protocol.
    Upgrade,
}

impl Framing {
    /// Follows `bytes` as far as they may pass; after a fault nothing may. If a message's head ends within `bytes` and
    /// its body has a fault within them, the whole message is refused, because nothing has acted on it yet.
    pub fn scan(&mut self, bytes: &[u8]) -> ScanProgress {
        let mut at = 0;
        let mut message = None;
        while at < bytes.len() {
            if self.state == FramingState::Upgrade {
                return ScanProgress { passed: at, whole: at, end: ScanEnd::Upgrade };
            }
            if !self.is_in_body() && (at == 0 || self.state == FramingState::Start && self.line.is_empty()) {
                message = Some((at, self.heads));
            }
            match self.step(&bytes[at..]) {
                Ok(count) => at += count,
                Err(fault) => {
                    let Some((passed, heads)) = message else {
                        return ScanProgress { passed: at, whole: at, end: ScanEnd::Body(fault) };
                    };
                    self.heads = heads;
                    return ScanProgress { passed, whole: passed, end: ScanEnd::Head(fault) };
                }
            }
        }
        let begin = message.map_or(at, |(begin, _)| begin);
        let whole = if self.is_in_head() { begin } else { at };
        ScanProgress { passed: at, whole, end: ScanEnd::Bytes }
    }

    /// The fault to report for a head that has no end within its limit.
    pub fn too_long(&self) -> FramingFault {
        if self.state == FramingState::Start {
            FramingFault::TargetTooLong
        } else {
            FramingFault::HeadTooLong
        }
    }

    /// Whether a head has begun that has not ended.
    fn is_in_head(&self) -> bool {
        self.state == FramingState::Fields || self.state == FramingState::Start && !self.line.is_empty()
    }

    /// How many whole heads have passed.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether what comes next must wait for the answer to a request to switch the protocol.
    pub fn is_held(&self) -> bool {
        self.state == FramingState::Upgrade
    }

    /// Whether a message has begun that has not ended.
    pub fn is_in_message(&self) -> bool {
        !matches!(self.state, FramingState::Start | FramingState::Upgrade) || !self.line.is_empty()
    }

    /// The protocol was not switched, so the next bytes are HTTP.
    pub fn release(&mut self) {
        self.state = FramingState::Start;
    }

    /// Passes over what of these bytes is of the body that has begun, and returns how many that are.
    ///
    /// # Errors
    /// If the body is faulty.
    pub fn pass_body(&mut self, bytes: &[u8]) -> Result<usize, FramingFault> {
        let mut at = 0;
        while at < bytes.len() && self.is_in_body() {
            at += self.step(&bytes[at..])?;
        }
        Ok(at)
    }

    /// Whether the head of the current message has passed, and not its end.
    pub fn is_in_body(&self) -> bool {
        !matches!(self.state, FramingState::Start | FramingState::Fields | FramingState::Upgrade)
    }

    /// Follows a line, the lines of a head, or a piece of a body; returns how many bytes that is, at least one.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, FramingFault> {
        match self.state {
            FramingState::Length(left) => Ok(self.skip(left, bytes.len(), FramingState::Length)),
            FramingState::Chunk(left) => Ok(self.skip(left, bytes.len(), FramingState::Chunk)),
            _ => self.read_lines(bytes),
        }
    }

    /// Passes over at most `left` bytes of a body.
    fn skip(&mut self, left: u64, here: usize, more: fn(u64) -> FramingState) -> usize {
        let count = usize::try_from(left).map_or(here, |left| left.min(here));
        let left = left - count as u64;
        match (left, self.state) {
            (0, FramingState::Chunk(_)) => self.state = FramingState::ChunkEnd,
            (0, _) => self.end_message(),
            (left, _) => self.state = more(left),
        }
        count
    }

    /// Takes one line, or all lines of a head that have come: a single search finds all their ends.
    fn read_lines(&mut self, bytes: &[u8]) -> Result<usize, FramingFault> {
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
            if self.state != FramingState::Fields {
                return Ok(start);
            }
        }
        self.line.extend_from_slice(&bytes[start..]);
        self.check_partial_line()?;
        Ok(bytes.len())
    }

    /// Checks an incomplete line of chunked coding. Here and not at its end, because nothing else bounds its length; a
    /// head's length is bounded by the caller.
    fn check_partial_line(&self) -> Result<(), FramingFault> {
        match self.state {
            FramingState::ChunkSize if self.line.len() > CHUNK_LINE_BYTES_MAX => Err(FramingFault::ChunkSize),
            FramingState::ChunkEnd if !b"\r".starts_with(&self.line) => Err(FramingFault::ChunkEnd),
            _ => Ok(()),
        }
    }

    /// Takes a line without its LF.
    fn on_line(&mut self, line: &[u8]) -> Result<(), FramingFault> {
        let Some(line) = line.strip_suffix(b"\r") else {
            return Err(if self.state == FramingState::ChunkEnd {
                FramingFault::ChunkEnd
            } else {
                FramingFault::BareLineFeed
            });
        };
        match self.state {
            FramingState::Start if line.is_empty() => {}
            FramingState::Start => {
                self.head = MessageHead::begin(line)?;
                self.state = FramingState::Fields;
            }
            FramingState::Fields if line.is_empty() => self.end_head()?,
            FramingState::Fields => self.head.field(line)?,
            FramingState::ChunkSize => {
                self.state = match chunk_size(line)? {
                    0 => FramingState::Trailers,
                    size => FramingState::Chunk(size),
                }
            }
            FramingState::ChunkEnd if line.is_empty() => self.state = FramingState::ChunkSize,
            FramingState::ChunkEnd => return Err(FramingFault::ChunkEnd),
            FramingState::Trailers if line.is_empty() => self.end_message(),
            FramingState::Trailers => head::folded(line)?,
            FramingState::Length(_) | FramingState::Chunk(_) | FramingState::Upgrade => {}
        }
        Ok(())
    }

    fn end_head(&mut self) -> Result<(), FramingFault> {
        let body = self.head.body()?;
        self.heads += 1;
        match body {
            BodyEnd::Chunked => self.state = FramingState::ChunkSize,
            BodyEnd::Length(0) => self.end_message(),
            BodyEnd::Length(bytes) => self.state = FramingState::Length(bytes),
        }
        Ok(())
    }

    fn end_message(&mut self) {
        self.state = if self.head.asks_for_upgrade() { FramingState::Upgrade } else { FramingState::Start };
    }
}

/// Reads `size` or `size;extension` (RFC 9112 section 7.1). Extensions are ignored and not passed on, but may not hold
/// control characters.
fn chunk_size(line: &[u8]) -> Result<u64, FramingFault> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, extension) = line.split_at(digits);
    let is_text = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
    let is_plain = extension.is_empty() || (extension[0] == b';' && extension.iter().all(is_text));
    if !is_plain || line.len() > CHUNK_LINE_BYTES_MAX {
        return Err(FramingFault::ChunkSize);
    }
    // At most sixteen, because more do not fit 64 bits. No digits are no number.
    let size = std::str::from_utf8(size).ok().filter(|size| size.len() <= 16);
    size.and_then(|size| u64::from_str_radix(size, 16).ok()).ok_or(FramingFault::ChunkSize)
}

/// The longest line before a chunk, extensions included.
const CHUNK_LINE_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests;
