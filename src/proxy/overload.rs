//! What the gateway stops doing as its memory runs out, so that it is not the kernel that stops it.
//!
//! The control runtime looks at the process's resident memory a few times a second and sets one of four steps;
//! a request reads it with one relaxed load. Each step keeps what the ones before gave up, and each is left again
//! once memory has fallen clearly below its mark. It frees nothing by itself.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use http::header::CONNECTION;
use http::{HeaderValue, Response, Version};

use super::config::{self, Memory};
use super::connection::Conn;
use super::reply::Refusal;
use crate::metrics::MemoryUsage;

/// What is given up, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Step {
    /// Nothing.
    Calm,
    /// Connections end with the answer that is under way: `Connection: close`, or GOAWAY.
    NoKeepAlive,
    /// Requests are refused with 503.
    NoRequests,
    /// Connections are closed as they come.
    NoConnections,
}

impl Step {
    const RISING: [Step; 3] = [Step::NoKeepAlive, Step::NoRequests, Step::NoConnections];

    /// As the log has it.
    fn name(self) -> &'static str {
        match self {
            Step::Calm => "none",
            Step::NoKeepAlive => "no keep-alive",
            Step::NoRequests => "no requests",
            Step::NoConnections => "no connections",
        }
    }

    /// The step at this use of memory, parts per million, coming from `self`: up at a mark, down [`MARGIN_PPM`] below.
    fn next(self, used_ppm: u64, marks: [u32; 3]) -> Step {
        let mut step = Step::Calm;
        for (above, mark) in Step::RISING.into_iter().zip(marks) {
            let margin = if self >= above { MARGIN_PPM } else { 0 };
            if used_ppm >= u64::from(mark).saturating_sub(margin) {
                step = above;
            }
        }
        step
    }
}

/// The step in force; shared by all threads.
#[derive(Debug)]
pub struct Overload {
    step: AtomicU8,
    resident: AtomicU64,
    limit: AtomicU64,
    config: ArcSwap<config::Overload>,
}

impl Overload {
    /// Nothing is given up yet.
    pub fn new(config: config::Overload) -> Overload {
        Overload {
            step: AtomicU8::new(Step::Calm as u8),
            resident: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            config: ArcSwap::from_pointee(config),
        }
    }

    /// Takes a changed configuration; the next look goes by it.
    pub fn configure(&self, config: config::Overload) {
        self.config.store(config.into());
    }

    /// The step in force.
    pub fn step(&self) -> Step {
        match self.step.load(Ordering::Relaxed) {
            0 => Step::Calm,
            1 => Step::NoKeepAlive,
            2 => Step::NoRequests,
            _ => Step::NoConnections,
        }
    }

    /// Looks at the memory in use and sets the step. Reads a file of the kernel's: not for a worker.
    pub fn look(&self) {
        let config = self.config.load();
        let resident = resident_bytes().unwrap_or(0);
        let limit = match config.memory {
            Memory::Bytes(bytes) => bytes,
            Memory::Machine => machine_bytes().unwrap_or(0),
            Memory::Unbounded => 0,
        };
        self.resident.store(resident, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Relaxed);
        let before = self.step();
        let used_ppm = resident.saturating_mul(1_000_000).checked_div(limit).unwrap_or(0);
        let step = before.next(used_ppm, config.marks_ppm);
        if step != before {
            self.step.store(step as u8, Ordering::Relaxed);
            tracing::warn!(resident, limit, before = before.name(), now = step.name(), "overload");
        }
    }

    /// What the last look has seen.
    pub fn usage(&self) -> MemoryUsage {
        MemoryUsage {
            resident_bytes: self.resident.load(Ordering::Relaxed),
            limit_bytes: self.limit.load(Ordering::Relaxed),
            overload_step: self.step() as u64,
        }
    }
}

/// Refuses a request where requests are given up.
pub fn admit(conn: &Conn) -> Result<(), Refusal> {
    if conn.worker.shared.overload.step() >= Step::NoRequests { Err(Refusal::Overloaded) } else { Ok(()) }
}

/// Lets a connection end with this answer where keep-alive is given up.
pub fn shed<B>(conn: &Conn, version: Version, response: &mut Response<B>) {
    if conn.worker.shared.overload.step() == Step::Calm {
        return;
    }
    if version == Version::HTTP_2 {
        conn.leaving.set(true);
    } else {
        response.headers_mut().insert(CONNECTION, CLOSE);
    }
}

/// Resident memory of this process.
fn resident_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// What this process may use: the least of the machine's memory and the limits of its control groups.
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
    // Within a container the root is the group itself, whatever the path says.
    let group = Path::new(root).join(path.trim_start_matches('/'));
    let up = group.ancestors().take_while(|group| group.starts_with(root));
    up.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()).min()
}

/// The value of a line as `VmRSS:   1234 kB`, in bytes.
fn kilobytes(page: &str, name: &str) -> Option<u64> {
    let value = page.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

const CLOSE: HeaderValue = HeaderValue::from_static("close");
/// How far below its mark memory has to fall before a step is left, so that it is not left and taken at every look.
const MARGIN_PPM: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: [u32; 3] = [920_000, 950_000, 980_000];

    #[test]
    fn steps_rise_at_their_marks_and_fall_below_them() {
        let next = |step: Step, used: u64| step.next(used, MARKS);
        assert_eq!(next(Step::Calm, 919_999), Step::Calm);
        assert_eq!(next(Step::Calm, 920_000), Step::NoKeepAlive);
        assert_eq!(next(Step::Calm, 2_000_000), Step::NoConnections);
        assert_eq!(next(Step::NoKeepAlive, 900_000), Step::NoKeepAlive);
        assert_eq!(next(Step::NoKeepAlive, 899_999), Step::Calm);
        assert_eq!(next(Step::NoConnections, 960_000), Step::NoConnections);
        assert_eq!(next(Step::NoConnections, 959_999), Step::NoRequests);
        assert_eq!(next(Step::NoConnections, 0), Step::Calm);
    }

    #[test]
    fn a_step_is_what_was_looked_at_last() {
        let memory = |memory| config::Overload { memory, ..config::Overload::default() };
        let overload = Overload::new(memory(Memory::Bytes(1)));
        assert_eq!(overload.step(), Step::Calm);
        overload.look();
        assert_eq!(overload.step(), Step::NoConnections);
        assert!(overload.usage().resident_bytes > 1 << 20);
        overload.configure(memory(Memory::Unbounded));
        overload.look();
        assert_eq!((overload.step(), overload.usage().limit_bytes), (Step::Calm, 0));
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(machine_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(kilobytes("VmHWM:\t 7 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12 * 1024));
        assert_eq!(kilobytes("VmRSS:\tmuch\n", "VmRSS:"), None);
    }
}
