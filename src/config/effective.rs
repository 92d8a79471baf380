//! Writes a configuration as a gateway.toml with every default and masked secrets. Once the secrets are filled in
//! again, it gives an equal configuration. With the masks it is refused, because a secret that everybody knows would
//! let everybody in.

use super::settings::Config;

impl Config {
    /// A number that tells configurations apart, in hex; secrets do not count.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.effective())
    }

    /// The whole configuration as a gateway.toml, with every default and every secret masked.
    pub fn effective(&self) -> String {
        self.secrets.hide_in_toml(&self.canonical.masked())
    }

    #[cfg(test)]
    pub(super) fn page(&self) -> String {
        self.canonical.whole()
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

const FINGERPRINT_BYTES: usize = 16;
