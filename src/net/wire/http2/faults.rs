//! Finds which rule a peer has broken, for the error code of the GOAWAY.
//!
//! hyper detects faults and ends the connection, but sends PROTOCOL_ERROR for nearly all of them. The heads of frames
//! distinguish more: a length that a frame type cannot have, DATA on a stream that has ended. A wrong guess costs only
//! a wrong error code, because nothing is refused here. A fault in HPACK stays PROTOCOL_ERROR, because fields are not
//! decoded (RFC 9113 section 4.3 has COMPRESSION_ERROR for it).

use super::splitter::{
    ACK, CONTINUATION, DATA, END_HEADERS, FrameHead, GOAWAY, HEADERS, PADDED, PING, PRIORITY, PUSH_PROMISE,
    RST_STREAM, SETTINGS, WINDOW_UPDATE,
};

/// Watches the frames of one peer for the first that breaks a rule.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// What would be wrong with the last frame if hyper refuses it now. Once a fault is certain, it stays.
    code: u8,
    is_certain: bool,
    /// The highest stream opened; those above it are idle.
    last: u32,
    /// The stream whose fields continue in the next frame; 0 if none.
    continued: u32,
}

impl Faults {
    pub fn new() -> Faults {
        Faults { code: PROTOCOL_ERROR, is_certain: false, last: 0, continued: 0 }
    }

    /// The code of a GOAWAY because of what has come so far (RFC 9113 section 7).
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Looks at the next frame of the peer.
    pub fn see(&mut self, head: &FrameHead) {
        if self.is_certain {
            return;
        }
        match self.broken(head) {
            Some(code) => self.is_certain_of(code),
            // Not if it is padded, because more padding than payload is another fault, which the head does not show.
            None if head.kind == DATA && head.flags & PADDED == 0 => self.code = STREAM_CLOSED,
            None if may_be_refused(head) => self.code = PROTOCOL_ERROR,
            None => {}
        }
        if let HEADERS | CONTINUATION = head.kind {
            self.continued = if head.flags & END_HEADERS == 0 { head.stream } else { 0 };
            self.open(head.stream);
        }
    }

    /// This stream is open, and all with lower numbers have been.
    pub fn open(&mut self, stream: u32) {
        self.last = self.last.max(stream);
    }

    /// Looks at the whole payload of SETTINGS (RFC 9113 section 6.5.2).
    pub fn see_settings(&mut self, payload: &[u8]) {
        let is_too_large =
            |parameter: &[u8]| parameter.starts_with(&INITIAL_WINDOW_SIZE) && parameter[2] >= 0x80;
        if !self.is_certain && payload.chunks_exact(6).any(is_too_large) {
            self.is_certain_of(FLOW_CONTROL_ERROR);
        }
    }

    fn is_certain_of(&mut self, code: u8) {
        (self.code, self.is_certain) = (code, true);
    }

    /// The code of the rule that the head alone breaks (RFC 9113 sections 4.2, 5.1 and 6).
    fn broken(&self, head: &FrameHead) -> Option<u8> {
        let FrameHead { kind, stream, length, .. } = *head;
        // Even streams are a server's pushes, which do not exist here.
        let (is_idle, is_even) = (stream > self.last, stream.is_multiple_of(2));
        let (is_misplaced, is_missized) = match kind {
            _ if self.continued != 0 => (kind != CONTINUATION || stream != self.continued, false),
            CONTINUATION => (true, false),
            DATA => (is_even || is_idle, false),
            HEADERS => (is_even, false),
            PRIORITY => (stream == 0, length != 5),
            RST_STREAM => (is_even || is_idle, length != 4),
            SETTINGS if head.flags & ACK != 0 => (stream != 0, length != 0),
            SETTINGS => (stream != 0, !length.is_multiple_of(6)),
            PUSH_PROMISE => (true, false),
            PING => (stream != 0, length != 8),
            GOAWAY => (stream != 0, length < 8),
            WINDOW_UPDATE => (is_idle || is_even && stream != 0, length != 4),
            _ => (false, false),
        };
        match (is_misplaced, is_missized) {
            (true, _) => Some(PROTOCOL_ERROR),
            (false, true) => Some(FRAME_SIZE_ERROR),
            (false, false) => None,
        }
    }
}

/// Whether hyper may refuse a frame whose head is valid.
fn may_be_refused(head: &FrameHead) -> bool {
    match head.kind {
        SETTINGS => head.flags & ACK == 0,
        kind => matches!(kind, DATA | HEADERS | CONTINUATION | WINDOW_UPDATE),
    }
}

