//! Syslog (RFC 5424): the header of a message, which workers write before each line, and the socket that the writer sends
//! messages over, one a datagram (RFC 5426). The line is the message; there is no structured data.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use super::format::date;

/// Where messages go, and what they say of themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syslog {
    pub to: SyslogAddress,
    /// The facility, 0 to 23 (RFC 5424 section 6.2.1).
    pub facility: u8,
    /// The severity, 0 to 7.
    pub severity: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogAddress {
    Unix(PathBuf),
    /// A host, by address or name, and a port.
    Udp {
        /// An IPv6 address is without brackets.
        host: String,
        port: u16,
    },
}

impl fmt::Display for SyslogAddress {
    /// As the configuration writes it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyslogAddress::Unix(path) => write!(formatter, "unix:{}", path.display()),
            SyslogAddress::Udp { host, port } if host.contains(':') => {
                write!(formatter, "udp://[{host}]:{port}")
            }
            SyslogAddress::Udp { host, port } => write!(formatter, "udp://{host}:{port}"),
        }
    }
}

impl Syslog {
    /// Messages to this address as most readers expect an access log: `local0.info`.
    pub fn new(to: SyslogAddress) -> Syslog {
        Syslog { to, facility: FACILITY, severity: SEVERITY }
    }
}

/// The parts of a message's header before and behind its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    before: Box<[u8]>,
    behind: Box<[u8]>,
}

impl Header {
    /// The header of messages from this node (RFC 5424 section 6). `kind` is their MSGID.
    pub(super) fn new(syslog: &Syslog, node: &str, kind: &str) -> Header {
        let is_graphic = !node.is_empty() && node.bytes().all(|byte| byte.is_ascii_graphic());
        let hostname = if is_graphic { &node[..node.len().min(HOSTNAME_BYTES_MAX)] } else { "-" };
        let priority = u32::from(syslog.facility) * 8 + u32::from(syslog.severity);
        let behind = format!(" {hostname} sluicegate {} {kind} - ", std::process::id());
        Header { before: format!("<{priority}>1 ").into_bytes().into(), behind: behind.into_bytes().into() }
    }

    /// Appends it with this time, whose second is `date`.
    pub(super) fn push(&self, out: &mut Vec<u8>, date: &date::Text, time: Duration) {
        out.extend_from_slice(&self.before);
        date::push(out, date, time);
        out.extend_from_slice(&self.behind);
    }
}

/// Sends messages. It connects when there is something to send, and again when that fails.
#[derive(Debug)]
pub(super) struct SyslogSender {
    pub(super) to: SyslogAddress,
    socket: Option<SyslogSocket>,
}

#[derive(Debug)]
enum SyslogSocket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

/// What became of the messages of a chunk.
#[derive(Debug, Default)]
pub(super) struct SentCounts {
    pub(super) sent: u64,
    /// How many of these were cut.
    pub(super) cut: u64,
    /// Why the rest was not.
    pub(super) error: Option<io::Error>,
}

impl SyslogSender {
    pub(super) fn new(to: SyslogAddress) -> SyslogSender {
        SyslogSender { to, socket: None }
    }

    /// Sends each line as a message of its own. It stops at the first that nobody takes in time, because the lines
    /// behind it would wait as long.
    pub(super) fn send_lines(&mut self, text: &[u8]) -> SentCounts {
        let mut outcome = SentCounts::default();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let message = cut(line);
            if let Err(error) = self.send(message) {
                outcome.error = Some(error);
                break;
            }
            outcome.sent += 1;
            outcome.cut += u64::from(message.len() < line.len());
        }
        outcome
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        if let Some(socket) = &self.socket {
            match socket.send(message) {
                Ok(()) => return Ok(()),
                // Not connected anew, because who does not read now does not read over a new connection.
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(error);
                }
                // Connected anew, because a receiver that was started again has another socket. Over UDP this is the
                // answer to a message before.
                Err(_) => self.socket = None,
            }
        }
        let socket = SyslogSocket::connect(&self.to)?;
        socket.send(message)?;
        self.socket = Some(socket);
        Ok(())
    }
}

impl SyslogSocket {
    fn connect(to: &SyslogAddress) -> io::Result<SyslogSocket> {
        match to {
            SyslogAddress::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_write_timeout(Some(SEND_TIMEOUT))?;
                Ok(SyslogSocket::Unix(socket))
            }
            SyslogAddress::Udp { host, port } => {
                let mut addresses = (host.as_str(), *port).to_socket_addrs()?;
                let to =
                    addresses.next().ok_or_else(|| io::Error::other("the server's name has no address"))?;
                let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
                let socket = UdpSocket::bind(any)?;
                socket.connect(to)?;
                socket.set_write_timeout(Some(SEND_TIMEOUT))?;
                Ok(SyslogSocket::Udp(socket))
            }
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        match self {
            SyslogSocket::Unix(socket) => socket.send(message),
            SyslogSocket::Udp(socket) => socket.send(message),
        }
        .map(drop)
    }
}

