//! A span of a server as OTLP has it (`opentelemetry.proto.trace.v1.Span`), written while it is told.

use std::num::{NonZeroU64, NonZeroU128};

use super::attribute::Attributes;
use super::context::RemoteSpan;
use super::message::Message;
use super::tracer::SampledSpan;

/// A finished span, as it waits and as it is sent.
#[derive(Clone, Debug)]
pub struct FinishedSpan(Message);

impl FinishedSpan {
    /// The span of a sampled request, from and to these nanoseconds since the Unix epoch.
    pub fn new(
        trace_id: NonZeroU128,
        sampled: &SampledSpan,
        name: &str,
        (start_ns, end_ns): (u64, u64),
    ) -> FinishedSpan {
        let mut message = Message::with_capacity(BYTES_USUAL);
        message.bytes(field::TRACE_ID, &trace_id.get().to_be_bytes());
        message.bytes(field::SPAN_ID, &sampled.span_id.get().to_be_bytes());
        message.bytes(field::TRACE_STATE, sampled.state.as_bytes());
        let mut flags = u32::from(sampled.flags);
        if let Some(parent) = &sampled.parent {
            message.bytes(field::PARENT_SPAN_ID, &id(parent.span_id));
            flags |= REMOTE_PARENT;
        }
        message.bytes(field::NAME, name.as_bytes());
        message.varint(field::KIND, KIND_SERVER);
        message.fixed64(field::START, start_ns);
        message.fixed64(field::END, end_ns);
        message.fixed32(field::FLAGS, flags);
        if let Some(link) = &sampled.link {
            message.message(field::LINKS, &linked(link));
        }
        FinishedSpan(message)
    }

    pub fn attributes(&mut self) -> Attributes<'_> {
        Attributes::of(&mut self.0, field::ATTRIBUTES)
    }

    /// Adds an event at this many nanoseconds since the Unix epoch, with the attributes that `add` adds.
    pub fn event(&mut self, name: &str, at_ns: u64, add: impl FnOnce(&mut Attributes<'_>)) {
        let mut event = Message::with_capacity(EVENT_BYTES_USUAL);
        event.fixed64(field::EVENT_TIME, at_ns);
        event.bytes(field::EVENT_NAME, name.as_bytes());
        add(&mut Attributes::of(&mut event, field::EVENT_ATTRIBUTES));
        self.0.message(field::EVENTS, &event);
    }

    /// It ended with an error of the server's.
    pub fn fail(&mut self) {
        let mut status = Message::default();
        status.varint(field::STATUS_CODE, STATUS_ERROR);
        self.0.message(field::STATUS, &status);
    }

    pub(super) fn message(&self) -> &Message {
        &self.0
    }
}

fn linked(remote: &RemoteSpan) -> Message {
    let mut link = Message::default();
    link.bytes(field::LINK_TRACE_ID, &remote.trace_id.get().to_be_bytes());
    link.bytes(field::LINK_SPAN_ID, &id(remote.span_id));
    link.fixed32(field::LINK_FLAGS, u32::from(remote.flags) | REMOTE_PARENT);
    link
}

fn id(number: NonZeroU64) -> [u8; 8] {
    number.get().to_be_bytes()
}

/// Numbers of fields, of `FinishedSpan` if not said otherwise.
mod field {
    pub(super) const TRACE_ID: u32 = 1;
    pub(super) const SPAN_ID: u32 = 2;
    pub(super) const TRACE_STATE: u32 = 3;
    pub(super) const PARENT_SPAN_ID: u32 = 4;
    pub(super) const NAME: u32 = 5;
    pub(super) const KIND: u32 = 6;
    pub(super) const START: u32 = 7;
    pub(super) const END: u32 = 8;
    pub(super) const ATTRIBUTES: u32 = 9;
    pub(super) const EVENTS: u32 = 11;
    pub(super) const LINKS: u32 = 13;
    pub(super) const STATUS: u32 = 15;
    pub(super) const FLAGS: u32 = 16;
    pub(super) const EVENT_TIME: u32 = 1;
    pub(super) const EVENT_NAME: u32 = 2;
    pub(super) const EVENT_ATTRIBUTES: u32 = 3;
    pub(super) const LINK_TRACE_ID: u32 = 1;
    pub(super) const LINK_SPAN_ID: u32 = 2;
    pub(super) const LINK_FLAGS: u32 = 6;
    pub(super) const STATUS_CODE: u32 = 3;
}

