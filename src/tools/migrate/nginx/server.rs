//! A server of nginx, and what is known of it while its routes are made.

use super::super::notes::SourceLine;
use super::lexer::Directive;
use super::prefix::Match;
use super::scope::Scope;
use super::values::VarScope;

/// A place of another server that keeps clients out: its line, and what its paths begin with.
pub(super) type GuardedPath = (SourceLine, String);

/// A server, and what is known of it.
#[derive(Clone)]
pub(super) struct Server<'d> {
    pub(super) block: &'d Directive,
    /// Its first name, or nothing.
    pub(super) name: String,
    /// The hosts of its routes. Empty: all that no other route names, as of nginx's default server.
    pub(super) hosts: Vec<String>,
    pub(super) listens: Vec<Listen>,
    /// `http` or `https`, if it listens for one of the two.
    pub(super) scheme: Option<&'static str>,
    /// Whether it is reached through other ports than the rest, so that its routes are closed.
    pub(super) is_apart: bool,
    /// Whether a name of it is an expression, which is no host.
    pub(super) has_unsaid_names: bool,
    /// Places that another port keeps clients out of, closed here because all ports serve them.
    pub(super) kept: Vec<GuardedPath>,
}

impl<'d> Server<'d> {
    /// What is known of a place in it.
    pub(super) fn around<'a>(&'a self, scope: &'a Scope<'d>) -> VarScope<'a, 'd> {
        VarScope { scope, server_name: &self.name, scheme: self.scheme, proxy_host: "" }
    }

    /// Whether a location without an expression begins with a text and goes on.
    pub(super) fn has_longer_prefix(&self, text: &str) -> bool {
        let locations = self.block.block().iter().filter(|inside| inside.name == "location");
        let mut prefixes = locations.filter_map(|location| match Match::of(location) {
            Match::Prefix(prefix) if location.arg(0) != "^~" => Some(prefix),
            _ => None,
        });
        prefixes.any(|prefix| prefix.len() > text.len() && prefix.starts_with(text))
    }
}

#[derive(Clone)]
pub(super) struct Listen {
    /// Address and port as `bind` has them.
    pub(super) address: String,
    pub(super) tls: bool,
    pub(super) http2: bool,
    pub(super) is_default: bool,
    pub(super) proxy_protocol: bool,
}
