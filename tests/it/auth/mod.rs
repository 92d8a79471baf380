//! Authentication, as clients meet it: one file for each method, through real sockets, with an upstream that records
//! what gets through.

mod access;
mod basic;
mod causes;
pub mod jwt;
pub mod keys;
mod mtls;

use crate::support::{Directory, Gateway, Response, Upstream};

/// A gateway with these ways to authenticate, a route `/` that asks for `auth`, and the upstream behind it.
struct Guarded {
    gateway: Gateway,
    upstream: Upstream,
}

impl Guarded {
    /// `extra` is more of the route's keys, a line each.
    fn start(directory: Directory, ways: &str, auth: &str, extra: &str) -> Guarded {
        let upstream = Upstream::ok();
        let config = config(&upstream, ways, auth, extra);
        Guarded { gateway: Gateway::start_in(directory, &config), upstream }
    }

    fn ask(&self, fields: &[&str]) -> Response {
        self.gateway.client().request("GET", "/", fields, "")
    }

    /// The identity that the upstream receives; panics if the request does not get there.
    fn caller(&self, fields: &[&str]) -> String {
        let answer = self.ask(fields);
        assert_eq!(answer.status, 200, "{answer:?}");
        let request = self.upstream.request();
        let told = |name| request.header(name).unwrap_or_else(|| "-".to_owned());
        format!("{} {} {}", told("x-consumer"), told("x-tenant"), told("x-tier"))
    }

    /// The request is refused with 401 and nothing gets through.
    fn refuses(&self, fields: &[&str]) -> Response {
        let answer = self.ask(fields);
        assert_eq!(answer.status, 401, "{fields:?}: {answer:?}");
        assert!(self.upstream.is_quiet(), "{fields:?} got through");
        answer
    }
}

fn config(upstream: &Upstream, ways: &str, auth: &str, extra: &str) -> String {
    format!(
        "{ways}\n[[route]]\nname = \"guarded\"\npath = \"/{{*rest}}\"\nauth = {auth}\nto = \"http://{}\"\n\
         headers = {{ set = {{ x-consumer = \"{{consumer}}\", x-tenant = \"{{tenant}}\", x-tier = \"{{tier}}\" }} }}\n{extra}\n",
        upstream.addr()
    )
}
