//! `traceparent` as W3C Trace Context (level 1 and 2) writes it: `00-<trace id>-<parent id>-<flags>`, all of them small
//! hexadecimal digits.

use std::num::{NonZeroU64, NonZeroU128};

use http::{HeaderName, HeaderValue};

use base::hex::{self, HexNumber};

/// The ids of a trace and of this gateway's span in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceIds {
    pub trace_id: NonZeroU128,
    /// Its digits, made once, because they are sent and logged with every request.
    pub digits: [u8; 32],
    /// The id of the span; `None` if none is sent to the collector.
    pub span_id: Option<NonZeroU64>,
}

impl TraceIds {
    /// `None` without a trace: zero is no id.
    pub fn new(trace_id: u128, span_id: u64) -> Option<TraceIds> {
        Some(TraceIds::of(NonZeroU128::new(trace_id)?, NonZeroU64::new(span_id)))
    }

    pub(super) fn of(trace_id: NonZeroU128, span_id: Option<NonZeroU64>) -> TraceIds {
        TraceIds { trace_id, digits: HexNumber::of(trace_id.get()).digits, span_id }
    }

    /// Those of a trace whose digits have been made; zero is no id.
    pub(super) fn known(id: HexNumber, span_id: Option<NonZeroU64>) -> TraceIds {
        match NonZeroU128::new(id.number) {
            Some(trace_id) => TraceIds { trace_id, digits: id.digits, span_id },
            None => TraceIds::of(NonZeroU128::MIN, span_id),
        }
    }

    /// The value of the field that tells who comes next of a span in this trace.
    pub(super) fn traceparent(&self, span: NextSpan) -> [u8; TRACEPARENT_BYTES] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        text[3..35].copy_from_slice(&self.digits);
        match span.span_id {
            Some(id) => text[36..52].copy_from_slice(&hex::digits(id.get())),
            None => text[36..52].copy_from_slice(&self.digits[16..]),
        }
        // A digit, because known flags are less than ten.
        text[54] += span.flags & KNOWN_FLAGS;
        text
    }
}

/// The span that who comes next is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextSpan {
    /// `None`: a span that nobody records. It has the last digits of its trace, which are no zero.
    pub(super) span_id: Option<NonZeroU64>,
    pub(super) flags: u8,
}

/// The span that a request's sender is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSpan {
    pub trace_id: NonZeroU128,
    pub span_id: NonZeroU64,
    /// Its flags, as far as they are known.
    pub flags: u8,
}

impl RemoteSpan {
    /// What the lines of the field say. `None`: nothing valid (section 4.3: it is as if it were not there).
    pub(super) fn of<'v>(mut lines: impl Iterator<Item = &'v HeaderValue>) -> Option<RemoteSpan> {
        let line = lines.next()?;
        if lines.next().is_some() {
            return None;
        }
        RemoteSpan::parse(line.as_bytes())
    }

    fn parse(text: &[u8]) -> Option<RemoteSpan> {
        let (known, rest) = text.split_at_checked(TRACEPARENT_BYTES)?;
        if [known[2], known[35], known[52]] != [b'-'; 3] {
            return None;
        }
        let version = digits(&known[..2])? as u8;
        // Only a later version may be longer, because it may append fields.
        let is_whole = rest.is_empty() || version > 0 && rest[0] == b'-';
        if version == INVALID_VERSION || !is_whole {
            return None;
        }
        Some(RemoteSpan {
            trace_id: NonZeroU128::new(digits(&known[3..35])?)?,
            span_id: NonZeroU64::new(digits(&known[36..52])? as u64)?,
            flags: digits(&known[53..55])? as u8 & KNOWN_FLAGS,
        })
    }

    /// Whether its sender records its span.
    pub fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }
}

/// The number that small hexadecimal digits are; large ones are not allowed (section 3.2.2).
fn digits(text: &[u8]) -> Option<u128> {
    text.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

/// The field that names the sender's span.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What tracing systems tell each other beside it.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// The sender may have recorded its span.
pub const SAMPLED: u8 = 1;
/// The trace's id is random (level 2).
const RANDOM: u8 = 2;
const KNOWN_FLAGS: u8 = SAMPLED | RANDOM;
const INVALID_VERSION: u8 = 0xff;
pub const TRACEPARENT_BYTES: usize = 55;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// What who comes next is told if the gateway's span is this one.
    fn written(RemoteSpan { trace_id, span_id, flags }: RemoteSpan) -> [u8; TRACEPARENT_BYTES] {
        TraceIds::of(trace_id, None).traceparent(NextSpan { span_id: Some(span_id), flags })
    }

    fn parsed(text: &str) -> Option<RemoteSpan> {
        RemoteSpan::parse(text.as_bytes())
    }

    #[test]
    fn a_valid_one_is_read_and_written_back() {
        let remote = parsed(VALID).expect("valid");
        assert_eq!(remote.trace_id.get(), 0x0af7651916cd43dd8448eb211c80319c);
        assert_eq!(remote.span_id.get(), 0xb7ad6b7169203331);
        assert!(remote.is_sampled());
        assert_eq!(written(remote), VALID.as_bytes());
        assert_eq!(parsed(&VALID.replace("-01", "-03")).expect("valid").flags, 3);
        assert_eq!(
            parsed(&VALID.replace("-01", "-fe")).expect("valid").flags,
            2,
            "unknown flags are not passed on"
        );
    }

    #[test]
    fn later_versions_are_read_as_far_as_this_one_goes() {
        for later in ["01-", "cc-", "fe-"] {
            let text = VALID.replacen("00-", later, 1);
            assert_eq!(parsed(&text), parsed(VALID));
            assert_eq!(parsed(&format!("{text}-more")), parsed(VALID));
            assert_eq!(parsed(&format!("{text}more")), None);
        }
    }

    #[test]
    fn what_is_invalid_is_not_there() {
        let zero_trace = VALID.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32));
        let zero_span = VALID.replace("b7ad6b7169203331", &"0".repeat(16));
        let wrong = [
            "",
            "00",
            &VALID[..54],
            &format!("{VALID}-"),
            &format!("{VALID}-00"),
            &format!(" {VALID}"),
            &VALID.to_uppercase(),
            &VALID.replacen("00-", "ff-", 1),
            &VALID.replacen("00-", "0g-", 1),
            &VALID.replace('-', "_"),
            &VALID.replace("-01", "-0x"),
            &zero_trace,
            &zero_span,
        ];
        for text in wrong {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn two_fields_are_none() {
        let line = HeaderValue::from_static(VALID);
        assert_eq!(RemoteSpan::of([&line].into_iter()), parsed(VALID));
        assert_eq!(RemoteSpan::of([&line, &line].into_iter()), None);
        assert_eq!(RemoteSpan::of([].into_iter()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = RemoteSpan::parse(&bytes);
        }

        #[test]
        fn what_is_written_is_read(trace_id in 1u128.., span_id in 1u64.., flags in 0u8..4) {
            let remote = RemoteSpan {
                trace_id: NonZeroU128::new(trace_id).expect("not zero"),
                span_id: NonZeroU64::new(span_id).expect("not zero"),
                flags,
            };
            prop_assert_eq!(RemoteSpan::parse(&written(remote)), Some(remote));
        }
    }
}
