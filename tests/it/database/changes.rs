//! What a node learns that follows the versions is what the database holds.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use base::random::Random;
use control::database::{
    ApiKeyRow, Assignment, Database, DatabaseRows, Expect, NewApiKey, NewOverride, NewReset, NewTierLimit,
    OverrideFilter, OverrideRow, PolicyRow, RowChanges, RowKind, RowName, TierLimit, Time, tiers,
};
use serde_json::json;

use super::lab::{Lab, alice, all, both, of_user, reset_of};

both! {
    a_follower_has_what_the_database_has
    a_state_has_all_of_many_rows
    every_kind_of_change_is_told
    a_version_of_another_history_gets_everything
    a_backup_that_caught_up_is_another_history
    overrides_that_have_ended_are_left_out_of_a_state
}

/// A node's copy, by kind and key; each row as its `Debug` shows it.
#[derive(Default, PartialEq, Debug)]
pub struct Copy {
    pub version: i64,
    rows: BTreeMap<String, String>,
}

impl Copy {
    pub async fn follow(&mut self, database: &Database) {
        match database.changes_since(self.version, None).await.expect("they are read") {
            RowChanges::Since { changed, gone } => {
                for gone in gone {
                    self.rows.remove(&key_of(gone));
                }
                self.put(changed);
            }
            RowChanges::Everything(state) => {
                self.rows.clear();
                self.put(state);
            }
        }
    }

    pub async fn of(database: &Database) -> Copy {
        let mut copy = Copy::default();
        copy.put(database.state().await.expect("it is read"));
        copy
    }

    fn put(&mut self, state: DatabaseRows) {
        assert!(state.version >= self.version, "versions only rise");
        self.version = state.version;
        let shown = |row: &dyn std::fmt::Debug| format!("{row:?}");
        let rows = &mut self.rows;
        rows.extend(state.policies.iter().map(|row| (format!("policy {}", row.id), shown(row))));
        let key = |tier: &str, resource: &str| format!("tier {}", tiers::key(tier, resource));
        rows.extend(state.tiers.iter().map(|row| (key(&row.tier, &row.resource), shown(row))));
        rows.extend(state.assignments.iter().map(|row| (format!("assignment {}", row.user_id), shown(row))));
        rows.extend(state.overrides.iter().map(|row| (format!("override {}", row.id), shown(row))));
        rows.extend(state.resets.iter().map(|row| (format!("reset {}", row.id), shown(row))));
        rows.extend(state.api_keys.iter().map(|row| (format!("key {}", row.digest), shown(row))));
    }
}

fn key_of((kind, key): RowName) -> String {
    match kind {
        RowKind::ApiKey => format!("key {key}"),
        kind => format!("{} {key}", kind.word()),
    }
}

async fn a_follower_has_what_the_database_has(lab: Lab) {
    let database = lab.open().await;
    let random = Random::new(7);
    let mut copy = Copy::default();
    for step in 1..=160 {
        change(&database, &random).await;
        // It misses some, and learns of several changes to one row at once.
        if step % (1 + random.next() % 9) == 0 {
            copy.follow(&database).await;
            assert_eq!(copy, Copy::of(&database).await, "after {step} changes");
        }
    }
    copy.follow(&database).await;
    assert_eq!(copy, Copy::of(&database).await);
    assert_eq!(Ok(copy.version), database.version().await);
}

/// One of the changes that there are, to one of few rows. Some find nothing to change.
async fn change(database: &Database, random: &Random) {
    let by = alice();
    let name = ["ada", "bob", "eve"][(random.next() % 3) as usize];
    let number = NonZeroU64::new(1 + random.next() % 100).expect("above 0");
    let digest = format!("{:064x}", random.next() % 3);
    match random.next() % 11 {
        10 => {
            let policy = number.get().is_multiple_of(2).then(|| "search".to_owned());
            let new = NewReset { policy, ..reset_of(name) };
            drop(database.add_reset(&by, new, None).await.expect("it is made"));
        }
        0 => drop(database.put_policy(&by, name, json!({ "n": number }), Expect::Anything).await),
        1 => drop(database.delete::<PolicyRow>(&by, name, Expect::Anything).await),
        2 => drop(database.put_assignment(&by, name, "pro", Expect::Anything).await),
        3 => drop(database.delete::<Assignment>(&by, name, Expect::Anything).await),
        4 => drop(database.add_override(&by, of_user(name, number.get())).await),
        5 => {
            let rows = database.overrides(&all(), &OverrideFilter::default()).await.expect("they are listed");
            if let Some(row) = rows.first() {
                database.delete::<OverrideRow>(&by, &row.id, Expect::Anything).await.expect("it is there");
            }
        }
        6 => {
            let limit = NewTierLimit {
                tier: name.to_owned(),
                resource: "search".to_owned(),
                limit_value: number,
                window_seconds: number,
                burst_multiplier: None,
                algorithm: None,
            };
            drop(database.put_tier(&by, limit, Expect::Anything).await);
        }
        7 => drop(database.delete::<TierLimit>(&by, &tiers::key(name, "search"), Expect::Anything).await),
        8 => {
            let key = NewApiKey {
                digest,
                consumer: name.to_owned(),
                tenant: None,
                tier: None,
                claims: Default::default(),
                expires_at: None,
            };
            drop(database.add_api_key(&by, key).await);
        }
        _ => drop(database.delete::<ApiKeyRow>(&by, &digest, Expect::Anything).await),
    }
}

