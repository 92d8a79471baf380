//! Budgets, and what is told of requests nobody read, frame by frame.

use http::HeaderValue;
use proptest::prelude::*;

use super::*;
use crate::wire::http2::frame;

/// A meter behind the preface and its SETTINGS, which are not counted, and when it began.
fn meter() -> (Meter, Instant) {
    let began = Instant::now();
    let mut meter = Meter::new(PeerSide::Client, 100, began);
    assert_eq!(meter.read(&[0; 24], || began), Ok(()));
    meter.is_announced = true;
    (meter, began)
}

/// How many of these frames pass at one moment.
fn passing(meter: &mut Meter, bytes: &[u8], now: Instant, most: usize) -> usize {
    (0..most).take_while(|_| meter.read(bytes, || now).is_ok()).count()
}

#[test]
fn each_kind_has_its_budget_a_second() {
    for (kind, budget, excess) in [
        (PING, 100, Excess::Ping),
        (SETTINGS, 50, Excess::Settings),
        (PRIORITY, 100, Excess::Priority),
        (WINDOW_UPDATE, 300, Excess::WindowUpdate),
        (GOAWAY, 100, Excess::Other),
        (0x77, 100, Excess::Other),
    ] {
        let (mut meter, now) = meter();
        let bytes = frame(kind, 0, 0, &[0; 8]);
        assert_eq!(passing(&mut meter, &bytes, now, 1_000), budget, "{excess:?}");
        assert_eq!(meter.excess(), Some(excess));
        assert_eq!(meter.read(&[], || now), Err(excess), "once over, always over");
    }
}

#[test]
fn an_answer_is_looked_at_however_its_head_comes() {
    let answer = |frames: &[Vec<u8>], step: usize| {
        let began = Instant::now();
        let mut meter = Meter::new(PeerSide::Server, 100, began);
        let settings = frame(SETTINGS, 0, 0, &[]);
        let bytes = [&[settings][..], frames].concat().concat();
        let read = bytes.chunks(step).try_for_each(|piece| meter.read(piece, || began));
        (read.err(), meter.has_interim())
    };
    // Padded, with a priority, and in the plain.
    let path = frame(HEADERS, END_HEADERS | 0x28, 1, b"\x01\0\0\0\0\x10\x88\x84\0");
    let status = frame(HEADERS, 8, 1, b"\x02\x88\0\0");
    let path_behind = frame(CONTINUATION, END_HEADERS, 1, b"\x84");
    let interim = frame(HEADERS, END_HEADERS, 1, b"\x08\x03103");
    let plain = frame(HEADERS, END_HEADERS, 1, b"\x88\x5f\x01a");
    let empty = frame(CONTINUATION, 0, 1, &[]);
    // A status of gRPC under a name that came before.
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x7f\x00\x0213");
    let last = frame(CONTINUATION, END_HEADERS, 1, &[]);
    for step in [1, 7, 1_000] {
        assert_eq!(answer(std::slice::from_ref(&path), step), (Some(Excess::PseudoAnswer), false));
        let parts = [status.clone(), empty.clone(), path_behind.clone()];
        assert_eq!(answer(&parts, step), (Some(Excess::PseudoAnswer), false));
        assert_eq!(answer(&[interim.clone(), plain.clone()], step), (None, true));
        assert_eq!(answer(&[plain.clone(), plain.clone()], step), (None, false));
        assert_eq!(answer(&[plain.clone(), trailers.clone()], step), (None, false));
        let parts = [plain.clone(), frame(HEADERS, END_STREAM, 1, b"\x7f\x00\x0213"), last.clone()];
        assert_eq!(answer(&parts, step), (None, false));
    }
}

#[test]
fn a_second_later_there_is_a_new_budget_until_the_lifetime_s_is_used_up() {
    let (mut meter, mut now) = meter();
    let bytes = frame(PING, 0, 0, &[0; 8]);
    for _ in 0..100 {
        assert_eq!(passing(&mut meter, &bytes, now, 100), 100);
        now += SECOND;
    }
    assert_eq!(passing(&mut meter, &bytes, now, 100), 0);
    assert_eq!(meter.excess(), Some(Excess::Ping));
}

#[test]
fn what_is_sent_earns_the_peer_its_window_updates() {
    let (mut meter, now) = meter();
    let (update, data) = (frame(WINDOW_UPDATE, 0, 0, &[0; 4]), frame(DATA, 0, 1, &[0; 100]));
    for _ in 0..100_000 {
        meter.wrote(&data);
        assert_eq!(passing(&mut meter, &update, now, 10), 10);
    }
    assert_eq!(meter.data_sent(), 10_000_000);
    assert_eq!(passing(&mut meter, &update, now, 1_000), 300, "and not one more");
}

