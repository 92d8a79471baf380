//! Reads the parts of a request's head that decide where its body ends. All other fields are ignored.

use super::{BodyEnd, FramingFault};

/// A head as far as it has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MessageHead {
    is_http_10: bool,
    length: Option<u64>,
    coding: TransferCoding,
    upgrade: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TransferCoding {
    #[default]
    None,
    Chunked,
    /// One coding that is not supported.
    Unknown,
    /// Anything else, which readers may take for different things.
    Unclear,
}

impl MessageHead {
    /// Reads the request line (RFC 9112 section 3), without its end.
    pub(super) fn begin(line: &[u8]) -> Result<MessageHead, FramingFault> {
        let Some((rest, version)) = line.len().checked_sub(8).map(|at| line.split_at(at)) else {
            return Err(FramingFault::RequestLine);
        };
        let is_http_10 = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                return Err(FramingFault::Version);
            }
            _ if names_another(line) => return Err(FramingFault::OtherProtocol),
            _ => return Err(FramingFault::RequestLine),
        };
        if memchr::memchr(b'#', rest).is_some() {
            return Err(FramingFault::Fragment);
        }
        Ok(MessageHead { is_http_10, ..MessageHead::default() })
    }

    /// Reads one field, without the end of its line. A name must be followed directly by its colon; hyper refuses others.
    pub(super) fn field(&mut self, line: &[u8]) -> Result<(), FramingFault> {
        folded(line)?;
        match line[0] | 0x20 {
            b'c' => {
                if let Some(value) = value(line, b"content-length:") {
                    if self.length.is_some() {
                        return Err(FramingFault::Length);
                    }
                    self.length = Some(length(value)?);
                }
            }
            b't' => {
                if let Some(value) = value(line, b"transfer-encoding:") {
                    self.coding = if self.coding == TransferCoding::None {
                        coding(value)
                    } else {
                        TransferCoding::Unclear
                    };
                }
            }
            b'u' => {
                // h2c does not count, because the gateway never switches to it: nothing has to wait for that answer.
                let is_h2c =
                    |value: &[u8]| value.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(b"h2"));
                self.upgrade |= value(line, b"upgrade:").is_some_and(|value| !is_h2c(value));
            }
            _ => {}
        }
        Ok(())
    }

    /// Where the body ends, once all fields are known (RFC 9112 section 6.3).
    pub(super) fn body(&self) -> Result<BodyEnd, FramingFault> {
        match (self.coding, self.length) {
            (TransferCoding::None, length) => Ok(BodyEnd::Length(length.unwrap_or(0))),
            (_, Some(_)) => Err(FramingFault::LengthAndCoding),
            // Refused, because a server of HTTP/1.0 does not know the coding and would read the chunks as the next
            // request.
            _ if self.is_http_10 => Err(FramingFault::Coding),
            (TransferCoding::Chunked, None) => Ok(BodyEnd::Chunked),
            (TransferCoding::Unknown, None) => Err(FramingFault::CodingUnknown),
            (TransferCoding::Unclear, None) => Err(FramingFault::Coding),
        }
    }

    /// Whether what follows the message may be of another protocol.
    pub(super) fn asks_for_upgrade(&self) -> bool {
        self.upgrade
    }
}

/// Whether a request line has three parts, and the last names another protocol than HTTP.
fn names_another(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return false;
    };
    let is_http = version.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"HTTP/"));
    !is_http && [method, target, version].iter().all(|word| !word.is_empty())
}

/// Refuses a line that continues the one before, or is empty where it must not be.
pub(super) fn folded(line: &[u8]) -> Result<(), FramingFault> {
    if matches!(line.first(), None | Some(b' ' | b'\t')) { Err(FramingFault::Folded) } else { Ok(()) }
}

/// The value of a field of this name, without the blanks around it.
fn value<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| trim(value))
}

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Only digits, without a leading zero, because some parsers read that as octal.
fn length(value: &[u8]) -> Result<u64, FramingFault> {
    let is_plain = value.iter().all(u8::is_ascii_digit) && (value.len() == 1 || !value.starts_with(b"0"));
    let digits = std::str::from_utf8(value).ok().filter(|_| is_plain);
    let length: u64 = digits.and_then(|digits| digits.parse().ok()).ok_or(FramingFault::Length)?;
    // No more than that, because many servers keep a length in a signed 64-bit integer.
    if i64::try_from(length).is_ok() { Ok(length) } else { Err(FramingFault::Length) }
}

fn coding(value: &[u8]) -> TransferCoding {
    if value.eq_ignore_ascii_case(b"chunked") {
        return TransferCoding::Chunked;
    }
    // `identity` is not merely unknown, because some servers still read it as "use Content-Length", although it was
    // removed from HTTP.
    let is_one = value.iter().all(u8::is_ascii_alphanumeric) && !value.is_empty();
    if is_one && !value.eq_ignore_ascii_case(b"identity") {
        TransferCoding::Unknown
    } else {
        TransferCoding::Unclear
    }
}