async fn every_kind_of_change_is_told(lab: Lab) {
    let database = lab.open().await;
    let by = alice();
    let one = NonZeroU64::MIN;
    let policy = database.put_policy(&by, "p", json!({}), Expect::Anything).await.expect("it is made");
    let assignment = database.put_assignment(&by, "ada", "pro", Expect::Anything).await.expect("it is made");
    let row = database.add_override(&by, of_user("ada", 1)).await.expect("it is made");
    let limit = NewTierLimit {
        tier: "free".to_owned(),
        resource: "search".to_owned(),
        limit_value: one,
        window_seconds: one,
        burst_multiplier: None,
        algorithm: None,
    };
    let tier = database.put_tier(&by, limit, Expect::Anything).await.expect("it is made");
    let key = NewApiKey {
        digest: "f".repeat(64),
        consumer: "ada".to_owned(),
        tenant: None,
        tier: None,
        claims: Default::default(),
        expires_at: None,
    };
    let key = database.add_api_key(&by, key).await.expect("it is made");
    let reset = database.add_reset(&by, reset_of("ada"), None).await.expect("it is made");
    let made_at = database.state().await.expect("it is read").made_at;
    assert!(made_at.is_some());
    let changed = DatabaseRows {
        version: 6,
        made_at,
        policies: vec![policy],
        tiers: vec![tier],
        assignments: vec![assignment],
        overrides: vec![row.clone()],
        api_keys: vec![key],
        resets: vec![reset.clone()],
    };
    let since = database.changes_since(0, None).await;
    assert_eq!(since, Ok(RowChanges::Since { changed: changed.clone(), gone: Vec::new() }));
    assert_eq!(database.state().await, Ok(changed));
    let nothing = RowChanges::Since {
        changed: DatabaseRows { version: 6, made_at, ..DatabaseRows::default() },
        gone: Vec::new(),
    };
    assert_eq!(database.changes_since(6, None).await, Ok(nothing));

    database.delete::<PolicyRow>(&by, "p", Expect::Anything).await.expect("it is there");
    database.delete::<Assignment>(&by, "ada", Expect::Anything).await.expect("it is there");
    database.delete::<OverrideRow>(&by, &row.id, Expect::Anything).await.expect("it is there");
    database
        .delete::<TierLimit>(&by, &tiers::key("free", "search"), Expect::Anything)
        .await
        .expect("it is there");
    database.delete::<ApiKeyRow>(&by, &"f".repeat(64), Expect::Anything).await.expect("it is there");
    let again = database.add_reset(&by, reset_of("ada"), None).await.expect("it is made");
    let Ok(RowChanges::Since { changed, gone }) = database.changes_since(6, None).await else {
        panic!("all are known")
    };
    let made_at = changed.made_at;
    assert_eq!(
        changed,
        DatabaseRows { version: 12, made_at, resets: vec![again], ..DatabaseRows::default() }
    );
    for row in [
        (RowKind::Policy, "p".to_owned()),
        (RowKind::Assignment, "ada".to_owned()),
        (RowKind::Override, row.id),
        (RowKind::Tier, tiers::key("free", "search")),
        (RowKind::ApiKey, "f".repeat(64)),
        (RowKind::Reset, reset.id),
    ] {
        assert!(gone.contains(&row), "{row:?} is not in {gone:?}");
    }
    assert_eq!(gone.len(), 6);
    let made = database.made(2, 8).await.expect("they are read");
    let told: Vec<(i64, bool)> = made.iter().map(|made| (made.version, made.is_policy)).collect();
    assert_eq!(told, [(3, false), (4, false), (5, false), (6, false), (7, true), (8, false)]);
    let age = made[5].at.until(Time::now());
    assert!(age < Duration::from_secs(60) && made[0].at <= made[5].at, "{made:?}");
    assert_eq!(*database.committed().borrow(), 12);
}