/// Opens a stream and has it read.
fn request(meter: &mut Meter, stream: u32, now: Instant) {
    assert_eq!(meter.read(&frame(HEADERS, 5, stream, b"x"), || now), Ok(()));
    meter.accepted();
}

fn reset(meter: &mut Meter, stream: u32, now: Instant) -> Result<(), Excess> {
    meter.read(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]), || now)
}

#[test]
fn requests_taken_back_have_a_budget_that_answers_fill_up() {
    let (mut meter, mut now) = meter();
    let mut stream = 1;
    let mut take_back = |meter: &mut Meter| {
        now += SECOND;
        request(meter, stream, now);
        stream += 2;
        reset(meter, stream - 2, now)
    };
    for _ in 0..100 {
        assert_eq!(take_back(&mut meter), Ok(()));
    }
    for stream in [10_001, 10_003] {
        meter.unanswered.push(stream);
        meter.wrote(&frame(HEADERS, 4, stream, b"x"));
    }
    assert_eq!(take_back(&mut meter), Ok(()), "two answers");
    assert_eq!(take_back(&mut meter), Err(Excess::RapidReset));
}

#[test]
fn an_answered_request_may_be_left() {
    let (mut meter, mut now) = meter();
    for stream in (1..2_000).step_by(2) {
        request(&mut meter, stream, now);
        meter.wrote(&frame(HEADERS, 4, stream, b"x"));
        assert_eq!(reset(&mut meter, stream, now), Ok(()));
        now += SECOND / 50;
    }
    assert_eq!(meter.taken_back, 0);
    assert_eq!((meter.unread.len(), meter.unanswered.len()), (0, 0));
}

#[test]
fn a_request_reset_before_it_is_read_keeps_its_turn() {
    let (mut meter, now) = meter();
    for stream in [1, 3] {
        assert_eq!(meter.read(&frame(HEADERS, 5, stream, b"x"), || now), Ok(()));
    }
    assert_eq!(reset(&mut meter, 1, now), Ok(()));
    meter.accepted();
    meter.accepted();
    assert_eq!(meter.unanswered, [3]);
}

#[test]
fn requests_refused_unread_are_reported_once() {
    let (mut meter, now) = meter();
    for stream in [1, 3, 5] {
        assert_eq!(meter.read(&frame(HEADERS, 5, stream, b"x"), || now), Ok(()));
    }
    meter.wrote(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 1]));
    meter.wrote(&frame(HEADERS, 5, 3, b"431"));
    meter.accepted();
    meter.wrote(&frame(HEADERS, 5, 5, b"204"));
    let told: Vec<_> = std::iter::from_fn(|| meter.take_refused()).collect();
    assert_eq!(told, [HyperRefusal::TooLarge, HyperRefusal::Reset(1)]);
    assert_eq!(meter.answered, 1);
}

#[test]
fn requests_refused_after_their_head_are_reported_by_their_reader() {
    let (mut meter, now) = meter();
    for stream in [1, 3] {
        assert_eq!(meter.read(&frame(HEADERS, 4, stream, b"x"), || now), Ok(()));
    }
    // One before it is read, one after.
    meter.wrote(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 1]));
    meter.accepted();
    meter.accepted();
    meter.wrote(&frame(RST_STREAM, 0, 3, &[0, 0, 0, 1]));
    assert_eq!((meter.take_refused(), meter.take_broken(), meter.take_broken()), (None, 2, 0));
    request(&mut meter, 5, now);
    meter.wrote(&frame(RST_STREAM, 0, 5, &[0, 0, 0, 8]));
    assert_eq!(meter.take_broken(), 0, "we wanted no more of it");
}

#[test]
fn an_answer_out_of_turn_leaves_nothing_behind() {
    let (mut meter, now) = meter();
    for stream in [1, 3] {
        assert_eq!(meter.read(&frame(HEADERS, 5, stream, b"x"), || now), Ok(()));
    }
    meter.accepted();
    meter.wrote(&frame(HEADERS, 4, 3, b"200"));
    meter.wrote(&frame(HEADERS, 4, 1, b"200"));
    assert_eq!((meter.answered, meter.take_refused()), (2, None));
    assert_eq!((meter.unread.len(), meter.unanswered.len()), (0, 0));
}

