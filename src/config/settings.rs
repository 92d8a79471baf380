//! A whole configuration as values of each module's own types. Those types admit no invalid value.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use super::load::mask::Secrets;
use super::reader::canonical_text::Canonical;
use base::words;
use gateway::proxy::config::{ClientIp, ErrorPage, FieldAudience, LimitHeaders};
use gateway::service::config::{ListenerConfig, OverloadConfig};
use observe::record::{self, decisions::DecisionsConfig};
use policy::keys::naming::AddressDetail;

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The files it was read from, the main one first.
    pub files: Vec<PathBuf>,
    /// Worker threads. `None`: one for each core.
    pub workers: Option<usize>,
    pub listeners: Vec<ListenerConfig>,
    pub client_ip: ClientIp,
    pub overload: OverloadConfig,
    pub auth: Vec<auth::Config>,
    /// Upstreams, including those that routes write as URLs.
    pub upstreams: Vec<upstream::Config>,
    /// Whom the names of servers are asked of.
    pub dns: upstream::dns::Config,
    pub limits: Limits,
    /// Tiers and their windows, in the order written.
    pub tiers: Vec<policy::definition::TierDefinition>,
    /// Policies, including those that shorthands expand to.
    pub policies: Vec<policy::definition::PolicyDefinition>,
    pub routes: Vec<policy::definition::RouteDefinition>,
    /// Domains of descriptors that other proxies ask about.
    pub domains: Vec<policy::matching::domain::definition::DomainDefinition>,
    /// The admin listener; `None`: off.
    pub admin: Option<control::admin::Config>,
    pub grpc: Option<rls::Config>,
    pub redis: Option<limiter::global::Config>,
    /// Where policies, tiers and overrides that change while traffic runs are kept; `None`: nothing changes but by files.
    pub database: Option<control::database::Config>,
    pub error_pages: Vec<ErrorPage>,
    pub shutdown: Shutdown,
    pub node: Node,
    pub privacy: AddressDetail,
    /// The process's own log: a level, or directives as `tracing` reads them.
    pub log_level: String,
    pub access_log: record::AccessConfig,
    pub decisions: DecisionsConfig,
    pub trace: Option<observe::trace::Config>,
    /// What came from outside the files and is shown nowhere.
    pub(super) secrets: Secrets,
    /// What the files say, as they could have said it.
    pub(super) canonical: Canonical,
}

impl Config {
    /// The settings of the process without what it serves: no listener, route, domain, policy, upstream or
    /// authentication method.
    pub fn without_parts(&self) -> Config {
        Config {
            listeners: Vec::new(),
            auth: Vec::new(),
            upstreams: Vec::new(),
            tiers: Vec::new(),
            policies: Vec::new(),
            routes: Vec::new(),
            domains: Vec::new(),
            ..self.clone()
        }
    }

    /// The tiers that limits, exemptions and routes name. Empty if the tier table of a database may have more.
    pub fn tier_names(&self) -> Vec<&str> {
        if self.database.is_some() {
            return Vec::new();
        }
        let parts = self.policies.iter().filter_map(|policy| policy.tiers.as_ref());
        let parts = parts.flat_map(|tiers| &tiers.parts).map(|part| &part.name);
        let exempt = self.policies.iter().flat_map(|policy| &policy.exempt.tiers);
        let required = self.routes.iter().filter_map(|route| route.access.require.as_ref());
        let required = required.flat_map(|require| &require.tiers);
        let own = self.tiers.iter().map(|tier| &tier.name);
        let names: BTreeSet<&str> =
            own.chain(parts).chain(exempt).chain(required).map(String::as_str).collect();
        names.into_iter().collect()
    }
}

/// What to write instead of a tier that is none of these. `None` if it is one, or if there are none: then a tier may be a
/// dimension that limits count by, and nothing else.
pub fn instead_of_tier(tier: &str, names: &[&str]) -> Option<String> {
    if names.is_empty() || names.contains(&tier) {
        return None;
    }
    let shown = &names[..names.len().min(TIERS_SHOWN)];
    Some(words::did_you_mean(tier, names).unwrap_or_else(|| format!("write {}", words::listed(shown))))
}

/// What is said of a tier that nothing names.
pub const NO_SUCH_TIER: &str =
    "there is no such tier, so clients with it are limited as clients without a tier";
/// Tiers that are listed if none is near.
const TIERS_SHOWN: usize = 20;

/// What this gateway is called among several, and whom it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `None`: what the host is called.
    pub name: Option<String>,
    pub shown: FieldAudience,
    pub ids_shown: FieldAudience,
}

impl Default for Node {
    fn default() -> Self {
        Node { name: None, shown: FieldAudience::Trusted, ids_shown: FieldAudience::Always }
    }
}

/// The local table, and what is shown of limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub memory: usize,
    pub headers: LimitHeaders,
    /// Whether the keys that use most of each policy are watched.
    pub hot_keys: bool,
}

/// How the gateway drains when it is told to stop, or upgraded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// How long /readyz says 503 before accepting stops.
    pub ready_delay: Duration,
    /// How long requests in flight may take after that.
    pub drain: Duration,
    /// How long tunnels go on before they are told to end.
    pub drain_tunnels: Duration,
    /// How long a successor may take until it serves.
    pub upgrade: Duration,
}