/// `SPAN_KIND_SERVER`.
const KIND_SERVER: u64 = 2;
/// `STATUS_CODE_ERROR`.
const STATUS_ERROR: u64 = 2;
/// It is known that the parent is another process (`SpanFlags`).
const REMOTE_PARENT: u32 = 0x300;
/// Most spans have room in it.
const BYTES_USUAL: usize = 1_536;
/// Most events have room in it.
const EVENT_BYTES_USUAL: usize = 128;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::trace::v1;
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    fn read(span: FinishedSpan) -> v1::Span {
        v1::Span::decode(span.0.into_bytes()).expect("a span")
    }

    fn remote(id: u64) -> RemoteSpan {
        let (trace_id, span_id) = (NonZeroU128::MIN, NonZeroU64::new(id).expect("not zero"));
        RemoteSpan { trace_id, span_id, flags: 1 }
    }

    fn sampled(parent: Option<RemoteSpan>, link: Option<RemoteSpan>) -> SampledSpan {
        SampledSpan { span_id: NonZeroU64::MAX, parent, link, state: "a=1".to_owned(), flags: 1 }
    }

    #[test]
    fn others_read_what_is_written() {
        let mut span =
            FinishedSpan::new(NonZeroU128::MAX, &sampled(Some(remote(7)), Some(remote(9))), "GET /", (5, 6));
        span.attributes().text("empty", b"");
        span.event("decide", 8, |attributes| attributes.number("took", 0));
        span.fail();
        let read = read(span);
        assert_eq!((read.trace_id, read.span_id), (vec![0xff; 16], vec![0xff; 8]));
        assert_eq!((&*read.name, &*read.trace_state, read.flags), ("GET /", "a=1", 0x301));
        assert_eq!((read.kind, read.start_time_unix_nano, read.end_time_unix_nano), (2, 5, 6));
        assert_eq!(read.parent_span_id, 7_u64.to_be_bytes());
        assert_eq!((&read.links[0].span_id[..], read.links[0].flags), (&9_u64.to_be_bytes()[..], 0x301));
        assert_eq!(read.status.expect("it failed").code, v1::status::StatusCode::Error as i32);
        let event = &read.events[0];
        assert_eq!((&*event.name, event.time_unix_nano, &*event.attributes[0].key), ("decide", 8, "took"));
        assert!(read.attributes.is_empty());
        let root = self::read(FinishedSpan::new(NonZeroU128::MIN, &sampled(None, None), "", (0, 0)));
        assert_eq!((root.flags, root.parent_span_id.len(), root.links.len(), root.status), (1, 0, 0, None));
    }

    proptest! {
        #[test]
        fn any_attribute_is_read_as_it_was(texts: Vec<(String, String)>, numbers: Vec<(String, u64)>) {
            let mut span = FinishedSpan::new(NonZeroU128::MIN, &sampled(None, None), "", (0, 0));
            let mut attributes = span.attributes();
            let mut expected = Vec::new();
            for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
                attributes.text(&key, text.as_bytes());
                expected.push((key, Value::StringValue(text)));
            }
            for (key, number) in numbers {
                attributes.number(&key, number);
                expected.push((key, Value::IntValue(i64::try_from(number).unwrap_or(i64::MAX))));
            }
            let read = read(span).attributes.into_iter();
            let read: Vec<_> = read.map(|it| (it.key, it.value.and_then(|it| it.value).expect("a value"))).collect();
            prop_assert_eq!(read, expected);
        }
    }
}
