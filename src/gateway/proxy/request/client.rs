//! Finds the client's address, and what it asked for: the peer's, or what trusted hops report. Their header is read from the
//! right, where the nearest hop writes, and only as far as hops are trusted. Who the client is (identity) is `authenticate`'s.

use std::net::{IpAddr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};

use crate::proxy::config::{ClientIp, ForwardedHeader};
use crate::proxy::headers::{X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO};
use base::identity::NO_ADDRESS;
use policy::list_field::split_unquoted;
use policy::matching::host::is_authority;

/// The client as limits and logs see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestClient {
    /// Its address (`client_ip`).
    pub ip: IpAddr,
    /// Whether the peer is a trusted hop, so that its forwarding fields are kept.
    pub trusted_peer: bool,
}

/// Finds the client behind `peer`: the peer itself unless it is a trusted hop; else the first address from the right of
/// the forwarding header that is not a trusted hop. An unreadable element ends the walk, and the hop before it is the
/// client, because everything to its left could be forged. A hop is trusted by its own address, a client is seen by the one
/// that a translator's address carries.
pub fn find(config: &ClientIp, peer: IpAddr, headers: &HeaderMap) -> RequestClient {
    let peer = peer.to_canonical();
    if !is_hop(config, peer) {
        return RequestClient { ip: config.nat64.carried(peer), trusted_peer: false };
    }
    RequestClient { ip: config.nat64.carried(walk(config, peer, headers).ip), trusted_peer: true }
}

/// Where the walk past trusted hops ends.
struct HopWalk<'h> {
    ip: IpAddr,
    /// The element that the hop nearest to the client has written, and how many stand to its right.
    last: Option<(&'h [u8], usize)>,
}

fn walk<'h>(config: &ClientIp, peer: IpAddr, headers: &'h HeaderMap) -> HopWalk<'h> {
    let name = match config.header {
        ForwardedHeader::XForwarded => &X_FORWARDED_FOR,
        ForwardedHeader::Forwarded => &FORWARDED,
    };
    let mut walk = HopWalk { ip: peer, last: None };
    for (index, element) in listed(config.header, headers, name).enumerate() {
        walk.last = Some((element, index));
        let Some(hop) = hop(config.header, element) else { break };
        walk.ip = hop;
        if !is_trusted(config, hop) {
            break;
        }
    }
    walk
}

/// What a client asked for, by the word of trusted hops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardedTarget {
    /// `http` or `https`.
    pub scheme: Option<&'static str>,
    /// The host, perhaps with a port.
    pub authority: Option<Box<str>>,
}

/// What the client behind a trusted peer asked for, as the hop nearest to it says. Of `X-Forwarded-Host` and
/// `X-Forwarded-Proto`, which hops seldom append to, the element counts at the place of that hop, or the leftmost one.
pub fn asked(config: &ClientIp, peer: IpAddr, headers: &HeaderMap) -> ForwardedTarget {
    let last = walk(config, peer.to_canonical(), headers).last;
    let (host, proto) = match config.header {
        ForwardedHeader::XForwarded => {
            let place = last.map_or(0, |(_, place)| place);
            let at = |name| {
                listed(config.header, headers, name)
                    .take(place + 1)
                    .last()
                    .and_then(|element| std::str::from_utf8(element).ok())
            };
            (at(&X_FORWARDED_HOST), at(&X_FORWARDED_PROTO))
        }
        ForwardedHeader::Forwarded => {
            let element = last.and_then(|(element, _)| std::str::from_utf8(element).ok()).unwrap_or_default();
            (pair(element, "host"), pair(element, "proto"))
        }
    };
    let is = |scheme: &&str| proto.is_some_and(|proto| proto.trim().eq_ignore_ascii_case(scheme));
    ForwardedTarget {
        scheme: ["http", "https"].into_iter().find(is),
        authority: host.map(str::trim).filter(|host| is_authority(host)).map(Into::into),
    }
}

