//! Reads `[rls.*]`: which policies decide about the descriptors of other proxies.
//!
//! Whether a descriptor says what its policies count by is checked where rules are compiled (`policy::compile`), not here.

use base::words::{self, NAME_BYTES_MAX};
use policy::counting::shorthand;
use policy::definition::Dimension;
use policy::matching::domain::definition::{
    DescriptorSlot, DomainDefinition, EntryMatch, RuleDefinition, ValueMatch, VerdictDefinition,
};

use crate::limits::policy_names::PolicyNames;
use crate::load::report::{DefinitionSpans, quoted};
use crate::load::sections;
use crate::load::sections::NamedTable;
use crate::reader::{Table, Value};
use crate::settings::Config;

/// Reads every domain into `config`, and with them the policies that their rules write as shorthands.
pub(crate) fn read_all(documents: &[Table<'_>], config: &mut Config, places: &mut DefinitionSpans) {
    let mut policies = PolicyNames::of(config);
    for NamedTable { name, table } in sections::named(documents, "rls") {
        let (mut fields, checkpoint) = (table.places(), table.checkpoint());
        let mut reader = Reader { domain: &name, policies: &mut policies, config, places };
        let mut overrides = false;
        table.boolean("overrides", &mut overrides);
        let rules = table.value("descriptors").map(|value| reader.rules(&value)).unwrap_or_default();
        fields.is_flawed = checkpoint.is_flawed();
        config.domains.push(DomainDefinition { name, overrides, rules });
        places.domains.push(fields);
    }
}

struct Reader<'r> {
    domain: &'r str,
    policies: &'r mut PolicyNames,
    config: &'r mut Config,
    places: &'r mut DefinitionSpans,
}

impl Reader<'_> {
    /// A rule that cannot be read keeps its place, so that the others keep theirs.
    fn rules(&mut self, value: &Value<'_>) -> Vec<RuleDefinition> {
        let rules = value.array().unwrap_or_default();
        if rules.len() > RULES_MAX {
            value.wrong(format!("more than {RULES_MAX} rules in one domain"), "write several domains");
            return Vec::new();
        }
        let numbered = rules.iter().zip(1..);
        numbered
            .map(|(rule, number)| rule.table().map(|table| self.rule(table, number)).unwrap_or_default())
            .collect()
    }

    fn rule(&mut self, table: Table<'_>, number: usize) -> RuleDefinition {
        let entries = table.value("entries").map(|value| entries(&value));
        let (entries, is_ordered) = entries.unwrap_or((Vec::new(), true));
        let given = table.value("dimensions").map(|value| given(&value)).unwrap_or_default();
        let name = table.value("name").and_then(|value| sections::name(&value));
        let instead_of = table.value("instead-of").map(|value| value.texts()).unwrap_or_default();
        let counted = entries.first().map_or("ip", |entry| &entry.key);
        let verdict = self.verdict(&table, counted, name.as_deref(), number);
        let instead_of = instead_of.into_iter().map(|text| text.text).collect();
        RuleDefinition { name, instead_of, entries, is_ordered, given, verdict }
    }

    fn verdict(
        &mut self,
        table: &Table<'_>,
        counted: &str,
        name: Option<&str>,
        number: usize,
    ) -> VerdictDefinition {
        let limit = table.value("limit");
        let is = |key| table.value(key).and_then(|value| value.boolean()).unwrap_or(false);
        for key in ["unlimited", "deny"].into_iter().filter(|key| !is(key)) {
            table.spell(key, "");
        }
        match (&limit, is("unlimited"), is("deny")) {
            (Some(limit), false, false) => {
                let domain = self.domain;
                let named = |shorthand| shorthand_name(domain, name, number, shorthand);
                let limits = self.policies.read(limit, (self.config, self.places), named);
                if limit.is_empty_array() {
                    limit.wrong("`limit` is empty", "name a policy, or write `unlimited = true` instead");
                }
                return VerdictDefinition::Limited(limits);
            }
            (None, true, false) => return VerdictDefinition::Unlimited,
            (None, false, true) => return VerdictDefinition::Denied,
            (None, false, false) => table.lacks(
                &["limit", "unlimited", "deny"],
                "a rule needs `limit`, `unlimited` or `deny`",
                match counted {
                    "ip" | "remote_address" => {
                        "write `limit = \"100/m by ip\"`, or name a `[policy.<name>]`".to_owned()
                    }
                    key => format!("write `limit = \"100/m by entry:{key}\"`, or name a `[policy.<name>]`"),
                },
            ),
            _ => {
                table.wrong("a rule has only one of `limit`, `unlimited` and `deny`", "leave the others out")
            }
        }
        VerdictDefinition::Denied
    }
}

