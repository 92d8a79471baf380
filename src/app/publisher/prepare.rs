//! The first half of a publication: everything that can fail without a socket, done while nothing has changed yet.
//!
//! `sluicegate check` runs exactly this, so that a start or a reload accepts what `check` accepts.

use std::collections::HashMap;
use std::sync::Arc;

use crate::files::{self, FileProblem, credentials_key, trust_field};
use base::clock;
use config::{Config, Definition, Errors, LoadedConfig, Subject};
use gateway::proxy::config::ErrorPage;
use gateway::proxy::response::error_pages::ErrorPages;
use net::tls;
use upstream::{self, LiveUpstream, ServerChanges};

/// The objects that a configuration hands on to the next. A part whose configuration stays keeps its object, and so its
/// connections, verified credentials and fetched keys.
#[derive(Clone, Debug, Default)]
pub(super) struct ReusedParts {
    /// Upstreams, in the order of the configuration.
    pub(super) upstreams: Vec<Arc<LiveUpstream>>,
    /// Counts the changes of their servers: one for the life of the process.
    pub(super) moves: Arc<ServerChanges>,
    /// Authentication methods, in the order of the configuration.
    pub(super) auth: Vec<Arc<auth::Method>>,
    /// API keys of the database: one table for the life of the process.
    pub(super) issued: Arc<auth::IssuedKeys>,
    /// Own bodies for errors; read anew for each configuration.
    pub(super) error_pages: Option<Arc<ErrorPages>>,
}

/// A configuration that can be put into force.
#[derive(Debug)]
pub struct PreparedConfig {
    /// The configuration with its compiled table, and warnings.
    pub loaded: LoadedConfig,
    pub(super) kept: ReusedParts,
    renewals: Vec<Renewal>,
}

/// Files that were read again for a part that stays. They reach the part only after everything else has succeeded.
#[derive(Debug)]
enum Renewal {
    Trust(Arc<LiveUpstream>, Box<rustls::ClientConfig>),
    Credentials(Arc<auth::Method>, Box<auth::Method>),
}

/// Prepares the first configuration of a process, or one that is only checked.
///
/// # Errors
/// Everything that is wrong with it and the files it names.
pub fn prepare(definition: Definition) -> Result<PreparedConfig, Errors> {
    prepare_after(definition, &ReusedParts::default())
}

/// Prepares the successor of a configuration in force. Nothing in force changes.
pub(super) fn prepare_after(
    mut definition: Definition,
    before: &ReusedParts,
) -> Result<PreparedConfig, Errors> {
    let table = definition.compile();
    let claims = table.as_ref().map(|table| table.claims()).unwrap_or_default();
    let claims: Box<[Box<str>]> = claims.into_iter().map(Into::into).collect();
    let (moves, issued) = (Arc::clone(&before.moves), Arc::clone(&before.issued));
    let kept = ReusedParts { moves, issued, ..ReusedParts::default() };
    let mut making = Preparation { kept, renewals: Vec::new(), wrong: Vec::new() };
    making.wrong.extend(files::check(&definition.config));
    making.upstreams(&definition.config.upstreams, &before.upstreams);
    making.auth(&definition.config, &claims, &before.auth);
    making.error_pages(&definition.config.error_pages);
    let Preparation { kept, renewals, wrong } = making;
    wrong.into_iter().for_each(|wrong| wrong.report(&mut definition));
    Ok(PreparedConfig { loaded: definition.finish(table)?, kept, renewals })
}

impl PreparedConfig {
    /// The API keys of the database, which its methods and those of all that come after it look up.
    pub(crate) fn issued(&self) -> &Arc<auth::IssuedKeys> {
        &self.kept.issued
    }