/// The message, or as much of it as receivers take; no character is cut in two.
fn cut(line: &[u8]) -> &[u8] {
    if line.len() <= MESSAGE_BYTES_MAX {
        return line;
    }
    let is_inside = |end: &usize| line[*end] & 0xc0 == 0x80;
    // Three bytes back are enough, because a character of UTF-8 has four at most.
    let end = (MESSAGE_BYTES_MAX - 3..=MESSAGE_BYTES_MAX).rev().find(|end| !is_inside(end));
    &line[..end.unwrap_or(MESSAGE_BYTES_MAX)]
}

/// `local0`.
const FACILITY: u8 = 16;
/// `info`.
const SEVERITY: u8 = 6;
/// The longest message: what rsyslog and syslog-ng take unless they are told otherwise.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// How long a message may wait for room with who takes it.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);
const HOSTNAME_BYTES_MAX: usize = 255;
/// The longest header of a message.
pub(super) const HEADER_BYTES_MAX: usize = HOSTNAME_BYTES_MAX + 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_node_and_process() {
        let syslog =
            Syslog { facility: 23, severity: 7, ..Syslog::new(SyslogAddress::Unix("/dev/log".into())) };
        let shown = |node: &str| {
            let Header { before, behind } = Header::new(&syslog, node, "access");
            String::from_utf8([before, behind].concat()).expect("text")
        };
        let pid = std::process::id();
        assert_eq!(shown("gw-1"), format!("<191>1  gw-1 sluicegate {pid} access - "));
        for odd in ["", "a b", "é", "a\nb"] {
            assert_eq!(shown(odd), format!("<191>1  - sluicegate {pid} access - "), "{odd:?}");
        }
        assert!(shown(&"n".repeat(300)).len() <= HEADER_BYTES_MAX);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let text = format!("{}{}", "a".repeat(MESSAGE_BYTES_MAX - 1), "é".repeat(9));
        assert_eq!(cut(text.as_bytes()).len(), MESSAGE_BYTES_MAX - 1);
        assert_eq!(cut(&text.as_bytes()[1..]).len(), MESSAGE_BYTES_MAX);
        assert_eq!(cut(b"short"), b"short");
        assert_eq!(cut(&[0x80; MESSAGE_BYTES_MAX + 1]).len(), MESSAGE_BYTES_MAX);
    }

    #[test]
    fn messages_come_over_udp_and_names_are_resolved() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = receiver.local_addr().expect("an address").port();
        let mut sender = SyslogSender::new(SyslogAddress::Udp { host: "127.0.0.1".into(), port });
        let long = "x".repeat(9_000);
        let outcome = sender.send_lines(format!("one\n{long}\n").as_bytes());
        assert_eq!((outcome.sent, outcome.cut), (2, 1));
        let mut room = [0; 10_000];
        assert_eq!(receiver.recv(&mut room).expect("a message"), 3);
        assert_eq!(receiver.recv(&mut room).expect("a message"), MESSAGE_BYTES_MAX);
        let mut absent = SyslogSender::new(SyslogAddress::Udp { host: "absent.invalid".into(), port });
        assert!(absent.send_lines(b"one\n").error.is_some());
    }

    #[test]
    fn who_does_not_read_costs_the_rest_of_a_chunk_and_who_comes_back_gets_the_next() {
        let directory = std::env::temp_dir().join(format!("sluicegate-syslog-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("log");
        let mut sender = SyslogSender::new(SyslogAddress::Unix(path.clone()));
        assert!(sender.send_lines(b"one\n").error.is_some(), "nobody is there");
        let receiver = UnixDatagram::bind(&path).expect("a socket");
        let lines = "a line\n".repeat(5_000);
        let outcome = sender.send_lines(lines.as_bytes());
        assert!(outcome.error.is_some() && outcome.sent < 5_000, "{outcome:?}");
        drop(receiver);
        std::fs::remove_file(&path).expect("it was there");
        let receiver = UnixDatagram::bind(&path).expect("a socket");
        assert_eq!(sender.send_lines(b"two\n").sent, 1);
        let mut room = [0; 16];
        assert_eq!(receiver.recv(&mut room).expect("a message"), 3);
        std::fs::remove_dir_all(&directory).ok();
    }
}
