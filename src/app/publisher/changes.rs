//! The difference between two configurations, as a value that a log line shows.

use std::collections::HashMap;
use std::fmt;

use config::Config;

/// Parts and settings in which two configurations differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Named parts by kind, in the order of `gateway.toml`.
    pub parts: [(&'static str, PartChanges); 7],
    /// Settings and sections without a name that have changed.
    pub settings: Vec<&'static str>,
}

/// Names of added, removed and changed parts of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartChanges {
    /// Parts that only the new configuration has.
    pub added: Vec<String>,
    /// Parts that only the old configuration has.
    pub removed: Vec<String>,
    /// Parts that both have, with different definitions.
    pub changed: Vec<String>,
}

impl Changes {
    /// The same without settings that a process takes at its start alone, because they wait for the next.
    pub fn applied(mut self) -> Changes {
        self.settings
            .retain(|setting| !SETTINGS.iter().any(|(name, when, _)| name == setting && *when == START));
        self
    }

    pub(super) fn between(before: &Config, after: &Config) -> Changes {
        Changes {
            parts: [
                ("listener", parts(&before.listeners, &after.listeners, |listener| &listener.name)),
                ("auth", parts(&before.auth, &after.auth, |method| &method.name)),
                ("upstream", parts(&before.upstreams, &after.upstreams, |upstream| &upstream.name)),
                ("tier", parts(&before.tiers, &after.tiers, |tier| &tier.name)),
                ("policy", parts(&before.policies, &after.policies, |policy| &policy.name)),
                ("route", parts(&before.routes, &after.routes, |route| &route.name)),
                ("rls", parts(&before.domains, &after.domains, |domain| &domain.name)),
            ],
            settings: differing(&[START, RELOAD], before, after),
        }
    }
}

/// Settings that wait for a restart: a process that started by `first` runs with other ones than `now` has.
pub(super) fn waiting(first: &Config, now: &Config) -> Vec<&'static str> {
    differing(&[START], first, now)
}

fn differing(when: &[bool], before: &Config, after: &Config) -> Vec<&'static str> {
    let differs = SETTINGS.iter().filter(|(_, takes, differ)| when.contains(takes) && differ(before, after));
    differs.map(|(name, ..)| *name).collect()
}

type Differ = fn(&Config, &Config) -> bool;

/// A setting that takes effect at a start alone.
const START: bool = true;
const RELOAD: bool = false;

/// Settings and sections without a name, and when each takes effect.
const SETTINGS: [(&str, bool, Differ); 18] = [
    ("workers", START, |before, after| before.workers != after.workers),
    ("client-ip", RELOAD, |before, after| before.client_ip != after.client_ip),
    ("overload", RELOAD, |before, after| before.overload != after.overload),
    ("limits.memory", START, |before, after| before.limits.memory != after.limits.memory),
    ("limits.hot-keys", START, |before, after| before.limits.hot_keys != after.limits.hot_keys),
    ("node", RELOAD, |before, after| before.node != after.node),
    ("privacy", RELOAD, |before, after| before.privacy != after.privacy),
    ("limits.headers", RELOAD, |before, after| before.limits.headers != after.limits.headers),
    ("redis", START, |before, after| before.redis != after.redis),
    ("database", START, |before, after| before.database != after.database),
    ("admin", START, |before, after| before.admin != after.admin || before.grpc != after.grpc),
    ("dns", START, |before, after| before.dns != after.dns),
    ("shutdown", RELOAD, |before, after| before.shutdown != after.shutdown),
    ("log.level", START, |before, after| before.log_level != after.log_level),
    ("log.decisions", RELOAD, |before, after| before.decisions != after.decisions),
    ("log.decisions.database", START, |before, after| {
        let kept = |config: &Config| (config.decisions.in_database, config.decisions.retention);
        before.database.is_some() && after.database.is_some() && kept(before) != kept(after)
    }),
    ("log.access", RELOAD, |before, after| before.access_log != after.access_log),
    ("trace", RELOAD, |before, after| before.trace != after.trace),
];

fn parts<T: PartialEq>(before: &[T], after: &[T], name: fn(&T) -> &String) -> PartChanges {
    let old: HashMap<&str, &T> = before.iter().map(|part| (name(part).as_str(), part)).collect();
    let new: HashMap<&str, &T> = after.iter().map(|part| (name(part).as_str(), part)).collect();
    let names = |parts: &[T], is_one: &dyn Fn(&T) -> bool| {
        parts.iter().filter(|part| is_one(part)).map(|part| name(part).clone()).collect()
    };
    PartChanges {
        added: names(after, &|part| !old.contains_key(name(part).as_str())),
        removed: names(before, &|part| !new.contains_key(name(part).as_str())),
        changed: names(after, &|part| old.get(name(part).as_str()).is_some_and(|old| *old != part)),
    }
}

impl fmt::Display for Changes {
    /// One line of bounded length: `route: 2 added (a, b), 1 changed (c); limits.memory`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = Vec::new();
        for (kind, parts) in &self.parts {
            let ways = [("added", &parts.added), ("removed", &parts.removed), ("changed", &parts.changed)];
            let ways = ways.into_iter().filter(|(_, names)| !names.is_empty());
            let ways: Vec<String> =
                ways.map(|(way, names)| format!("{} {way} ({})", names.len(), shown(names))).collect();
            if !ways.is_empty() {
                said.push(format!("{kind}: {}", ways.join(", ")));
            }
        }
        said.extend(self.settings.iter().map(|setting| (*setting).to_owned()));
        match said.is_empty() {
            true => formatter.write_str("nothing changed"),
            false => formatter.write_str(&said.join("; ")),
        }
    }
}

fn shown(names: &[String]) -> String {
    let mut shown = names[..names.len().min(NAMES_SHOWN_MAX)].join(", ");
    if names.len() > NAMES_SHOWN_MAX {
        shown += ", …";
    }
    shown
}

/// A log line names this many parts of a kind; the count tells of the rest.
const NAMES_SHOWN_MAX: usize = 8;
