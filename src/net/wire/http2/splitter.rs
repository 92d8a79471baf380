//! Finds the heads of HTTP/2 frames in a stream of bytes, however those are cut. Payloads are skipped.

/// The head of a frame, with the code that RST_STREAM and GOAWAY carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Its type, one of the constants here or any other.
    pub kind: u8,
    pub flags: u8,
    /// Its stream; 0 is the connection.
    pub stream: u32,
    /// Bytes of its payload, which comes behind the head.
    pub length: u32,
    /// The error code of RST_STREAM and GOAWAY; 0 for every other frame.
    pub code: u32,
}

/// A frame's bytes: its head, and its payload of at most 2^24-1 bytes.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Finds the heads in one direction of a connection. It buffers at most a part of one head.
#[derive(Clone, Debug)]
pub struct Splitter {
    part: [u8; PART_BYTES],
    have: usize,
    /// Bytes of payload (or preface) still to pass over.
    skip: usize,
}

impl Splitter {
    /// Begins at a frame: what a server sends.
    pub fn new() -> Splitter {
        Splitter { part: [0; PART_BYTES], have: 0, skip: 0 }
    }

    /// Begins at the connection preface: what a client sends (RFC 9113 section 3.4).
    pub fn at_preface() -> Splitter {
        Splitter { skip: PREFACE_BYTES, ..Splitter::new() }
    }

    /// The next head that ends in `bytes`, and advances `bytes` past it; `None` when they are used up.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Option<FrameHead> {
        loop {
            let passed = self.skip.min(bytes.len());
            self.skip -= passed;
            *bytes = &bytes[passed..];
            if bytes.is_empty() {
                return None;
            }
            if self.have == 0
                && let Some(head) = bytes.first_chunk::<HEAD_BYTES>()
                && !has_code(head)
            {
                let head = parse(head, 0);
                *bytes = &bytes[HEAD_BYTES..];
                self.skip = head.length as usize;
                return Some(head);
            }
            if let Some(head) = self.gather(bytes) {
                return Some(head);
            }
        }
    }

    /// Whether a head has begun with this byte and is not whole.
    pub fn begins_with(&self, byte: u8) -> bool {
        self.have > 0 && self.part[0] == byte
    }

    /// Adds to the part of a head; the head once it is whole.
    fn gather(&mut self, bytes: &mut &[u8]) -> Option<FrameHead> {
        let wanted = if self.have < HEAD_BYTES { HEAD_BYTES } else { self.wanted() };
        let taken = (wanted - self.have).min(bytes.len());
        self.part[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
        self.have += taken;
        *bytes = &bytes[taken..];
        if self.have < HEAD_BYTES || self.have < self.wanted() {
            return None;
        }
        let code = match self.have {
            RST_BYTES => u32_at(&self.part, HEAD_BYTES),
            // Behind the last stream's number (RFC 9113 section 6.8).
            GOAWAY_BYTES => u32_at(&self.part, HEAD_BYTES + 4),
            _ => 0,
        };
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&self.part[..HEAD_BYTES]);
        let head = parse(&head, code);
        self.skip = head.length as usize - (self.have - HEAD_BYTES);
        self.have = 0;
        Some(head)
    }

    /// Bytes of the head at hand with its code, where it has one. Its first nine are here.
    fn wanted(&self) -> usize {
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&self.part[..HEAD_BYTES]);
        match (has_code(&head), head[3]) {
            (true, RST_STREAM) => RST_BYTES,
            (true, _) => GOAWAY_BYTES,
            (false, _) => HEAD_BYTES,
        }
    }

    /// Takes the part of the last head's payload that is in `bytes`, instead of skipping it.
    pub fn payload<'a>(&mut self, bytes: &mut &'a [u8]) -> &'a [u8] {
        let (payload, rest) = bytes.split_at(self.skip.min(bytes.len()));
        self.skip -= payload.len();
        *bytes = rest;
        payload
    }

    /// Whether the last frame is whole and no other has begun.
    pub fn is_between_frames(&self) -> bool {
        self.have == 0 && self.skip == 0
    }
}

impl Default for Splitter {
    fn default() -> Splitter {
        Splitter::new()
    }
}

/// Whether a code follows the head. A frame that is too short for its code is left for hyper to refuse.
fn has_code(head: &[u8; HEAD_BYTES]) -> bool {
    let long_enough = |bytes: u8| head[0] > 0 || head[1] > 0 || head[2] >= bytes;
    match head[3] {
        RST_STREAM => long_enough(4),
        GOAWAY => long_enough(8),
        _ => false,
    }
}

