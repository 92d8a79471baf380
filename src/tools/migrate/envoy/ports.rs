//! Listeners that one draft cannot hold apart: all listeners serve all routes here, Envoy's each serve their own.

use super::super::other_ports;
use super::super::yaml::Node;
use super::listeners::{address, https_redirect};
use super::{Reading, kind};

/// What becomes of a listener beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Its routes stay open.
    Main,
    /// It needs no routes of its own, because it has the rules of a main one.
    Twin,
    /// Its routes are closed.
    Apart,
    /// It is not opened, because nothing says which of the two is the one for everybody.
    LeftOut,
}

impl<'d> Reading<'d> {
    /// All listeners, those of the main port first: routes of other ports are closed beside its own.
    pub(super) fn listeners(&mut self) {
        let listeners = self.resources.list("listeners").iter();
        let mut listeners: Vec<_> = listeners.map(|listener| (self.side(listener), listener)).collect();
        listeners.sort_by_key(|(side, _)| *side != Side::Main);
        for (side, listener) in listeners {
            self.listener(listener, side);
        }
    }

    /// Which side a listener is on. One that serves no routes is a main one.
    fn side(&self, node: &'d Node) -> Side {
        let Some(port) = served_at(node) else { return Side::Main };
        let fronts = || self.resources.list("listeners").iter().filter_map(|it| Some((it, served_at(it)?)));
        let ports: Vec<other_ports::Ports> =
            fronts().map(|(_, port)| other_ports::Ports::from([port])).collect();
        let Some(main) = other_ports::main_port(ports.iter()).filter(|main| *main != port) else {
            return Side::Main;
        };
        let is_twin = |other: &Node| node.is_like(other, OF_A_PORT);
        if fronts().any(|(other, port)| port == main && is_twin(other)) {
            Side::Twin
        } else if other_ports::is_known(&main, &port) {
            Side::Apart
        } else {
            Side::LeftOut
        }
    }

    /// Whether a listener takes nobody without a certificate, and another one would serve its routes to anybody.
    pub(super) fn is_certified_alone(&self, node: &'d Node) -> bool {
        let is_open = |other: &&Node| served_at(other).is_some() && self.side(other) != Side::LeftOut;
        let mut others = self.resources.list("listeners").iter().filter(is_open);
        asks_for_certificates(node) && others.any(|other| !asks_for_certificates(other))
    }
}

/// Where a listener serves routes; `None` if it serves none, or sends all clients to https.
fn served_at(node: &Node) -> Option<String> {
    let managers = managers(node);
    let is_served = !managers.is_empty() && https_redirect(&managers).is_none();
    is_served.then(|| node.get("address").and_then(address)).flatten().map(|bind| other_ports::port(&bind))
}

/// The connection managers of a listener.
fn managers(node: &Node) -> Vec<&Node> {
    let configs =
        chains(node).flat_map(|chain| chain.list("filters")).filter_map(|it| it.get("typed_config"));
    configs.filter(|config| kind(config) == "HttpConnectionManager").collect()
}

fn asks_for_certificates(node: &Node) -> bool {
    let key = ["transport_socket", "typed_config", "require_client_certificate"];
    chains(node).any(|chain| chain.at(&key).and_then(Node::flag) == Some(true))
}

pub(super) fn chains(node: &Node) -> impl Iterator<Item = &Node> {
    node.list("filter_chains").iter().chain(node.get("default_filter_chain"))
}

/// Keys of a listener that say where it listens and what its numbers are called, not what it serves.
const OF_A_PORT: &[&str] = &["name", "address", "transport_socket", "stat_prefix"];
