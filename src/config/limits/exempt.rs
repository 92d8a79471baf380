//! Reads `exempt` of a policy: whom it neither charges nor refuses.

use http::{HeaderName, HeaderValue};

use base::words;
use policy::definition::{ExemptDefinition, PolicyDefinition, TierDefinition};

use crate::load::text::Text;
use crate::process::listener;
use crate::reader::{Table, Value};
use crate::routes::headers;

/// `exempt = { ip = [...], consumer = [...], tenant = [...], tier = [...], header = { x-probe = "..." } }`. The tiers are those
/// that policies share, beside those of the policy itself.
pub(crate) fn read(
    table: &Table<'_>,
    tiers: &[TierDefinition],
    policy: &PolicyDefinition,
) -> ExemptDefinition {
    let list = |key| table.value(key).map(|value| texts(&value)).unwrap_or_default();
    let names = |key| list(key).into_iter().map(|text| text.text).collect();
    let own = policy.tiers.iter().flat_map(|tiers| &tiers.parts).map(|part| part.name.as_str());
    let known: Vec<&str> = tiers.iter().map(|tier| tier.name.as_str()).chain(own).collect();
    list("tier").iter().for_each(|tier| check_tier(tier, &known));
    let header = table.value("header");
    let exempt = ExemptDefinition {
        networks: list("ip").iter().filter_map(listener::network).collect(),
        consumers: names("consumer"),
        tenants: names("tenant"),
        tiers: names("tier"),
        headers: header.as_ref().map(secrets).unwrap_or_default(),
    };
    if table.is_empty() || header.and_then(|header| header.table()).is_some_and(|header| header.is_empty()) {
        table.wrong("`exempt` lists nobody", "write it like `{ ip = [\"10.0.0.0/8\"] }`, or leave it out");
    }
    exempt
}

fn texts<'c>(value: &Value<'c>) -> Vec<Text<'c>> {
    let texts = value.some_texts("list at least one, or leave it out");
    if texts.len() > ENTRIES_MAX {
        value.wrong(format!("`{}` has more than {ENTRIES_MAX} entries", value.key), "merge or drop some");
    }
    if let Some(text) = texts.iter().find(|text| text.text.is_empty()) {
        text.wrong("an empty text exempts nobody", "leave it out");
    }
    texts
}

/// A tier that is written nowhere is surely a typing error, and would exempt nobody.
fn check_tier(tier: &Text<'_>, known: &[&str]) {
    if known.contains(&tier.text.as_str()) {
        return;
    }
    let hint = words::did_you_mean(&tier.text, known).unwrap_or_else(|| {
        format!("write `[tier.{}]`, or the name of another tier", tier.text.escape_debug())
    });
    tier.fault(format!("there is no tier {}", tier.called()), hint);
}

/// Headers and the value that each must have, which is a secret: who knows it is exempt.
fn secrets(value: &Value<'_>) -> Vec<(HeaderName, String)> {
    // Refused, because policies of the database are shown whole to whoever may read them.
    if value.is_added() {
        value.wrong_key(
            "only a policy of gateway.toml can exempt by `header`: its value is a secret",
            "exempt by `ip`, `consumer`, `tenant` or `tier`",
        );
    }
    let entries = value.table().map(|table| table.entries()).unwrap_or_default();
    let header = |entry: Value<'_>| {
        let name = headers::header_name(&entry.key, |message, hint| entry.wrong_key(message, hint))?;
        let text = entry.text()?;
        if HeaderValue::from_str(&text.text).is_err() || text.text.trim() != text.text {
            text.wrong(
                format!("{} is not a value that a header can have", text.shown()),
                "write one line of printable ASCII, without blanks around it",
            );
        }
        Some((name, text.secret()))
    };
    entries.into_iter().filter_map(header).collect()
}

const ENTRIES_MAX: usize = 100_000;
