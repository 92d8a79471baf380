//! The table handed over to another process: a new binary that takes this one's place goes on with what every key has
//! spent, so that an upgrade is no fresh burst.
//!
//! Slots go over as they lie, because a slot does not hold its whole key: the successor's table has the same size. What is
//! in flight stays here, because those requests end in this process, and nobody would give the permits back over there.
//! Numbers are little-endian.

use std::io::{self, Read, Write};
use std::num::NonZeroU64;

use super::Table;
use super::quotas::KnownQuotas;
use super::slots::{STATE, fingerprint_of, low_bits_of};
use limit::penalty::Record;
use limit::{Algorithm, Calendar, CalendarUnit, Key, Log, Quota, State, Zone};

/// The way states are written. A successor that reads another begins anew.
pub const FORMAT: u32 = 3;

/// Why a table was not handed over whole.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The other process went away, or took too long.
    #[error("the table was not received completely: {0}")]
    Io(#[from] io::Error),
    /// The two tables cannot be compared slot by slot.
    #[error("the table has {here} slots, and the old process's has {there}")]
    Size {
        /// Slots of this one.
        here: u64,
        /// Slots of the other.
        there: u64,
    },
    /// A number that no quota has.
    #[error("the old process's table has an invalid quota")]
    Quota,
}

impl Table {
    /// Writes every state, for [`Table::read_states`] of a successor. Decisions go on meanwhile: a state is as it was when
    /// it was written. Returns how many keys there were.
    ///
    /// # Errors
    /// If `out` takes no more.
    pub fn write_states(&self, out: &mut impl Write) -> Result<u64, HandoverError> {
        let known = self.quotas.known();
        let quotas = known.all();
        put(out, self.slots.len() as u64)?;
        put(out, quotas.len() as u64)?;
        quotas.iter().try_for_each(|quota| write_quota(out, quota))?;
        let mut keys = 0;
        for (number, mut words) in self.slots.occupied() {
            if counts_permits(&known, fingerprint_of(&words)) {
                words[STATE..].fill(0);
            }
            put(out, number as u64)?;
            words.iter().try_for_each(|word| put(out, *word))?;
            keys += 1;
        }
        put(out, END)?;
        let overflow = self.quotas.overflow().clone();
        let overflow: Vec<_> =
            overflow.into_iter().filter(|(fingerprint, _)| !counts_permits(&known, *fingerprint)).collect();
        put(out, overflow.len() as u64)?;
        for (fingerprint, State(words)) in overflow {
            put(out, u64::from(fingerprint))?;
            words.iter().try_for_each(|word| put(out, *word))?;
        }
        for (key, fingerprint, log) in self.logs.each() {
            keys += 1;
            put(out, u64::from(fingerprint))?;
            put_key(out, key)?;
            put_log(out, &log)?;
        }
        put(out, END)?;
        let overflow = self.logs.overflow().clone();
        put(out, overflow.len() as u64)?;
        for (fingerprint, log) in &overflow {
            put(out, u64::from(*fingerprint))?;
            put_log(out, log)?;
        }
        out.flush()?;
        Ok(keys)
    }

