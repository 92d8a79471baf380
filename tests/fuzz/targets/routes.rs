//! Routing: the tree finds what looking at every route would find, and a path is routed like its one form.

#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use base::identity::Identity;
use http::{HeaderMap, Method};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use policy::definition::RouteDefinition;
use policy::matching::path::{self, Canonical};
use policy::{CompileOptions, NotFound, RouteTable, RoutingFacts};

#[derive(Arbitrary, Debug)]
struct Input {
    routes: Vec<Wanted>,
    asked: Vec<Asked>,
}

#[derive(Arbitrary, Debug)]
struct Wanted {
    host: Name,
    segments: Vec<Segment>,
    /// What stands before `{*rest}` at the end.
    rest: Option<Begin>,
    slash: bool,
    get: bool,
    post: bool,
    head: bool,
}

#[derive(Arbitrary, Debug)]
struct Asked {
    host: Name,
    segments: Vec<Segment>,
    slash: bool,
    method: u8,
}

/// Few names, so that they meet.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Name {
    Any,
    A,
    UnderA,
    DeepUnderA,
    B,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Segment {
    A,
    B,
    Encoded,
    Param,
    Dots,
    Empty,
    LongA,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Begin {
    Nothing,
    A,
    LongA,
}

fuzz_target!(|input: Input| {
    if input.routes.len() > 16 || input.asked.len() > 16 {
        return;
    }
    let routes: Vec<RouteDefinition> =
        input.routes.iter().enumerate().map(|(index, wanted)| route(index, wanted)).collect();
    let options = CompileOptions { salt: [0; 16], ipv6_prefix: 64, upstreams: &[], auth: &[] };
    // Those that tie, or that no request can match, do not compile; that is for others to test.
    let Ok(table) = RouteTable::compile(&routes, &[], &options) else { return };
    for asked in &input.asked {
        let sent = sent(asked);
        // What servers read in more than one way is for the route to keep or not, once it is found.
        let Ok(Canonical { path, doubt: None }) = path::canonical(&sent) else { continue };
        let method =
            [Method::GET, Method::HEAD, Method::POST, Method::PUT][usize::from(asked.method % 4)].clone();
        let host = request_host(asked.host);
        let (headers, identity) = (HeaderMap::new(), Identity::default());
        let facts = RoutingFacts {
            method: &method,
            host,
            path: &path,
            query: None,
            headers: &headers,
            client_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            trusted_peer: false,
            identity: &identity,
            refused: false,
            body: None,
        };
        let found = table.find(&facts);
        let wins = best(&routes, &method, host, &path);
        match (found, wins) {
            (Ok(found), Some(index)) => {
                assert_eq!(found.route.id.index(), index, "{method} {host} {path} {routes:?}")
            }
            (Err(NotFound::Route), None) => assert!(!any_method(&routes, host, &path)),
            (Err(NotFound::Method { .. }), None) => assert!(any_method(&routes, host, &path)),
            (found, wins) => panic!("{found:?}, but {wins:?}: {method} {host} {path} {routes:?}"),
        }
    }
});

fn route(index: usize, wanted: &Wanted) -> RouteDefinition {
    let mut path: String =
        wanted.segments.iter().zip(0..).map(|(segment, at)| pattern(*segment, at)).collect();
    path += match wanted.rest {
        None => "",
        Some(Begin::Nothing) => "/{*rest}",
        Some(Begin::A) => "/a{*rest}",
        Some(Begin::LongA) => "/ab{*rest}",
    };
    if wanted.slash || path.is_empty() {
        path += "/";
    }
    let methods = [(wanted.get, Method::GET), (wanted.post, Method::POST), (wanted.head, Method::HEAD)];
    RouteDefinition {
        hosts: route_host(wanted.host).map(str::to_owned).into_iter().collect(),
        methods: methods.into_iter().filter(|(listed, _)| *listed).map(|(_, method)| method).collect(),
        ..RouteDefinition::new(format!("r{index}"), path)
    }
}

fn pattern(segment: Segment, at: usize) -> String {
    match segment {
        Segment::A | Segment::LongA => "/a".to_owned(),
        Segment::B => "/b".to_owned(),
        Segment::Encoded | Segment::Dots | Segment::Empty => "/%7e".to_owned(),
        Segment::Param => format!("/{{p{at}}}"),
    }
}

fn sent(asked: &Asked) -> String {
    let mut path: String = asked
        .segments
        .iter()
        .map(|segment| match segment {
            Segment::A => "/a",
            Segment::B => "/%62",
            Segment::Encoded => "/~",
            Segment::Param => "/c",
            Segment::Dots => "/..",
            Segment::Empty => "/",
            Segment::LongA => "/abc",
        })
        .collect();
    if asked.slash || path.is_empty() {
        path.push('/');
    }
    path
}

fn route_host(name: Name) -> Option<&'static str> {
    match name {
        Name::Any => None,
        Name::A => Some("a"),
        Name::UnderA => Some("*.a"),
        Name::DeepUnderA => Some("*.x.a"),
        Name::B => Some("x.a"),
    }
}

