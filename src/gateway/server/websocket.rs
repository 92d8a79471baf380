//! Finds where WebSocket frames begin and end (RFC 6455 section 5.2), so that a frame of ours can go between two.
//! Payloads are not read and nothing is refused.

/// Follows the frames that pass one way.
#[derive(Debug, Default)]
pub struct Frames {
    head: [u8; HEAD_BYTES_MAX],
    head_len: usize,
    /// Bytes of the frame's payload that are still to come.
    left: u64,
    is_closed: bool,
}

impl Frames {
    /// Whether a frame has just ended and the next has not begun.
    pub fn is_between(&self) -> bool {
        self.head_len == 0 && self.left == 0
    }

    /// Whether a whole close frame has passed.
    pub fn is_closed(&self) -> bool {
        self.is_closed && self.is_between()
    }

    /// Follows `bytes` to the end of the frame that is under way; returns how many of them belong to it.
    pub fn pass_end(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.is_between() {
            at += self.step(&bytes[at..]);
        }
        at
    }

    pub fn follow(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            at += self.step(&bytes[at..]);
        }
    }

    /// Takes one byte of a head, or all that has come of a payload; returns how many bytes that was.
    fn step(&mut self, bytes: &[u8]) -> usize {
        if self.left > 0 {
            let count = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            self.left -= count as u64;
            return count;
        }
        self.head[self.head_len] = bytes[0];
        self.head_len += 1;
        if let Some(length) = self.length() {
            self.is_closed |= self.head[0] & OPCODE == CLOSE;
            (self.left, self.head_len) = (length, 0);
        }
        1
    }

    /// The length of the payload, once the head is whole.
    fn length(&self) -> Option<u64> {
        let head = &self.head[..self.head_len];
        let (short, is_masked) = (*head.get(1)? & LENGTH, head[1] & MASKED != 0);
        let length_bytes = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if head.len() < 2 + length_bytes + if is_masked { MASK_BYTES } else { 0 } {
            return None;
        }
        let long = head[2..2 + length_bytes].iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
        Some(if length_bytes == 0 { u64::from(short) } else { long })
    }
}

/// A close frame with status 1001, "going away" (RFC 6455 section 7.4.1). Not masked, as all frames of a server.
pub const GOING_AWAY: [u8; 4] = [0x88, 2, 0x03, 0xe9];

const HEAD_BYTES_MAX: usize = 2 + 8 + MASK_BYTES;
const MASK_BYTES: usize = 4;
const OPCODE: u8 = 0x0f;
const CLOSE: u8 = 8;
const LENGTH: u8 = 0x7f;
const MASKED: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, masked: bool, length: usize) -> Vec<u8> {
        let mask = if masked { MASKED } else { 0 };
        let mut frame = vec![0x80 | opcode];
        match length {
            0..126 => frame.push(mask | length as u8),
            126..65_536 => {
                frame.push(mask | 126);
                frame.extend_from_slice(&(length as u16).to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        // Bytes of mask and payload that look like the begin of a close frame.
        frame.extend(std::iter::repeat_n(0x88, length + if masked { MASK_BYTES } else { 0 }));
        frame
    }

    #[test]
    fn ends_of_frames_are_found_however_their_bytes_come() {
        for masked in [false, true] {
            let lengths = [0, 1, 125, 126, 65_535, 65_536, 70_000];
            let all: Vec<Vec<u8>> = lengths.iter().map(|length| frame(2, masked, *length)).collect();
            let bytes = all.concat();
            for step in [1, 2, 3, 7, 4096, bytes.len()] {
                let mut frames = Frames::default();
                let (mut ends, mut at) = (Vec::new(), 0);
                for piece in bytes.chunks(step) {
                    let mut rest = piece;
                    while !rest.is_empty() {
                        let first = usize::from(frames.is_between());
                        frames.follow(&rest[..first]);
                        let count = first + frames.pass_end(&rest[first..]);
                        at += count;
                        rest = &rest[count..];
                        if frames.is_between() {
                            ends.push(at);
                        }
                    }
                }
                let expected: Vec<usize> = all
                    .iter()
                    .scan(0, |sum, frame| {
                        *sum += frame.len();
                        Some(*sum)
                    })
                    .collect();
                assert_eq!(ends, expected, "masked {masked}, by {step}");
                assert!(!frames.is_closed());
            }
        }
    }

    #[test]
    fn a_close_frame_is_seen_once_it_is_whole() {
        let mut frames = Frames::default();
        let close = frame(8, true, 2);
        frames.follow(&frame(1, true, 300));
        frames.follow(&close[..close.len() - 1]);
        assert!(!frames.is_closed());
        frames.follow(&close[close.len() - 1..]);
        assert!(frames.is_closed());
    }
}