#[test]
fn requests_that_are_not_taken_are_bounded() {
    let (mut meter, now) = meter();
    let opened = (1..10_000)
        .step_by(2)
        .take_while(|stream| meter.read(&frame(HEADERS, 5, *stream, b"x"), || now).is_ok());
    assert_eq!(opened.count(), UNREAD_MAX);
}

#[test]
fn a_head_is_under_way_until_its_last_byte() {
    let now = Instant::now();
    let mut meter = Meter::new(PeerSide::Client, 100, now);
    assert_eq!(meter.head(), (0, true), "the preface");
    meter.is_announced = true;
    let mut pieces = |bytes: &[u8]| {
        assert_eq!(meter.read(bytes, || now), Ok(()));
        meter.head()
    };
    assert_eq!(pieces(&[0; 24]), (0, false));
    let whole = frame(HEADERS, 5, 1, b"xyz");
    assert_eq!(pieces(&whole[..10]), (1, true));
    assert_eq!(pieces(&whole[10..]), (1, false));
    assert_eq!(pieces(&frame(HEADERS, 1, 3, b"xyz")), (2, true));
    assert_eq!(pieces(&frame(CONTINUATION, 0, 3, b"xyz")), (2, true));
    assert_eq!(pieces(&frame(CONTINUATION, 4, 3, b"xyz")), (2, false));
    assert_eq!(pieces(&frame(DATA, 0, 1, b"xyz")[..10]), (2, false), "a body has its own deadline");
}

#[test]
fn trailers_with_a_pseudo_header_end_it_however_they_are_cut() {
    let bytes = frame(HEADERS, 5, 1, b"\x00\x01a\x01b\x42\x03200");
    for size in 1..bytes.len() {
        let (mut meter, now) = meter();
        request(&mut meter, 1, now);
        let read: Vec<_> = bytes.chunks(size).map(|piece| meter.read(piece, || now)).collect();
        assert_eq!(read.last(), Some(&Err(Excess::PseudoTrailers)), "{size}");
    }
}

#[test]
fn a_server_may_not_send_heads_without_end() {
    let now = Instant::now();
    let mut meter = Meter::new(PeerSide::Server, 100, now);
    meter.wrote(&[0; 24]);
    assert_eq!(meter.read(&frame(SETTINGS, 0, 0, &[]), || now), Ok(()));
    meter.wrote(&frame(HEADERS, 5, 1, b"x"));
    assert_eq!(passing(&mut meter, &frame(HEADERS, 4, 1, b"103"), now, 1_000), 110);
}

proptest! {
    #[test]
    fn any_cut_counts_the_same(
        frames in prop::collection::vec((0u8..12, any::<u8>(), 0u32..40, 0usize..30), 0..400),
        cuts in prop::collection::vec(1usize..60, 1..40),
    ) {
        let frames = frames.iter().map(|(kind, flags, stream, length)| {
            frame(*kind, *flags, *stream, &vec![*flags; *length])
        });
        let bytes: Vec<u8> = frames.flatten().collect();
        let counts = |meter: &Meter| {
            let ever: Vec<_> = meter.counts.iter().map(|count| count.ever).collect();
            (meter.excess, ever, meter.unread.len(), meter.taken_back, meter.head())
        };
        let (mut whole, now) = meter();
        let ended = whole.read(&bytes, || now);
        let (mut cut, _) = meter();
        let mut rest = &bytes[..];
        let mut size = cuts.iter().cycle();
        while !rest.is_empty() && cut.excess().is_none() {
            let (piece, left) = rest.split_at(size.next().map_or(1, |size| *size).min(rest.len()));
            let _ = cut.read(piece, || now);
            rest = left;
        }
        prop_assert_eq!(cut.excess(), ended.err());
        if ended.is_ok() {
            prop_assert_eq!(counts(&cut), counts(&whole));
        }
    }
}

#[test]
fn an_interim_answer_stands_between_frames_and_before_the_answer() {
    let (mut meter, now) = meter();
    let open = |meter: &mut Meter, stream| {
        assert_eq!(meter.read(&frame(HEADERS, 4, stream, b"x"), || now), Ok(()));
        meter.accepted().expect("it waits for an answer")
    };
    let first = open(&mut meter, 1);
    meter.say_continue(first);
    assert_eq!(meter.next_interim(), Some(frame(HEADERS, END_HEADERS, 1, b"\x08\x03100")));
    assert_eq!(meter.next_interim(), None);

    // Within a frame, between the frames of a head, behind the answer.
    meter.say_continue(first);
    let data = frame(DATA, 0, 5, b"four");
    meter.wrote(&data[..11]);
    assert_eq!(meter.next_interim(), None);
    meter.wrote(&data[11..]);
    meter.wrote(&frame(HEADERS, 0, 1, b"x"));
    assert_eq!(meter.next_interim(), None);
    meter.wrote(&frame(CONTINUATION, END_HEADERS, 1, b"x"));
    assert_eq!(meter.next_interim(), None, "it is answered");

    let second = open(&mut meter, 3);
    meter.say_continue(second);
    reset(&mut meter, 3, now).expect("one is within its budget");
    assert_eq!(meter.next_interim(), None, "it is taken back");
}

