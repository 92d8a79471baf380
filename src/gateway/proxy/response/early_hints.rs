//! Early hints of an upstream (103, RFC 8297), passed on before its answer. Clients over HTTP/1.1 get them only from a
//! listener with `early-hints`, because no browser uses them there, and there are clients that take an interim answer for
//! the answer.

use std::rc::Rc;

use http::header::{CONTENT_SECURITY_POLICY, LINK};
use http::{HeaderMap, HeaderName, Version};

use crate::proxy::context::RequestContext;
use crate::proxy::snapshot::WorkerView;
use crate::service::conn::Conn;
use net::wire::http2::StreamId;
use policy::RouteId;

/// Where the hints of one exchange go.
pub struct EarlyHints {
    conn: Rc<Conn>,
    /// Over HTTP/2.
    stream: Option<StreamId>,
    view: Rc<WorkerView>,
    route: Option<RouteId>,
}

impl EarlyHints {
    /// `None` if the client gets none.
    pub fn of(context: &RequestContext) -> Option<EarlyHints> {
        let is_given = match context.facts.version {
            Version::HTTP_2 => context.facts.stream.is_some(),
            Version::HTTP_11 => context.conn.config.early_hints,
            _ => false,
        };
        is_given.then(|| EarlyHints {
            stream: context.facts.stream,
            conn: Rc::clone(&context.conn),
            view: Rc::clone(&context.view),
            route: context.facts.route,
        })
    }

    /// Passes on what hints are made of, unless the route changes that in answers.
    pub fn pass(&self, fields: &HeaderMap) {
        let route = self.route.map(|id| &self.view.snapshot.table.routes()[id.index()]);
        let is_kept = |name: &HeaderName| !route.is_some_and(|route| route.response_headers.replaces(name));
        let mut hints = HeaderMap::new();
        for name in [LINK, CONTENT_SECURITY_POLICY].iter().filter(|name| is_kept(name)) {
            fields.get_all(name).iter().for_each(|value| {
                hints.append(name, value.clone());
            });
        }
        if hints.contains_key(LINK) {
            self.conn.give_hints(self.stream, &hints);
        }
    }
}
