//! The PROXY protocol, versions 1 and 2 (HAProxy, doc/proxy-protocol.txt): a proxy in front of the gateway announces the
//! client's address before anything else.
//!
//! The header is read only from addresses that `proxy-protocol` names, and is required from them, because if it were
//! optional, any client could announce an address of its choice. Nothing past the header is read, because TLS or HTTP
//! begins there. What else a header says (the destination, the client's TLS) is ignored.

use std::io;
use std::net::SocketAddr;

use ppp::{HeaderResult, v1, v2};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::listener::SharedListener;
use super::worker::Worker;
use crate::service::Service;
use base::clock;

/// The client that `peer` announces, or `peer` itself if it speaks for itself, as proxies do in their health checks.
/// `None` if the connection is over: the header is missing, wrong, or takes longer than a head may.
pub async fn client<S: Service>(
    worker: &Worker<S>,
    listener: &SharedListener,
    tcp: &mut TcpStream,
    peer: SocketAddr,
) -> Option<SocketAddr> {
    let deadline = listener.config.load().timeouts.header;
    let read = tokio::select! {
        read = timeout(deadline, read(tcp)) => read,
        () = worker.drain.idle_closes.wait() => return None,
    };
    let Ok(read) = read else {
        listener.metrics.deadline_passed(worker.service.cells(), metrics::ConnectionDeadline::Header);
        return None;
    };
    match read.and_then(|header| source(&header)) {
        Ok(client) => Some(client.unwrap_or(peer)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            listener.metrics.announcement_failed(worker.service.cells());
            if listener.unannounced.is_due(clock::now_ns()) {
                let listener = &listener.config.load().name;
                tracing::warn!(%peer, %listener, "connection closed: its PROXY protocol header is missing or invalid; if the peer sends none, take it out of `proxy-protocol`");
            }
            None
        }
        // Neither counted nor logged, because the peer closed the connection, as a health check does that only tests
        // whether the port is open.
        Err(_) => None,
    }
}

/// Reads a whole header, and nothing behind it.
async fn read(tcp: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut header = vec![0; SHORTEST];
    tcp.read_exact(&mut header).await?;
    if header.starts_with(SIGNATURE) {
        header.resize(FIXED, 0);
        tcp.read_exact(&mut header[SHORTEST..]).await?;
        let rest = u16::from_be_bytes([header[FIXED - 2], header[FIXED - 1]]);
        if usize::from(rest) > REST_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        header.resize(FIXED + usize::from(rest), 0);
        tcp.read_exact(&mut header[FIXED..]).await?;
        return Ok(header);
    }
    // Version 1 has no length: peeking finds the line's end, so that nothing behind it is taken from the socket.
    let mut ahead = [0; LINE_MAX];
    while header.starts_with(LINE_BEGIN) && header.len() < LINE_MAX && !header.ends_with(b"\n") {
        let ahead = &mut ahead[..LINE_MAX - header.len()];
        let seen = tcp.peek(ahead).await?;
        let line = ahead[..seen].iter().position(|byte| *byte == b'\n').map_or(seen, |end| end + 1);
        tcp.read_exact(&mut ahead[..line.max(1)]).await?;
        header.extend_from_slice(&ahead[..line]);
    }
    Ok(header)
}

/// The client's address; `None` if the proxy speaks for itself or the client's connection is not TCP.
fn source(header: &[u8]) -> io::Result<Option<SocketAddr>> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    match HeaderResult::parse(header) {
        HeaderResult::V1(line) => Ok(match line.map_err(|_| wrong())?.addresses {
            v1::Addresses::Tcp4(of) => Some((of.source_address, of.source_port).into()),
            v1::Addresses::Tcp6(of) => Some((of.source_address, of.source_port).into()),
            v1::Addresses::Unknown => None,
        }),
        HeaderResult::V2(header) => {
            let header = header.map_err(|_| wrong())?;
            let is_tcp = header.command == v2::Command::Proxy && header.protocol == v2::Protocol::Stream;
            Ok(match header.addresses {
                v2::Addresses::IPv4(of) if is_tcp => Some((of.source_address, of.source_port).into()),
                v2::Addresses::IPv6(of) if is_tcp => Some((of.source_address, of.source_port).into()),
                _ => None,
            })
        }
    }
}

