//! The flat form of a policy, as configurations of other limiters have it, into the words of gateway.toml. What it has no
//! word for is refused with what to write instead; all else is checked like any other policy.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::admin::api::reading::fields::{BodyFields, Flaw};
use crate::admin::api::schema::Name;
use base::units::DURATION_MAX;
use base::words::listed;
use policy::counting::shorthand;

/// The flat form of a policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("examples" = [json!({ "keyType": "userId:endpoint", "ratePerSec": 10, "burst": 50 })]))]
pub(in crate::admin::api) struct FlatPolicy {
    /// The policy's name, which must be that of the path.
    policy_id: Option<Name>,
    /// `userId`, `apiKey`, `ip`, `endpoint`, or several of them with `:` between.
    #[schemars(extend("pattern" = "^(userId|apiKey|ip|endpoint)(:(userId|apiKey|ip|endpoint))*$"))]
    key_type: Name,
    /// A value of `algorithm` in gateway.toml, in any case and with `_` or `-`.
    #[schemars(example = &"TOKEN_BUCKET")]
    algorithm: Option<Name>,
    /// Units per second. Decimals count as in gateway.toml: 1.67 is `5/3s`. With `windowSec` the limit is the nearest whole
    /// number of units in that window.
    #[schemars(extend("exclusiveMinimum" = 0))]
    rate_per_sec: f64,
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    burst: Option<u64>,
    #[schemars(range(min = 1, max = DURATION_MAX.as_secs()))]
    window_sec: Option<u64>,
    /// What `when-redis-down` says: `OPEN` is `allow`, `CLOSED` is `deny`.
    fail_mode: Option<FailMode>,
    /// 0: Redis decides each request, as with `overshoot = 0`. Otherwise nodes hold leases, which follow their demand.
    #[schemars(extend("enum" = [0, null]))]
    local_quota_fraction: Option<f64>,
}

/// What happens while Redis is down.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
enum FailMode {
    Open,
    Closed,
}

/// Whether a body is of the flat form: it has a key that gateway.toml does not have.
pub(in crate::admin::api) fn is_flat(fields: &BodyFields) -> bool {
    ["policyId", "keyType", "ratePerSec"].iter().any(|name| fields.has(name))
}

/// The policy of a flat form in the words of gateway.toml, and what its rate counts as if it has decimals.
///
/// # Errors
/// Everything that cannot be written in them.
pub(in crate::admin::api) fn policy(
    id: &str,
    mut fields: BodyFields,
) -> Result<(Value, Option<String>), Vec<Flaw>> {
    let key_type = fields.get("keyType").and_then(Value::as_str).map(dimensions);
    if let Some(Err(hint)) = &key_type {
        fields.wrong("keyType", hint.as_str());
    }
    if fields.get("localQuotaFraction").is_some_and(|fraction| fraction.as_f64() != Some(0.0)) {
        let hint = "`localQuotaFraction` must be 0 or left out: leases follow each node's demand. To bound what \
            a fleet may admit beyond a limit, write the policy with the keys of gateway.toml, and with \
            `overshoot = \"1%\"`";
        fields.wrong("localQuotaFraction", hint);
    }
    let flat: FlatPolicy = fields.read()?;
    if flat.policy_id.as_ref().is_some_and(|named| named.0 != id) {
        return Err(vec![Flaw::in_body(
            "policyId",
            "`policyId` must be the policy of the path, or be left out",
        )]);
    }
    let (limit, note) = flat.limit().map_err(|hint| vec![Flaw::in_body("ratePerSec", hint)])?;
    let mut keys = Map::new();
    keys.insert("by".to_owned(), dimensions(&flat.key_type.0).unwrap_or_default().into());
    keys.insert("limit".to_owned(), limit.into());
    if let Some(algorithm) = flat.algorithm {
        // Not looked at here, because a word that is none is refused by who knows the words.
        keys.insert("algorithm".to_owned(), algorithm.0.to_lowercase().replace('_', "-").into());
    }
    let when_down = flat.fail_mode.map(|mode| match mode {
        FailMode::Open => "allow",
        FailMode::Closed => "deny",
    });
    keys.extend(when_down.map(|word| ("when-redis-down".to_owned(), json!(word))));
    keys.extend(flat.local_quota_fraction.map(|_| ("overshoot".to_owned(), json!(0))));
    Ok((Value::Object(keys), note))
}

fn dimensions(text: &str) -> Result<Vec<&'static str>, String> {
    let of_word = |word: &str| KEY_TYPES.iter().find(|(known, _)| *known == word).map(|(_, by)| *by);
    let by: Option<Vec<_>> = text.split(':').map(of_word).collect();
    by.ok_or_else(|| {
        let known: Vec<_> = KEY_TYPES.iter().map(|(known, _)| *known).collect();
        let known = listed(&known);
        format!("`keyType` must be {known}, or several of them with `:` between: `userId:endpoint`")
    })
}

