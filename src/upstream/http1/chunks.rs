//! A strict parser of a chunked body (RFC 9112 section 7.1). It does no I/O: it takes complete parts from a buffer.

use bytes::BytesMut;
use http::HeaderMap;

use super::fields::{self, MalformedMessage};

/// The parser's state: where in the body the buffer begins.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    state: ChunkState,
    /// Bytes of chunk extensions so far.
    extension_bytes: usize,
    trailers: Option<HeaderMap>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    /// Within a chunk, this many bytes before its end.
    Data(u64),
    DataEnd,
    Trailers,
    End,
}

impl Chunks {
    /// Takes framing from the buffer, up to the next data, the body's end, or the buffer's. Malformed bytes stay in the
    /// buffer, so that the error is found again.
    pub(super) fn advance(&mut self, read: &mut BytesMut) -> Result<(), MalformedMessage> {
        loop {
            let taken = match self.state {
                ChunkState::Data(0) => {
                    self.state = ChunkState::DataEnd;
                    0
                }
                ChunkState::Data(_) | ChunkState::End => return Ok(()),
                ChunkState::Size => match self.size(read)? {
                    Some(taken) => taken,
                    None => return Ok(()),
                },
                ChunkState::DataEnd => match read.get(..2) {
                    Some(b"\r\n") => {
                        self.state = ChunkState::Size;
                        2
                    }
                    Some(_) => return Err(MalformedMessage("a chunk is longer than its size")),
                    None => return Ok(()),
                },
                ChunkState::Trailers => match self.trailers(read)? {
                    Some(taken) => taken,
                    None => return Ok(()),
                },
            };
            bytes::Buf::advance(read, taken);
        }
    }

    /// How many bytes of data come next, in the buffer or still to be read; `None` if none do.
    pub(super) fn data(&mut self) -> Option<&mut u64> {
        match &mut self.state {
            ChunkState::Data(left) => Some(left),
            _ => None,
        }
    }

    /// Whether the body is complete, its trailers included.
    pub(super) fn is_over(&self) -> bool {
        self.state == ChunkState::End && self.trailers.is_none()
    }

    /// The trailers, the first time it is called.
    pub(super) fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }

    /// Parses the line before a chunk and returns its length.
    fn size(&mut self, read: &[u8]) -> Result<Option<usize>, MalformedMessage> {
        let Some(end) = memchr::memchr(b'\n', read) else {
            return if read.len() > EXTENSION_BYTES_MAX { Err(BAD_SIZE) } else { Ok(None) };
        };
        let line = read[..end].strip_suffix(b"\r").ok_or(BAD_SIZE)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (digits, rest) = line.split_at(digits);
        let extension = rest.trim_ascii_start();
        self.extension_bytes += rest.len();
        let is_plain = extension.is_empty() || extension[0] == b';' && !extension.contains(&b'\r');
        if !is_plain || self.extension_bytes > EXTENSION_BYTES_MAX {
            return Err(BAD_SIZE);
        }
        let digits = std::str::from_utf8(digits).map_err(|_| BAD_SIZE)?;
        self.state = match u64::from_str_radix(digits, 16).map_err(|_| BAD_SIZE)? {
            0 => ChunkState::Trailers,
            size => ChunkState::Data(size),
        };
        Ok(Some(end + 1))
    }

    /// Parses the trailers and returns their length.
    fn trailers(&mut self, read: &[u8]) -> Result<Option<usize>, MalformedMessage> {
        if read.starts_with(b"\r\n") {
            self.state = ChunkState::End;
            return Ok(Some(2));
        }
        let Some(end) = memchr::memmem::find(read, b"\r\n\r\n") else {
            return if read.len() > TRAILER_BYTES_MAX { Err(BAD_TRAILERS) } else { Ok(None) };
        };
        let end = end + 4;
        let mut fields = [httparse::EMPTY_HEADER; fields::FIELDS_MAX];
        let parsed = httparse::parse_headers(&read[..end], &mut fields).map_err(|_| BAD_TRAILERS)?;
        let httparse::Status::Complete((length, fields)) = parsed else { return Err(BAD_TRAILERS) };
        if length != end || end > TRAILER_BYTES_MAX {
            return Err(BAD_TRAILERS);
        }
        let mut trailers = HeaderMap::with_capacity(fields.len());
        fields::copy(&read[..end], fields, &mut trailers, |_, _| true)?;
        self.trailers = Some(trailers);
        self.state = ChunkState::End;
        Ok(Some(end))
    }
}

const BAD_SIZE: MalformedMessage = MalformedMessage("the size of a chunk is invalid");
const BAD_TRAILERS: MalformedMessage = MalformedMessage("its trailers are invalid");
/// The most bytes of chunk extensions in one body. Bounded, because they have no use here and without a bound a server
/// could send them for ever.
const EXTENSION_BYTES_MAX: usize = 16 * 1024;
const TRAILER_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body that comes in pieces of `step` bytes: its data and trailers, or `None` if it does not end.
    fn read(body: &str, step: usize) -> Result<Option<(String, Option<HeaderMap>)>, MalformedMessage> {
        let mut chunks = Chunks::default();
        let (mut buffer, mut data) = (BytesMut::new(), Vec::new());
        for piece in body.as_bytes().chunks(step) {
            buffer.extend_from_slice(piece);
            chunks.advance(&mut buffer)?;
            while let Some(left) = chunks.data()
                && !buffer.is_empty()
            {
                let here = buffer.len().min(*left as usize);
                *left -= here as u64;
                data.extend_from_slice(&buffer.split_to(here));
                chunks.advance(&mut buffer)?;
            }
        }
        let trailers = chunks.take_trailers();
        let text = String::from_utf8(data).expect("text was sent");
        Ok((chunks.is_over() && buffer.is_empty()).then_some((text, trailers)))
    }

    #[test]
    fn a_body_is_the_same_however_its_bytes_come() {
        let body = "5\r\nhello\r\n1;a=\"b\"\r\n \r\n00a \r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n";
        for step in 1..=body.len() {
            let (text, trailers) = read(body, step).expect("well formed").expect("whole");
            assert_eq!(text, "hello 0123456789", "{step}");
            assert_eq!(trailers.expect("it has some")["x-sum"], "1");
        }
        assert_eq!(read("0\r\n\r\n", 1).expect("well formed").expect("whole").0, "");
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for body in [
            "\r\n",
            "x\r\n",
            "-1\r\nx",
            "+1\r\nx",
            "0x1\r\nx",
            "1\nx",
            "1 1\r\nx",
            "1;\rx\r\nx",
            "1\r\nxx\r\n",
            "1\r\nx\n0\r\n\r\n",
            "11111111111111111\r\n",
            "0\r\nx y: 1\r\n\r\n",
            "0\r\n: 1\r\n\r\n",
        ] {
            assert!(read(body, 1).is_err(), "{body:?}");
            assert!(read(body, body.len()).is_err(), "{body:?}");
        }
        assert!(read(&format!("1;{}\r\nx", "e".repeat(EXTENSION_BYTES_MAX)), 1024).is_err());
        assert!(read(&"1;eeeeeeee\r\nx\r\n".repeat(EXTENSION_BYTES_MAX / 8), 1024).is_err());
        assert!(read(&format!("0\r\nx: {}\r\n\r\n", "t".repeat(TRAILER_BYTES_MAX)), 1024).is_err());
    }
}