/// The first bytes of version 2.
const SIGNATURE: &[u8; SHORTEST] = b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of version 1.
const LINE_BEGIN: &[u8] = b"PROXY ";
/// Bytes that distinguish the versions; every header is longer.
const SHORTEST: usize = 12;
/// Bytes of version 2 before its addresses.
const FIXED: usize = 16;
/// Bytes of a line of version 1, at most, with its end.
const LINE_MAX: usize = 107;
/// Bytes of addresses and further fields in version 2: many times what proxies send, and far below the 64 KiB that the
/// header could claim.
const REST_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(header: &[u8]) -> Result<Option<String>, io::ErrorKind> {
        source(header).map(|client| client.map(|client| client.to_string())).map_err(|error| error.kind())
    }

    fn binary(version_and_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("a short one").to_be_bytes();
        [&SIGNATURE[..], &[version_and_command, family], &length, rest].concat()
    }

    #[test]
    fn a_line_names_the_client() {
        assert_eq!(of(b"PROXY TCP4 192.0.2.1 192.0.2.9 4000 443\r\n"), Ok(Some("192.0.2.1:4000".into())));
        assert_eq!(of(b"PROXY TCP6 2001:db8::1 ::1 4000 443\r\n"), Ok(Some("[2001:db8::1]:4000".into())));
        assert_eq!(of(b"PROXY UNKNOWN\r\n"), Ok(None));
        assert_eq!(of(b"PROXY UNKNOWN ffff::1 ffff::1 65535 65535\r\n"), Ok(None));
    }

    #[test]
    fn a_line_that_is_not_exact_is_wrong() {
        for line in [
            &b"PROXY TCP4 192.0.2.1 192.0.2.9 4000 443\n"[..],
            b"PROXY TCP4 192.0.2.1 192.0.2.9 4000\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.9 4000 443 1\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.9 04000 443\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.9 65536 443\r\n",
            b"PROXY TCP4 192.0.2.256 192.0.2.9 4000 443\r\n",
            b"PROXY TCP4 2001:db8::1 ::1 4000 443\r\n",
            b"PROXY TCP6 192.0.2.1 192.0.2.9 4000 443\r\n",
            b"PROXY  TCP4 192.0.2.1 192.0.2.9 4000 443\r\n",
            b"PROXY UDP4 192.0.2.1 192.0.2.9 4000 443\r\n",
            b"proxy TCP4 192.0.2.1 192.0.2.9 4000 443\r\n",
            b"GET / HTTP/1.1\r\n",
        ] {
            assert_eq!(of(line), Err(io::ErrorKind::InvalidData), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn the_binary_form_names_the_client() {
        let four = [192, 0, 2, 1, 192, 0, 2, 9, 15, 160, 1, 187];
        let further = [&four[..], &[4, 0, 3, 1, 2, 3]].concat();
        assert_eq!(of(&binary(0x21, 0x11, &four)), Ok(Some("192.0.2.1:4000".into())));
        assert_eq!(of(&binary(0x21, 0x11, &further)), Ok(Some("192.0.2.1:4000".into())));
        let six =
            [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 16], &four[8..]].concat();
        assert_eq!(of(&binary(0x21, 0x21, &six)), Ok(Some("[2001:db8::1]:4000".into())));
        for (command, family, rest) in [
            (0x20, 0x00, &[][..]),
            (0x20, 0x11, &four),
            (0x21, 0x00, &[]),
            (0x21, 0x12, &four),
            (0x21, 0x31, &[0; 216]),
        ] {
            assert_eq!(of(&binary(command, family, rest)), Ok(None), "{command:x} {family:x}");
        }
    }

    #[test]
    fn a_binary_form_that_is_not_exact_is_wrong() {
        let four = [192, 0, 2, 1, 192, 0, 2, 9, 15, 160, 1, 187];
        for (command, family, rest) in [
            (0x11, 0x11, &four[..]),
            (0x22, 0x11, &four),
            (0x21, 0x41, &four),
            (0x21, 0x13, &four),
            (0x21, 0x11, &four[1..]),
        ] {
            assert_eq!(
                of(&binary(command, family, rest)),
                Err(io::ErrorKind::InvalidData),
                "{command:x} {family:x}"
            );
        }
    }
}
