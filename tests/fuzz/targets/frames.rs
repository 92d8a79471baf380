//! HTTP/2 frames while they pass: the same heads and counts however the bytes are cut, and never more than the budgets
//! allow.

#![no_main]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use net::wire::http2::{FrameHead, HyperRefusal, Meter, PeerSide, Splitter};

#[derive(Arbitrary, Debug)]
struct Input<'i> {
    is_client: bool,
    streams: u8,
    cuts: [u8; 4],
    turns: Vec<Turn<'i>>,
}

#[derive(Arbitrary, Debug)]
enum Turn<'i> {
    /// Frames of the peer, so many alike but for their streams, which go up by twos where that is asked for.
    Read {
        frame: Frame<'i>,
        times: u8,
        climbs: bool,
    },
    /// Anything at all.
    ReadBytes(&'i [u8]),
    /// Frames that we send.
    Wrote {
        frame: Frame<'i>,
        times: u8,
    },
    Accepted,
    Later {
        ms: u16,
    },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Frame<'i> {
    kind: u8,
    flags: u8,
    stream: u16,
    payload: &'i [u8],
}

impl Frame<'_> {
    fn write(&self, further: u32, out: &mut Vec<u8>) {
        let payload = &self.payload[..self.payload.len().min(64)];
        out.extend(&(payload.len() as u32).to_be_bytes()[1..]);
        // The kinds there are come more often than others.
        out.extend([if self.kind < 0xf0 { self.kind % 10 } else { self.kind }, self.flags]);
        out.extend((u32::from(self.stream) + further).to_be_bytes());
        out.extend(payload);
    }
}

fuzz_target!(|input: Input<'_>| {
    let mut now = Instant::now();
    let peer = if input.is_client { PeerSide::Client } else { PeerSide::Server };
    let meter = || Meter::new(peer, input.streams.into(), now);
    let (mut whole, mut cut) = (meter(), meter());
    // What has been read, where each turn's bytes ended and when.
    let (mut read, mut turns, mut wrote) = (Vec::new(), Vec::new(), 0);
    let mut fresh = Vec::new();
    if input.is_client {
        fresh.extend(PREFACE);
    } else {
        whole.wrote(PREFACE);
        cut.wrote(PREFACE);
    }
    // Without which nothing else is looked at.
    fresh.extend(SETTINGS);
    for turn in input.turns.iter().take(64) {
        match turn {
            Turn::Read { frame, times, climbs } => {
                for count in 0..u32::from(*times) {
                    frame.write(if *climbs { 2 * count } else { 0 }, &mut fresh);
                }
            }
            Turn::ReadBytes(bytes) => fresh.extend(*bytes),
            Turn::Wrote { frame, times } => {
                let mut bytes = Vec::new();
                (0..*times).for_each(|_| frame.write(0, &mut bytes));
                wrote += frames_max(&bytes);
                whole.wrote(&bytes);
                pieces(&bytes, &input.cuts).for_each(|piece| cut.wrote(piece));
            }
            Turn::Accepted => {
                whole.accepted();
                cut.accepted();
            }
            Turn::Later { ms } => now += Duration::from_millis((*ms).into()),
        }
        let passes = whole.read(&fresh, || now);
        pieces(&fresh, &input.cuts).for_each(|piece| _ = cut.read(piece, || now));
        assert_eq!(cut.excess(), passes.err());
        if passes.is_err() {
            assert_eq!(whole.read(&[], || now), passes, "once over, always over");
            break;
        }
        assert_eq!(told(&mut cut), told(&mut whole));
        read.append(&mut fresh);
        turns.push((read.len(), now));
    }
    let heads = by_the_letter(&read[PREFACE.len().min(read.len()) * usize::from(input.is_client)..]);
    let mut splitter = if input.is_client { Splitter::at_preface() } else { Splitter::new() };
    let mut found = Vec::new();
    pieces(&read, &input.cuts).for_each(|piece| found.extend(heads_of(&mut splitter, piece)));
    assert!(found.iter().eq(heads.iter().map(|(head, _)| head)));
    within_budgets(&heads, &turns, peer, input.streams.into(), 10 * wrote);
});