/// Whether the other end of a connection is a trusted hop.
pub fn is_hop(config: &ClientIp, peer: IpAddr) -> bool {
    let peer = peer.to_canonical();
    // A hop that calls itself by the same address is none of this host, because only the connection itself shows that.
    (peer == NO_ADDRESS && config.trusts_unix) || is_trusted(config, peer)
}

fn is_trusted(config: &ClientIp, ip: IpAddr) -> bool {
    ip != NO_ADDRESS && config.trust.iter().any(|net| net.contains(&ip))
}

/// The elements of all lines of a forwarding header, from the right. Empty ones are none (RFC 9110 section 5.6.1.2).
fn listed<'h>(
    header: ForwardedHeader,
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'h [u8]> + use<'h> {
    let all = headers.get_all(name).into_iter().rev().flat_map(move |line| elements(header, line.as_bytes()));
    all.filter(|element| !element.trim_ascii().is_empty())
}

/// The elements of one line of the forwarding header, from the right. It is read from that side, so that nothing a
/// client wrote to the left (garbage, an unclosed quote) changes how the elements of trusted hops are read.
fn elements(header: ForwardedHeader, line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut left = Some(line);
    std::iter::from_fn(move || {
        let line = left?;
        let comma = match header {
            ForwardedHeader::XForwarded => line.iter().rposition(|&byte| byte == b','),
            ForwardedHeader::Forwarded => last_comma(line),
        };
        left = comma.map(|at| &line[..at]);
        Some(comma.map_or(line, |at| &line[at + 1..]))
    })
}

/// The last comma outside quoted strings (RFC 9110 section 5.6.4). A comma in quotes does not split an element, because
/// a hop may quote text that the client chose, such as its host.
fn last_comma(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    line.iter().enumerate().rev().find_map(|(at, &byte)| {
        // From the right, the first quote is the string's end, and its begin is the next quote that is not escaped.
        quoted ^= byte == b'"' && !(quoted && is_escaped(&line[..at]));
        (byte == b',' && !quoted).then_some(at)
    })
}

/// Whether a quote right after `before` is escaped: `before` ends in an odd number of backslashes.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The address one element of the forwarding header names.
fn hop(header: ForwardedHeader, element: &[u8]) -> Option<IpAddr> {
    let element = std::str::from_utf8(element).ok()?.trim();
    let node = match header {
        ForwardedHeader::XForwarded => element,
        ForwardedHeader::Forwarded => pair(element, "for")?,
    };
    address(node).map(|ip| ip.to_canonical())
}

/// The value of a name such as `for` in an element of `Forwarded`. A semicolon within quotes ends no pair.
fn pair<'e>(element: &'e str, name: &str) -> Option<&'e str> {
    let mut named = split_unquoted(element, ';').filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = named.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

/// An address with or without port, brackets and the zone of an IPv6 address, which says only where the hop has met it
/// (RFC 7239 section 6, RFC 4007 section 11).
fn address(node: &str) -> Option<IpAddr> {
    let Some((ip, rest)) = node.split_once('%') else { return zoneless(node) };
    let behind = rest.find(']').map_or("", |end| &rest[end..]);
    zoneless(&[ip, behind].concat()).filter(IpAddr::is_ipv6)
}