    /// Takes over what a predecessor wrote, before anything is decided here. Returns how many keys there were.
    ///
    /// # Errors
    /// If it ends early, or is of a table of another size. What came until then is kept.
    pub fn read_states(&self, input: &mut impl Read) -> Result<u64, HandoverError> {
        let (here, there) = (self.slots.len() as u64, get(input)?);
        if here != there {
            return Err(HandoverError::Size { here, there });
        }
        let count = get(input)?;
        let quotas = (0..count).map(|_| read_quota(input)).collect::<Result<Vec<Quota>, HandoverError>>()?;
        self.declare_more(quotas);
        let mut keys = 0;
        while let Some(number) = get_unless_end(input)? {
            let words = [get(input)?, get(input)?, get(input)?, get(input)?];
            if !self.slots.fill(usize::try_from(number).unwrap_or(usize::MAX), words) {
                continue;
            }
            keys += 1;
            if fingerprint_of(&words) == Quota::NO_FINGERPRINT {
                let record = Record::from_words([words[STATE], words[STATE + 1]]);
                // Counted from the clock's origin, it is when the penalty ends.
                self.penalised.note(low_bits_of(&words), record.wait_ns(0));
            }
        }
        let count = get(input)?;
        for _ in 0..count {
            let (fingerprint, state) = (get(input)? as u32, State([get(input)?, get(input)?]));
            self.quotas.overflow().entry(fingerprint).or_insert(state);
        }
        while let Some(fingerprint) = get_unless_end(input)? {
            let key = get_key(input)?;
            self.logs.fill(key, fingerprint as u32, get_log(input)?);
            keys += 1;
        }
        let count = get(input)?;
        for _ in 0..count {
            let (fingerprint, log) = (get(input)? as u32, get_log(input)?);
            self.logs.overflow().entry(fingerprint).or_insert(log);
        }
        Ok(keys)
    }
}

fn counts_permits(known: &KnownQuotas<'_>, fingerprint: u32) -> bool {
    known.get(fingerprint).is_some_and(|quota| quota.algorithm() == Algorithm::Concurrency)
}

pub(super) fn write_quota(out: &mut impl Write, quota: &Quota) -> io::Result<()> {
    let calendar = quota.calendar();
    out.write_all(&[quota.algorithm().number() | calendar.map_or(0, |_| OF_CALENDAR)])?;
    let numbers = [quota.limit(), quota.period_ns(), quota.burst()];
    numbers.iter().try_for_each(|number| put(out, number.get()))?;
    calendar.map_or(Ok(()), |calendar| write_calendar(out, calendar))
}

pub(super) fn read_quota(input: &mut impl Read) -> Result<Quota, HandoverError> {
    let mut number = [0];
    input.read_exact(&mut number)?;
    let mut positive =
        || -> Result<NonZeroU64, HandoverError> { NonZeroU64::new(get(input)?).ok_or(HandoverError::Quota) };
    let (limit, period_ns, burst) = (positive()?, positive()?, positive()?);
    let algorithm = Algorithm::of_number(number[0] & !OF_CALENDAR).ok_or(HandoverError::Quota)?;
    let quota = Quota::new(algorithm, limit, period_ns, burst);
    match number[0] & OF_CALENDAR {
        0 => Ok(quota),
        _ => Ok(quota.on_calendar(read_calendar(input)?)),
    }
}

/// Its unit, its zone with all offsets, when its clock reads 0, and the day on which months begin.
fn write_calendar(out: &mut impl Write, calendar: &Calendar) -> io::Result<()> {
    let (unit, zone) = (calendar.unit().word(), calendar.zone());
    for text in [unit, zone.name()] {
        put(out, text.len() as u64)?;
        out.write_all(text.as_bytes())?;
    }
    put(out, zone.offsets().len() as u64)?;
    for (from_s, offset_s) in zone.offsets() {
        put(out, from_s.cast_unsigned())?;
        put(out, offset_s.cast_unsigned())?;
    }
    put(out, calendar.origin_s())?;
    put(out, calendar.anchor().into())
}

fn read_calendar(input: &mut impl Read) -> Result<&'static Calendar, HandoverError> {
    let mut text = || -> Result<String, HandoverError> {
        let length = get(input)?;
        let mut text = Vec::new();
        Read::by_ref(input).take(length.min(NAME_MAX)).read_to_end(&mut text)?;
        String::from_utf8(text).map_err(|_| HandoverError::Quota)
    };
    let unit = CalendarUnit::of_word(&text()?).ok_or(HandoverError::Quota)?;
    let name = text()?;
    let offsets = (0..get(input)?).map(|_| Ok((get(input)?.cast_signed(), get(input)?.cast_signed())));
    let zone = Zone::new(&name, offsets.collect::<io::Result<Vec<_>>>()?);
    let calendar = Calendar::new(unit, zone, get(input)?);
    Ok(calendar.anchored(u8::try_from(get(input)?).map_err(|_| HandoverError::Quota)?))
}

