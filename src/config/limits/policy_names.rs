//! Reads the policies that a route or a rule of a domain names, or writes in place as shorthands.

use std::collections::HashMap;

use crate::keys::foreign::foreign_value;
use crate::limits::{policy, windows};
use crate::load::context::ImpliedSection;
use crate::load::report::{DefinitionSpans, Fields, quoted};
use crate::load::text::Text;
use crate::printer::{array, text as show_text};
use crate::reader::Value;
use crate::settings::Config;
use base::words;

pub(crate) struct PolicyNames(HashMap<String, usize>);

impl PolicyNames {
    pub(crate) fn of(config: &Config) -> PolicyNames {
        PolicyNames(config.policies.iter().map(|policy| policy.name.clone()).zip(0..).collect())
    }

    /// The policies that a value names. A shorthand becomes a policy of its own with the name that `named` has for the
    /// first, the second and so on, because equal shorthands in two places are two limits; places share a limit by naming
    /// the same `[policy.<name>]`.
    pub(crate) fn read(
        &mut self,
        value: &Value<'_>,
        (config, places): (&mut Config, &mut DefinitionSpans),
        named: impl Fn(usize) -> String,
    ) -> Vec<String> {
        let mut limits: Vec<String> = Vec::new();
        let mut shorthands = 0;
        for text in value.texts() {
            let name = if self.0.contains_key(&text.text) {
                text.text.clone()
            } else if text.ctx.is_misspelt("policy", &text.text) {
                continue;
            } else if is_shorthand(&text.text) {
                shorthands += 1;
                match self.shorthand(&text, (config, places), named(shorthands)) {
                    Some(name) => name,
                    None => continue,
                }
            } else {
                let names: Vec<&str> = config.policies.iter().map(|policy| policy.name.as_str()).collect();
                let foreign = || foreign_value("limit", &text.text, &[]);
                let hint = words::did_you_mean(&text.text, &names)
                    .unwrap_or_else(|| foreign().unwrap_or(WRITE_LIMIT).to_owned());
                text.wrong(format!("there is no policy {}", text.called()), hint);
                continue;
            };
            text.spell(&name);
            if limits.contains(&name) {
                text.wrong(format!("the policy {} is named twice", quoted(&name)), "name it once");
            } else {
                limits.push(name);
            }
        }
        limits
    }

    fn shorthand(
        &mut self,
        text: &Text<'_>,
        (config, places): (&mut Config, &mut DefinitionSpans),
        name: String,
    ) -> Option<String> {
        if let Some(first) = self.0.get(&name) {
            let message = format!("this limit defines the policy {}, which exists already", quoted(&name));
            match places.policies[*first].whole {
                Some(place) => {
                    text.wrong_beside(message, "write the policy's name instead of the limit", place, "here")
                }
                None => text.wrong(message, "write the policy's name instead of the limit"),
            }
            return None;
        }
        let policy = policy::of_shorthand(name.clone(), text)?;
        let by = policy.by.iter().map(|by| show_text(&by.to_string()));
        let keys = vec![("by", array(by)), ("limit", windows::show(&policy.windows))];
        text.ctx.make(ImpliedSection { section: "policy", name: name.clone(), comment: None, keys });
        self.0.insert(name.clone(), config.policies.len());
        config.policies.push(policy);
        places.policies.push(Fields { whole: Some(text.place), ..Fields::default() });
        Some(name)
    }
}

/// Whether a text means a limit, be it wrong, and not a name.
fn is_shorthand(text: &str) -> bool {
    let first = text.trim().trim_start_matches('-').chars().next();
    first.is_none_or(|first| first.is_ascii_digit())
}

const WRITE_LIMIT: &str = "write a limit such as `100/m by ip`, or the name of a `[policy.<name>]`";
