//! Descriptors of `local_ratelimit`: a bucket for requests that the actions of a route describe so.

use super::super::values::is_field;
use super::super::yaml::Node;
use super::Reading;
use super::hosts::RouteScope;

/// What an action says of a request.
enum EntryValue {
    /// The same of each.
    Fixed(String),
    /// The value of a dimension.
    Value(String),
}

impl<'d> Reading<'d> {
    /// The policies of the descriptors that a route's `rate_limits` make.
    pub(super) fn descriptors(
        &mut self,
        config: &'d Node,
        name: &str,
        node: &'d Node,
        around: &RouteScope<'_, 'd>,
    ) -> Vec<String> {
        let own = node.at(&["route", "rate_limits"]).or_else(|| around.host.get("rate_limits"));
        let mut names = Vec::new();
        for (limit, descriptor) in
            own.map(Node::items).unwrap_or_default().iter().flat_map(|limit| {
                config.list("descriptors").iter().map(move |descriptor| (limit, descriptor))
            })
        {
            let Some(said) = limit.list("actions").iter().map(said).collect::<Option<Vec<_>>>() else {
                let why = "only values of headers and parameters, the client's address and fixed keys can be migrated";
                self.left_out(limit, "rate_limits", why);
                continue;
            };
            let Some(by) = self.matching(descriptor, &said) else { continue };
            if let Some(bucket) = descriptor.get("token_bucket") {
                names.extend(self.bucket(bucket, config, &format!("{name}-descriptor"), &by));
            }
        }
        names
    }

    /// The dimensions that a descriptor counts by; `None` if it is for other requests.
    fn matching(&mut self, descriptor: &'d Node, said: &[(String, EntryValue)]) -> Option<Vec<String>> {
        let entries = descriptor.list("entries");
        let keys: Vec<&str> = entries.iter().filter_map(|entry| entry.word("key")).collect();
        if !keys.iter().eq(said.iter().map(|(key, _)| key)) {
            return None;
        }
        let mut by = Vec::new();
        for (entry, (_, said)) in entries.iter().zip(said) {
            match (entry.get("value").map(|value| value.text().unwrap_or_default()), said) {
                (Some(value), EntryValue::Fixed(fixed)) if value != fixed => return None,
                (_, EntryValue::Fixed(_)) => {}
                (None | Some(""), EntryValue::Value(dimension)) => by.push(dimension.clone()),
                (Some(_), EntryValue::Value(_)) => {
                    let why = "a limit applies to every value of a header, not to one: write a route that `match`es it";
                    self.left_out(descriptor, "descriptors", why);
                    return None;
                }
            }
        }
        Some(by)
    }
}

/// The key and the value of an action.
fn said(action: &Node) -> Option<(String, EntryValue)> {
    if let Some(fixed) = action.get("generic_key") {
        let key = fixed.word("descriptor_key").unwrap_or("generic_key").to_owned();
        return Some((key, EntryValue::Fixed(fixed.word("descriptor_value")?.to_owned())));
    }
    if let Some(header) = action.get("request_headers") {
        let name = header.word("header_name").filter(|name| is_field(name))?.to_ascii_lowercase();
        return Some((
            header.word("descriptor_key")?.to_owned(),
            EntryValue::Value(format!("header:{name}")),
        ));
    }
    if let Some(query) = action.get("query_parameters") {
        let name = query.word("query_parameter_name").filter(|name| is_field(name))?;
        return Some((query.word("descriptor_key")?.to_owned(), EntryValue::Value(format!("query:{name}"))));
    }
    action.has("remote_address").then(|| ("remote_address".to_owned(), EntryValue::Value("ip".to_owned())))
}