const PREFACE: &[u8] = &[b'P'; 24];
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Pieces of these lengths, over and over.
fn pieces<'b>(mut bytes: &'b [u8], cuts: &'b [u8; 4]) -> impl Iterator<Item = &'b [u8]> {
    let mut sizes = cuts.iter().cycle();
    std::iter::from_fn(move || {
        let size = sizes.next().map_or(1, |size| usize::from(*size).max(1));
        let (piece, rest) = bytes.split_at(size.min(bytes.len()));
        bytes = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

fn heads_of(splitter: &mut Splitter, mut bytes: &[u8]) -> Vec<FrameHead> {
    std::iter::from_fn(|| splitter.next(&mut bytes)).collect()
}

/// The heads of frames as RFC 9113 section 4.1 has them, with the codes of sections 6.4 and 6.8, and
/// how many bytes come behind each.
fn by_the_letter(mut bytes: &[u8]) -> Vec<(FrameHead, usize)> {
    let mut heads = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let code_at = match head[3] {
            3 if length >= 4 => Some(0),
            7 if length >= 8 => Some(4),
            _ => None,
        };
        let code = match code_at {
            None => 0,
            Some(at) => match rest.get(at..).and_then(|rest| rest.first_chunk()) {
                Some(code) => u32::from_be_bytes(*code),
                // It is told once its code has come.
                None => break,
            },
        };
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        let code_end = if code_at.is_some() { length.min(if head[3] == 3 { 4 } else { 8 }) } else { 0 };
        heads.push((
            FrameHead { kind: head[3], flags: head[4], stream, length, code },
            rest.len() - code_end as usize,
        ));
        bytes = rest.get(length as usize..).unwrap_or_default();
    }
    heads
}

/// All that a meter says of a connection.
fn told(meter: &mut Meter) -> (u64, u64, Option<u32>, (u64, bool), bool, Vec<HyperRefusal>) {
    let refused = std::iter::from_fn(|| meter.take_refused()).collect();
    let (taken_back, sent, goaway) = (meter.taken_back(), meter.data_sent(), meter.goaway_sent());
    (taken_back, sent, goaway, meter.head(), meter.may_interpose(), refused)
}

/// How many frames may end in these bytes, however they are read.
fn frames_max(bytes: &[u8]) -> u64 {
    bytes.len() as u64 / 9 + 1
}

/// Counts what has passed in another way: the heads of a stream, whose turns ended at these bytes and times.
fn within_budgets(
    heads: &[(FrameHead, usize)],
    turns: &[(usize, Instant)],
    peer: PeerSide,
    streams: u64,
    earned: u64,
) {
    let all = turns.last().map_or(0, |(end, _)| *end);
    let mut passed: HashMap<u8, Vec<Instant>> = HashMap::new();
    let mut turns = turns.iter().peekable();
    for (head, behind) in heads {
        while turns.next_if(|(end, _)| *end < all - behind).is_some() {}
        let at = turns.peek().expect("every head is of a turn").1;
        passed.entry(head.kind).or_default().push(at);
    }
    for (kind, times) in passed {
        let a_second = match kind {
            // Bodies, and the heads of clients, are the protocol's.
            0 | 9 => continue,
            1 if peer == PeerSide::Client => continue,
            3 => streams.max(100),
            4 => 50,
            8 => 100 + 2 * streams,
            _ => 100,
        };
        assert!(times.len() as u64 <= 10_000 + earned, "{} of {kind}", times.len());
        // One more than may pass within a second must take longer.
        let most = (2 * a_second + earned) as usize;
        for (first, last) in times.iter().zip(times.iter().skip(most)) {
            assert!(*last - *first >= Duration::from_secs(1), "more than {most} of {kind} in a second");
        }
    }
}
