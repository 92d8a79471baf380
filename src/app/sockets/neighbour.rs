//! Finds the processes that listen somewhere, so that a second start can name the first in its error and an upgrade finds
//! whom to ask. It reads /proc; elsewhere, and for other users' processes, it finds nothing and the error stays without a
//! name.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use net::listening::Bind;

#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("process {pid} ({program})")]
pub(crate) struct Neighbour {
    pid: u32,
    program: String,
}

impl Neighbour {
    fn of(pid: u32) -> Neighbour {
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Neighbour { pid, program: program.trim_end().escape_debug().to_string() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it is a gateway, by the name of its program.
    pub(crate) fn is_gateway(&self) -> bool {
        self.program == "sluicegate"
    }
}

/// A process that listens on `addr`, or on every address of its port. `None` if none can be seen, because only root may
/// read the descriptors of other users' processes.
pub(crate) fn on(addr: SocketAddr) -> Option<Neighbour> {
    let inodes = inodes(&Bind::Tcp(addr));
    let pid = processes().find(|pid| has_socket(*pid, &inodes))?;
    Some(Neighbour::of(pid))
}

/// Every process that listens there as far as they can be seen, the oldest first, because a socket that is handed on
/// has several.
pub(crate) fn all_on(place: &Bind) -> Vec<Neighbour> {
    let inodes = inodes(place);
    if inodes.is_empty() {
        return Vec::new();
    }
    let mut pids: Vec<u32> = processes().filter(|pid| has_socket(*pid, &inodes)).collect();
    pids.sort_by_key(|pid| (began(*pid), *pid));
    pids.into_iter().map(Neighbour::of).collect()
}

/// The processes that are there, without this one.
fn processes() -> impl Iterator<Item = u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(move |pid| *pid != own)
}

/// When a process began, in the kernel's ticks: the 22nd field of its line, of which the second may hold anything but ends
/// with the last parenthesis.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The sockets that listen there, as /proc/PID/fd names them.
fn inodes(place: &Bind) -> Vec<String> {
    let lines_of = |tables: &[&str], find: &dyn Fn(&str) -> Option<String>| {
        let tables = tables.iter().map(|table| fs::read_to_string(table).unwrap_or_default());
        tables.flat_map(|table| table.lines().filter_map(find).collect::<Vec<_>>()).collect()
    };
    match place {
        Bind::Tcp(addr) => lines_of(&["/proc/net/tcp", "/proc/net/tcp6"], &|line| listening(line, *addr)),
        Bind::Unix(path) => lines_of(&["/proc/net/unix"], &|line| listening_unix(line, path)),
    }
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

/// The same of a line of /proc/net/unix. The kernel writes the path as it was bound, at the end.
fn listening_unix(line: &str, path: &Path) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (flags, inode) = (u32::from_str_radix(fields.get(3)?, 16).ok()?, *fields.get(6)?);
    let bound = line.split_once(&format!(" {inode} "))?.1;
    let is_there = Path::new(bound) == path;
    (is_there && flags & ACCEPTS != 0).then(|| format!("socket:[{inode}]"))
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
/// __SO_ACCEPTCON of the kernel: a Unix socket that listens.
const ACCEPTS: u32 = 0x10000;

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
    fn a_line_of_the_kernel_s_unix_sockets_is_read() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/a b.sock";
        let inode = |line: &str, path: &str| listening_unix(line, Path::new(path));
        assert_eq!(inode(line, "/run/a b.sock").as_deref(), Some("socket:[4711]"));
        assert_eq!(inode(line, "/run/a"), None);
        assert_eq!(inode(&line.replace("00010000", "00000000"), "/run/a b.sock"), None, "it is connected");
        assert_eq!(inode("Num       RefCount Protocol Flags    Type St Inode Path", "/run/a"), None);
    }

    #[test]
    fn this_process_is_no_neighbour_of_its_own() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        assert_eq!(on(socket.local_addr().expect("it is bound")), None);
    }
}
