//! Decides what work the gateway sheds as its memory runs out, so that the kernel does not kill it. `proxy::shed` and
//! `server::accept` act on it.
//!
//! The control runtime reads the process's resident memory a few times a second and sets one of five steps; a request
//! reads the step with one relaxed load. Each step includes the ones before it. What holds memory for nothing goes first:
//! before requests are refused, memory has time to come back from it. A step is left once memory has fallen
//! clearly below its mark, or has not risen for a while, because an allocator does not return all that was freed to the
//! system, so resident memory may stay high although there is room again.

use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use arc_swap::ArcSwap;

use super::config::{self, MemoryLimit};
use base::clock;
use metrics::{Families, MetricUnit};

/// How much work is shed, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PressureStep {
    Normal,
    /// HTTP/2 connections that hold much and serve nothing, or are not read, are closed, and bodies that nobody wants are not waited for.
    NoIdle,
    /// Connections end after the current answer: `Connection: close`, or GOAWAY. All HTTP/2 connections without a request are closed.
    NoKeepAlive,
    /// Requests are refused with 503.
    NoRequests,
    /// New connections are closed at once.
    NoConnections,
}

impl PressureStep {
    const ALL: [PressureStep; 5] = [
        PressureStep::Normal,
        PressureStep::NoIdle,
        PressureStep::NoKeepAlive,
        PressureStep::NoRequests,
        PressureStep::NoConnections,
    ];

    fn name(self) -> &'static str {
        match self {
            PressureStep::Normal => "none",
            PressureStep::NoIdle => "no idle connections",
            PressureStep::NoKeepAlive => "no keep-alive",
            PressureStep::NoRequests => "no requests",
            PressureStep::NoConnections => "no connections",
        }
    }

    /// What clients feel, and what an operator can do.
    fn advice(self) -> &'static str {
        match self {
            PressureStep::Normal => "nothing is shed any more",
            PressureStep::NoIdle => {
                "HTTP/2 connections that hold much memory and are idle, or not read, are closed"
            }
            PressureStep::NoKeepAlive => {
                "connections close after each response: find what uses memory, or raise `memory` of [overload]"
            }
            PressureStep::NoRequests => {
                "requests get 503 until memory falls: raise `memory` of [overload], or add nodes"
            }
            PressureStep::NoConnections => {
                "new connections are closed until memory falls: raise `memory` of [overload], or add nodes"
            }
        }
    }

    /// The step at this use of memory, coming from `self`: up at a mark, down [`MARGIN_PPM`] below it.
    fn next(self, used_ppm: u64, marks: [u32; 3]) -> PressureStep {
        let mut step = PressureStep::Normal;
        let marks = [marks[0] - marks[0] / 10, marks[0], marks[1], marks[2]];
        for (above, mark) in PressureStep::ALL.into_iter().skip(1).zip(marks) {
            let margin = if self >= above { MARGIN_PPM } else { 0 };
            if used_ppm >= u64::from(mark).saturating_sub(margin) {
                step = above;
            }
        }
        step
    }
}

/// What the measurements so far amount to.
#[derive(Clone, Copy, Debug)]
struct Pressure {
    /// The step by the marks alone.
    marked: PressureStep,
    /// The most bytes measured since the first mark was passed.
    highest: u64,
    /// When memory last rose, or a step was last left because it had not.
    still: Instant,
    /// Steps left because memory has not risen.
    relieved: usize,
    /// The step in force, and since when.
    step: PressureStep,
    since: Instant,
}

impl Pressure {
    fn new(now: Instant) -> Pressure {
        Pressure {
            marked: PressureStep::Normal,
            highest: 0,
            still: now,
            relieved: 0,
            step: PressureStep::Normal,
            since: now,
        }
    }

