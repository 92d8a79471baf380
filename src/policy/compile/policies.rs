//! Policies on their own: windows, what they count and what a request costs, and every mistake in them.

use std::collections::HashSet;
use std::num::NonZeroU64;

use super::errors::{CompileErrors, PlaceErrors};
use super::options::{CompileOptions, DIMENSIONS_MAX, TIERS_MAX, WINDOWS_MAX};
use crate::counting::exempt::Exemptions;
use crate::counting::rules::{CostRule, CostRules, PolicyMatches, PolicyRules};
use crate::counting::{self, PlannedQuota, Policy, RetryMemory, TierWindows, Tiers, Window};
use crate::definition;
use crate::definition::Dimension;
use crate::error::{DefinitionPlace, DefinitionProblem};
use crate::keys::key::KeyMaker;
use crate::matching::method::Methods;
use crate::matching::pattern::Pattern;
use limit::{Algorithm, PolicyId, Quota};

pub(super) fn compile(
    policies: &[definition::PolicyDefinition],
    options: &CompileOptions<'_>,
    errors: &mut CompileErrors,
) -> Vec<Option<Policy>> {
    let places = (0..).map(|id| DefinitionPlace::Policy(PolicyId::new(id)));
    errors.check_names(policies.iter().map(|policy| &*policy.name).zip(places));
    let mut labels = HashSet::new();
    let numbered = policies.iter().zip((0..).map(PolicyId::new));
    numbered.map(|(policy, id)| policy_of(policy, id, options, &mut labels, errors)).collect()
}

fn policy_of(
    policy: &definition::PolicyDefinition,
    id: PolicyId,
    options: &CompileOptions<'_>,
    labels: &mut HashSet<String>,
    errors: &mut CompileErrors,
) -> Option<Policy> {
    let errors = &mut errors.at(DefinitionPlace::Policy(id));
    for (dimension, by) in policy.by.iter().enumerate() {
        if policy.by[..dimension].contains(by) {
            errors.add(format!("by[{dimension}]"), DefinitionProblem::DimensionTwice);
        }
    }
    if policy.by.len() > DIMENSIONS_MAX {
        let problem = DefinitionProblem::TooMany { what: "dimensions", max: DIMENSIONS_MAX };
        errors.add(format!("by[{DIMENSIONS_MAX}]"), problem);
        return None;
    }
    let tiers = policy.tiers.as_ref();
    let most = tiers
        .map_or(policy.windows.len(), |tiers| tiers.parts.iter().map(|part| part.windows).max().unwrap_or(0));
    if tiers.is_some_and(|tiers| tiers.parts.len() > TIERS_MAX) {
        let problem = DefinitionProblem::TooMany { what: "tiers", max: TIERS_MAX };
        errors.add("limit[0]", problem);
        return None;
    }
    if most > WINDOWS_MAX {
        let problem = DefinitionProblem::TooMany { what: "windows", max: WINDOWS_MAX };
        errors.add(format!("limit[{WINDOWS_MAX}]"), problem);
        return None;
    }
    let path = policy.matches.path.as_deref().map(Pattern::parse).transpose();
    let path = path.map_err(|error| errors.add("match.path", error)).unwrap_or(None);
    let windows = windows_of(policy, labels);
    let count = u16::try_from(most).expect("checked against WINDOWS_MAX above");
    let (by, prefix) = (&policy.by, options.ipv6_prefix);
    Some(Policy {
        id,
        name: policy.name.as_str().into(),
        shown_as: shown_as(policy).into(),
        is_hidden: policy.is_hidden,
        by: policy.by.clone().into(),
        missing: policy.missing,
        shadow: policy.shadow,
        count_denied: policy.count_denied,
        penalty: policy.penalty,
        anchor_claim: policy.anchor_claim.clone().map(Dimension::Claim),
        hot_keys: policy.hot_keys,
        overshoot: policy.overshoot(policy.overshoot_ppm),
        when_down: policy.when_down,
        rules: PolicyRules {
            matches: PolicyMatches { methods: Methods::new(&policy.matches.methods), path },
            cost: cost_of(policy, errors),
            idempotency: policy.idempotency.as_ref().map(|idempotency| idempotency.header.clone()),
        },
        exempt: Exemptions::new(&policy.exempt),
        keys: KeyMaker::new(&options.salt, &policy.name, count, by, policy.missing, prefix),
        own: policy.windows.len(),
        idempotency: policy.idempotency.as_ref().map(memory_of),
        tiers: tiers.map(|tiers| tiers_of(policy, tiers)),
        windows,
        origin: policy.origin,
        replaces: None,
        tried: None,
    })
}

fn tiers_of(policy: &definition::PolicyDefinition, tiers: &definition::TiersDefinition) -> Tiers {
    let mut at = 0;
    let part = |part: &definition::TierPart| {
        at += part.windows;
        TierWindows {
            tier: part.name.as_str().into(),
            range: at - part.windows..at,
            overshoot: policy.overshoot(part.overshoot_ppm),
            when_down: part.when_down,
            origin: part.origin,
        }
    };
    let parts: Box<[TierWindows]> = tiers.parts.iter().map(part).collect();
    let default = parts.iter().find(|part| *part.tier == *tiers.default);
    // A default that is not listed has no windows; nothing else is done about it, because a configuration names none
    // such.
    let default = default.map_or(0..0, |part| part.range.clone());
    Tiers { parts, default }
}