    /// Another definition in the place of this one, which nothing has been done with yet.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn replaced(&self, definition: Definition) -> Result<PreparedConfig, Errors> {
        prepare_after(definition, &self.kept)
    }

    /// Gives the parts that stay what was read again for them.
    pub(super) fn renew(&mut self) {
        for renewal in self.renewals.drain(..) {
            match renewal {
                Renewal::Trust(upstream, tls) => upstream.renew_tls(*tls),
                Renewal::Credentials(method, fresh) => method.adopt(*fresh),
            }
        }
    }
}

struct Preparation {
    kept: ReusedParts,
    renewals: Vec<Renewal>,
    wrong: Vec<FileProblem>,
}

impl Preparation {
    fn upstreams(&mut self, wanted: &[upstream::Config], before: &[Arc<LiveUpstream>]) {
        let before: HashMap<&str, &Arc<LiveUpstream>> =
            before.iter().map(|upstream| (upstream.config.name.as_str(), upstream)).collect();
        for (index, wanted) in wanted.iter().enumerate() {
            let of_this_name = before.get(wanted.name.as_str());
            let same = of_this_name.filter(|same| same.config == *wanted);
            let is_tls = wanted.servers.iter().any(|server| server.tls);
            // Read again, because files may have changed since the part was built; the system's authorities are not.
            let is_to_be_read = is_tls && (same.is_none() || !wanted.tls.files().is_empty());
            let tls = match is_to_be_read.then(|| client_config(wanted)).transpose() {
                Ok(tls) => tls,
                Err(error) => {
                    let field = trust_field(&error, "servers");
                    self.wrong.push(FileProblem::tls(Subject::Upstream(index), field, &error));
                    continue;
                }
            };
            let upstream = match same {
                Some(same) => {
                    self.renewals.extend(tls.map(|tls| Renewal::Trust(Arc::clone(same), Box::new(tls))));
                    Arc::clone(same)
                }
                None => {
                    let before = of_this_name.map(|before| (&***before, clock::now_ns()));
                    LiveUpstream::new(wanted.clone(), tls.map(Arc::new), &self.kept.moves, before)
                }
            };
            self.kept.upstreams.push(upstream);
        }
    }

    fn auth(&mut self, config: &Config, claims: &[Box<str>], before: &[Arc<auth::Method>]) {
        let tiers = &config.tier_names();
        for (index, wanted) in config.auth.iter().enumerate() {
            let fresh = match auth::Method::with_issued(wanted.clone(), claims, &self.kept.issued) {
                Ok(fresh) => fresh,
                Err(error) => {
                    let (field, hint) = (credentials_key(&wanted.kind), error.hint(&wanted.kind));
                    self.wrong.push(FileProblem::error(Subject::Auth(index), field, &error, hint));
                    continue;
                }
            };
            self.wrong.extend(files::doubtful_credentials(index, &fresh, tiers));
            let method = match before.iter().find(|method| method.is_of(wanted, claims)) {
                Some(same) => {
                    self.renewals.push(Renewal::Credentials(Arc::clone(same), Box::new(fresh)));
                    Arc::clone(same)
                }
                None => {
                    before.iter().for_each(|before| fresh.inherit(before));
                    Arc::new(fresh)
                }
            };
            self.kept.auth.push(method);
        }
    }
}

impl Preparation {
    fn error_pages(&mut self, wanted: &[ErrorPage]) {
        if wanted.is_empty() {
            return;
        }
        match ErrorPages::read(wanted) {
            Ok(pages) => self.kept.error_pages = Some(Arc::new(pages)),
            Err(errors) => self.wrong.extend(errors.into_iter().map(|(index, error)| {
                FileProblem::error(Subject::Section("errors"), wanted[index].key.as_str(), &error, "")
            })),
        }
    }
}

/// The TLS configuration of connections to an upstream.
pub(super) fn client_config(wanted: &upstream::Config) -> Result<rustls::ClientConfig, tls::Error> {
    let http2 = wanted.http == upstream::config::HttpVersion::H2;
    tls::client_config(http2, &wanted.tls)
}
