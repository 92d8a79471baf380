//! Chains of filters: which connections each of them takes, and what of that routes can ask of requests.
//!
//! Envoy closes a connection that no chain takes. Here ranges of clients become `allow`, names that clients ask for in TLS
//! become hosts; a chain that asks for anything else is closed.

use std::net::{IpAddr, SocketAddr};

use super::super::draft::texts;
use super::super::yaml::Node;
use super::Reading;
use super::hosts::bare;

/// What a chain asks of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChainMatch {
    /// Names that clients ask for in TLS. Empty: any.
    pub(super) names: Vec<String>,
    /// Ranges of clients' addresses. Empty: any.
    pub(super) allow: Vec<String>,
    /// It asks for what cannot be said here.
    is_unsaid: bool,
}

/// A connection manager, and what its chain asks of connections.
pub(super) struct Chain<'d> {
    pub(super) manager: &'d Node,
    pub(super) asked: ChainMatch,
}

/// What is true of every connection of a listener.
struct Listening<'a> {
    bind: &'a str,
    /// Whether its filters may change the addresses of a connection.
    changes_addresses: bool,
    /// Whether some chain of it speaks in the clear, and whether some speaks TLS.
    has_clear: bool,
    has_tls: bool,
}

impl<'d> Reading<'d> {
    /// What each chain of a listener asks. `None`, which is listed, if that cannot be said: its routes are closed then.
    pub(super) fn asked(
        &mut self,
        node: &'d Node,
        chains: &[&'d Node],
        bind: &str,
    ) -> Option<Vec<ChainMatch>> {
        let has_tls = |chain: &&Node| chain.get("transport_socket").is_some();
        // Those of the PROXY protocol and of redirected connections do, and others may.
        let changes = |filter: &Node| {
            let name = filter.word("name").unwrap_or_default();
            !["tls_inspector", "http_inspector"].iter().any(|known| name.ends_with(known))
        };
        let listening = Listening {
            bind,
            changes_addresses: node.list("listener_filters").iter().any(changes)
                || node.is("use_original_dst"),
            has_clear: !chains.iter().all(has_tls),
            has_tls: chains.iter().any(has_tls),
        };
        let asked: Vec<ChainMatch> =
            chains.iter().map(|chain| self.asked_by(chain, has_tls(chain), &listening)).collect();
        let matcher = node.get("filter_chain_matcher");
        if let Some(matcher) = matcher {
            let why = "it decides which clients are served; all routes of this listener are closed (501) until you \
                rewrite it";
            self.left_out(matcher, "filter_chain_matcher", why);
        }
        // They clash, because of two chains for the same names the address decides, which routes do not tell apart.
        let clash = |one: &ChainMatch, other: &ChainMatch| {
            let shares = one.names.is_empty() && other.names.is_empty()
                || one.names.iter().any(|name| other.names.contains(name));
            shares && one.allow != other.allow
        };
        let clashes =
            asked.iter().enumerate().any(|(index, one)| asked[index + 1..].iter().any(|it| clash(one, it)));
        if clashes {
            let why = "its chains differ by client addresses, and routes cannot; all routes of this listener are \
                closed (501) until you rewrite it";
            let place = self.place(node);
            self.draft.notes.left_out(&place, "filter_chain_match", why);
        }
        let is_said = matcher.is_none() && !clashes && !asked.iter().any(|asked| asked.is_unsaid);
        is_said.then_some(asked)
    }

    fn asked_by(&mut self, chain: &'d Node, is_tls: bool, listening: &Listening<'_>) -> ChainMatch {
        let mut asked = ChainMatch::default();
        let Some(matched) = chain.get("filter_chain_match") else { return asked };
        let mut lost: Vec<&str> = Vec::new();
        for (key, value) in matched.entries() {
            let is = |known: &str| matched.get(known).is_some_and(|found| std::ptr::eq(found, value));
            // Nothing is asked, because what is null is not there.
            let is_said = matched.get(key).is_none()
                || if is("source_prefix_ranges") || is("direct_source_prefix_ranges") {
                    !listening.changes_addresses && asked.add_ranges(value)
                } else if is("server_names") {
                    is_tls && asked.add_names(value)
                } else {
                    listening.always_meets(value, &is)
                };
            if !is_said {
                lost.push(key);
            }
        }
        if !lost.is_empty() {
            let why = format!(
                "`{}` cannot express which connections it takes; all routes of this listener are closed (501) until \
                 you rewrite it",
                lost.join("`, `")
            );
            self.left_out(matched, "filter_chain_match", &why);
            asked.is_unsaid = true;
            return asked;
        }
        matched.dismiss();
        if !asked.allow.is_empty() {
            let why = "clients of other addresses are answered 403, their connections are not closed";
            self.differs(matched, &format!("filter_chain_match {}", texts(&asked.allow)), why);
        }
        if !asked.names.is_empty() {
            let why = "the host of the request decides, not the server name of the TLS handshake";
            self.differs(matched, &format!("filter_chain_match {}", texts(&asked.names)), why);
        }
        asked
    }
}

impl ChainMatch {
    /// Adds ranges of clients; `false` if they cannot be said, or are others than those that are there.
    fn add_ranges(&mut self, node: &Node) -> bool {
        let ranges = node.items().iter().map(range).collect::<Option<Vec<_>>>();
        match ranges {
            Some(ranges) if self.allow.is_empty() => self.allow = ranges,
            Some(ranges) => return ranges.is_empty() || ranges == self.allow,
            None => return false,
        }
        true
    }

    fn add_names(&mut self, node: &Node) -> bool {
        let name = |node: &Node| bare(node.text()?).filter(|name| !name.is_empty());
        let names = node.items().iter().map(name).collect::<Option<Vec<_>>>();
        names.map(|names| self.names = names).is_some()
    }
}

impl Listening<'_> {
    /// Whether every connection that can be served has what is asked for.
    fn always_meets(&self, value: &Node, is: &impl Fn(&str) -> bool) -> bool {
        let socket = self.bind.parse::<SocketAddr>().ok().filter(|_| !self.changes_addresses);
        if is("transport_protocol") {
            return match value.text() {
                Some("tls") => !self.has_clear,
                Some("raw_buffer") => !self.has_tls,
                text => text == Some(""),
            };
        }
        if is("source_type") {
            return value.text() == Some("ANY");
        }
        if is("destination_port") {
            return socket.is_some_and(|socket| value.number() == Some(socket.port().into()));
        }
        let holds = |ip: IpAddr| {
            let ranges = value.items().iter().filter_map(range);
            ranges.filter_map(|range| range.parse::<ipnet::IpNet>().ok()).any(|range| range.contains(&ip))
        };
        let ip = socket.map(|socket| socket.ip()).filter(|ip| !ip.is_unspecified());
        is("prefix_ranges") && ip.is_some_and(holds)
    }
}

/// A range as lists of addresses have it. Without a length it is every address.
fn range(node: &Node) -> Option<String> {
    let length =
        node.get("prefix_len").map_or(Some(0), |length| length.number().or_else(|| length.count("value")))?;
    let range: ipnet::IpNet = format!("{}/{length}", node.word("address_prefix")?).parse().ok()?;
    Some(range.trunc().to_string())
}
