//! Writes a configuration as a gateway.toml with every default and masked secrets. Once the secrets are filled in again, it
//! gives an equal configuration. With the masks it is refused: a secret that everybody knows would let everybody in.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::process::ROOT;
use super::keys::{Kind, Section};
use super::limits::{policy, rls, tiers};
use super::load::mask;
use super::load::mask::MASK;
use super::printer::{Page, text};
use super::process::{admin, database, listener, log, node, redis, running, trace};
use super::routes::{errors, route};
use super::settings::Config;
use super::{auth, upstream};

impl Config {
    /// A number that tells configurations apart, in hex; secrets do not count.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.effective())
    }

    /// The whole configuration as a gateway.toml, with every default and every secret masked.
    pub fn effective(&self) -> String {
        self.secrets.hide_in_toml(&masked(&self.page()))
    }

    /// The same with its secrets.
    pub(super) fn page(&self) -> String {
        let mut page = Page(String::new());
        running::show_workers(&mut page, self.workers);
        self.listeners.iter().for_each(|listener| listener::show(&mut page, listener));
        listener::show_client_ip(&mut page, &self.client_ip);
        self.auth.iter().for_each(|method| auth::show(&mut page, method));
        self.upstreams.iter().for_each(|upstream| upstream::show(&mut page, upstream));
        running::show_dns(&mut page, &self.dns);
        running::show_limits(&mut page, &self.limits);
        self.tiers.iter().for_each(|tier| tiers::show_tier(&mut page, tier));
        self.policies.iter().for_each(|policy| policy::show(&mut page, policy));
        self.routes.iter().for_each(|route| route::show(&mut page, route));
        self.domains.iter().for_each(|domain| rls::show(&mut page, domain));
        admin::show(&mut page, self.admin.as_ref(), self.grpc.as_ref());
        self.redis.iter().for_each(|redis| redis::show(&mut page, redis));
        self.database.iter().for_each(|database| database::show(&mut page, database));
        errors::show(&mut page, &self.error_pages);
        running::show_overload(&mut page, &self.overload);
        running::show_shutdown(&mut page, &self.shutdown);
        node::show(&mut page, &self.node);
        node::show_privacy(&mut page, self.privacy);
        log::show(&mut page, &self.log_level, &self.access_log, &self.decisions);
        self.trace.iter().for_each(|config| trace::show(&mut page, config));
        page.0
    }
}

/// The keys of a policy of this name in the configuration whose [`Config::effective`] this is.
pub fn policy_of(effective: &str, name: &str) -> Option<serde_json::Value> {
    let whole: toml::Table = effective.parse().ok()?;
    serde_json::to_value(whole.get("policy")?.get(name)?).ok()
}

/// The [`Config::fingerprint`] of the configuration whose [`Config::effective`] this is.
pub fn fingerprint(effective: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, effective.as_bytes());
    digest.as_ref()[..FINGERPRINT_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A page that was written so, with a mask for whatever its rows call a secret.
fn masked(page: &str) -> String {
    // What cannot be read may hold any secret.
    let Ok(document) = DeTable::parse(page) else { return text(MASK) };
    let mut secrets = BTreeMap::new();
    in_table(document.get_ref(), &ROOT, None, &mut secrets);
    let mut shown = String::with_capacity(page.len());
    let mut rest = 0;
    for ((start, end), masked) in secrets {
        shown += &page[rest..start];
        shown += &text(&masked);
        rest = end;
    }
    shown + &page[rest..]
}

/// The places of secrets, and what is shown there.
type Found = BTreeMap<(usize, usize), String>;

fn in_table(table: &DeTable<'_>, section: &Section, others: Option<&Kind>, found: &mut Found) {
    for (key, value) in table {
        if let Some(kind) = section.key(key.get_ref()).map(|row| &row.kind).or(others) {
            in_value(key.get_ref(), value, kind, found);
        }
    }
}

fn in_value(key: &str, value: &Spanned<DeValue<'_>>, kind: &Kind, found: &mut Found) {
    match (value.get_ref(), kind) {
        (_, Kind::Any(several)) => several.iter().for_each(|one| in_value(key, value, one, found)),
        (_, Kind::Field(inner)) if !mask::is_secret_name(key) => in_value(key, value, inner, found),
        (DeValue::Array(values), Kind::List(_) | Kind::Field(_)) => {
            let of = if let Kind::List(of) = kind { of } else { kind };
            values.iter().for_each(|value| in_value(key, value, of, found));
        }
        (DeValue::String(text), Kind::Secret | Kind::Field(_) | Kind::Url) => {
            let masked = if let Kind::Url = kind { mask::value(text) } else { MASK.to_owned() };
            found.insert((value.span().start, value.span().end), masked);
        }
        (DeValue::Table(table), Kind::Table(section)) => in_table(table, section, None, found),
        (DeValue::Table(table), Kind::Open(section, other)) => in_table(table, section, Some(other), found),
        (DeValue::Table(table), Kind::Map(of)) => {
            table.iter().for_each(|(key, value)| in_value(key.get_ref(), value, of, found));
        }
        (DeValue::Table(table), Kind::Tagged(several)) => {
            several.iter().for_each(|(_, section)| in_table(table, section, None, found));
        }
        _ => {}
    }
}

const FINGERPRINT_BYTES: usize = 16;