fn zoneless(node: &str) -> Option<IpAddr> {
    if let Ok(ip) = node.parse() {
        return Some(ip);
    }
    if let Ok(socket) = node.parse::<SocketAddr>() {
        return Some(socket.ip());
    }
    node.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use policy::nat64::Nat64;

    use super::*;
    use crate::proxy::headers::tests::map;

    fn trusting(header: ForwardedHeader) -> ClientIp {
        ClientIp {
            trust: vec!["10.0.0.0/8".parse().expect("a net"), "fd00::/8".parse().expect("a net")],
            header,
            trusts_unix: false,
            ipv6_prefix: 64,
            nat64: Nat64::new(vec!["2001:db8:64::/96".parse().expect("a prefix")]),
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_it_says() {
        let found = find(
            &trusting(ForwardedHeader::XForwarded),
            ip("192.0.2.1"),
            &map(&[("x-forwarded-for", "1.1.1.1")]),
        );
        assert_eq!(found, RequestClient { ip: ip("192.0.2.1"), trusted_peer: false });
    }

    #[test]
    fn a_client_behind_a_translator_is_seen_by_its_ipv4_address_and_no_hop_is_trusted_by_it() {
        let found = |peer: &str, reported: &'static str| {
            let config = trusting(ForwardedHeader::XForwarded);
            find(&config, ip(peer), &map(&[("x-forwarded-for", reported)]))
        };
        let client = |address: &str, trusted_peer| RequestClient { ip: ip(address), trusted_peer };
        assert_eq!(found("2001:db8:64::192.0.2.1", "1.1.1.1"), client("192.0.2.1", false));
        assert_eq!(found("2001:db8:64::10.0.0.1", "1.1.1.1"), client("10.0.0.1", false));
        assert_eq!(found("10.0.0.1", "2001:db8:64::192.0.2.1"), client("192.0.2.1", true));
    }

    #[test]
    fn what_a_client_sends_changes_no_element_of_a_hop() {
        let found = |header, name: &'static str, line: &[u8]| {
            let mut sent = HeaderMap::new();
            sent.insert(name, HeaderValue::from_bytes(line).expect("a header value"));
            find(&trusting(header), ip("10.0.0.1"), &sent).ip
        };
        let x_forwarded = |line| found(ForwardedHeader::XForwarded, "x-forwarded-for", line);
        assert_eq!(x_forwarded(b"\xc3, 192.0.2.7"), ip("192.0.2.7"), "bytes that are no text");
        assert_eq!(x_forwarded(b"192.0.2.7, \xc3"), ip("10.0.0.1"));
        for line in [
            &b"\xc3, for=192.0.2.7"[..],
            b"for=192.0.2.7;host=\"x,for=6.6.6.6\"",
            b"for=192.0.2.7;host=\"x\\\",for=6.6.6.6\";proto=http",
            b"host=\"x\\\\\";for=192.0.2.7;by=\"a,b\"",
            b"host=\"x;for=6.6.6.6\";for=\"192.0.2.7:80\"",
            b"for=6.6.6.6;host=\"half, for=192.0.2.7;host=\"a\"",
        ] {
            let shown = String::from_utf8_lossy(line);
            assert_eq!(found(ForwardedHeader::Forwarded, "forwarded", line), ip("192.0.2.7"), "{shown}");
        }
    }

    #[test]
    fn the_walk_goes_from_the_right_past_trusted_hops_over_all_lines() {
        let config = trusting(ForwardedHeader::XForwarded);
        let headers =
            map(&[("x-forwarded-for", "6.6.6.6, 203.0.113.9"), ("x-forwarded-for", "10.1.1.1 , 10.2.2.2")]);
        assert_eq!(find(&config, ip("10.0.0.1"), &headers).ip, ip("203.0.113.9"));
        let all_trusted = map(&[("x-forwarded-for", "10.3.3.3, 10.2.2.2")]);
        assert_eq!(find(&config, ip("10.0.0.1"), &all_trusted).ip, ip("10.3.3.3"));
        let broken = map(&[("x-forwarded-for", "6.6.6.6, nonsense, 10.2.2.2")]);
        assert_eq!(find(&config, ip("10.0.0.1"), &broken).ip, ip("10.2.2.2"));
        for empty in ["203.0.113.9,", "203.0.113.9, ,", ",203.0.113.9,\t,10.2.2.2, "] {
            let headers = map(&[("x-forwarded-for", empty), ("x-forwarded-for", "")]);
            assert_eq!(find(&config, ip("10.0.0.1"), &headers).ip, ip("203.0.113.9"), "{empty}");
        }
        let mapped = map(&[("x-forwarded-for", "::ffff:203.0.113.9")]);
        assert_eq!(find(&config, ip("::ffff:10.0.0.1"), &mapped).ip, ip("203.0.113.9"));
        for zoned in
            ["fe80::9%eth0", "[fe80::9%eth0]", "[fe80::9%25eth0]:4711", "6.6.6.6, fe80::9%1, 10.2.2.2"]
        {
            let headers = map(&[("x-forwarded-for", zoned)]);
            assert_eq!(find(&config, ip("10.0.0.1"), &headers).ip, ip("fe80::9"), "{zoned}");
        }
        let no_zone = map(&[("x-forwarded-for", "6.6.6.6, 203.0.113.9%eth0")]);
        assert_eq!(find(&config, ip("10.0.0.1"), &no_zone).ip, ip("10.0.0.1"), "IPv4 has none");
        let port = map(&[("x-forwarded-for", "203.0.113.9:4711")]);
        assert_eq!(find(&config, ip("10.0.0.1"), &port).ip, ip("203.0.113.9"));
    }

    #[test]
    fn what_was_asked_for_is_the_word_of_the_hop_nearest_to_the_client() {
        let asked = |header, peer: &str, lines: &[(&'static str, &'static str)]| {
            let ForwardedTarget { scheme, authority } = asked(&trusting(header), ip(peer), &map(lines));
            (scheme.unwrap_or("-"), authority.unwrap_or("-".into()).into_string())
        };
        let x_forwarded = |lines: &[_]| asked(ForwardedHeader::XForwarded, "10.0.0.1", lines);
        let of = |scheme, authority: &str| (scheme, authority.to_owned());
        let (host, proto) = (("x-forwarded-host", "a.example:8443"), ("x-forwarded-proto", "HTTPS"));
        let client = ("x-forwarded-for", "192.0.2.7");
        assert_eq!(x_forwarded(&[host, proto, client]), of("https", "a.example:8443"));
        assert_eq!(x_forwarded(&[host]), of("-", "a.example:8443"));
        assert_eq!(
            x_forwarded(&[("x-forwarded-host", "a/b"), ("x-forwarded-proto", "gopher")]),
            of("-", "-")
        );
        // A client forged the first ones; the hop wrote the last.
        let forged = [("x-forwarded-host", "evil, a.example"), ("x-forwarded-proto", "http, https")];
        assert_eq!(x_forwarded(&[&forged[..], &[client]].concat()), of("https", "a.example"));
        // Two hops, each of which has appended; or only the first one has written.
        let hops = ("x-forwarded-for", "6.6.6.6, 192.0.2.7, 10.0.0.2");
        let each =
            [hops, ("x-forwarded-host", "evil, a.example, inside"), ("x-forwarded-proto", "https, http")];
        assert_eq!(x_forwarded(&each), of("https", "a.example"));
        assert_eq!(x_forwarded(&[hops, host, proto]), of("https", "a.example:8443"));
        let forwarded = |line| asked(ForwardedHeader::Forwarded, "10.0.0.1", &[("forwarded", line)]);
        let line =
            "for=6.6.6.6;host=evil, for=192.0.2.7;host=\"[2001:db8::1]:47\";proto=https, for=10.2.2.2;host=b";
        assert_eq!(forwarded(line), of("https", "[2001:db8::1]:47"));
        assert_eq!(forwarded("for=_hidden;proto=http;host=a"), of("http", "a"));
        assert_eq!(forwarded(""), of("-", "-"));
    }

    #[test]
    fn forwarded_is_read_as_rfc_7239_writes_it() {
        let config = trusting(ForwardedHeader::Forwarded);
        let headers =
            map(&[("forwarded", "for=6.6.6.6, proto=https;For=\"[2001:db8::1]:47\";host=a, for=10.2.2.2")]);
        assert_eq!(find(&config, ip("10.0.0.1"), &headers).ip, ip("2001:db8::1"));
        let hidden = map(&[("forwarded", "for=6.6.6.6, for=_hidden")]);
        assert_eq!(find(&config, ip("10.0.0.1"), &hidden).ip, ip("10.0.0.1"));
    }
}