/// RFC 9113 section 6.5.2.
const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
/// RFC 9113 section 7.
pub const PROTOCOL_ERROR: u8 = 1;
pub(super) const FLOW_CONTROL_ERROR: u8 = 3;
pub(super) const STREAM_CLOSED: u8 = 5;
pub(super) const FRAME_SIZE_ERROR: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: u8 = END_HEADERS | 1;

    /// The code after these frames of a client: kind, flags, stream, length.
    fn code(frames: &[(u8, u8, u32, u32)]) -> u8 {
        let mut faults = Faults::new();
        for &(kind, flags, stream, length) in frames {
            faults.see(&FrameHead { kind, flags, stream, length, code: 0 });
        }
        faults.code()
    }

    #[test]
    fn a_length_that_a_kind_cannot_have_is_named() {
        for frame in [
            (PRIORITY, 0, 1, 4),
            (RST_STREAM, 0, 1, 3),
            (SETTINGS, 0, 0, 3),
            (SETTINGS, ACK, 0, 6),
            (PING, 0, 0, 6),
            (GOAWAY, 0, 0, 7),
            (WINDOW_UPDATE, 0, 0, 3),
        ] {
            assert_eq!(code(&[(HEADERS, WHOLE, 1, 10), frame]), FRAME_SIZE_ERROR, "{frame:?}");
            let followed = [(HEADERS, WHOLE, 1, 10), frame, (HEADERS, WHOLE, 3, 10)];
            assert_eq!(code(&followed), FRAME_SIZE_ERROR, "{frame:?}");
        }
    }

    #[test]
    fn a_place_where_a_frame_cannot_be_is_a_protocol_error() {
        for frame in [
            (DATA, 0, 0, 1),
            (DATA, 0, 3, 1),
            (DATA, 0, 2, 1),
            (HEADERS, WHOLE, 0, 1),
            (HEADERS, WHOLE, 2, 1),
            (PRIORITY, 0, 0, 5),
            (RST_STREAM, 0, 3, 4),
            (SETTINGS, 0, 1, 6),
            (PUSH_PROMISE, 0, 1, 9),
            (PING, 0, 1, 8),
            (GOAWAY, 0, 1, 8),
            (WINDOW_UPDATE, 0, 3, 4),
            (CONTINUATION, END_HEADERS, 1, 4),
        ] {
            let followed = [(HEADERS, WHOLE, 1, 10), frame, (HEADERS, WHOLE, 3, 10)];
            assert_eq!(code(&followed), PROTOCOL_ERROR, "{frame:?}");
        }
        let begun = (HEADERS, 0, 1, 10);
        for frame in [(PRIORITY, 0, 1, 5), (CONTINUATION, 0, 3, 5), (0x77, 0, 1, 5), (HEADERS, WHOLE, 3, 5)] {
            assert_eq!(code(&[begun, frame, (HEADERS, WHOLE, 3, 1)]), PROTOCOL_ERROR, "{frame:?}");
        }
    }

    #[test]
    fn data_that_is_refused_comes_behind_the_end() {
        let whole = (HEADERS, WHOLE, 1, 10);
        assert_eq!(code(&[whole, (DATA, 0, 1, 10)]), STREAM_CLOSED);
        let followed = [whole, (DATA, 0, 1, 10), (SETTINGS, ACK, 0, 0), (PING, 0, 0, 8), (0x77, 0, 0, 1)];
        assert_eq!(code(&followed), STREAM_CLOSED);
        assert_eq!(code(&[whole, (DATA, PADDED, 1, 10)]), PROTOCOL_ERROR);
    }

    #[test]
    fn of_what_no_head_shows_no_more_is_said() {
        for frames in [
            &[(HEADERS, WHOLE, 1, 10)][..],
            &[(HEADERS, 0, 1, 10), (CONTINUATION, END_HEADERS, 1, 1)],
            &[(HEADERS, WHOLE, 1, 10), (DATA, 0, 1, 10), (HEADERS, WHOLE, 1, 10)],
            &[(HEADERS, WHOLE, 5, 10), (HEADERS, WHOLE, 3, 10)],
            &[(WINDOW_UPDATE, 0, 0, 4)],
        ] {
            assert_eq!(code(frames), PROTOCOL_ERROR, "{frames:?}");
        }
    }

    #[test]
    fn a_window_above_the_largest_is_a_flow_control_error() {
        let mut faults = Faults::new();
        faults.see_settings(b"\0\x04\x7f\xff\xff\xff\0\x03\xff\xff\xff\xff");
        assert_eq!(faults.code(), PROTOCOL_ERROR);
        faults.see_settings(b"\0\x03\0\0\0\x01\0\x04\x80\0\0\0");
        faults.see(&FrameHead { kind: PING, flags: 0, stream: 0, length: 6, code: 0 });
        assert_eq!(faults.code(), FLOW_CONTROL_ERROR, "the first counts");
    }
}
