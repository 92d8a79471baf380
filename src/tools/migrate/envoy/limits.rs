//! `local_ratelimit`: token buckets of a connection manager, a virtual host or a route.

use std::time::Duration;

use config::printer::{array, text};

use super::super::draft::Section;
use super::super::values::{protobuf_time, rate};
use super::super::yaml::Node;
use super::Reading;
use super::filters::is_of;
use super::hosts::RouteScope;

impl<'d> Reading<'d> {
    /// The policies of a route: of its own configuration, else of its host's, else of the filter.
    pub(super) fn limits(&mut self, node: &'d Node, around: &RouteScope<'_, 'd>) -> Vec<String> {
        if around.filters.limits.is_empty() {
            return Vec::new();
        }
        let levels = [(node, "route"), (around.host, "host"), (around.table, "routes")];
        for (level, kind) in levels {
            let entries = level.get("typed_per_filter_config").map(Node::entries).unwrap_or_default();
            if let Some((_, own)) = entries.iter().find(|(_, own)| is_of(own, "LocalRateLimit")) {
                let name = level.word("name").or_else(|| own.word("stat_prefix")).unwrap_or(kind).to_owned();
                return self.bucket_and_descriptors(own, &name, node, around);
            }
        }
        let mut names = Vec::new();
        for filter in &around.filters.limits {
            let name = filter.word("stat_prefix").unwrap_or("local-rate-limit").to_owned();
            names.extend(self.bucket_and_descriptors(filter, &name, node, around));
        }
        names
    }

    fn bucket_and_descriptors(
        &mut self,
        config: &'d Node,
        name: &str,
        node: &'d Node,
        around: &RouteScope<'_, 'd>,
    ) -> Vec<String> {
        config.skip(&["stat_prefix", "filter_enabled", "filter_enforced"]);
        // No limit, because a filter without a bucket only says that routes may have one.
        if !["token_bucket", "descriptors"].iter().any(|key| config.get(key).is_some()) {
            return Vec::new();
        }
        if share(config, "filter_enabled") == Some(0) || config.get("filter_enabled").is_none() {
            let why = "it is off: `filter_enabled` is 0 % by default";
            self.left_out(config, &format!("local_ratelimit of {name}"), why);
            return Vec::new();
        }
        self.note_shares(config, name);
        let mut names = Vec::new();
        if let Some(bucket) = config.get("token_bucket") {
            names.extend(self.bucket(bucket, config, name, &[]));
        }
        names.extend(self.descriptors(config, name, node, around));
        names
    }

    fn note_shares(&mut self, config: &'d Node, name: &str) {
        let shares = ["filter_enabled", "filter_enforced"].map(|key| share(config, key).unwrap_or(0));
        if shares.iter().any(|share| (1..100).contains(share)) {
            let why = "it applies to all requests here, not to a share of them";
            self.differs(config, &format!("local_ratelimit of {name}"), why);
        }
        let status =
            config.at(&["status", "code"]).and_then(|code| code.parsed(|text| Some(text.to_owned())));
        if status.is_some_and(|status| status != "TooManyRequests" && status != "429") {
            self.differs(config, &format!("status of {name}"), "refusals are answered 429");
        }
        if config.is("local_rate_limit_per_downstream_connection") {
            let why =
                "limits do not count by connection: all requests share one bucket; write `by = [\"ip\"]`";
            self.differs(config, &format!("local_ratelimit of {name}"), why);
        }
    }

    /// The policy of a bucket: the one there is already, if another route has it, too.
    pub(super) fn bucket(
        &mut self,
        bucket: &'d Node,
        config: &'d Node,
        name: &str,
        by: &[String],
    ) -> Option<String> {
        let place = std::ptr::from_ref(bucket).addr();
        if let Some(known) = self.policies.get(&place) {
            return Some(known.clone());
        }
        let most = bucket.count("max_tokens");
        let fill = bucket.count("tokens_per_fill").unwrap_or(1);
        let interval = bucket.get("fill_interval").and_then(|node| node.parsed(protobuf_time));
        let limit = interval.and_then(|interval| rate(fill, interval)).zip(most.filter(|most| *most > 0));
        let Some((limit, most)) = limit else {
            self.left_out(bucket, &format!("token_bucket of {name}"), "it has no tokens or no interval");
            return None;
        };
        let mut policy = Section::new(name);
        policy.key("by", array(by.iter().map(|dimension| text(dimension))));
        policy.key("limit", text(&format!("{limit} burst {most}")));
        if by.iter().any(|dimension| dimension != "ip") {
            policy.key("missing", text("skip"));
        }
        if share(config, "filter_enforced").unwrap_or(0) == 0 {
            policy.key("shadow", true);
        }
        if interval.is_some_and(|interval| interval > Duration::from_secs(1)) && fill > 1 {
            let why = "Envoy refills the bucket once per interval, the gateway continuously";
            self.differs(bucket, &format!("token_bucket of {name}"), why);
        }
        let name = self.draft.add_own_policy(policy);
        self.policies.insert(place, name.clone());
        Some(name)
    }
}

/// A share of requests, in whole per cent; at least one unless it is nothing.
fn share(config: &Node, key: &str) -> Option<u64> {
    let share = config.get(key)?;
    let share = share.get("default_value").unwrap_or(share);
    let most = match share.word("denominator") {
        Some("TEN_THOUSAND") => 10_000,
        Some("MILLION") => 1_000_000,
        _ => 100,
    };
    let share = share.count("numerator").unwrap_or(0).min(most);
    Some((share * 100).div_ceil(most).min(if share < most { 99 } else { 100 }))
}
