//! Finding the client's address: nothing that an untrusted hop writes changes the address that trusted hops report.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gateway::proxy::config::{ClientIp, ForwardedHeader};
use gateway::proxy::request::client;
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'i> {
    forwarded: bool,
    /// The socket's other end: a trusted hop or anybody.
    peer: Node,
    /// What a client sends, lines of any bytes.
    claimed: Vec<&'i [u8]>,
    /// What the hops behind it append, the first one's first.
    hops: Vec<Hop<'i>>,
}

#[derive(Arbitrary, Debug)]
struct Hop<'i> {
    /// Whom this hop was spoken to by.
    node: Node,
    /// What it was asked for: of the client's choosing, quoted as RFC 7239 asks.
    host: &'i str,
    port: Option<u16>,
    own_line: bool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Node {
    Trusted(u8),
    V4(u32),
    V6(u128),
}

fuzz_target!(|input: Input<'_>| {
    let header = if input.forwarded { ForwardedHeader::Forwarded } else { ForwardedHeader::XForwarded };
    let name = HeaderName::from_static(if input.forwarded { "forwarded" } else { "x-forwarded-for" });
    let trust = vec!["10.0.0.0/8".parse().expect("a net")];
    let config = ClientIp { trust, header, ..ClientIp::default() };
    let peer = address(input.peer);

    let mut lines: Vec<Vec<u8>> = input.claimed.iter().map(|line| line.to_vec()).collect();
    for hop in &input.hops {
        let element = element(hop, input.forwarded);
        match lines.last_mut() {
            Some(line) if !hop.own_line => {
                line.extend_from_slice(b", ");
                line.extend_from_slice(element.as_bytes());
            }
            _ => lines.push(element.into_bytes()),
        }
    }
    let mut sent = HeaderMap::new();
    for line in &lines {
        let Ok(line) = HeaderValue::from_bytes(line) else { return };
        sent.append(&name, line);
    }
    let found = client::find(&config, peer, &sent);
    assert_eq!(found.trusted_peer, is_trusted(peer));

    // From the right: the first that is not trusted. Where all are, it is for the client's claim to name one.
    let chain = input.hops.iter().map(|hop| address(hop.node)).chain([peer]);
    if let Some(client) = chain.rev().find(|ip| !is_trusted(*ip)) {
        assert_eq!(found.ip, client, "{sent:?}");
    }
    assert_eq!(found.ip, found.ip.to_canonical());
});

/// What a hop appends, as RFC 7239 section 4 and the older field have it.
fn element(hop: &Hop<'_>, forwarded: bool) -> String {
    let (ip, port) = (written(hop.node), hop.port);
    let node = match (ip, port) {
        (IpAddr::V4(ip), Some(port)) => format!("{ip}:{port}"),
        (IpAddr::V6(ip), Some(port)) => format!("[{ip}]:{port}"),
        (IpAddr::V6(ip), None) if forwarded => format!("[{ip}]"),
        (ip, None) => ip.to_string(),
    };
    if !forwarded {
        return node;
    }
    let mut host = String::new();
    for character in hop.host.chars().filter(|character| matches!(character, ' '..='~')) {
        if matches!(character, '"' | '\\') {
            host.push('\\');
        }
        host.push(character);
    }
    format!("for=\"{node}\";host=\"{host}\";proto=https")
}

fn written(node: Node) -> IpAddr {
    match node {
        Node::Trusted(last) => IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
        Node::V4(bits) => IpAddr::V4(Ipv4Addr::from_bits(bits)),
        Node::V6(bits) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

fn address(node: Node) -> IpAddr {
    written(node).to_canonical()
}

fn is_trusted(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.octets()[0] == 10)
}