fn put_log(out: &mut impl Write, log: &Log) -> io::Result<()> {
    put(out, log.times_ns().len() as u64)?;
    log.times_ns().try_for_each(|time_ns| put(out, time_ns))
}

fn get_log(input: &mut impl Read) -> io::Result<Log> {
    let count = get(input)?;
    let times_ns = (0..count).map(|_| get(input)).collect::<io::Result<Vec<u64>>>()?;
    Ok(Log::of_times(times_ns))
}

pub(super) fn put_key(out: &mut impl Write, key: Key) -> io::Result<()> {
    put(out, key.high())?;
    put(out, key.low())
}

pub(super) fn get_key(input: &mut impl Read) -> io::Result<Key> {
    Ok(Key::new(u128::from(get(input)?) << 64 | u128::from(get(input)?)))
}

pub(super) fn put(out: &mut impl Write, word: u64) -> io::Result<()> {
    out.write_all(&word.to_le_bytes())
}

pub(super) fn get(input: &mut impl Read) -> io::Result<u64> {
    let mut word = [0; 8];
    input.read_exact(&mut word)?;
    Ok(u64::from_le_bytes(word))
}

fn get_unless_end(input: &mut impl Read) -> io::Result<Option<u64>> {
    get(input).map(|word| (word != END).then_some(word))
}