    /// The step at this measurement: `resident` bytes, which are `used_ppm` of what may be used.
    fn look(&mut self, resident: u64, used_ppm: u64, marks: [u32; 3], now: Instant) -> PressureStep {
        self.marked = self.marked.next(used_ppm, marks);
        if self.marked == PressureStep::Normal || resident > self.highest + self.highest / 100 {
            (self.highest, self.still, self.relieved) = (resident, now, 0);
        } else if now.saturating_duration_since(self.still) >= STILL {
            self.relieved += 1;
            self.still = now;
        }
        let left = (self.marked as usize).saturating_sub(self.relieved);
        let step = self.reached(PressureStep::ALL[left], used_ppm, now);
        if step != self.step {
            (self.step, self.since) = (step, now);
        }
        step
    }

    /// How far the step rises towards `wanted`: one at a time and not before memory had [`RETURN_TIME`] to come back,
    /// because what is given up first may suffice. All at once if memory is full.
    fn reached(&self, wanted: PressureStep, used_ppm: u64, now: Instant) -> PressureStep {
        let had_time = now.saturating_duration_since(self.since) >= RETURN_TIME;
        match self.step {
            _ if wanted <= self.step || used_ppm >= FULL_PPM => wanted,
            PressureStep::Normal => PressureStep::NoIdle,
            PressureStep::NoIdle | PressureStep::NoKeepAlive if !had_time => self.step,
            PressureStep::NoIdle => PressureStep::NoKeepAlive,
            PressureStep::NoKeepAlive | PressureStep::NoRequests | PressureStep::NoConnections => wanted,
        }
    }
}

/// The step in force; shared by all threads.
#[derive(Debug)]
pub struct Overload {
    pressure: Mutex<Pressure>,
    step: AtomicU8,
    resident: AtomicU64,
    limit: AtomicU64,
    config: ArcSwap<config::OverloadConfig>,
}

impl Overload {
    /// No work is shed until the first [`Overload::look`].
    pub fn new(config: config::OverloadConfig) -> Overload {
        Overload {
            pressure: Mutex::new(Pressure::new(clock::instant())),
            step: AtomicU8::new(PressureStep::Normal as u8),
            resident: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            config: ArcSwap::from_pointee(config),
        }
    }

    /// Takes a changed configuration, which the next look applies.
    pub fn configure(&self, config: config::OverloadConfig) {
        self.config.store(config.into());
        *self.pressure.lock().unwrap_or_else(PoisonError::into_inner) = Pressure::new(clock::instant());
    }

    pub fn step(&self) -> PressureStep {
        PressureStep::ALL[usize::from(self.step.load(Ordering::Relaxed))]
    }

    /// Whether an HTTP/2 connection without a request, or with a client that does not read, is given up that once served so
    /// many at a time. hyper keeps the memory of as many until the connection ends: some 2 KiB each.
    pub fn gives_up(&self, streams_at_once: u32) -> bool {
        match self.step() {
            PressureStep::Normal => false,
            PressureStep::NoIdle => streams_at_once >= MANY_STREAMS,
            PressureStep::NoKeepAlive | PressureStep::NoRequests | PressureStep::NoConnections => true,
        }
    }

    /// The share of the memory that may be used that is in use, as of the last look; 0 where nothing bounds it.
    pub fn used_share(&self) -> f64 {
        match self.limit.load(Ordering::Relaxed) {
            0 => 0.0,
            limit => self.resident.load(Ordering::Relaxed) as f64 / limit as f64,
        }
    }

