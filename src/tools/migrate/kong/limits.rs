//! `rate-limiting` and `rate-limiting-advanced` as policies.

use config::printer::{array, text};

use super::super::draft::Section;
use super::super::values::{is_field, seconds};
use super::super::yaml::Node;
use super::{Reading, address};

/// Why a limit is left out; `key` says what it counts by.
fn why_none(has_no_number: bool, config: &Node, key: &str) -> String {
    match (has_no_number, config.word(key)) {
        (false, Some("header")) => {
            format!("`{key}: header` without a `header_name` that is one; the limit is left out")
        }
        (false, by) => {
            format!("limits cannot count by `{key}: {}`; the limit is left out", by.unwrap_or_default())
        }
        (true, _) => "it has no limit that is a number above 0; the limit is left out".to_owned(),
    }
}

impl<'d> Reading<'d> {
    /// The policy of a `rate-limiting`: windows that are aligned to the clock.
    pub(super) fn windows(&mut self, plugin: &'d Node, config: &'d Node, scope: &str) -> Vec<String> {
        if let Some(known) = self.policies.get(&address(plugin)) {
            return known.clone();
        }
        let mut windows = Vec::new();
        for (key, period) in PERIODS {
            let Some(written) = config.get(key) else { continue };
            if let (None, Some(text)) = (written.number(), written.peek()) {
                self.left_out(written, &format!("{key}: {text}"), "this is not a number");
            }
            let Some(units) = written.number().filter(|units| *units > 0) else { continue };
            windows.push(text(&format!("{units}/{period}")));
        }
        let by = self.counted_by(plugin, config, "limit_by");
        let (Some(by), false) = (by, windows.is_empty()) else {
            self.left_out(plugin, "rate-limiting", &why_none(windows.is_empty(), config, "limit_by"));
            return Vec::new();
        };
        let mut policy = Section::new(named(scope, "rate-limiting"));
        policy.key("by", array(by.iter().map(|dimension| text(dimension))));
        policy.key("limit", array(windows.into_iter()));
        policy.key("algorithm", text("fixed-window"));
        let is_shared = config.word("policy") == Some("redis");
        config.skip(&["sync_rate"]);
        if is_shared {
            self.redis(config, plugin);
            let is_open = config.get("fault_tolerant").and_then(Node::flag).unwrap_or(true);
            policy.key("when-redis-down", text(if is_open { "allow" } else { "deny" }));
        } else {
            config.skip(&["fault_tolerant", "redis"]);
        }
        self.refusal(plugin, config);
        self.kept(plugin, policy)
    }

    /// The policy of a `rate-limiting-advanced`: a limit for each of `window_size`.
    pub(super) fn advanced_windows(
        &mut self,
        plugin: &'d Node,
        config: &'d Node,
        scope: &str,
    ) -> Vec<String> {
        if let Some(known) = self.policies.get(&address(plugin)) {
            return known.clone();
        }
        let numbers = |key: &str| config.list(key).iter().map(Node::number).collect::<Option<Vec<u64>>>();
        let windows: Vec<String> = match (numbers("limit"), numbers("window_size")) {
            (Some(limits), Some(sizes)) if limits.len() == sizes.len() => {
                let usable = limits.iter().zip(&sizes).filter(|(units, size)| **units > 0 && **size > 0);
                usable.map(|(units, size)| text(&format!("{units}/{}", seconds(*size)))).collect()
            }
            _ => Vec::new(),
        };
        let by = self.counted_by(plugin, config, "identifier");
        let (Some(by), false) = (by, windows.is_empty()) else {
            let why = why_none(windows.is_empty(), config, "identifier");
            self.left_out(plugin, "rate-limiting-advanced", &why);
            return Vec::new();
        };
        let mut policy = Section::new(named(scope, "rate-limiting-advanced"));
        policy.key("by", array(by.iter().map(|dimension| text(dimension))));
        policy.key("limit", array(windows.into_iter()));
        let is_fixed = config.word("window_type") == Some("fixed");
        policy.key("algorithm", text(if is_fixed { "fixed-window" } else { "sliding-window" }));
        config.skip(&["sync_rate", "dictionary_name", "namespace"]);
        if !config.is("disable_penalty") && !is_fixed {
            // Refused requests count, because Kong counts them in a sliding window, too.
            policy.key("count-denied", true);
        }
        if config.word("strategy") == Some("redis") {
            self.redis(config, plugin);
        } else {
            config.skip(&["redis"]);
        }
        self.refusal(plugin, config);
        self.kept(plugin, policy)
    }