async fn a_version_of_another_history_gets_everything(lab: Lab) {
    let database = lab.open().await;
    for user in ["ada", "bob", "eve"] {
        database.put_assignment(&alice(), user, "pro", Expect::Anything).await.expect("it is made");
    }
    let is_everything =
        async |version: i64| match database.changes_since(version, None).await.expect("it is read") {
            RowChanges::Everything(state) => {
                assert_eq!(database.state().await, Ok(state));
                true
            }
            RowChanges::Since { .. } => false,
        };
    // From before a backup that was restored, and from nowhere.
    for (version, everything) in
        [(4, true), (i64::MAX, true), (-1, true), (i64::MIN, true), (0, false), (3, false)]
    {
        assert_eq!(is_everything(version).await, everything, "since {version}");
    }
    lab.sql("DELETE FROM changes WHERE version = 1");
    assert!(is_everything(0).await);
    assert!(!is_everything(1).await);
    lab.sql("DELETE FROM changes");
    assert!(is_everything(2).await);
    assert!(!is_everything(3).await);
}

async fn a_backup_that_caught_up_is_another_history(lab: Lab) {
    let database = lab.open().await;
    let put = async |user: &str| {
        database.put_assignment(&alice(), user, "pro", Expect::Anything).await.expect("it is made");
    };
    let is_everything = async |known: &DatabaseRows| {
        let changes = database.changes_since(known.version, known.made_at).await.expect("it is read");
        matches!(changes, RowChanges::Everything(_))
    };
    put("ada").await;
    put("bob").await;
    let known = database.state().await.expect("it is read");
    assert!(!is_everything(&known).await);
    put("eve").await;
    assert!(!is_everything(&known).await);
    // As if a backup of version 1 had been put back, and somebody had changed something else since.
    lab.sql(&format!("UPDATE changes SET at = {} WHERE version = 2", lab.moment(-5)));
    assert!(is_everything(&known).await, "the version goes on from another one");
    lab.sql("DELETE FROM changes WHERE version = 3");
    lab.sql("UPDATE control_version SET version = 2");
    assert!(is_everything(&known).await, "the version is the same, and what it is of is not");
    // The last version keeps its time, however long ago it was.
    lab.sql(&format!("UPDATE changes SET at = {}", lab.moment(-90_000)));
    database.upkeep(std::time::Duration::from_secs(86_400)).await.expect("it is done");
    assert_eq!(lab.sql("SELECT min(version) FROM changes"), "2");
    let quiet = database.state().await.expect("it is read");
    put("ada").await;
    assert!(quiet.made_at.is_some() && !is_everything(&quiet).await, "a quiet day is no other history");
}

async fn overrides_that_have_ended_are_left_out_of_a_state(lab: Lab) {
    let database = lab.open().await;
    let now = Time::now();
    let mut kept = Vec::new();
    for (user, seconds) in [("long-over", -120), ("just-over", -30), ("running", 120)] {
        let new = NewOverride { expires_at: Some(Time(now.0 + seconds * 1_000_000)), ..of_user(user, 1) };
        let row = database.add_override(&alice(), new).await.expect("it is made");
        // Other nodes' clocks may be seconds behind.
        kept.extend((seconds > -60).then_some(row));
    }
    assert_eq!(database.state().await.map(|state| state.overrides), Ok(kept));
}

async fn a_state_has_all_of_many_rows(lab: Lab) {
    let database = lab.open().await;
    // More than two pages, and exactly one.
    let rows = |count: u32| match lab.is_postgres() {
        true => format!("generate_series(1, {count}) AS numbers(n)"),
        false => format!(
            "(WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) \
             SELECT n FROM numbers)"
        ),
    };
    let (now, many, page) = (lab.moment(0), rows(20_001), rows(10_000));
    lab.sql(&format!(
        "INSERT INTO rate_limit_overrides (id, user_id, override_type, value, reason, created_at, created_by, version) \
         SELECT 'o' || n, 'u' || n, 'absolute', n, 'many', {now}, 'sql', 1 FROM {many}"
    ));
    lab.sql(&format!(
        "INSERT INTO user_rate_tiers (user_id, tier, assigned_at, assigned_by, version) \
         SELECT 'u' || n, 'pro', {now}, 'sql', 1 FROM {page}"
    ));
    let state = database.state().await.expect("it is read");
    let ids: std::collections::BTreeSet<&str> = state.overrides.iter().map(|row| row.id.as_str()).collect();
    assert_eq!((state.overrides.len(), ids.len(), state.assignments.len()), (20_001, 20_001, 10_000));
}
