//! The limit of file descriptors, and whether the process has run out of them lately.
//!
//! This state is global, because descriptors belong to the process: any code that cannot open one reports it here, and
//! one line a minute is logged for all.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use base::log_lines::RareLine;

/// Raises the soft limit to the hard one, and returns the limit then in force. If the system refuses, the soft limit stays.
pub fn raise() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    limit.unwrap_or(u64::MAX)
}

/// How many there may be once [`raise`] is called.
pub fn hard_limit() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Reserves this many of `limit`, at most half, for everything but clients' connections: upstreams above all.
pub fn keep(limit: u64, kept: u64) {
    FOR_CLIENTS.store(limit - kept.min(limit / 2), Ordering::Relaxed);
}

/// Whether a client's connection with this descriptor eats into the reserve. A high number means that all lower ones
/// are taken, because the kernel assigns the lowest free one.
pub fn is_last(descriptor: i32) -> bool {
    u64::try_from(descriptor).is_ok_and(|number| number + 1 >= FOR_CLIENTS.load(Ordering::Relaxed))
}

/// Whether the system has no descriptor, or no memory, for one more.
pub fn is_shortage(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].contains(&errno))
}

/// Notes that `what` could not get a descriptor, and logs one line a minute.
pub fn ran_out(what: &str, error: &io::Error, now_ns: u64) {
    SHORT_NS.store(now_ns, Ordering::Relaxed);
    if LINE.is_due(now_ns) {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let (short, advice) = remedy(error);
        tracing::error!(what, %error, limit, advice, "out of {short}: /readyz answers 503 and new clients wait");
    }
}

/// What there is too little of, and how there will be more.
fn remedy(error: &io::Error) -> (&'static str, &'static str) {
    match Errno::from_io_error(error) {
        Some(Errno::NFILE) => ("file descriptors of the whole system", "raise the sysctl fs.file-max"),
        Some(Errno::NOBUFS | Errno::NOMEM) => ("kernel memory", "give the machine or its cgroup more memory"),
        _ => ("file descriptors", "raise the hard limit (LimitNOFILE of systemd, ulimit -Hn)"),
    }
}

/// Notes that a shortage goes on.
pub fn note_again(now_ns: u64) {
    SHORT_NS.store(now_ns, Ordering::Relaxed);
}

/// Whether descriptors ran out in the last seconds.
pub fn is_short(now_ns: u64) -> bool {
    let short = SHORT_NS.load(Ordering::Relaxed);
    short > 0 && now_ns.saturating_sub(short) < LASTS_NS
}

/// From this number on descriptors are not for clients.
static FOR_CLIENTS: AtomicU64 = AtomicU64::new(u64::MAX);
/// When there was none for the last time, on the monotonic scale; 0: never.
static SHORT_NS: AtomicU64 = AtomicU64::new(0);
static LINE: RareLine = RareLine::new();

/// A shortage is over if nothing has run into it for this long.
const LASTS_NS: u64 = 3_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_for_what_there_is_too_little_of() {
        for (errno, short, advice) in [
            (Errno::MFILE, "file descriptors", "LimitNOFILE"),
            (Errno::NFILE, "file descriptors of the whole system", "fs.file-max"),
            (Errno::NOMEM, "kernel memory", "more memory"),
            (Errno::NOBUFS, "kernel memory", "more memory"),
        ] {
            let error = io::Error::from(errno);
            assert!(is_shortage(&error));
            let (found, said) = remedy(&error);
            assert!(found == short && said.contains(advice), "{errno}: {found}: {said}");
        }
    }
}