    /// Measures the memory in use and sets the step. Workers must not call it, because it reads files under /proc.
    pub fn look(&self) {
        let config = self.config.load();
        let resident = resident_bytes().unwrap_or(0);
        let limit = match config.memory {
            MemoryLimit::Bytes(bytes) => bytes,
            MemoryLimit::Machine => machine_bytes().unwrap_or(0),
            MemoryLimit::Unbounded => 0,
        };
        self.resident.store(resident, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        let before = self.step();
        let used_ppm = resident.saturating_mul(1_000_000).checked_div(limit).unwrap_or(0);
        let mut pressure = self.pressure.lock().unwrap_or_else(PoisonError::into_inner);
        let step = pressure.look(resident, used_ppm, config.marks_ppm, clock::instant());
        if step != before {
            self.step.store(step as u8, Ordering::Relaxed);
            let (resident_bytes, limit_bytes, advice) = (resident, limit, step.advice());
            let is_worse = step > before && step > PressureStep::NoIdle;
            let (before, now) = (before.name(), step.name());
            match is_worse {
                true => tracing::warn!(resident_bytes, limit_bytes, before, now, advice, "{CHANGED}"),
                false => tracing::info!(resident_bytes, limit_bytes, before, now, advice, "{CHANGED}"),
            }
        }
    }

    /// Writes the metrics of the last look.
    pub fn collect(&self, families: &mut Families<'_>) -> fmt::Result {
        let gauges = [
            (
                "memory_resident",
                Some(&MetricUnit::Bytes),
                "Resident memory of the process",
                self.resident.load(Ordering::Relaxed),
            ),
            (
                "memory_limit",
                Some(&MetricUnit::Bytes),
                "Memory limit that load shedding is relative to; 0: not set",
                self.limit.load(Ordering::Relaxed),
            ),
            (
                "overload_step",
                None,
                "What is shed because of memory: 0 nothing, 1 keep-alive, 2 requests, 3 connections",
                (self.step() as u64).saturating_sub(1),
            ),
        ];
        gauges
            .into_iter()
            .try_for_each(|(name, unit, help, value)| families.gauges(name, help, unit, [([], value)]))
    }
}

fn resident_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The memory this process may use: the least of the machine's memory and the limits of its control groups.
fn machine_bytes() -> Option<u64> {
    let machine = kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:");
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups.lines().filter_map(group_bytes).chain(machine).min()
}

/// The least limit from the group of one line of /proc/self/cgroup up to its root (cgroups(7)).
fn group_bytes(line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return None,
    };
    // All groups up to the root are asked, because in a container /sys/fs/cgroup is the container's own group, while
    // the path is the host's and does not exist.
    let group = Path::new(root).join(path.trim_start_matches('/'));
    let up = group.ancestors().take_while(|group| group.starts_with(root));
    up.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()).min()
}

