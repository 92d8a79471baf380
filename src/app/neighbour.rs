//! Finds the process that listens on an address, so that a second start can name the first in its error. It reads
//! /proc; elsewhere, and for other users' processes, it finds nothing and the error stays without a name.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pid: u32,
    program: String,
}

impl Neighbour {
    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {} ({})", self.pid, self.program)
    }
}

/// The process that listens on `addr`, or on every address of its port. `None` if none can be seen: only root may read
/// the descriptors of other users' processes.
pub(super) fn on(addr: SocketAddr) -> Option<Neighbour> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let inodes: Vec<String> =
        tables.iter().flat_map(|table| table.lines()).filter_map(|line| listening(line, addr)).collect();
    let own = std::process::id();
    let processes =
        fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let pid = processes.filter(|pid| *pid != own).find(|pid| has_socket(*pid, &inodes))?;
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Neighbour { pid, program: program.trim_end().escape_debug().to_string() })
}

/// The socket in this line of /proc/net/tcp, if it listens on the address and port of `addr`, as /proc/PID/fd names it.
fn listening(line: &str, addr: SocketAddr) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (*fields.get(1)?, *fields.get(3)?, *fields.get(9)?);
    let (ip, port) = local.split_once(':')?;
    let (ip, wanted) = (address(ip)?.to_canonical(), addr.ip().to_canonical());
    let is_there = ip == wanted || ip.is_unspecified() || wanted.is_unspecified();
    let is_listening = state == LISTEN && u16::from_str_radix(port, 16) == Ok(addr.port());
    (is_there && is_listening).then(|| format!("socket:[{inode}]"))
}

/// Parses an address of /proc/net/tcp: hexadecimal words of four bytes, each in the machine's byte order.
fn address(text: &str) -> Option<IpAddr> {
    let words = text.as_bytes().chunks(8).map(|word| {
        let word = std::str::from_utf8(word).ok()?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<_>>>()?.concat();
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

fn has_socket(pid: u32, inodes: &[String]) -> bool {
    let open = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"));
    let links = open.into_iter().flatten().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let mut links = links.filter_map(|link| link.to_str().map(str::to_owned));
    links.any(|link| inodes.contains(&link))
}

/// TCP_LISTEN of the kernel.
const LISTEN: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_s_table_is_read() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1 0";
        let inode = |addr: &str| listening(line, addr.parse().expect("an address"));
        if cfg!(target_endian = "little") {
            assert_eq!(inode("127.0.0.1:8080").as_deref(), Some("socket:[41]"));
            assert_eq!(inode("0.0.0.0:8080").as_deref(), Some("socket:[41]"));
            assert_eq!(inode("[::]:8080").as_deref(), Some("socket:[41]"));
            assert_eq!(inode("127.0.0.2:8080"), None);
            assert_eq!(inode("127.0.0.1:8081"), None);
        }
        assert_eq!(
            listening("  sl  local_address rem_address   st", "127.0.0.1:1".parse().expect("one")),
            None
        );
        let connected = line.replace(" 0A ", " 01 ");
        assert_eq!(listening(&connected, "127.0.0.1:8080".parse().expect("an address")), None);
    }

    #[test]
    fn this_process_is_no_neighbour_of_its_own() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        assert_eq!(on(socket.local_addr().expect("it is bound")), None);
    }
}
