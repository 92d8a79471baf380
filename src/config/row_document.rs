//! Rows of a database that say what files say, too: each is a document of its own beside the files, in the words of
//! gateway.toml, so that it is read, checked and reported like them.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::limits::tier_table;
use super::load::report::{Source, SourceKind};
use policy::definition::BY_CALENDAR;

/// A policy or a tier's limit beside those of the files. It goes before what a file says of the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowDocument {
    /// What messages call it in the place of a file's path.
    shown: String,
    text: String,
    kind: SourceKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierRow<'r> {
    pub tier: &'r str,
    /// The name of a policy, or `*` for each that has `limit = "tier"`.
    pub resource: &'r str,
    pub limit: NonZeroU64,
    pub window_seconds: NonZeroU64,
    /// The burst of a bucket as a multiple of the limit.
    pub burst_multiplier: f64,
    /// The algorithm as gateway.toml spells it, or the unit of a window of the calendar behind `calendar-`; `None`: that of
    /// the tier or the policy.
    pub algorithm: Option<&'r str>,
}

impl RowDocument {
    /// A policy by its name and its keys, as JSON.
    ///
    /// # Errors
    /// If it holds what TOML has no word for (`null`).
    pub fn policy(name: &str, keys: &Value) -> Result<RowDocument, String> {
        let whole = json!({ "policy": { name: keys } });
        let text = toml::to_string(&whole).map_err(|error| error.to_string())?;
        Ok(RowDocument { shown: format!("database: policy {name}"), text, kind: SourceKind::Added })
    }

    /// A limit of a tier.
    ///
    /// # Errors
    /// If its numbers are more than TOML can hold.
    pub fn tier(row: &TierRow<'_>) -> Result<RowDocument, String> {
        let TierRow { tier, resource, limit, window_seconds, burst_multiplier, algorithm } = row;
        // To the nearest unit, so that 1.2 times 5 is 6; one at least. What is too large becomes the largest there is.
        let burst = ((limit.get() as f64 * burst_multiplier).round() as u64).max(1);
        let unit = algorithm.and_then(|algorithm| algorithm.strip_prefix(BY_CALENDAR));
        let period = unit.map_or_else(|| format!("{window_seconds}s"), str::to_owned);
        let mut keys = json!({
            "tier": tier, "resource": resource, "limit": format!("{limit}/{period}"), "burst": burst,
        });
        // Whatever the policy has: a window of the calendar is a fixed one.
        if let Some(algorithm) = unit.map(|_| "fixed-window").or(*algorithm) {
            keys["algorithm"] = algorithm.into();
        }
        let text =
            toml::to_string(&json!({ tier_table::SECTION: keys })).map_err(|error| error.to_string())?;
        Ok(RowDocument {
            shown: format!("database: tier {tier} of {resource}"),
            text,
            kind: SourceKind::Added,
        })
    }

    /// The same, as somebody is about to write it: what nothing can be done with is an error then, and not a warning.
    pub fn proposed(self) -> RowDocument {
        RowDocument { kind: SourceKind::Proposed, ..self }
    }