fn memory_of(idempotency: &definition::Idempotency) -> RetryMemory {
    let window_ns = u64::try_from(idempotency.window.as_nanos()).unwrap_or(u64::MAX);
    let window_ns = NonZeroU64::new(window_ns).unwrap_or(NonZeroU64::MIN);
    let quota = Quota::new(Algorithm::TokenBucket, NonZeroU64::MIN, window_ns, NonZeroU64::MIN);
    RetryMemory { quota, plan: None }
}

fn shown_as(policy: &definition::PolicyDefinition) -> &str {
    policy.shown_as.as_deref().unwrap_or(&policy.name)
}

fn windows_of(policy: &definition::PolicyDefinition, labels: &mut HashSet<String>) -> Box<[Window]> {
    let windows = policy.windows.iter().enumerate().map(|(number, quota)| {
        let plain = |char| if counting::is_of_label(char) { char } else { '_' };
        let mut label: String = shown_as(policy).chars().map(plain).collect();
        let mut siblings = policy.windows.len();
        if let Some(part) = policy.part_of(number) {
            if part.name != definition::TiersDefinition::EVERYBODY {
                label.push('-');
                label.extend(part.name.chars().filter(|char| counting::is_of_label(*char)));
            }
            siblings = part.windows;
        }
        if siblings > 1 {
            label = match quota.algorithm() {
                Algorithm::Concurrency => format!("{label}-in-flight"),
                _ => format!("{label}-{}", period_text(quota)),
            };
        }
        let mut unique = label.clone();
        for number in 2.. {
            if labels.insert(unique.clone()) {
                break;
            }
            unique = format!("{label}-{number}");
        }
        let item = counting::item(&unique, quota, 0);
        Window {
            quota: *quota,
            plan: None,
            anchored: anchored(quota).filter(|_| policy.anchor_claim.is_some()).unwrap_or_default(),
            label: unique.into(),
            item: item.into(),
            before: None,
            outgoing: None,
        }
    });
    windows.collect()
}

/// A quota of the calendar month with each day as the first of its months.
fn anchored(quota: &Quota) -> Option<Box<[PlannedQuota]>> {
    let calendar = quota.calendar().filter(|calendar| calendar.is_monthly())?;
    Some((1..=31).map(|day| (quota.on_calendar(calendar.anchored(day)), None)).collect())
}

fn cost_of(policy: &definition::PolicyDefinition, errors: &mut PlaceErrors<'_>) -> CostRules {
    let capacity = policy.windows.iter().map(Quota::capacity).min().unwrap_or(u64::MAX);
    let default = policy.cost.default.get();
    if default > capacity {
        errors.add("cost.default", DefinitionProblem::CostAboveCapacity { cost: default, capacity });
    }
    let max = policy.cost.max.map_or(capacity, NonZeroU64::get);
    if max > capacity {
        errors.add("cost.max", DefinitionProblem::CostAboveCapacity { cost: max, capacity });
    }
    let written = &policy.cost;
    let compiled = |rules: Vec<CostRule>| CostRules {
        default,
        rules: rules.into(),
        header: written.header.clone(),
        estimate: written.estimate.clone().into(),
        actual: written.actual.clone(),
        max,
        has_max: written.max.is_some(),
    };
    let mut rules: Vec<CostRule> = Vec::new();
    for (method, path, units) in &policy.cost.rules {
        if *units > capacity {
            errors.add("cost", DefinitionProblem::CostAboveCapacity { cost: *units, capacity });
        }
        match Pattern::parse(path) {
            Ok(path) => {
                rules.push(CostRule { methods: Methods::new(method.as_slice()), path, units: *units })
            }
            Err(error) => {
                errors.add("cost", error);
                return compiled(Vec::new());
            }
        }
        let (this, earlier) = rules.split_last().expect("pushed just above");
        let same =
            |rule: &CostRule| rule.path.cmp_specific(&this.path).is_eq() && rule.methods == this.methods;
        if let Some(other) = earlier.iter().position(same) {
            errors.add("cost", DefinitionProblem::CostTwice { other });
        }
    }
    // The most specific first, so that the first path that fits is the one that counts.
    rules.sort_by(|left, right| left.path.cmp_specific(&right.path));
    compiled(rules)
}

/// A period in its largest whole unit: `1m`, `90s`, `1500ms`; that of the calendar as it is written, `month`.
fn period_text(quota: &Quota) -> String {
    if let Some(calendar) = quota.calendar() {
        return calendar.unit().word().to_owned();
    }
    let period_ns = quota.period_ns().get();
    let units = [
        (86_400 * SECOND_NS, "d"),
        (3_600 * SECOND_NS, "h"),
        (60 * SECOND_NS, "m"),
        (SECOND_NS, "s"),
        (1_000_000, "ms"),
    ];
    let whole = units.into_iter().find(|(unit_ns, _)| period_ns.is_multiple_of(*unit_ns));
    let (unit_ns, unit) = whole.unwrap_or((1, "ns"));
    format!("{}{unit}", period_ns / unit_ns)
}

const SECOND_NS: u64 = 1_000_000_000;
