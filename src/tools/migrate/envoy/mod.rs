//! A bootstrap of Envoy, as YAML or JSON: listeners, routes, clusters and local rate limits of its static resources.

mod actions;
mod chains;
mod clusters;
mod descriptors;
mod fields;
mod filters;
mod hosts;
mod limits;
mod listeners;
mod matches;
mod ports;
mod servers;

/// Whether all connection managers refuse encoded slashes, and whether all normalize paths.
fn reads_paths(resources: &Node) -> (bool, bool) {
    let chains = resources.list("listeners").iter().flat_map(|listener| {
        listener.list("filter_chains").iter().chain(listener.get("default_filter_chain"))
    });
    let managers =
        chains.flat_map(|chain| chain.list("filters")).filter_map(|filter| filter.get("typed_config"));
    let mut said = (true, true);
    for manager in managers.filter(|config| kind(config) == "HttpConnectionManager") {
        said.0 &= manager.word("path_with_escaped_slashes_action") == Some("REJECT_REQUEST");
        said.1 &= manager.is("normalize_path") && manager.is("merge_slashes");
    }
    said
}

#[cfg(test)]
mod tests;
mod unread_keys;

use std::collections::BTreeMap;
use std::path::Path;

use super::draft::Draft;
use super::file::Error;
use super::notes::SourceLine;
use super::yaml::Node;
use super::yaml_file;

/// What differs in every configuration.
pub(super) const EVERYWHERE: &[&str] = &[
    "The most specific route decides, not the first one; a route that this would change is listed above.",
    "A slash at the end of a path makes no difference.",
    "All listeners serve all routes.",
    "Buckets refill continuously, not once in a `fill_interval`; a refusal has Retry-After and a body.",
    "Without a timeout, a connection to an upstream may take 1 s and the head of a response 15 s.",
    "X-Forwarded-* of clients is removed unless `client-ip.trust` lists them; x-envoy-* headers are not sent.",
    "A value added to a header that the gateway sets itself (X-Forwarded-*, X-Request-Id, Via) replaces the gateway's.",
    "A request is retried at most once, and only if it is idempotent and has no body.",
];

/// Everything that the parts of the reader share.
struct Reading<'d> {
    draft: &'d mut Draft,
    file: String,
    /// Where relative paths start from.
    directory: &'d Path,
    resources: &'d Node,
    /// Policies that were made, by the place of their bucket in the tree: routes that share a bucket share a policy.
    policies: BTreeMap<usize, String>,
}

/// Reads a text into the draft.
pub(super) fn read(path: &Path, text: &str, draft: &mut Draft) -> Result<(), Error> {
    let file = path.display().to_string();
    let root = yaml_file::tree(path, text)?;
    let Some(resources) = root.get("static_resources") else {
        let message =
            "there is no `static_resources`: configurations that a control plane sends cannot be read"
                .to_owned();
        return Err(Error::Syntax { file, line: root.line, message });
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut reading = Reading { draft, file, directory, resources, policies: BTreeMap::new() };
    reading.listeners();
    let (rejects, normalizes) = reads_paths(reading.resources);
    reading.draft.list_paths(path, rejects, normalizes);
    unread_keys::UNREAD.list(&root, &reading.file, &mut reading.draft.notes);
    Ok(())
}

impl Reading<'_> {
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
}

/// The last part of the type of a `typed_config`: `HttpConnectionManager`.
fn kind(config: &Node) -> &str {
    let kind = config.word("@type").unwrap_or_default();
    kind.rsplit('.').next().unwrap_or_default()
}