fn parse(head: &[u8; HEAD_BYTES], code: u32) -> FrameHead {
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    // Without the first bit, because it is reserved.
    let stream = u32_at(head, 5) & 0x7fff_ffff;
    FrameHead { kind: head[3], flags: head[4], stream, length, code }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
/// Which stream matters more, as RFC 7540 had it.
pub const PRIORITY: u8 = 2;
/// The end of one stream by force.
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
/// A request that the server makes up: never ours, nor taken.
pub const PUSH_PROMISE: u8 = 5;
/// A question whether the other end lives, or the answer.
pub const PING: u8 = 6;
/// The end of the connection, announced.
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
/// More of the fields of the last frame.
pub const CONTINUATION: u8 = 9;
/// The flag of SETTINGS and PING that answer.
pub const ACK: u8 = 1;
/// The flag of a frame that ends its stream.
pub const END_STREAM: u8 = 1;
/// The flag of a frame after which no more fields follow.
pub const END_HEADERS: u8 = 4;
/// The flag of a frame with padding: its length comes first.
pub const PADDED: u8 = 8;
/// The flag of HEADERS that begin with a priority.
pub const HAS_PRIORITY: u8 = 0x20;

const HEAD_BYTES: usize = 9;
const RST_BYTES: usize = HEAD_BYTES + 4;
const GOAWAY_BYTES: usize = HEAD_BYTES + 8;
const PART_BYTES: usize = GOAWAY_BYTES;
const PREFACE_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Frames as bytes; payloads count up from 1, so that a code is known.
    fn wire(frames: &[(u8, u8, u32, usize)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(kind, flags, stream, length) in frames {
            bytes.extend(&(length as u32).to_be_bytes()[1..]);
            bytes.extend([kind, flags]);
            bytes.extend(stream.to_be_bytes());
            bytes.extend((1..=length).map(|byte| byte as u8));
        }
        bytes
    }

    fn heads(splitter: &mut Splitter, mut bytes: &[u8]) -> Vec<FrameHead> {
        std::iter::from_fn(|| splitter.next(&mut bytes)).collect()
    }

    #[test]
    fn heads_and_codes_are_read() {
        let bytes = wire(&[(DATA, 1, 0x8000_0003, 70_000), (RST_STREAM, 0, 5, 4), (GOAWAY, 0, 0, 12)]);
        let mut splitter = Splitter::new();
        let found = heads(&mut splitter, &bytes);
        let short: Vec<_> =
            found.iter().map(|head| (head.kind, head.stream, head.length, head.code)).collect();
        assert_eq!(
            short,
            [(DATA, 3, 70_000, 0), (RST_STREAM, 5, 4, 0x0102_0304), (GOAWAY, 0, 12, 0x0506_0708)]
        );
        assert!(splitter.is_between_frames());
    }

    #[test]
    fn a_frame_too_short_for_its_code_is_still_a_frame() {
        let bytes = wire(&[(RST_STREAM, 0, 1, 3), (GOAWAY, 0, 0, 0), (PING, 0, 0, 8)]);
        let kinds: Vec<_> = heads(&mut Splitter::new(), &bytes).iter().map(|head| head.kind).collect();
        assert_eq!(kinds, [RST_STREAM, GOAWAY, PING]);
    }

    proptest! {
        #[test]
        fn any_cut_finds_the_same_heads(
            frames in prop::collection::vec((0u8..12, any::<u8>(), any::<u32>(), 0usize..40), 0..20),
            cuts in prop::collection::vec(1usize..30, 1..40),
            preface: bool,
        ) {
            let mut bytes = if preface { vec![b'x'; PREFACE_BYTES] } else { Vec::new() };
            bytes.extend(wire(&frames));
            let begin = || if preface { Splitter::at_preface() } else { Splitter::new() };
            let whole = heads(&mut begin(), &bytes);
            prop_assert_eq!(whole.len(), frames.len());
            for (head, (kind, flags, stream, length)) in whole.iter().zip(&frames) {
                prop_assert_eq!((head.kind, head.flags), (*kind, *flags));
                prop_assert_eq!((head.stream, head.length as usize), (stream & 0x7fff_ffff, *length));
            }
            let mut splitter = begin();
            let mut cut = Vec::new();
            let mut rest = &bytes[..];
            for size in cuts.iter().cycle() {
                let (piece, left) = rest.split_at((*size).min(rest.len()));
                cut.extend(heads(&mut splitter, piece));
                rest = left;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(cut, whole);
            prop_assert!(splitter.is_between_frames());
        }
    }
}
