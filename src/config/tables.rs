//! Routes and policies, compiled: what is wrong with them is shown where it was written.

use super::report::Definition;
use super::{Config, Errors, Loaded};
use crate::policy::error::{Direction, Place, PolicyField, RouteField};
use crate::policy::{self, Options, Table};

impl Config {
    /// The tables requests are matched against. `salt` keys the hash of limiter keys.
    ///
    /// # Errors
    /// Everything about routes and policies that only shows when they are seen together.
    pub fn tables(&self, salt: [u8; 16]) -> Result<Table, Vec<policy::Error>> {
        let upstreams: Vec<String> = self.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
        let options = Options { salt, ipv6_prefix: self.client_ip.ipv6_prefix, upstreams: &upstreams };
        Table::compile(&self.routes, &self.policies, &options)
    }
}

impl Loaded {
    /// The configuration with its tables.
    ///
    /// # Errors
    /// What [`Config::tables`] finds, each shown with its line.
    pub fn compile(mut self, salt: [u8; 16]) -> Result<(Config, Table, super::Report), Errors> {
        match self.config.tables(salt) {
            Ok(table) => Ok((self.config, table, self.report)),
            Err(errors) => {
                for error in errors {
                    let (definition, field) = written(error.place);
                    self.report.reject(definition, field, &error.problem.to_string(), "");
                }
                Err(self.report.into_errors())
            }
        }
    }
}

/// The definition and the key of the language a problem is about.
fn written(place: Place) -> (Definition, &'static str) {
    match place {
        Place::Route { index, field } => (Definition::Route(index), route_key(field)),
        Place::Policy { index, field } => (Definition::Policy(index), policy_key(field)),
    }
}

fn route_key(field: RouteField) -> &'static str {
    match field {
        RouteField::Name => "name",
        RouteField::Host(_) => "host",
        RouteField::Path => "path",
        RouteField::Header(_) => "match",
        RouteField::Limit(_) => "limit",
        RouteField::Upstream => "to",
        RouteField::Rewrite => "rewrite",
        RouteField::RespondHeader(_) => "respond",
        RouteField::Change { direction: Direction::Request, .. } => "headers",
        RouteField::Change { direction: Direction::Response, .. } => "response-headers",
    }
}

fn policy_key(field: PolicyField) -> &'static str {
    match field {
        PolicyField::Name => "name",
        PolicyField::By(_) => "by",
        PolicyField::Window(_) => "limit",
        PolicyField::MatchPath => "match",
        PolicyField::CostDefault | PolicyField::CostRule(_) => "cost",
    }
}