impl FlatPolicy {
    /// The limit as gateway.toml writes it, from rate, window and burst, and what it counts as if the rate has decimals.
    fn limit(&self) -> Result<(String, Option<String>), &'static str> {
        let rate = self.rate_per_sec;
        let burst = self.burst.map(|burst| format!(" burst {burst}")).unwrap_or_default();
        let limit = match self.window_sec {
            Some(window) => {
                let units = (rate * window as f64).round();
                let units = Some(units).filter(|units| (1.0..=LIMIT_MAX as f64).contains(units)).ok_or(
                    "`ratePerSec` × `windowSec` must be a number from 1 to 1000000000, rounded to the nearest whole one",
                )?;
                format!("{units}/{window}s{burst}")
            }
            None => {
                let text = decimal_text(rate);
                let read = shorthand::parse(&format!("{text}/s{burst}")).ok();
                let read = read.filter(|read| read.window.limit().get() <= LIMIT_MAX).ok_or(
                    "`ratePerSec` must be a number from 0.0000116, one unit a day, to 1000000000: write slower rates \
                    with the keys of gateway.toml, such as `limit = \"1/30d\"`",
                )?;
                read.counted_as.unwrap_or_else(|| format!("{text}/s{burst}"))
            }
        };
        let note = (rate.fract() != 0.0).then(|| format!("{rate} per second is counted as {limit}"));
        Ok((limit, note))
    }
}

/// A number with at most nine decimals, and without an exponent.
fn decimal_text(number: f64) -> String {
    format!("{number:.9}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What each part of `keyType` counts by.
const KEY_TYPES: [(&str, &str); 4] =
    [("userId", "consumer"), ("apiKey", "header:x-api-key"), ("ip", "ip"), ("endpoint", "route")];
/// As costs and limits of tiers.
const LIMIT_MAX: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(body: Value) -> Result<Value, Vec<String>> {
        let fields = BodyFields::parse(body.to_string().as_bytes()).expect("an object");
        assert!(is_flat(&fields));
        let read = policy("search", fields);
        read.map(|(policy, _)| policy).map_err(|flaws| flaws.into_iter().map(|flaw| flaw.detail).collect())
    }

    #[test]
    fn a_rate_with_decimals_counts_as_in_the_file_and_says_so() {
        for (rate, window, limit) in [
            (1.67, None, "5/3s"),
            (0.333_333, None, "1/3s"),
            (0.333_333_33, None, "1/3s"),
            (std::f64::consts::PI, None, "19/6s"),
            (0.1, None, "1/10s"),
            (0.5, None, "1/2s"),
            (1.67, Some(60), "100/60s"),
            (1.675, Some(60), "101/60s"),
            (1.7, Some(60), "102/60s"),
            (0.5, Some(1), "1/1s"),
        ] {
            let body = json!({ "keyType": "userId", "ratePerSec": rate, "windowSec": window });
            let fields = BodyFields::parse(body.to_string().as_bytes()).expect("an object");
            let (policy, note) = policy("search", fields).expect("it is a policy");
            assert_eq!(policy["limit"], limit, "{body}");
            assert_eq!(note, Some(format!("{rate} per second is counted as {limit}")), "{body}");
            if window.is_none() {
                let of_file = shorthand::parse(&format!("{rate}/s")).expect("a limit").counted_as;
                assert_eq!(of_file.as_deref(), Some(limit), "{body}");
            }
        }
    }

    #[test]
    fn a_flat_form_has_the_same_meaning_in_the_words_of_the_file() {
        for (body, meant) in [
            (
                json!({ "keyType": "userId", "ratePerSec": 100 }),
                json!({ "by": ["consumer"], "limit": "100/s" }),
            ),
            (
                json!({
                    "policyId": "search", "keyType": "userId:endpoint", "ratePerSec": 10, "burst": 50,
                    "algorithm": "TOKEN_BUCKET", "failMode": "OPEN", "localQuotaFraction": 0,
                }),
                json!({
                    "by": ["consumer", "route"], "limit": "10/s burst 50", "algorithm": "token-bucket",
                    "when-redis-down": "allow", "overshoot": 0,
                }),
            ),
            (
                json!({
                    "keyType": "ip", "ratePerSec": 2.5, "windowSec": 10, "algorithm": "sliding_window",
                    "failMode": "CLOSED",
                }),
                json!({
                    "by": ["ip"], "limit": "25/10s", "algorithm": "sliding-window", "when-redis-down": "deny",
                }),
            ),
            (
                json!({ "keyType": "apiKey", "ratePerSec": 0.1 }),
                json!({ "by": ["header:x-api-key"], "limit": "1/10s" }),
            ),
        ] {
            assert_eq!(flat(body.clone()), Ok(meant), "{body}");
        }
    }

    #[test]
    fn what_the_file_has_no_word_for_is_refused_with_what_to_write() {
        for (more, said) in [
            (json!({ "localQuotaFraction": 0.2 }), "`overshoot = \"1%\"`"),
            (json!({ "keyType": "user" }), "`keyType` must be `userId`"),
            (json!({ "keyType": "composite" }), "between: `userId:endpoint`"),
            (json!({ "failMode": "open" }), "unknown value of `failMode`"),
            (json!({ "ratePerSec": 0.3, "windowSec": 1 }), "must be a number from 1 to"),
            (json!({ "ratePerSec": 0 }), "must be above 0"),
            (json!({ "ratePerSec": 0.000_001 }), "such as `limit = \"1/30d\"`"),
            (json!({ "ratePerSec": 2e9 }), "to 1000000000"),
            (json!({ "policyId": "other" }), "must be the policy of the path"),
            (json!({ "rate": 1 }), "unknown field `rate`: it takes"),
            (json!({ "burst": 0 }), "`burst` must be"),
        ] {
            let mut body = json!({ "keyType": "userId", "ratePerSec": 1 });
            body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            let details = flat(body).expect_err(said);
            assert!(details.len() == 1 && details[0].contains(said), "{more}: {details:?}");
        }
    }
}