    fn kept(&mut self, plugin: &'d Node, policy: Section) -> Vec<String> {
        let names = vec![self.draft.add_own_policy(policy)];
        self.policies.insert(address(plugin), names.clone());
        names
    }

    /// The dimensions that a limit counts by; a client without them is counted by its address, as in Kong.
    fn counted_by(&mut self, plugin: &'d Node, config: &'d Node, key: &str) -> Option<Vec<String>> {
        let dimension = match config.word(key).unwrap_or("consumer") {
            "consumer" => "consumer".to_owned(),
            "credential" => {
                self.differs(plugin, &format!("{key}: credential"), "a consumer's API keys share the limit");
                "consumer".to_owned()
            }
            "ip" => "ip".to_owned(),
            "service" => return Some(Vec::new()),
            "header" => {
                let name = config.word("header_name").filter(|name| is_field(name))?;
                format!("header:{}", name.to_ascii_lowercase())
            }
            _ => return None,
        };
        Some(vec![dimension])
    }

    /// The Redis of a plugin: there is one here.
    fn redis(&mut self, config: &'d Node, plugin: &'d Node) {
        let nested = config.get("redis");
        let value = |key: &str| {
            nested.and_then(|redis| redis.get(key)).or_else(|| config.get(&format!("redis_{key}")))
        };
        let word = |key: &str| value(key).and_then(Node::text);
        let Some(host) = word("host") else {
            return self.differs(plugin, "redis", "its host is not in this file: write `url` of [redis]");
        };
        let scheme = if value("ssl").and_then(Node::flag) == Some(true) { "rediss" } else { "redis" };
        let login = match (word("username"), word("password")) {
            (user, Some(password)) => format!("{}:{password}@", user.unwrap_or_default()),
            _ => String::new(),
        };
        let port = value("port").and_then(Node::number).unwrap_or(6379);
        let database = value("database").and_then(Node::number).filter(|number| *number > 0);
        let database = database.map(|number| format!("/{number}")).unwrap_or_default();
        let url = format!("{scheme}://{login}{host}:{port}{database}");
        match &self.draft.redis {
            Some(known) if *known != url => {
                self.differs(plugin, "redis", "another plugin names another Redis, and that one is used")
            }
            _ => self.draft.redis = Some(url),
        }
        for key in ["timeout", "ssl_verify", "server_name", "connect_timeout", "read_timeout", "send_timeout"]
        {
            value(key).into_iter().for_each(Node::dismiss);
        }
    }

    /// What a refusal looks like is not taken over.
    fn refusal(&mut self, plugin: &'d Node, config: &'d Node) {
        if config.count("error_code").is_some_and(|code| code != 429) {
            self.differs(plugin, "error_code", "refusals are answered 429");
        }
        if config.word("error_message").is_some() {
            self.differs(plugin, "error_message", "refusals have a body of their own");
        }
        if config.is("hide_client_headers") {
            self.differs(
                plugin,
                "hide_client_headers",
                "use `headers = \"none\"` of [limits], which applies to all limits",
            );
        }
    }
}

/// The name of a policy: what its plugin belongs to, and the plugin's own.
fn named(scope: &str, plugin: &str) -> String {
    if scope.is_empty() { plugin.to_owned() } else { format!("{scope}-{plugin}") }
}

/// All begin in UTC there, too.
const PERIODS: &[(&str, &str)] =
    &[("second", "s"), ("minute", "m"), ("hour", "h"), ("day", "d"), ("month", "month"), ("year", "year")];
