//! Whom `sluicegate upgrade` asks: a gateway that serves, and nothing else, because SIGUSR2 ends a program that does
//! not expect it, and other programs than this one have a meaning of their own for it.

use std::fs::File;
use std::io::{self, Read};

use anyhow::bail;
use memchr::memmem;
use rustix::process::Signal;

use super::messages::VARIABLE;
use super::report::{UpgradeResult, ask};
use crate::sockets::neighbour::{self, Neighbour};
use config::Config;
use net::listening::Bind;

/// Why a process is not asked to upgrade itself.
#[derive(Debug, thiserror::Error)]
enum NoUpgradeTarget {
    #[error("does not exist")]
    Gone,
    /// An upgrade ends the process that it begins in, and a container ends with its process 1.
    #[error(
        "is the first process of its container, which ends with it: start a new container with the new image instead"
    )]
    First,
    #[error("is not a gateway: it runs {0}")]
    Foreign(String),
    /// It is a gateway that would die of the signal.
    #[error("does not handle SIGUSR2: it has just started, or runs another command than `run`")]
    Deaf,
    #[error("cannot be inspected, run this as its user or as root: {0}")]
    Unseen(io::Error),
}

/// Asks the gateway of this process id to upgrade itself, and says how that ended.
///
/// # Errors
/// If there is no such process, it is not a gateway, it does not answer, or it serves on because its successor did not
/// start.
pub fn request(pid: u32) -> anyhow::Result<String> {
    match examine(pid) {
        Ok(()) => ask(pid)?.into_result(),
        Err(why) => bail!("process {pid} {why}"),
    }
}

/// The same of the gateway that serves where a configuration says.
///
/// # Errors
/// The same, and if no gateway is seen to listen there.
pub fn request_where_listening(config: &Config) -> anyhow::Result<String> {
    let mut others: Vec<String> = Vec::new();
    for place in places(config) {
        let mut gateways: Vec<Neighbour> = Vec::new();
        for neighbour in neighbour::all_on(&place) {
            match examine(neighbour.pid()) {
                Ok(()) => gateways.push(neighbour),
                Err(why) => others.push(format!("{neighbour} {why}")),
            }
        }
        if !gateways.is_empty() {
            return ask_in_turn(&gateways);
        }
    }
    others.sort();
    others.dedup();
    match others.is_empty() {
        true => {
            let places: Vec<String> = places(config).iter().map(ToString::to_string).collect();
            let places = if places.is_empty() { "any fixed port".to_owned() } else { places.join(", ") };
            bail!(
                "no gateway was upgraded: this user sees none that listens on {places}. If one runs, run this as its user or \
                 as root, or name it with `--pid`; otherwise start it with `sluicegate run`"
            )
        }
        false => bail!(
            "no gateway listens where the configuration says, no process was signalled: {}",
            others.join("; ")
        ),
    }
}

/// Asks the oldest first, because one that drains or has just ended has a successor, which is younger; one whose
/// successor does not serve yet has to be asked before that one is.
fn ask_in_turn(gateways: &[Neighbour]) -> anyhow::Result<String> {
    let mut last = UpgradeResult::Drains;
    for gateway in gateways {
        last = ask(gateway.pid())?;
        if !matches!(last, UpgradeResult::Drains | UpgradeResult::Gone(_)) {
            break;
        }
    }
    last.into_result()
}

/// Where a gateway of this configuration listens.
fn places(config: &Config) -> Vec<Bind> {
    let admin = config.admin.iter().map(|admin| &admin.bind);
    let alone = admin.chain(config.grpc.iter().map(|grpc| &grpc.bind));
    let all = alone.chain(config.listeners.iter().map(|listener| &listener.bind));
    all.filter(|bind| bind.tcp().is_none_or(|addr| addr.port() != 0)).cloned().collect()
}

/// Whether a process is a gateway that waits for the signal. Its program is known by what it holds, not by its name,
/// because operators rename binaries, and a package has replaced the file by the time its gateway is upgraded.
fn examine(pid: u32) -> Result<(), NoUpgradeTarget> {
    let entry = |name: &str| format!("/proc/{pid}/{name}");
    let seen = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => NoUpgradeTarget::Gone,
        _ => NoUpgradeTarget::Unseen(error),
    };
    let status = std::fs::read_to_string(entry("status")).map_err(seen)?;
    let mut program = File::open(entry("exe")).map_err(seen)?;
    if !holds_marker(&mut program).map_err(NoUpgradeTarget::Unseen)? {
        let path = std::fs::read_link(entry("exe")).unwrap_or_default();
        return Err(NoUpgradeTarget::Foreign(path.display().to_string()));
    }
    if pid == 1 {
        return Err(NoUpgradeTarget::First);
    }
    if catches(&status, Signal::USR2) { Ok(()) } else { Err(NoUpgradeTarget::Deaf) }
}

/// Whether the file holds the name of the variable that every gateway gives its successor.
fn holds_marker(program: &mut impl Read) -> io::Result<bool> {
    let finder = memmem::Finder::new(VARIABLE);
    let mut some = vec![0; READ_BYTES];
    let mut kept = 0;
    loop {
        let count = program.read(&mut some[kept..])?;
        if count == 0 {
            return Ok(false);
        }
        let filled = kept + count;
        if finder.find(&some[..filled]).is_some() {
            return Ok(true);
        }
        // The end of a read is kept, because the name may lie across two.
        kept = filled.min(VARIABLE.len() - 1);
        some.copy_within(filled - kept..filled, 0);
    }
}

/// Whether the process of this /proc/PID/status has a handler for a signal.
fn catches(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}

/// Bytes of a program that are read at once.
const READ_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_across_two_reads_is_found() {
        let around = |before: usize| {
            let mut program = vec![b'S'; before];
            program.extend(VARIABLE.as_bytes());
            program.extend([b'x'; 100]);
            holds_marker(&mut &program[..]).expect("memory can be read")
        };
        for before in [0, READ_BYTES - VARIABLE.len(), READ_BYTES - 5, READ_BYTES, 3 * READ_BYTES - 1] {
            assert!(around(before), "{before} bytes in");
        }
        assert!(!holds_marker(&mut &vec![b'S'; 2 * READ_BYTES][..]).expect("memory can be read"));
    }

    #[test]
    fn a_handler_is_seen() {
        let status = |mask: &str| format!("Name:\tx\nSigIgn:\tffffffffffffffff\nSigCgt:\t{mask}\n");
        assert!(catches(&status("0000000000000800"), Signal::USR2));
        assert!(!catches(&status("fffffffffffff7ff"), Signal::USR2));
        assert!(!catches("", Signal::USR2));
    }
}