/// The value of a line as `VmRSS:   1234 kB`, in bytes.
fn kilobytes(page: &str, name: &str) -> Option<u64> {
    let value = page.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

const CHANGED: &str = "load shedding changed because of memory use";
/// How long freed memory takes to be seen as free: connections look twice a second, and the allocator gives pages back
/// after a second.
const RETURN_TIME: Duration = Duration::from_millis(1_500);
const FULL_PPM: u64 = 1_000_000;
/// Streams at once that make an idle HTTP/2 connection one of those that are closed first.
const MANY_STREAMS: u32 = 8;
/// If memory has not risen for this long, a step is left although memory is above its mark.
const STILL: Duration = Duration::from_secs(30);
/// How far below its mark memory must fall before a step is left, because without a margin, steps would flap at every
/// look.
const MARGIN_PPM: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: [u32; 3] = [920_000, 950_000, 980_000];

    #[test]
    fn steps_rise_at_their_marks_and_fall_below_them() {
        let next = |step: PressureStep, used: u64| step.next(used, MARKS);
        assert_eq!(next(PressureStep::Normal, 827_999), PressureStep::Normal);
        assert_eq!(next(PressureStep::Normal, 919_999), PressureStep::NoIdle);
        assert_eq!(next(PressureStep::Normal, 920_000), PressureStep::NoKeepAlive);
        assert_eq!(next(PressureStep::Normal, 2_000_000), PressureStep::NoConnections);
        assert_eq!(next(PressureStep::NoKeepAlive, 900_000), PressureStep::NoKeepAlive);
        assert_eq!(next(PressureStep::NoKeepAlive, 899_999), PressureStep::NoIdle);
        assert_eq!(next(PressureStep::NoKeepAlive, 807_999), PressureStep::Normal);
        assert_eq!(next(PressureStep::NoConnections, 960_000), PressureStep::NoConnections);
        assert_eq!(next(PressureStep::NoConnections, 959_999), PressureStep::NoRequests);
        assert_eq!(next(PressureStep::NoConnections, 0), PressureStep::Normal);
    }

    #[test]
    fn steps_are_left_one_by_one_while_memory_does_not_rise() {
        let mut now = Instant::now();
        let mut pressure = Pressure::new(now);
        let mut steps = |resident: u64, seconds: u64| {
            now += Duration::from_secs(seconds);
            pressure.look(resident, resident * 10_000, MARKS, now)
        };
        assert_eq!(steps(50, 0), PressureStep::Normal);
        assert_eq!(steps(100, 1), PressureStep::NoConnections, "memory is full");
        assert_eq!(steps(100, 29), PressureStep::NoConnections);
        assert_eq!(steps(100, 1), PressureStep::NoRequests);
        assert_eq!(steps(99, 30), PressureStep::NoKeepAlive);
        assert_eq!(steps(102, 1), PressureStep::NoConnections, "it rises again");
        for left in [
            PressureStep::NoRequests,
            PressureStep::NoKeepAlive,
            PressureStep::NoIdle,
            PressureStep::Normal,
            PressureStep::Normal,
        ] {
            assert_eq!(steps(99, 30), left);
        }
        assert_eq!(steps(50, 1), PressureStep::Normal);
        assert_eq!(steps(83, 1), PressureStep::NoIdle);
    }

    #[test]
    fn requests_are_refused_only_if_giving_up_idle_connections_does_not_suffice() {
        let mut now = Instant::now();
        let mut pressure = Pressure::new(now);
        let mut steps = |resident: u64, millis: u64| {
            now += Duration::from_millis(millis);
            pressure.look(resident, resident * 10_000, MARKS, now)
        };
        assert_eq!(steps(99, 0), PressureStep::NoIdle, "over all marks at once");
        assert_eq!(steps(99, 1_499), PressureStep::NoIdle);
        assert_eq!(steps(89, 1), PressureStep::NoIdle, "it sufficed");
        assert_eq!(steps(99, 1), PressureStep::NoKeepAlive);
        assert_eq!(steps(99, 1_499), PressureStep::NoKeepAlive);
        assert_eq!(steps(99, 1), PressureStep::NoConnections);
        assert_eq!(steps(70, 1), PressureStep::Normal);
        assert_eq!(steps(99, 1), PressureStep::NoIdle);
        assert_eq!(steps(100, 1), PressureStep::NoConnections, "memory is full");
    }

    #[test]
    fn idle_connections_that_hold_most_are_given_up_first() {
        let overload = Overload::new(config::OverloadConfig::default());
        let given_up = |step: PressureStep| {
            overload.step.store(step as u8, Ordering::Relaxed);
            [1, MANY_STREAMS].map(|streams| overload.gives_up(streams))
        };
        assert_eq!(given_up(PressureStep::Normal), [false, false]);
        assert_eq!(given_up(PressureStep::NoIdle), [false, true]);
        assert_eq!(given_up(PressureStep::NoKeepAlive), [true, true]);
    }

    #[test]
    fn the_step_is_that_of_the_last_look() {
        let memory = |memory| config::OverloadConfig { memory, ..config::OverloadConfig::default() };
        let overload = Overload::new(memory(MemoryLimit::Bytes(1)));
        assert_eq!(overload.step(), PressureStep::Normal);
        overload.look();
        assert_eq!(overload.step(), PressureStep::NoConnections);
        assert!(overload.resident.load(Ordering::Relaxed) > 1 << 20);
        overload.configure(memory(MemoryLimit::Unbounded));
        overload.look();
        assert_eq!((overload.step(), overload.limit.load(Ordering::Relaxed)), (PressureStep::Normal, 0));
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(machine_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(kilobytes("VmHWM:\t 7 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12 * 1024));
        assert_eq!(kilobytes("VmRSS:\tmuch\n", "VmRSS:"), None);
    }
}
