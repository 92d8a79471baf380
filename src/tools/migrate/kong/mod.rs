//! kong.yml, Kong's declarative configuration: services, routes, upstreams, consumers, and plugins that have a counterpart.

mod access;
mod consumers;
mod fields;
mod limits;
mod plugins;
mod routes;
mod services;
mod unread_keys;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use config::printer::text;

use super::draft::{Draft, Route, Section};
use super::file::Error;
use super::notes::SourceLine;
use super::yaml::Node;
use super::yaml_file;

/// What differs in every configuration.
pub(super) const EVERYWHERE: &[&str] = &[
    "kong.conf says where Kong listens, and is not read: the listener has Kong's default, port 8000 without TLS. \
     Write `certs` for TLS.",
    "The most specific host decides, then the path.",
    "A slash at the end of a path makes no difference.",
    "A failed request is retried at most once. Certificates of https services are verified.",
    "Limits answer 429 with Retry-After; IPv6 clients are counted by /64 (`ipv6-prefix` of [client-ip]).",
    "X-Forwarded-* of clients is removed unless `client-ip.trust` lists them; X-Kong-* headers are not sent.",
    "A value added to a header that the gateway sets itself (X-Forwarded-*, X-Request-Id, Via) replaces the gateway's.",
    "Upstreams get X-Consumer-Username, but no other X-Consumer-* or X-Credential-* header.",
];

/// Everything that the parts of the reader share.
struct Reading<'d> {
    draft: &'d mut Draft,
    file: String,
    root: &'d Node,
    /// Where the file of keys is going to be.
    keys: Option<&'d Path>,
    /// Policies that were made, by the place of their plugin in the tree: routes that share a plugin share a policy.
    policies: BTreeMap<usize, Vec<String>>,
    /// Consumers that plugins of their own may refuse: none of their credentials is taken over.
    refused: BTreeSet<String>,
    /// Routes that were read, each with what it is listed as.
    routes: Vec<(Route, String)>,
    /// Hosts all of whose routes are closed; none for all.
    closed_hosts: Vec<Vec<String>>,
}

/// Reads a text into the draft.
pub(super) fn read(path: &Path, text_of: &str, keys: Option<&Path>, draft: &mut Draft) -> Result<(), Error> {
    let file = path.display().to_string();
    let root = yaml_file::tree(path, text_of)?;
    if !["_format_version", "services", "routes"].iter().any(|key| root.get(key).is_some()) {
        let message = "there is no `_format_version`, no service and no route: is it a kong.yml?".to_owned();
        return Err(Error::Syntax { file, line: root.line, message });
    }
    let mut listener = Section::new("proxy");
    listener.key("bind", text("0.0.0.0:8000"));
    draft.listeners.push(listener);
    let mut reading = Reading {
        draft,
        file,
        root: &root,
        keys,
        policies: BTreeMap::new(),
        refused: BTreeSet::new(),
        routes: Vec::new(),
        closed_hosts: Vec::new(),
    };
    reading.consumers();
    reading.services();
    reading.add_routes();
    unread_keys::UNREAD.list(&root, &reading.file, &mut reading.draft.notes);
    Ok(())
}

impl<'d> Reading<'d> {
    fn place(&self, node: &Node) -> SourceLine {
        SourceLine { file: self.file.clone(), line: node.line }
    }

    /// Lists a value as left out, and everything in it as read.
    fn left_out(&mut self, node: &Node, what: &str, why: &str) {
        node.dismiss();
        let place = self.place(node);
        self.draft.notes.left_out(&place, what, why);
    }

    fn differs(&mut self, node: &Node, what: &str, why: &str) {
        let place = self.place(node);
        self.draft.notes.differs(&place, what, why);
    }

    /// The parts of a kind: those that stand in an entity, and those at the top that name it by `key`.
    fn parts(&self, entity: &'d Node, list: &str, key: &str) -> Vec<&'d Node> {
        let root = self.root;
        let is_of = |part: &&Node| part.get(key).is_some_and(|named| names(named, entity));
        entity.list(list).iter().chain(root.list(list).iter().filter(is_of)).collect()
    }
}

/// Whether a reference, by name or as `{ name: … }`, is to an entity.
fn names(reference: &Node, entity: &Node) -> bool {
    let keys = ["name", "username", "custom_id", "id"];
    let own: Vec<&str> = keys.iter().filter_map(|key| entity.get(key)?.peek()).collect();
    let is_own = |text: &str| own.contains(&text).then_some(());
    let inner = keys.iter().find_map(|key| reference.get(key));
    inner.unwrap_or(reference).parsed(is_own).is_some()
}

/// The name of an entity, or another word.
fn name_of(entity: &Node, otherwise: &str) -> String {
    entity.word("name").unwrap_or(otherwise).to_owned()
}

/// The place of a node in the tree, by which parts that share it are told.
fn address(node: &Node) -> usize {
    std::ptr::from_ref(node).addr()
}
