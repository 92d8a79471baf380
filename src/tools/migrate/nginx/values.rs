//! Values of nginx: variables, times, sizes.

use std::time::Duration;

use super::super::template;
use super::scope::{MapChoice, Scope};

/// What is known of a place when its values are read.
pub(super) struct VarScope<'a, 'd> {
    pub(super) scope: &'a Scope<'d>,
    /// The first name of the server.
    pub(super) server_name: &'a str,
    /// `http` or `https`, if all listeners of the server speak the same.
    pub(super) scheme: Option<&'static str>,
    /// The host that `proxy_pass` names.
    pub(super) proxy_host: &'a str,
}

impl VarScope<'_, '_> {
    /// A value as a template of ours.
    pub(super) fn template(&self, text: &str) -> Option<String> {
        template::of_dollars(text, |name| self.value(name))
    }

    fn value(&self, name: &str) -> Option<String> {
        Some(match name {
            "remote_addr" | "realip_remote_addr" => "{ip}".to_owned(),
            "host" => "{host}".to_owned(),
            "request_method" => "{method}".to_owned(),
            "uri" | "document_uri" => "{path}".to_owned(),
            "args" | "query_string" => "{query}".to_owned(),
            "request_id" => "{request_id}".to_owned(),
            "server_name" if !self.server_name.is_empty() => template::literal(self.server_name),
            "scheme" => self.scheme?.to_owned(),
            "proxy_host" if !self.proxy_host.is_empty() => template::literal(self.proxy_host),
            _ => self.known(name, VARIABLES_MAX)?,
        })
    }

    /// What `set` or a map gives a variable, with variables in it.
    fn given(&self, name: &str) -> Option<&str> {
        let sets = self.scope.every("set");
        match sets.iter().rfind(|set| set.arg(0).strip_prefix('$') == Some(name)) {
            Some(set) => Some(set.taken().arg(1)),
            None => self.scope.choice(name)?.value.as_deref(),
        }
    }

    /// The same as a template, if it is known before a request comes. `depth`: so many may stand in each other.
    fn known(&self, name: &str, depth: usize) -> Option<String> {
        let inner = depth.checked_sub(1)?;
        let given = self.given(name).filter(|given| given.matches('$').count() <= VARIABLES_MAX)?;
        template::of_dollars(given, |name| self.known(name, inner))
    }

    /// A text whose variables are known before a request comes.
    pub(super) fn literal(&self, text: &str) -> Option<String> {
        let value = |name: &str| match name {
            "scheme" => self.scheme.map(str::to_owned),
            _ => self.known(name, VARIABLES_MAX),
        };
        template::of_dollars(text, value).map(|text| text.replace("{{", "{").replace("}}", "}"))
    }

    /// The variables of a text, and of what those are given.
    pub(super) fn variables(&self, text: &str) -> Vec<String> {
        let mut found = template::names(text);
        let mut at = 0;
        while let Some(name) = found.get(at) {
            let more = template::names(self.given(name).unwrap_or_default());
            at += 1;
            for name in more {
                if !found.contains(&name) {
                    found.push(name);
                }
            }
        }
        found
    }

    /// The line of a map on which it depends that a text is not known.
    pub(super) fn unknown_choice(&self, text: &str) -> Option<&MapChoice> {
        let is_unknown = |choice: &&MapChoice| {
            choice.value.as_deref().is_none_or(|value| value.is_empty() || value.contains('$'))
        };
        self.variables(text).iter().rev().filter_map(|name| self.scope.choice(name)).find(is_unknown)
    }
}

/// A range without the bits behind its prefix, which nginx leaves out with a warning.
pub(super) fn network(text: &str) -> String {
    text.parse::<ipnet::IpNet>().map_or_else(|_| text.to_owned(), |range| range.trunc().to_string())
}

/// A time: `60`, `60s`, `1m 30s`, `500ms`.
pub(super) fn time(text: &str) -> Option<Duration> {
    let mut whole = Duration::ZERO;
    for word in text.split_whitespace() {
        let mut rest = word;
        while !rest.is_empty() {
            let digits = rest.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(rest.len());
            let number: u64 = rest[..digits].parse().ok()?;
            let unit = rest[digits..].find(|sign: char| sign.is_ascii_digit()).unwrap_or(rest.len() - digits);
            let millis = match &rest[digits..digits + unit] {
                "ms" => 1,
                "" | "s" => 1_000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return None,
            };
            whole += Duration::from_millis(number.checked_mul(millis)?);
            rest = &rest[digits + unit..];
        }
    }
    (whole > Duration::ZERO).then_some(whole)
}

/// A size: `1m`, `8k`, `512`.
pub(super) fn size(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(lower.len());
    let number: u64 = lower[..digits].parse().ok()?;
    let shift = match &lower[digits..] {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// Variables that may stand in each other, and in the value of one.
const VARIABLES_MAX: usize = 5;