/// Added to the number of an algorithm, so that a calendar can follow the quota.
const OF_CALENDAR: u8 = 128;
/// The longest name of a unit or a zone.
const NAME_MAX: u64 = 256;
/// No slot and no fingerprint has this number.
const END: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;
    use limit::{Charge, Penalty};

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 7_200 * SECOND;

    fn charge(algorithm: Algorithm, number: u64, cost: u64) -> Charge {
        let whole = |number| NonZeroU64::new(number).expect("tests give no zero");
        let quota = Quota::new(algorithm, whole(10), whole(3_600 * SECOND), whole(10));
        let word = number.wrapping_add(algorithm.number().into()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key =
            u128::from(word) << 64 | u128::from(word.rotate_left(23).wrapping_mul(0x94d0_49bb_1331_11eb));
        Charge { cost, ..Charge::one(Key::new(key), quota) }
    }

    fn handed_over(from: &Table, memory: usize) -> Result<Table, HandoverError> {
        let mut states = Vec::new();
        from.write_states(&mut states)?;
        let to = Table::with_memory(memory);
        let keys = to.read_states(&mut states.as_slice())?;
        assert_eq!(keys, from.stats().used + from.stats().logs);
        Ok(to)
    }

    #[test]
    fn a_successor_finds_every_key_as_it_was() {
        let table = Table::with_memory(1 << 16);
        let charges = || {
            Algorithm::ALL.into_iter().flat_map(|algorithm| (0..200).map(move |number| (algorithm, number)))
        };
        table.declare(Algorithm::ALL.map(|algorithm| charge(algorithm, 0, 1).quota));
        for (algorithm, number) in charges() {
            table.take(&charge(algorithm, number * 100, number % 11), NOW);
        }
        let successor = handed_over(&table, 1 << 16).expect("they are of one size");
        successor.declare(Algorithm::ALL.map(|algorithm| charge(algorithm, 0, 1).quota));
        for (algorithm, number) in charges() {
            let asked = charge(algorithm, number * 100, 1);
            let before = table.peek(&asked, NOW);
            let after = successor.peek(&asked, NOW);
            match algorithm {
                Algorithm::Concurrency => assert!(after.is_admitted(), "what is in flight stays where it is"),
                _ => assert_eq!(before, after, "{algorithm:?} {number}"),
            }
        }
    }

    #[test]
    fn a_successor_finds_what_was_spent_of_a_month() {
        let zone = Zone::new("Test/Handover", vec![(i64::MIN, -3_600), (900_000, 7_200)]);
        let month = Calendar::new(CalendarUnit::Month, zone, 420 * 86_400).anchored(15);
        let of = |quota: Quota| Charge { cost: 4, ..Charge::one(Key::new(7 << 80 | 7), quota) };
        let quota = charge(Algorithm::FixedWindow, 0, 1).quota.on_calendar(month);
        let table = Table::with_memory(1 << 16);
        table.declare([quota]);
        table.take(&of(quota), NOW);
        let successor = handed_over(&table, 1 << 16).expect("they are of one size");
        successor.declare([quota]);
        assert_eq!(successor.peek(&of(quota), NOW), table.peek(&of(quota), NOW));
        let mut written = Vec::new();
        write_quota(&mut written, &quota).expect("it is memory");
        assert_eq!(read_quota(&mut written.as_slice()).expect("it is whole"), quota);
        for length in 0..written.len() {
            assert!(read_quota(&mut &written[..length]).is_err(), "{length}");
        }
        // Now of another zone, because a reload came during the upgrade: what was spent stays spent.
        let other = quota.on_calendar(Calendar::new(CalendarUnit::Month, Zone::utc(), 420 * 86_400));
        successor.declare([other]);
        assert_eq!(successor.peek(&of(other), NOW).remaining, 2);
    }

    /// A successor that takes a word at a time, and meanwhile waits for decisions on every key.
    struct Slow {
        table: Arc<Table>,
        taken: Vec<u8>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.taken.extend_from_slice(bytes);
            if self.taken.len().is_multiple_of(512) {
                let (table, (decided, done)) = (Arc::clone(&self.table), mpsc::channel());
                std::thread::spawn(move || {
                    for algorithm in Algorithm::ALL {
                        for number in 0..100 {
                            table.take(&charge(algorithm, number, 1), NOW);
                        }
                    }
                    table.declare([charge(Algorithm::SlidingLog, 1, 1).quota]);
                    let _ = decided.send(());
                });
                done.recv_timeout(Duration::from_secs(20)).expect("a decision waits for the successor");
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_decision_waits_for_a_successor() {
        let table = Arc::new(Table::with_memory(1 << 16));
        table.declare(Algorithm::ALL.map(|algorithm| charge(algorithm, 0, 1).quota));
        for number in 0..300 {
            table.take(&charge(Algorithm::SlidingLog, number, 3), NOW);
        }
        assert!(!table.logs.overflow().is_empty(), "some share a log");
        let mut slow = Slow { table: Arc::clone(&table), taken: Vec::new() };
        assert!(table.write_states(&mut slow).expect("it takes all") >= 10);
    }

    #[test]
    fn a_penalty_goes_on() {
        let table = Table::with_memory(1 << 16);
        let rule = Penalty::new(2, SECOND, 2, 60);
        let key = charge(Algorithm::TokenBucket, 9, 1).key;
        for _ in 0..3 {
            table.change_penalty(key, NOW, |record| record.denied(&rule, 10 * SECOND, NOW));
        }
        let wait_ns = table.penalty_ns(key, NOW);
        assert!(wait_ns > 0);
        let successor = handed_over(&table, 1 << 16).expect("they are of one size");
        assert_eq!(successor.penalty_ns(key, NOW), wait_ns);
        assert_eq!(successor.penalty_ns(key, NOW + wait_ns), 0);
    }

    #[test]
    fn what_is_cut_short_or_of_another_size_is_an_error() {
        let table = Table::with_memory(1 << 16);
        table.take(&charge(Algorithm::SlidingLog, 1, 3), NOW);
        table.take(&charge(Algorithm::TokenBucket, 1, 3), NOW);
        let mut states = Vec::new();
        table.write_states(&mut states).expect("memory takes it");
        for length in 0..states.len() {
            let cut = Table::with_memory(1 << 16).read_states(&mut &states[..length]);
            assert!(matches!(cut, Err(HandoverError::Io(_))), "{length}: {cut:?}");
        }
        assert!(matches!(handed_over(&table, 1 << 17), Err(HandoverError::Size { .. })));
    }
}
