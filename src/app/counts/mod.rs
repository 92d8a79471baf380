//! Counts of limits as programs ask for them and change them over the admin listener, by the same limiter and the same
//! snapshot as requests.

mod checks;
pub(super) mod resets;
mod sources;
mod usage;

use std::sync::Arc;

use super::hot_keys::HotKeys;
use crate::views::override_view::OverrideView;
use base::clock;
use control::admin;
use limiter::Limiter;
use policy::NamedValue;
use policy::definition::Dimension;

pub(super) use sources::{Clocks, Counts};

impl Counts {
    pub(super) fn for_operators(&self) -> admin::LimitCounts {
        let named = self.clone();
        let (current, limiter) = (Arc::clone(&self.current), Arc::clone(&self.limiter));
        let translated = Arc::clone(&self.current);
        admin::LimitCounts {
            check: admin::asked(self.clone(), checks::decide),
            usage: admin::asked(self.clone(), usage::usage),
            grant: admin::asked(self.clone(), resets::grant),
            hot_keys: self.hot_keys.clone().map(|keys| admin::asked(keys, HotKeys::shown)),
            takes_time: self.clocks.is_some(),
            standing: Box::new(move |consumer, tenant| standing(&limiter, consumer, tenant)),
            names: Box::new(move || usage::names(&named)),
            nat64: Box::new(move || translated.load().client_ip.nat64.clone()),
            counts_by: Box::new(move |policy, dimension| {
                let snapshot = current.load();
                // Not of a candidate, because it has the overrides and the resets of the policy that it is to replace.
                let found = snapshot.table.policy(policy).filter(|policy| policy.replaces().is_none());
                found.is_some_and(|policy| policy.by.contains(dimension))
            }),
        }
    }
}

/// What overrides make of a consumer and of its tenant, each in a word and a sentence.
fn standing(limiter: &Limiter, consumer: &str, tenant: Option<&str>) -> Vec<(&'static str, String)> {
    let now_ns = clock::now_ns();
    let names = [(Dimension::Consumer, Some(consumer)), (Dimension::Tenant, tenant)];
    let named =
        names.into_iter().filter_map(|(dimension, name)| Some(NamedValue::Of(dimension, name?.into())));
    let standings =
        [("blocked", &limiter.overrides().blocked), ("unlimited", &limiter.overrides().unlimited)];
    let of = |value: NamedValue| {
        standings.into_iter().filter_map(move |(word, standings)| {
            let by = standings.of_value(&value, tenant, now_ns)?;
            Some((word, format!("{value}, by {}", OverrideView::alone(&by, now_ns).sentence())))
        })
    };
    named.flat_map(of).collect()
}