#[test]
fn hints_are_literals_in_no_table_and_bounded() {
    let (mut meter, now) = meter();
    assert_eq!(meter.read(&frame(HEADERS, 4, 1, b"x"), || now), Ok(()));
    let stream = meter.accepted().expect("it waits for an answer");
    let hints = |bytes: usize| {
        let value = HeaderValue::from_str(&"v".repeat(bytes)).expect("a value");
        HeaderMap::from_iter([(http::header::LINK, value)])
    };
    for (bytes, length) in
        [(1, &b"\x01"[..]), (126, b"\x7e"), (127, b"\x7f\x00"), (254, b"\x7f\x7f"), (255, b"\x7f\x80\x01")]
    {
        meter.give_hints(stream, &hints(bytes));
        let block = [b"\x08\x03103\x00\x04link", length, &vec![b'v'; bytes]].concat();
        assert_eq!(meter.next_interim(), Some(frame(HEADERS, END_HEADERS, 1, &block)), "{bytes}");
    }
    meter.give_hints(stream, &hints(HINTS_BYTES_MAX));
    assert_eq!(meter.next_interim(), None, "they are long");
    for _ in 0..2 * INTERIMS_MAX {
        meter.give_hints(stream, &hints(1));
    }
    assert_eq!(std::iter::from_fn(|| meter.next_interim()).count(), INTERIMS_MAX);
}

#[test]
fn a_smaller_table_of_fields_is_acknowledged_by_a_head_before_any_interim_answer() {
    for (bytes, is_sent) in [(4_096u32, true), (65_536, true), (4_095, false), (0, false)] {
        let (mut meter, now) = meter();
        let settings = [&[0, 1][..], &bytes.to_be_bytes()].concat();
        assert_eq!(meter.read(&frame(SETTINGS, 0, 0, &settings), || now), Ok(()));
        for stream in [1, 3] {
            assert_eq!(meter.read(&frame(HEADERS, 4, stream, b"x"), || now), Ok(()));
            let waits = meter.accepted().expect("it waits for an answer");
            meter.say_continue(waits);
            assert_eq!(meter.next_interim().is_some(), is_sent || stream == 3, "{bytes} {stream}");
            meter.wrote(&frame(HEADERS, END_HEADERS, stream, b"x"));
        }
    }
}

#[test]
fn an_answer_is_unended_from_its_head_until_its_end_or_a_reset() {
    let (mut meter, now) = meter();
    for stream in [1, 3, 5, 7, 9, 11] {
        assert_eq!(meter.read(&frame(HEADERS, 4, stream, b"x"), || now), Ok(()));
        assert!(meter.accepted().is_some());
    }
    let reset = |meter: &mut Meter, stream| meter.read(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]), || now);
    assert_eq!(reset(&mut meter, 11), Ok(()));
    assert_eq!((meter.unanswered(), meter.unended()), (5, 0));
    meter.wrote(&frame(HEADERS, END_HEADERS | END_STREAM, 1, b"x"));
    assert_eq!((meter.unanswered(), meter.unended()), (4, 0), "it has no body");
    for stream in [3, 5, 7, 9] {
        meter.wrote(&frame(HEADERS, END_HEADERS, stream, b"x"));
        meter.wrote(&frame(DATA, 0, stream, b"body"));
    }
    // Its head was on its way when the client took it back.
    meter.wrote(&frame(HEADERS, END_HEADERS, 11, b"x"));
    assert_eq!((meter.unanswered(), meter.unended()), (0, 4));
    meter.wrote(&frame(DATA, END_STREAM, 3, b""));
    meter.wrote(&frame(HEADERS, END_HEADERS | END_STREAM, 5, b"trailers"));
    meter.wrote(&frame(RST_STREAM, 0, 7, &[0, 0, 0, 2]));
    assert_eq!(meter.unended(), 1);
    assert_eq!(reset(&mut meter, 9), Ok(()));
    assert_eq!(meter.unended(), 0);
}
