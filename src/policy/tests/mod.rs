//! Whole tables: definitions in, answers out. Here what the tests share.

mod charging;
mod mistakes;
mod rendering;
mod routing;

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::counting::shorthand;
use super::definition::{HeaderMatch, Policy, Route};
use super::{Facts, Options, Table};
use crate::Error;
use base::identity::Identity;

/// A route that echoes.
fn route(name: &str, path: &str) -> Route {
    Route::new(name.to_owned(), path.to_owned())
}

/// A policy with these windows, counted by what the first one says.
fn policy(name: &str, windows: &[&str]) -> Policy {
    let read: Vec<_> = windows.iter().map(|text| shorthand::parse(text).expect("a limit")).collect();
    let by = read.first().map(|first| first.by.clone()).unwrap_or_default();
    Policy { by, ..Policy::new(name.to_owned(), read.iter().map(|limit| limit.window).collect()) }
}

fn header_match(name: &'static str, value: Option<&str>) -> HeaderMatch {
    HeaderMatch { name: HeaderName::from_static(name), value: value.map(str::to_owned) }
}

fn compile(routes: &[Route], policies: &[Policy]) -> Result<Table, Vec<Error>> {
    let upstreams = ["orders".to_owned()];
    Table::compile(
        routes,
        policies,
        &Options { salt: [7; 16], ipv6_prefix: 64, upstreams: &upstreams, auth: &[] },
    )
}

fn table(routes: &[Route], policies: &[Policy]) -> Table {
    compile(routes, policies).expect("a table without mistakes")
}

/// A request that owns what its facts borrow.
#[derive(Clone, Debug)]
struct Ask {
    method: Method,
    host: String,
    path: String,
    query: Option<String>,
    headers: HeaderMap,
    client_ip: IpAddr,
    identity: Identity,
}

impl Ask {
    /// `"GET /path?query"` of `host.test`, from 192.0.2.1.
    fn new(line: &str) -> Ask {
        let (method, target) = line.split_once(' ').expect("a method and a path");
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        Ask {
            method: method.parse().expect("a method"),
            host: "host.test".to_owned(),
            path: path.to_owned(),
            query,
            headers: HeaderMap::new(),
            client_ip: IpAddr::from([192, 0, 2, 1]),
            identity: Identity::default(),
        }
    }

    fn host(mut self, host: &str) -> Ask {
        self.host = host.to_owned();
        self
    }

    fn header(mut self, name: &'static str, value: &'static str) -> Ask {
        self.headers.append(name, HeaderValue::from_static(value));
        self
    }

    fn from(mut self, client: &str) -> Ask {
        self.client_ip = client.parse().expect("an address");
        self
    }

    fn consumer(mut self, name: &str) -> Ask {
        self.identity.consumer = Some(name.into());
        self
    }

    fn facts(&self) -> Facts<'_, '_> {
        Facts {
            method: &self.method,
            host: &self.host,
            path: &self.path,
            query: self.query.as_deref(),
            headers: &self.headers,
            client_ip: self.client_ip,
            trusted_peer: true,
            identity: &self.identity,
            refused: false,
            body: None,
        }
    }

    /// Name of the route that answers; what `Allow` says, or nothing, where none does.
    fn answered_by(&self, table: &Table) -> String {
        match table.find(&self.facts()) {
            Ok(found) => found.route.name.to_string(),
            Err(super::NotFound::Route) => "404".to_owned(),
            Err(super::NotFound::Method { allow }) => {
                format!("405 {}", allow.to_str().expect("method names"))
            }
        }
    }
}