/// The entries, and whether they come in this order: a table has none.
fn entries(value: &Value<'_>) -> (Vec<EntryMatch>, bool) {
    if value.is_table() {
        let table = value.table();
        let entries = table.iter().flat_map(Table::entries).filter_map(|value| entry(&value)).collect();
        return (entries, false);
    }
    let one = |value: &Value<'_>| {
        let entries = value.table()?.entries();
        match entries.as_slice() {
            [only] => entry(only),
            _ => {
                value.wrong(
                    "an entry must be a table of one key",
                    "write one table for each, in their order: `[{ generic_key = \"a\" }, { user_id = \"*\" }]`",
                );
                None
            }
        }
    };
    (value.array().unwrap_or_default().iter().filter_map(one).collect(), true)
}

fn entry(value: &Value<'_>) -> Option<EntryMatch> {
    let text = value.text()?;
    if value.key.is_empty() {
        value.wrong_key("the key of an entry is empty", "write it like `remote_address = \"*\"`");
    }
    if text.text.is_empty() {
        text.wrong("an empty value matches nothing", "write `\"*\"` for any value");
        return None;
    }
    Some(EntryMatch { key: value.key.clone(), value: ValueMatch::parse(&text.text) })
}

/// What the entries say beside themselves.
fn given(value: &Value<'_>) -> Vec<(DescriptorSlot, String)> {
    let table = value.table();
    let one = |value: Value<'_>| {
        let given = match value.key.as_str() {
            "tier" => DescriptorSlot::Tier,
            written => DescriptorSlot::Dimension(dimension(&value, written)?),
        };
        Some((given, value.text()?.text))
    };
    table.iter().flat_map(Table::entries).filter_map(one).collect()
}

fn dimension(value: &Value<'_>, written: &str) -> Option<Dimension> {
    let problem = match shorthand::dimension(written) {
        Ok(dimension) => return Some(dimension),
        Err(problem) => problem,
    };
    let mut known = shorthand::DIMENSIONS.to_vec();
    known.push("tier");
    let hint = words::did_you_mean(written, &known).filter(|_| !known.contains(&written));
    let hint = hint.unwrap_or_else(|| problem.hint().into_owned());
    value.wrong_key(format!("{} is not a dimension", quoted(written)), hint);
    None
}

/// The policy of a shorthand is named after its domain and its rule, by the rule's name, otherwise its place:
/// `rls:edge:checkout` or `rls:edge#1`, then `rls:edge#1#2`.
fn shorthand_name(domain: &str, name: Option<&str>, rule: usize, number: usize) -> String {
    let name = name.filter(|name| name.len() <= RULE_NAME_BYTES_MAX);
    let mut suffix = name.map_or_else(|| format!("#{rule}"), |name| format!(":{name}"));
    if number > 1 {
        suffix.push_str(&format!("#{number}"));
    }
    // Cut to the length of a name. Slicing is safe, because a domain's name is ASCII.
    let room = NAME_BYTES_MAX - "rls:".len() - suffix.len();
    format!("rls:{}{suffix}", &domain[..domain.len().min(room)])
}

const RULES_MAX: usize = 100_000;
/// A rule with a longer name is called by its place where its name is a part of another.
const RULE_NAME_BYTES_MAX: usize = NAME_BYTES_MAX / 2;