    pub(super) fn source(&self) -> Source {
        Source {
            path: PathBuf::from(&self.shown),
            // Empty, because it names no files: references to any are refused.
            directory: PathBuf::new(),
            text: Arc::from(self.text.as_str()),
            kind: self.kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoadedConfig;
    use limit::{Algorithm, Quota};
    use policy::definition::LimitOrigin;

    const FILE: &str = "[policy.calls]\nlimit = \"2/m\"\nby = [\"ip\"]\n[[route]]\npath = \"/\"\nlimit = \"calls\"\nrespond = {}\n";

    fn load(added: &[(&str, Value)]) -> Result<LoadedConfig, String> {
        let folder = std::env::temp_dir().join(format!("sluicegate-added-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let file = folder.join("gateway.toml");
        std::fs::write(&file, FILE).expect("written");
        let added: Vec<RowDocument> =
            added.iter().map(|(name, keys)| RowDocument::policy(name, keys).expect("TOML")).collect();
        crate::Files::read(&file).with(&added).and_then(crate::compiled).map_err(|errors| errors.to_string())
    }

    #[test]
    fn an_added_policy_goes_before_that_of_the_file() {
        let keys = json!({ "limit": ["100/m", "1000/h"], "by": ["consumer"], "algorithm": "sliding-window", "match": { "path": "/a" } });
        let loaded =
            load(&[("calls", keys), ("more", json!({ "limit": "5/s", "by": ["ip"] }))]).expect("valid");
        let policies = &loaded.config.policies;
        assert_eq!(policies.iter().map(|policy| policy.name.as_str()).collect::<Vec<_>>(), ["calls", "more"]);
        let limits: Vec<u64> = policies[0].windows.iter().map(|window| window.limit().get()).collect();
        assert_eq!(limits, [100, 1_000]);
        assert_eq!(policies[0].windows[0].algorithm(), Algorithm::SlidingWindow);
        assert_eq!(policies[0].matches.path.as_deref(), Some("/a"));
        assert_eq!(loaded.config.files.len(), 1);
    }

    /// A file with policies by tier and without.
    const BY_TIER: &str = "[tier.free]\nlimit = \"5/m\"\noverfill\n[tier.pro]\nlimit = [\"50/m\", \"900/h\"]\n\
        [policy.plain]\nby = []\nlimit = \"2/m\"\nalgorithm = \"sliding-window\"\n\
        [policy.shared]\nby = []\nlimit = \"tier\"\n\
        [policy.own]\nby = []\nlimit = { gold = { limit = \"7/m\", overshoot = 0 }, default = \"1/m\" }\n";

    fn row<'r>(tier: &'r str, resource: &'r str, limit: u64) -> TierRow<'r> {
        let positive = |number| NonZeroU64::new(number).expect("tests give no zero");
        let (limit, window_seconds) = (positive(limit), positive(60));
        TierRow { tier, resource, limit, window_seconds, burst_multiplier: 1.2, algorithm: None }
    }

    fn by_tier(name: &str, rows: &[RowDocument]) -> Result<LoadedConfig, String> {
        let folder = std::env::temp_dir().join(format!("sluicegate-tiers-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let file = folder.join("gateway.toml");
        std::fs::write(&file, BY_TIER.replace("overfill", "overshoot = 0")).expect("written");
        crate::Files::read(&file).with(rows).and_then(crate::compiled).map_err(|errors| errors.to_string())
    }

    /// A tier, the limit and capacity of each of its windows, and where they were written.
    type TierShown = (String, Vec<(u64, u64)>, LimitOrigin);

    /// The windows of each tier of a policy.
    fn shown(loaded: &LoadedConfig, policy: &str) -> Vec<TierShown> {
        let policies = &loaded.config.policies;
        let policy = policies.iter().find(|known| known.name == policy).expect("it is there");
        let mut shown: Vec<TierShown> = Vec::new();
        for (number, window) in policy.windows.iter().enumerate() {
            let (name, origin) =
                policy.part_of(number).map_or(("", policy.origin), |it| (&it.name, it.origin));
            let window = (window.limit().get(), window.capacity());
            match shown.last_mut().filter(|(last, ..)| last == name) {
                Some((_, windows, _)) => windows.push(window),
                None => shown.push((name.to_owned(), vec![window], origin)),
            }
        }
        shown
    }

    #[test]
    fn a_row_replaces_what_its_tier_has_and_adds_the_tier_where_it_has_nothing() {
        let rows = [
            row("free", "*", 10),
            row("gold", "*", 100),
            row("pro", "shared", 60),
            row("pro", "own", 70),
            row("gold", "own", 80),
            row("pro", "plain", 90),
        ];
        let rows: Vec<RowDocument> = rows.iter().map(|row| RowDocument::tier(row).expect("TOML")).collect();
        let loaded = by_tier("put", &rows).expect("valid");
        assert!(loaded.report.is_empty(), "{}", loaded.report);
        let (file, table) = (LimitOrigin::File, LimitOrigin::TierTable);
        let named = |name: &str, windows: &[(u64, u64)], origin| (name.to_owned(), windows.to_vec(), origin);
        assert_eq!(
            shown(&loaded, "shared"),
            [
                named("free", &[(10, 12)], table),
                named("pro", &[(60, 72)], table),
                named("gold", &[(100, 120)], table),
            ]
        );
        assert_eq!(
            shown(&loaded, "own"),
            [
                named("gold", &[(80, 96)], table),
                named("default", &[(1, 1)], file),
                named("pro", &[(70, 84)], table),
            ]
        );
        // The capacity is the limit, because a sliding window has no burst.
        assert_eq!(
            shown(&loaded, "plain"),
            [named("default", &[(2, 2)], file), named("pro", &[(90, 90)], table)]
        );
        let policy =
            |name| loaded.config.policies.iter().find(|policy| policy.name == name).expect("it is there");
        assert!(
            policy("own").sharing(0).is_exact(),
            "a row changes the window and not how a fleet shares it"
        );
        assert!(policy("shared").sharing(0).is_exact() && !policy("shared").sharing(1).is_exact());
        let effective = loaded.config.effective();
        assert!(effective.contains("# limit.pro: from the tier table of the database\n"), "{effective}");
        let again = crate::from_text("effective", &effective).map_err(|errors| errors.to_string());
        let again = again.expect("what is printed is valid");
        for name in ["shared", "own", "plain"] {
            let limits = |loaded: &LoadedConfig| {
                let parts = shown(loaded, name).into_iter();
                parts.map(|(tier, windows, _)| (tier, windows)).collect::<Vec<_>>()
            };
            assert_eq!(limits(&again), limits(&loaded), "{effective}");
        }
    }

    #[test]
    fn a_row_does_not_change_the_tier_of_clients_without_one() {
        for row in
            [row("prooo", "shared", 1), row("prooo", "*", 1), row("pro", "shared", 1), row("pro", "*", 1)]
        {
            let rows = [RowDocument::tier(&row).expect("TOML")];
            let loaded = by_tier("default", &rows).expect("valid");
            let mut policies = loaded.config.policies.iter();
            let shared = policies.find(|policy| policy.name == "shared").expect("it is there");
            let default = shared.tiers.as_ref().map(|tiers| tiers.default.as_str());
            assert_eq!(default, Some("free"), "{} of {}", row.tier, row.resource);
        }
    }

    #[test]
    fn a_row_with_an_algorithm_counts_by_it() {
        let bucket = TierRow { algorithm: Some("token-bucket"), ..row("pro", "plain", 10) };
        let fixed = TierRow { algorithm: Some("fixed-window"), ..row("pro", "*", 10) };
        let rows = [bucket, fixed].map(|row| RowDocument::tier(&row).expect("TOML"));
        let loaded = by_tier("algorithm", &rows).expect("valid");
        let algorithms = |name| {
            let mut policies = loaded.config.policies.iter();
            let policy = policies.find(|policy| policy.name == name).expect("it is there");
            policy.windows.iter().map(Quota::algorithm).collect::<Vec<_>>()
        };
        assert_eq!(algorithms("plain"), [Algorithm::SlidingWindow, Algorithm::TokenBucket]);
        assert_eq!(algorithms("shared"), [Algorithm::TokenBucket, Algorithm::FixedWindow]);
    }

    #[test]
    fn a_row_for_nothing_is_refused_when_it_is_written_and_a_warning_later() {
        let wrong = [
            (row("pro", "shard", 10), "there is no policy `shard`", "did you mean `shared`?"),
            (row("2nd", "shared", 10), "`2nd` cannot be the name of a tier", "start with a letter"),
            (
                TierRow { algorithm: Some("token-buckets"), ..row("pro", "shared", 10) },
                "`token-buckets` is not an algorithm",
                "did you mean `token-bucket`?",
            ),
        ];
        for (row, message, hint) in wrong {
            let added = RowDocument::tier(&row).expect("TOML");
            let refused = by_tier("wrong", &[added.clone().proposed()]).expect_err("it is of no use");
            let place = format!("database: tier {} of {}", row.tier, row.resource);
            for part in [message, hint, place.as_str()] {
                assert!(refused.contains(part), "{refused}");
            }
            let loaded = by_tier("warned", &[added]).expect("what is there is no reason to fail");
            let report = loaded.report.to_string();
            assert!(report.starts_with(&format!("warning: {message}")), "{report}");
            assert_eq!(shown(&loaded, "shared").len(), 2);
        }
    }

    #[test]
    fn of_another_load_with_the_same_text_only_what_is_new_is_told() {
        let load = |rows: &[TierRow<'_>]| {
            let added: Vec<_> = rows.iter().map(|row| RowDocument::tier(row).expect("TOML")).collect();
            by_tier("told", &added).expect("they are warnings").report
        };
        let (fits, shard, shred) =
            (row("pro", "shared", 10), row("pro", "shard", 10), row("pro", "shred", 10));
        let first = load(&[shard]);
        assert!(!first.is_empty() && first.news_since(&first).is_empty());
        for rows in [&[shard][..], &[fits, shard], &[fits], &[]] {
            assert!(load(rows).news_since(&first).is_empty(), "{rows:?}");
        }
        let news = load(&[fits, shred, shard]).news_since(&first).to_string();
        assert!(news.contains("there is no policy `shred`") && !news.contains("`shard`"), "{news}");
        assert!(!first.news_since(&load(&[])).is_empty(), "what had gone and comes back is told");
    }

    #[test]
    fn a_change_elsewhere_in_a_file_repeats_no_warning() {
        let loaded = |text: &str| crate::from_text("told.toml", text).expect("it is valid").report;
        let plain = "[admin]\ntoken = \"hunter2\"\n";
        let (first, again) = (loaded(plain), loaded(&format!("workers = 2\n{plain}")));
        assert!(!first.is_empty() && again.news_since(&first).is_empty(), "{again}");
        let other = loaded(&plain.replace("hunter2", "hunter3"));
        assert!(!other.news_since(&first).is_empty());
    }

    #[test]
    fn its_mistakes_are_told_in_the_words_of_a_file() {
        for (keys, message) in [
            (json!({ "limit": "5/s", "by": ["ip"], "algoritm": "x" }), "algorithm"),
            (json!({ "limit": "5/s" }), "a policy needs `by`"),
            (json!({ "limit": "five", "by": ["ip"] }), "a limit must begin with a number of requests"),
            (
                json!({ "limit": "5/s", "by": ["ip"], "match": { "path": "${file:/etc/passwd}" } }),
                "cannot refer to a variable",
            ),
        ] {
            let errors = load(&[("calls", keys)]).expect_err("a mistake");
            assert!(errors.contains(message) && errors.contains("database: policy calls"), "{errors}");
        }
        assert!(RowDocument::policy("calls", &json!({ "limit": null })).is_err());
    }
}
