//! Keys of limits: the dimensions of a key can be read back from it, so no two clients share one.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base::identity::{Claim, Identity};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use policy::definition::{Dimension, Missing, RouteDefinition};
use policy::keys::key::KeyMaker;
use policy::{CompileOptions, HttpSubject, RouteTable, RoutingFacts};

#[derive(Arbitrary, Debug)]
struct Input {
    left: Caller,
    right: Caller,
    /// Bits say which dimensions count.
    by: u16,
    windows: [bool; 2],
    missing_skips: bool,
}

#[derive(Arbitrary, Debug)]
struct Caller {
    policy: String,
    consumer: Option<String>,
    tenant: Option<String>,
    claim: Option<String>,
    header: Vec<Vec<u8>>,
    query: Option<String>,
    /// As the path's one form has it.
    segment: String,
    ip: Result<u32, u128>,
    post: bool,
    host: String,
}

fuzz_target!(|input: Input| {
    let by: Vec<Dimension> = dimensions()
        .into_iter()
        .zip(0..)
        .filter(|(_, bit)| input.by >> bit & 1 == 1)
        .map(|(by, _)| by)
        .collect();
    let missing = if input.missing_skips { Missing::Skip } else { Missing::Ip };
    let [left, right] =
        [(&input.left, input.windows[0]), (&input.right, input.windows[1])].map(|(caller, window)| {
            let keys = KeyMaker::new(&[7; 16], &caller.policy, 2, &by, missing, IPV6_PREFIX);
            let encoded = encode(&keys, caller)?;
            let values = read(&encoded);
            assert_eq!(values.len(), by.len());
            for (value, dimension) in values.iter().zip(&by) {
                assert_eq!(value, &meant(dimension, caller), "{dimension}");
            }
            let key = keys.key(usize::from(window), &encoded);
            Some(((caller.policy.clone(), window, values), key))
        });
    // 128 bits under a secret: equal keys are equal callers, as far as a fuzzer lives to see.
    if let (Some((left, left_key)), Some((right, right_key))) = (left, right) {
        assert_eq!(left == right, left_key == right_key, "{left:?} {right:?}");
    }
});

fn dimensions() -> [Dimension; 10] {
    [
        Dimension::Consumer,
        Dimension::Tenant,
        Dimension::Ip,
        Dimension::Route,
        Dimension::Method,
        Dimension::Header(HeaderName::from_static("x-key")),
        Dimension::Query("q".to_owned()),
        Dimension::Param("id".to_owned()),
        Dimension::Claim("c".to_owned()),
        Dimension::Host,
    ]
}

/// The encoding; `None` where the policy does not apply, or this is no request.
fn encode(keys: &KeyMaker, caller: &Caller) -> Option<Vec<u8>> {
    let mut headers = HeaderMap::new();
    for line in &caller.header {
        headers.append("x-key", HeaderValue::from_bytes(line).ok()?);
    }
    let identity = Identity {
        consumer: caller.consumer.as_deref().map(Into::into),
        tenant: caller.tenant.as_deref().map(Into::into),
        tier: None,
        claims: caller.claim.iter().map(|claim| ("c".into(), Claim::One(claim.as_str().into()))).collect(),
    };
    let path = format!("/{}", caller.segment);
    let facts = RoutingFacts {
        method: if caller.post { &Method::POST } else { &Method::GET },
        host: &caller.host,
        path: &path,
        query: caller.query.as_deref(),
        headers: &headers,
        client_ip: address(caller),
        trusted_peer: false,
        identity: &identity,
        refused: false,
        body: None,
    };
    let table = table();
    let found = table.find(&facts).ok()?;
    let subject = HttpSubject { route: ROUTE, params: found.params, facts: &facts };
    keys.encode(&subject).ok().map(|encoded| encoded.to_vec())
}

/// One route, `/{id}`.
fn table() -> RouteTable {
    let route = RouteDefinition::new(ROUTE.to_owned(), "/{id}".to_owned());
    let options = CompileOptions { salt: [0; 16], ipv6_prefix: IPV6_PREFIX, upstreams: &[], auth: &[] };
    RouteTable::compile(&[route], &[], &options).expect("one route is right")
}

/// What an encoding holds: each value, and whether the client's address stands in its place. Only the documented form
/// is known here.
fn read(mut encoded: &[u8]) -> Vec<(Vec<u8>, bool)> {
    let mut values = Vec::new();
    while let Some((head, rest)) = encoded.split_first_chunk::<8>() {
        let head = u64::from_le_bytes(*head);
        let (value, rest) = rest.split_at((head >> 1) as usize);
        values.push((value.to_vec(), head & 1 == 1));
        encoded = rest;
    }
    assert!(encoded.is_empty(), "bytes beyond the last value");
    values
}

/// The value of a dimension, made another way; with the client's address where there is none.
fn meant(dimension: &Dimension, caller: &Caller) -> (Vec<u8>, bool) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default().into_bytes();
    let value = match dimension {
        Dimension::Consumer => text(&caller.consumer),
        Dimension::Tenant => text(&caller.tenant),
        Dimension::Claim(_) => text(&caller.claim),
        Dimension::Ip => octets(caller),
        Dimension::Route => ROUTE.as_bytes().to_vec(),
        Dimension::Host => caller.host.clone().into_bytes(),
        Dimension::Body(_) | Dimension::Entry(_) | Dimension::Cookie(_) | Dimension::Path => {
            unreachable!("no policy of this target has one")
        }
        Dimension::Method => if caller.post { "POST" } else { "GET" }.as_bytes().to_vec(),
        Dimension::Header(_) => {
            // Lines that differ are no value, and the request is refused.
            assert!(caller.header.windows(2).all(|pair| pair[0] == pair[1]));
            caller.header.first().cloned().unwrap_or_default()
        }
        Dimension::Query(name) => {
            let query = caller.query.as_deref().unwrap_or_default();
            let pair = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
            let mut values = pair.filter(|(key, _)| decoded(key, true) == name.as_bytes());
            values.next().map(|(_, value)| decoded(value, true)).unwrap_or_default()
        }
        Dimension::Param(_) => decoded(caller.segment.strip_suffix('/').unwrap_or(&caller.segment), false),
    };
    if value.is_empty() { (octets(caller), true) } else { (value, false) }
}

fn octets(caller: &Caller) -> Vec<u8> {
    match address(caller).to_canonical() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => {
            let mut octets = ip.octets().to_vec();
            octets[usize::from(IPV6_PREFIX / 8)..].fill(0);
            octets
        }
    }
}

fn address(caller: &Caller) -> IpAddr {
    match caller.ip {
        Ok(bits) => Ipv4Addr::from_bits(bits).into(),
        Err(bits) => Ipv6Addr::from_bits(bits).into(),
    }
}

/// Percent-decoded; a percent sign without two digits is itself.
fn decoded(text: &str, plus_is_space: bool) -> Vec<u8> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let (byte, taken) = match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => ((high << 4 | low) as u8, 3),
            (b'+', ..) if plus_is_space => (b' ', 1),
            (byte, ..) => (byte, 1),
        };
        out.push(byte);
        at += taken;
    }
    out
}

const ROUTE: &str = "route";
const IPV6_PREFIX: u8 = 64;