fn request_host(name: Name) -> &'static str {
    match name {
        Name::Any => "",
        Name::A => "a",
        Name::UnderA => "y.a",
        Name::DeepUnderA => "y.x.a",
        Name::B => "x.a",
    }
}

/// How specific a route is for a request, the greater the more: host, then path, then method. `None`: it does not match.
type Rank = ((bool, usize), Vec<u8>, u8);

/// The most specific route, by looking at every one.
fn best(routes: &[RouteDefinition], method: &Method, host: &str, path: &str) -> Option<usize> {
    let ranked = routes
        .iter()
        .enumerate()
        .filter_map(|(index, route)| Some((rank(route, method, host, path)?, index)));
    ranked.max().map(|(_, index)| index)
}

fn rank(route: &RouteDefinition, method: &Method, host: &str, path: &str) -> Option<Rank> {
    let method = match &route.methods[..] {
        [] => 0,
        listed if listed.contains(method) => 2,
        listed if method == Method::HEAD && listed.contains(&Method::GET) => 1,
        _ => return None,
    };
    Some((rank_host(route, host)?, rank_path(&route.path, path)?, method))
}

fn any_method(routes: &[RouteDefinition], host: &str, path: &str) -> bool {
    routes.iter().any(|route| rank_host(route, host).is_some() && rank_path(&route.path, path).is_some())
}

fn rank_host(route: &RouteDefinition, host: &str) -> Option<(bool, usize)> {
    let Some(wanted) = route.hosts.first() else { return Some((false, 0)) };
    match wanted.strip_prefix('*') {
        Some(suffix) => {
            (host.ends_with(suffix) && host.len() > suffix.len()).then_some((false, wanted.len()))
        }
        None => (host == wanted).then_some((true, 0)),
    }
}

/// One number a segment: literal before the longest beginning before parameter before the end before what takes the rest.
fn rank_path(pattern: &str, path: &str) -> Option<Vec<u8>> {
    let parts = |text: &'_ str| -> Vec<String> {
        let inner = text.trim_start_matches('/');
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        inner.split('/').filter(|_| !inner.is_empty()).map(|part| part.replace("%7e", "~")).collect()
    };
    let (wanted, asked) = (parts(pattern), parts(path));
    let mut rank = Vec::new();
    for (index, part) in wanted.iter().enumerate() {
        if part.starts_with("{*") {
            rank.push(0);
            return Some(rank);
        }
        let asked = asked.get(index)?;
        if let Some((begin, _)) = part.split_once("{*") {
            rank.push(2 + begin.len() as u8);
            return asked.starts_with(begin).then_some(rank);
        }
        match part.starts_with('{') {
            true => rank.push(2),
            false if part == asked => rank.push(9),
            false => return None,
        }
    }
    rank.push(1);
    (wanted.len() == asked.len()).then_some(rank)
}
