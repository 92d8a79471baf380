//! Whole tables: definitions in, answers out. Here what the tests share.

mod charging;
mod mistakes;
mod rendering;
mod routing;

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::counting::shorthand;
use super::definition::{HeaderMatchDefinition, PolicyDefinition, RouteDefinition};
use super::{CompileOptions, RouteTable, RoutingFacts};
use crate::Error;
use base::identity::Identity;

fn route(name: &str, path: &str) -> RouteDefinition {
    RouteDefinition::new(name.to_owned(), path.to_owned())
}

/// A policy with these windows, counted by what the first one says.
fn policy(name: &str, windows: &[&str]) -> PolicyDefinition {
    let read: Vec<_> = windows.iter().map(|text| shorthand::parse(text).expect("a limit")).collect();
    let by = read.first().map(|first| first.by.clone()).unwrap_or_default();
    PolicyDefinition {
        by,
        ..PolicyDefinition::new(name.to_owned(), read.iter().map(|limit| limit.window).collect())
    }
}

fn header_match(name: &'static str, value: Option<&str>) -> HeaderMatchDefinition {
    HeaderMatchDefinition { name: HeaderName::from_static(name), value: value.map(str::to_owned) }
}

fn compile(routes: &[RouteDefinition], policies: &[PolicyDefinition]) -> Result<RouteTable, Vec<Error>> {
    let upstreams = ["orders".to_owned()];
    RouteTable::compile(
        routes,
        policies,
        &CompileOptions { salt: [7; 16], ipv6_prefix: 64, upstreams: &upstreams, auth: &[] },
    )
}

fn table(routes: &[RouteDefinition], policies: &[PolicyDefinition]) -> RouteTable {
    compile(routes, policies).expect("a table without mistakes")
}

/// A request that owns what its facts borrow.
#[derive(Clone, Debug)]
struct TestRequest {
    method: Method,
    host: String,
    path: String,
    query: Option<String>,
    headers: HeaderMap,
    client_ip: IpAddr,
    identity: Identity,
}

impl TestRequest {
    /// `"GET /path?query"` of `host.test`, from 192.0.2.1.
    fn new(line: &str) -> TestRequest {
        let (method, target) = line.split_once(' ').expect("a method and a path");
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        TestRequest {
            method: method.parse().expect("a method"),
            host: "host.test".to_owned(),
            path: path.to_owned(),
            query,
            headers: HeaderMap::new(),
            client_ip: IpAddr::from([192, 0, 2, 1]),
            identity: Identity::default(),
        }
    }

    fn host(mut self, host: &str) -> TestRequest {
        self.host = host.to_owned();
        self
    }

    fn header(mut self, name: &'static str, value: &'static str) -> TestRequest {
        self.headers.append(name, HeaderValue::from_static(value));
        self
    }

    fn from(mut self, client: &str) -> TestRequest {
        self.client_ip = client.parse().expect("an address");
        self
    }

    fn consumer(mut self, name: &str) -> TestRequest {
        self.identity.consumer = Some(name.into());
        self
    }

    fn facts(&self) -> RoutingFacts<'_, '_> {
        RoutingFacts {
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
    fn answered_by(&self, table: &RouteTable) -> String {
        match table.find(&self.facts()) {
            Ok(found) => found.route.name.to_string(),
            Err(super::NotFound::Route) => "404".to_owned(),
            Err(super::NotFound::Method { allow }) => {
                format!("405 {}", allow.to_str().expect("method names"))
            }
        }
    }
}
