//! Rows of every table come and go, with versions, idempotency and an audit trail.

use std::num::NonZeroU64;

use control::database::{
    ABSOLUTE_MAX, Actor, ApiKeyFilter, ApiKeyRow, Assignment, AuditEntry, AuditFilter, Error, Expect,
    NewApiKey, NewOverride, NewReset, NewTierLimit, OverrideFilter, OverrideKind, OverrideNames, OverrideRow,
    PageRange, PolicyRow, RowChanges, RowKind, TierLimit, Time, tiers,
};
use serde_json::json;

use super::lab::{Lab, alice, alice_once, all, both, of_user, reset_of};

both! {
    overrides_are_made_found_listed_and_deleted
    overrides_are_listed_by_what_they_are_for
    a_lasting_limit_stands_in_the_place_of_those_before
    a_lasting_limit_is_found_and_deleted_by_its_names
    a_reset_stands_in_the_place_of_those_that_it_makes_meaningless
    what_no_row_can_be_is_refused_with_why
    a_request_that_comes_again_acts_once
    policies_change_by_version
    limits_of_tiers_change_by_version
    tiers_of_consumers_change_by_version
    api_keys_are_made_disabled_and_deleted
    every_change_is_audited
    the_audit_log_cannot_be_rewritten
    any_text_comes_back_as_it_was
    pages_join_without_a_gap
}

async fn overrides_are_made_found_listed_and_deleted(lab: Lab) {
    let database = lab.open().await;
    let before = Time::now();
    let end = Time(before.0 + 600_000_000 + 1);
    let new = NewOverride { policy: Some("search".to_owned()), expires_at: Some(end), ..of_user("ada", 500) };
    let made = database.add_override(&alice(), new).await.expect("it is made");
    assert_eq!((made.user_id.as_deref(), made.tenant_id.as_deref()), (Some("ada"), None));
    assert_eq!((made.policy.as_deref(), made.reason.as_str()), (Some("search"), "a launch"));
    assert_eq!(made.kind, OverrideKind::Absolute(500));
    assert_eq!((made.expires_at, made.created_by.as_str(), made.version), (Some(end), "alice", 1));
    assert!(before <= made.created_at && made.created_at <= Time::now());
    assert_eq!(made.id.len(), 26);

    let again = lab.open().await;
    assert_eq!(again.row::<OverrideRow>(&made.id).await, Ok(Some(made.clone())));
    let kind = OverrideKind::Multiplicative(2.5);
    let other = NewOverride { user_id: None, tenant_id: Some("acme".to_owned()), kind, ..of_user("", 1) };
    let other = database.add_override(&alice(), other).await.expect("it is made");
    assert_eq!((other.kind, other.version), (kind, 2));
    let listed = again.overrides(&all(), &OverrideFilter::default()).await;
    assert_eq!(listed, Ok(vec![made.clone(), other.clone()]));

    assert_eq!(database.delete::<OverrideRow>(&alice(), &made.id, Expect::Anything).await, Ok(made.clone()));
    let gone = database.delete::<OverrideRow>(&alice(), &made.id, Expect::Anything).await;
    assert_eq!((gone, again.row::<OverrideRow>(&made.id).await), (Err(Error::NotFound), Ok(None)));
    let wrong = database.delete::<OverrideRow>(&alice(), &other.id, Expect::Version(1)).await;
    assert_eq!(wrong, Err(Error::Conflict { version: Some(2) }));
    // What is refused takes no version.
    assert_eq!(database.version().await, Ok(3));
}

async fn overrides_are_listed_by_what_they_are_for(lab: Lab) {
    let database = lab.open().await;
    let now = Time::now();
    let add = async |user: Option<&str>, tenant: Option<&str>, policy: Option<&str>, ends: Option<i64>| {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let new = NewOverride {
            user_id: owned(user),
            tenant_id: owned(tenant),
            policy: owned(policy),
            expires_at: ends.map(|seconds| Time(now.0 + seconds * 1_000_000)),
            ..of_user("", 1)
        };
        database.add_override(&alice(), new).await.expect("it is made").id
    };
    let a = add(Some("ada"), None, None, Some(60)).await;
    let b = add(Some("ada"), Some("acme"), Some("search"), Some(-60)).await;
    let c = add(None, Some("acme"), None, None).await;
    let d = add(Some("bob"), None, Some("search"), None).await;
    let found = async |filter: OverrideFilter| -> Vec<String> {
        let found = database.overrides(&all(), &filter).await.expect("they are listed");
        found.into_iter().map(|row| row.id).collect()
    };
    let text = |text: &str| Some(text.to_owned());
    let sorted = |ids: &[&String]| {
        let mut ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        ids.sort();
        ids
    };
    let none = OverrideFilter::default;
    assert_eq!(found(OverrideFilter { user_id: text("ada"), ..none() }).await, sorted(&[&a, &b]));
    assert_eq!(found(OverrideFilter { tenant_id: text("acme"), ..none() }).await, sorted(&[&b, &c]));
    assert_eq!(found(OverrideFilter { policy: text("search"), ..none() }).await, sorted(&[&b, &d]));
    assert_eq!(found(OverrideFilter { live_at: Some(now), ..none() }).await, sorted(&[&a, &c, &d]));
    let both = OverrideFilter { user_id: text("ada"), live_at: Some(now), ..none() };
    assert_eq!(found(both).await, [a]);
    assert!(found(OverrideFilter { user_id: text("' OR true --"), ..none() }).await.is_empty());
}

async fn a_lasting_limit_stands_in_the_place_of_those_before(lab: Lab) {
    let database = lab.open().await;
    let of = |policy: Option<&str>, limit| NewOverride {
        policy: policy.map(str::to_owned),
        ..of_user("ada", limit)
    };
    let first =
        database.put_override(&alice(), of(Some("search"), 5), Expect::Nothing).await.expect("it is made");
    let early = database.put_override(&alice(), of(Some("search"), 6), Expect::Nothing).await;
    assert_eq!(early, Err(Error::Conflict { version: Some(1) }));
    let second = database.put_override(&alice(), of(Some("search"), 6), Expect::Version(1)).await;
    let second = second.expect("it is replaced");
    assert_eq!((&second.id, second.version, second.kind), (&first.id, 2, of(None, 6).kind));

    // Others of the same consumer stay: for another policy, for all, for a tenant, for a while, multiplied.
    let end = Some(Time(Time::now().0 + 60_000_000));
    let mut others = Vec::new();
    for new in [
        of(Some("login"), 1),
        of(None, 1),
        NewOverride { tenant_id: Some("acme".to_owned()), ..of(Some("search"), 1) },
        NewOverride { expires_at: end, ..of(Some("search"), 1) },
        NewOverride { kind: OverrideKind::Multiplicative(2.0), ..of(Some("search"), 1) },
    ] {
        others.push(database.add_override(&alice(), new).await.expect("it is made"));
    }
    // One that was made beside it goes, and nodes are told.
    let beside = database.add_override(&alice(), of(Some("search"), 7)).await.expect("it is made");
    let last = database.put_override(&alice(), of(Some("search"), 9), Expect::Something).await;
    let last = last.expect("it is replaced");
    assert_eq!((&last.id, last.version), (&beside.id, 9));
    let Ok(RowChanges::Since { changed, gone }) = database.changes_since(8, None).await else {
        panic!("it is known")
    };
    assert_eq!((changed.overrides, gone), (vec![last.clone()], vec![(RowKind::Override, first.id)]));
    others.push(last);
    others.sort_by(|one, other| one.id.cmp(&other.id));
    assert_eq!(database.overrides(&all(), &OverrideFilter::default()).await, Ok(others));
    for new in [NewOverride { expires_at: end, ..of(None, 1) }, NewOverride { user_id: None, ..of(None, 1) }]
    {
        let said = database.put_override(&alice(), new, Expect::Anything).await;
        assert!(matches!(said, Err(Error::Invalid(_))), "{said:?}");
    }
}

async fn a_lasting_limit_is_found_and_deleted_by_its_names(lab: Lab) {
    let database = lab.open().await;
    let names = |policy: Option<&str>| OverrideNames {
        user: Some("ada".to_owned()),
        tenant: None,
        policy: policy.map(str::to_owned),
    };
    let of = |limit| NewOverride { policy: Some("search".to_owned()), ..of_user("ada", limit) };
    let end = Some(Time(Time::now().0 + 60_000_000));
    database.add_override(&alice(), NewOverride { expires_at: end, ..of(1) }).await.expect("it is made");
    database.add_override(&alice(), of_user("ada", 1)).await.expect("it is made");
    assert_eq!(database.lasting_override(&names(Some("search"))).await, Ok(None));
    let none = database.delete_lasting_override(&alice(), &names(Some("search")), Expect::Anything).await;
    assert_eq!(none, Err(Error::NotFound));
    // Two of them, which only the endpoint of overrides makes: the newer is the limit, and both are deleted.
    let older = database.add_override(&alice(), of(5)).await.expect("it is made");
    let newer = database.add_override(&alice(), of(6)).await.expect("it is made");
    assert_eq!(database.lasting_override(&names(Some("search"))).await, Ok(Some(newer.clone())));
    let stale = Expect::Version(older.version);
    let refused = database.delete_lasting_override(&alice(), &names(Some("search")), stale).await;
    assert_eq!(refused, Err(Error::Conflict { version: Some(newer.version) }));
    let deleted = database.delete_lasting_override(&alice(), &names(Some("search")), Expect::Something).await;
    assert_eq!(deleted, Ok(newer.clone()));
    let Ok(RowChanges::Since { gone, .. }) = database.changes_since(newer.version, None).await else {
        panic!("it is known")
    };
    let mut gone = gone;
    gone.sort();
    assert_eq!(gone, [older.id, newer.id].map(|id| (RowKind::Override, id)));
    assert_eq!(database.lasting_override(&names(Some("search"))).await, Ok(None));
    assert!(database.lasting_override(&names(None)).await.is_ok_and(|found| found.is_some()));
}

async fn a_reset_stands_in_the_place_of_those_that_it_makes_meaningless(lab: Lab) {
    let database = lab.open().await;
    let of = |policy: Option<&str>, units| NewReset {
        policy: policy.map(str::to_owned),
        units,
        ..reset_of("ada")
    };
    let search = database.add_reset(&alice(), of(Some("search"), None), None).await.expect("it is made");
    let login = database.add_reset(&alice(), of(Some("login"), Some(5)), None).await.expect("it is made");
    database.add_reset(&alice(), reset_of("bob"), None).await.expect("it is made");
    assert_eq!((search.version, login.units), (1, Some(5)));
    // Those that are made after another are made only if it is the newest of their policy.
    let stale = database.add_reset(&alice(), of(Some("login"), Some(1)), Some(1)).await;
    assert_eq!(stale, Err(Error::Conflict { version: Some(2) }));
    let none = database.add_reset(&alice(), of(Some("orders"), Some(1)), Some(2)).await;
    assert_eq!(none, Err(Error::Conflict { version: None }));
    let once = alice_once("k", "grant 1");
    let login = database.add_reset(&once, of(Some("login"), Some(1)), Some(2)).await.expect("it is made");
    let again = database.add_reset(&once, of(Some("login"), Some(1)), Some(2)).await;
    assert_eq!(again, Ok(login.clone()), "the same request is answered as before");
    let all = database.add_reset(&alice(), of(None, None), Some(9)).await;
    assert!(matches!(all, Err(Error::Conflict { .. })), "{all:?}");
    let all = database.add_reset(&alice(), of(None, None), None).await.expect("it is made");
    let state = database.state().await.expect("it is read");
    let of_ada: Vec<_> = state.resets.iter().filter(|row| row.user_id.as_deref() == Some("ada")).collect();
    assert_eq!((of_ada, state.resets.len()), (vec![&all], 2));
    let what = Some("usage/consumer/ada".to_owned());
    let audited = database.audit(&self::all(), &AuditFilter { what, ..AuditFilter::default() }).await;
    let actions: Vec<String> =
        audited.expect("they are listed").into_iter().map(|entry| entry.action).collect();
    assert_eq!(actions, ["reset", "grant", "grant", "reset"]);
    for new in [
        of(None, Some(1)),
        of(Some("search"), Some(0)),
        NewReset { user_id: None, ..of(None, None) },
        NewReset { tenant_id: Some("acme".to_owned()), ..of(None, None) },
        NewReset { reason: String::new(), ..of(None, None) },
    ] {
        let said = database.add_reset(&alice(), new, None).await;
        assert!(matches!(said, Err(Error::Invalid(_))), "{said:?}");
    }
}

async fn what_no_row_can_be_is_refused_with_why(lab: Lab) {
    let database = lab.open().await;
    let ok = || of_user("ada", 1);
    let absolute = OverrideKind::Absolute;
    for (new, why) in [
        (NewOverride { user_id: None, ..ok() }, "an override must name a user"),
        (NewOverride { user_id: Some(String::new()), ..ok() }, "the user is empty"),
        (NewOverride { tenant_id: Some("t".repeat(257)), ..ok() }, "the tenant has 257 characters"),
        (NewOverride { policy: Some(String::new()), ..ok() }, "the policy is empty"),
        (NewOverride { reason: String::new(), ..ok() }, "the reason is empty"),
        (NewOverride { reason: "r".repeat(4_097), ..ok() }, "the reason has 4097 characters"),
        (NewOverride { reason: "a\0b".to_owned(), ..ok() }, "U+0000"),
        (NewOverride { kind: OverrideKind::Multiplicative(0.0), ..ok() }, "above 0"),
        (NewOverride { kind: OverrideKind::Multiplicative(f64::NAN), ..ok() }, "above 0"),
        (NewOverride { kind: OverrideKind::Multiplicative(f64::INFINITY), ..ok() }, "above 0"),
        (NewOverride { kind: absolute(ABSOLUTE_MAX + 1), ..ok() }, "at most 9007199254740991"),
        (NewOverride { kind: OverrideKind::Block(404), ..ok() }, "must be 403 or 429"),
        (NewOverride { subject: Some("ip=".repeat(400)), ..ok() }, "the subject has 1200 characters"),
    ] {
        let said = database.add_override(&alice(), new.clone()).await;
        let Err(Error::Invalid(reason)) = said else { panic!("{new:?}: {said:?}") };
        assert!(reason.contains(why), "{new:?}: {reason}");
    }
    let largest = NewOverride { kind: absolute(ABSOLUTE_MAX), ..ok() };
    assert_eq!(
        database.add_override(&alice(), largest).await.map(|made| made.kind),
        Ok(absolute(ABSOLUTE_MAX))
    );
    let policy = database.put_policy(&alice(), "", json!({}), Expect::Anything).await;
    assert_eq!(policy, Err(Error::Invalid("the policy is empty".to_owned())));
    let policy = database.put_policy(&alice(), "p", json!({ "a": ["\0"] }), Expect::Anything).await;
    assert!(matches!(&policy, Err(Error::Invalid(reason)) if reason.contains("U+0000")), "{policy:?}");
    let policy = database.put_policy(&alice(), "p", json!({ "\0": 1 }), Expect::Anything).await;
    assert!(matches!(policy, Err(Error::Invalid(_))), "{policy:?}");
    assert_eq!(database.version().await, Ok(1));
}

async fn a_request_that_comes_again_acts_once(lab: Lab) {
    let database = lab.open().await;
    let by = alice_once("k1", "POST ada");
    let made = database.add_override(&by, of_user("ada", 5)).await.expect("it is made");
    // Over another connection, as after a restart.
    let again = lab.open().await.add_override(&by, of_user("ada", 5)).await;
    assert_eq!(again, Ok(made));
    let other = database.add_override(&alice_once("k1", "POST bob"), of_user("bob", 5)).await;
    assert_eq!(other, Err(Error::KeyReused));
    let bob = Actor { who: "bob".to_owned(), ..alice_once("k1", "POST bob") };
    database.add_override(&bob, of_user("bob", 5)).await.expect("keys are each actor's own");
    assert_eq!(database.version().await, Ok(2));
    assert_eq!(database.audit(&all(), &AuditFilter::default()).await.map(|entries| entries.len()), Ok(2));

    // After a day the key is free.
    lab.sql(&format!("UPDATE idempotency_keys SET at = {} WHERE who = 'alice'", lab.moment(-86_401)));
    let later = database.add_override(&alice_once("k1", "POST eve"), of_user("eve", 5)).await;
    let later = later.expect("the key is forgotten");
    let again = database.add_override(&alice_once("k1", "POST eve"), of_user("eve", 5)).await;
    assert_eq!((again.as_ref(), later.version), (Ok(&later), 3));
    // A request that failed is not remembered.
    let by = alice_once("k2", "POST");
    database.add_override(&by, of_user("", 5)).await.expect_err("no user is named");
    database.add_override(&by, of_user("ada", 5)).await.expect("it is right now");
}

async fn policies_change_by_version(lab: Lab) {
    let database = lab.open().await;
    let put = async |limit: &str, expect| {
        let document = json!({ "limit": limit, "by": ["consumer"], "n": 18_446_744_073_709_551_615u64 });
        database.put_policy(&alice(), "search", document, expect).await
    };
    let none = put("1/s", Expect::Something).await;
    assert_eq!(none, Err(Error::Conflict { version: None }));
    let first = put("1/s", Expect::Nothing).await.expect("it is made");
    assert_eq!(first.document["n"], json!(18_446_744_073_709_551_615u64));
    assert_eq!(put("2/s", Expect::Nothing).await, Err(Error::Conflict { version: Some(1) }));
    let second = put("2/s", Expect::Version(1)).await.expect("it is replaced");
    assert_eq!(put("3/s", Expect::Version(1)).await, Err(Error::Conflict { version: Some(2) }));
    assert_eq!((first.version, second.version, second.updated_by.as_str()), (1, 2, "alice"));
    let third = put("3/s", Expect::Something).await.expect("there is one");
    let fourth = put("4/s", Expect::Anything).await.expect("any will do");
    assert_eq!(database.row::<PolicyRow>("search").await, Ok(Some(fourth.clone())));
    assert_eq!(database.rows::<PolicyRow>(&all()).await, Ok(vec![fourth.clone()]));
    let early = database.delete::<PolicyRow>(&alice(), "search", Expect::Version(third.version)).await;
    assert_eq!(early, Err(Error::Conflict { version: Some(4) }));
    assert_eq!(database.delete::<PolicyRow>(&alice(), "search", Expect::Version(4)).await, Ok(fourth));
    let gone = database.delete::<PolicyRow>(&alice(), "search", Expect::Anything).await;
    assert_eq!((gone, database.row::<PolicyRow>("search").await), (Err(Error::NotFound), Ok(None)));
}

async fn limits_of_tiers_change_by_version(lab: Lab) {
    let database = lab.open().await;
    let number = |number| NonZeroU64::new(number).expect("above 0");
    let new = |tier: &str, resource: &str, limit| NewTierLimit {
        tier: tier.to_owned(),
        resource: resource.to_owned(),
        limit_value: number(limit),
        window_seconds: number(60),
        burst_multiplier: None,
        algorithm: None,
    };
    let free = database.put_tier(&alice(), new("free", "search", 60), Expect::Nothing).await;
    let free = free.expect("it is made");
    assert_eq!((free.burst_multiplier, free.algorithm.as_deref(), free.version), (1.2, None, 1));
    let changed = NewTierLimit {
        burst_multiplier: Some(3.0),
        algorithm: Some("token-bucket".to_owned()),
        ..new("free", "search", 90)
    };
    let changed = database.put_tier(&alice(), changed, Expect::Version(1)).await.expect("it is replaced");
    assert_eq!((changed.limit_value, changed.burst_multiplier), (number(90), 3.0));
    assert_eq!((changed.created_at, changed.version), (free.created_at, 2));
    assert!(changed.updated_at >= free.updated_at);
    let early = database.put_tier(&alice(), new("free", "search", 1), Expect::Version(1)).await;
    assert_eq!(early, Err(Error::Conflict { version: Some(2) }));
    database.put_tier(&alice(), new("free", "a/b", 5), Expect::Anything).await.expect("it is made");
    database.put_tier(&alice(), new("free/a", "b", 6), Expect::Anything).await.expect("it is made");
    let listed = async |page: PageRange| -> Vec<(String, String)> {
        let listed = database.rows::<TierLimit>(&page).await.expect("they are listed");
        listed.into_iter().map(|row| (row.tier, row.resource)).collect()
    };
    let name = |tier: &str, resource: &str| (tier.to_owned(), resource.to_owned());
    let names = [name("free", "a/b"), name("free", "search"), name("free/a", "b")];
    assert_eq!(listed(all()).await, names);
    let after = PageRange { after: Some(tiers::key("free", "a/b")), limit: 1 };
    assert_eq!(listed(after).await, names[1..2]);
    let nowhere = database.rows::<TierLimit>(&PageRange { after: Some("free".to_owned()), limit: 1 }).await;
    assert!(matches!(nowhere, Err(Error::Invalid(_))), "{nowhere:?}");
    assert_eq!(
        database.delete::<TierLimit>(&alice(), &tiers::key("free", "search"), Expect::Version(2)).await,
        Ok(changed)
    );
    assert_eq!(database.row::<TierLimit>(&tiers::key("free", "search")).await, Ok(None));
    assert_eq!(
        database.row::<TierLimit>(&tiers::key("free/a", "b")).await.map(|row| row.map(|row| row.limit_value)),
        Ok(Some(number(6)))
    );
    let gone = database.delete::<TierLimit>(&alice(), &tiers::key("free", "search"), Expect::Anything).await;
    assert_eq!(gone, Err(Error::NotFound));
    let huge = NewTierLimit { limit_value: number(u64::MAX), ..new("free", "x", 1) };
    let huge = database.put_tier(&alice(), huge, Expect::Anything).await;
    assert_eq!(huge, Err(Error::Invalid("the limit is too large".to_owned())));
}

async fn tiers_of_consumers_change_by_version(lab: Lab) {
    let database = lab.open().await;
    let first = database.put_assignment(&alice(), "ada", "pro", Expect::Nothing).await.expect("it is made");
    assert_eq!((first.tier.as_str(), first.assigned_by.as_str(), first.version), ("pro", "alice", 1));
    let early = database.put_assignment(&alice(), "ada", "free", Expect::Version(7)).await;
    assert_eq!(early, Err(Error::Conflict { version: Some(1) }));
    let second = database.put_assignment(&alice(), "ada", "free", Expect::Version(1)).await;
    let second = second.expect("it is replaced");
    assert_eq!(database.row::<Assignment>("ada").await, Ok(Some(second.clone())));
    assert_eq!(database.rows::<Assignment>(&all()).await, Ok(vec![second.clone()]));
    assert_eq!(database.delete::<Assignment>(&alice(), "ada", Expect::Anything).await, Ok(second));
    let gone = database.delete::<Assignment>(&alice(), "ada", Expect::Anything).await;
    assert_eq!((gone, database.row::<Assignment>("ada").await), (Err(Error::NotFound), Ok(None)));
    lab.sql(&format!(
        "INSERT INTO user_rate_tiers (user_id, assigned_at, assigned_by, version) VALUES ('eve', {}, 'sql', 9)",
        lab.moment(0)
    ));
    let by_default = database.row::<Assignment>("eve").await.expect("it is read").expect("it is there");
    assert_eq!(by_default.tier, "free");
}

async fn api_keys_are_made_disabled_and_deleted(lab: Lab) {
    let database = lab.open().await;
    let new = |digit: &str, consumer: &str| NewApiKey {
        digest: digit.repeat(64),
        consumer: consumer.to_owned(),
        tenant: Some("acme".to_owned()),
        tier: None,
        claims: json!({ "plan": ["a", "b"] }).as_object().cloned().unwrap_or_default(),
        expires_at: None,
    };
    let made = database.add_api_key(&alice(), new("a", "ada")).await.expect("it is made");
    assert_eq!((made.disabled, made.claims["plan"][1].as_str(), made.version), (false, Some("b"), 1));
    let twice = database.add_api_key(&alice(), new("a", "bob")).await;
    assert_eq!(twice, Err(Error::Conflict { version: Some(1) }));
    let other = database.add_api_key(&alice(), new("b", "bob")).await.expect("it is made");
    for digest in ["A".repeat(64), "a".repeat(63), "secret".to_owned()] {
        let said = database.add_api_key(&alice(), NewApiKey { digest, ..new("c", "eve") }).await;
        assert!(matches!(said, Err(Error::Invalid(_))), "{said:?}");
    }
    let found =
        async |filter: ApiKeyFilter| database.api_keys(&all(), &filter).await.expect("they are listed");
    let by_prefix = ApiKeyFilter { digest_prefix: Some("aaaa".to_owned()), consumer: None };
    assert_eq!(found(by_prefix).await, std::slice::from_ref(&made));
    let by_consumer = ApiKeyFilter { digest_prefix: None, consumer: Some("bob".to_owned()) };
    assert_eq!(found(by_consumer).await, std::slice::from_ref(&other));
    assert_eq!(found(ApiKeyFilter::default()).await, [made.clone(), other]);

    let end = Time(Time::now().0 + 1);
    let off = database.change_api_key(&alice(), &made.digest, true, Some(end), Expect::Version(1)).await;
    let off = off.expect("it is there");
    assert_eq!((off.disabled, off.expires_at, off.version), (true, Some(end), 3));
    let early = database.change_api_key(&alice(), &made.digest, false, None, Expect::Version(1)).await;
    assert_eq!(early, Err(Error::Conflict { version: Some(3) }));
    assert_eq!(database.delete::<ApiKeyRow>(&alice(), &made.digest, Expect::Version(3)).await, Ok(off));
    let gone = database.change_api_key(&alice(), &made.digest, true, None, Expect::Anything).await;
    assert_eq!(gone, Err(Error::NotFound));
    // The audit log has too little of a digest to look for the key elsewhere.
    let said = format!("{:?}", database.audit(&all(), &AuditFilter::default()).await);
    assert!(said.contains("api-key/aaaaaaaaaaaa\"") && !said.contains(&"a".repeat(13)), "{said}");
}

async fn every_change_is_audited(lab: Lab) {
    let database = lab.open().await;
    let bob = Actor { who: "bob".to_owned(), from: None, request_id: "r-2".to_owned(), once: None };
    let made = database.add_override(&alice(), of_user("ada", 5)).await.expect("it is made");
    database.put_assignment(&bob, "ada", "pro", Expect::Anything).await.expect("it is made");
    let between = Time::now();
    database.put_assignment(&bob, "ada", "max", Expect::Anything).await.expect("it is replaced");
    database.delete::<OverrideRow>(&bob, &made.id, Expect::Anything).await.expect("it is there");
    database.delete::<OverrideRow>(&bob, &made.id, Expect::Anything).await.expect_err("it is gone");
    let listed = async |filter: AuditFilter| database.audit(&all(), &filter).await.expect("it is listed");
    let every = listed(AuditFilter::default()).await;
    let words: Vec<_> = every.iter().map(|entry| (entry.who.as_str(), entry.action.as_str())).collect();
    assert_eq!(words, [("bob", "delete"), ("bob", "replace"), ("bob", "create"), ("alice", "create")]);

    let about = AuditFilter { what: Some(format!("override/{}", made.id)), ..AuditFilter::default() };
    let entries = listed(about).await;
    let entry = |action: &str| entries.iter().find(|entry| entry.action == action).expect("it is there");
    let (create, delete): (&AuditEntry, &AuditEntry) = (entry("create"), entry("delete"));
    let row = serde_json::to_value(&made).expect("it is JSON");
    assert_eq!((create.old.as_ref(), create.new.as_ref()), (None, Some(&row)));
    assert_eq!((delete.old.as_ref(), delete.new.as_ref()), (Some(&row), None));
    assert_eq!((create.from_address, create.request_id.as_str()), (alice().from, "r-1"));
    assert_eq!((delete.from_address, delete.request_id.as_str(), entries.len()), (None, "r-2", 2));
    assert_eq!(create.at, made.created_at);
    assert_eq!((row["override-type"].as_str(), row["value"].as_u64()), (Some("absolute"), Some(5)));

    let whats = |entries: Vec<AuditEntry>| entries.into_iter().map(|entry| entry.what).collect::<Vec<_>>();
    let kind = AuditFilter { what: Some("assignment".to_owned()), ..AuditFilter::default() };
    assert_eq!(whats(listed(kind).await), ["assignment/ada", "assignment/ada"]);
    let who = AuditFilter { who: Some("alice".to_owned()), ..AuditFilter::default() };
    assert_eq!(whats(listed(who).await), [format!("override/{}", made.id)]);
    let since = AuditFilter { since: Some(between), ..AuditFilter::default() };
    assert_eq!(listed(since).await.len(), 2);
    let nobody = AuditFilter { what: Some("overrid".to_owned()), ..AuditFilter::default() };
    assert_eq!(whats(listed(nobody).await), Vec::<String>::new());
}

async fn the_audit_log_cannot_be_rewritten(lab: Lab) {
    let database = lab.open().await;
    database.add_override(&alice(), of_user("ada", 5)).await.expect("it is made");
    for statement in ["UPDATE audit_log SET who = 'bob'", "DELETE FROM audit_log"] {
        let said = lab.try_sql(statement).expect_err("it is append-only");
        assert!(said.contains("append-only"), "{said}");
    }
    if lab.is_postgres() {
        assert!(lab.try_sql("TRUNCATE audit_log").expect_err("it is append-only").contains("append-only"));
    }
    assert_eq!(lab.sql("SELECT who FROM audit_log"), "alice");
}

async fn any_text_comes_back_as_it_was(lab: Lab) {
    let database = lab.open().await;
    for text in ["'; DROP TABLE changes; --", "$1", "\\x00", "Größe 🐘 \u{202e}", "\"a\"\n\t", " ", "%_"]
    {
        let new = NewOverride { reason: text.to_owned(), ..of_user(text, 1) };
        let made = database.add_override(&alice(), new).await.expect("it is made");
        let found = database.row::<OverrideRow>(&made.id).await.expect("it is read").expect("it is there");
        assert_eq!((found.user_id.as_deref(), found.reason.as_str()), (Some(text), text));
        let document = json!({ text: text });
        let put = database.put_policy(&alice(), text, document.clone(), Expect::Anything).await;
        assert_eq!(put.map(|row| row.document), Ok(document.clone()));
        let read = database.row::<PolicyRow>(text).await.expect("it is read").expect("it is there");
        assert_eq!(read.document, document);
    }
}

async fn pages_join_without_a_gap(lab: Lab) {
    let database = lab.open().await;
    let mut made = Vec::new();
    for number in 0..7 {
        let row = database.add_override(&alice(), of_user(&format!("u{number}"), 1)).await;
        made.push(row.expect("it is made").id);
    }
    made.sort();
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = PageRange { after: after.take(), limit: 3 };
        let rows = database.overrides(&page, &OverrideFilter::default()).await.expect("they are listed");
        assert!(rows.len() <= 3);
        let Some(last) = rows.last() else { break };
        after = Some(last.id.clone());
        ids.extend(rows.into_iter().map(|row| row.id));
    }
    assert_eq!(ids, made);
    let (mut entries, mut after) = (0, None);
    loop {
        let rows =
            database.audit(&PageRange { after: after.take(), limit: 2 }, &AuditFilter::default()).await;
        let rows = rows.expect("they are listed");
        let Some(last) = rows.last() else { break };
        after = Some(last.id.clone());
        entries += rows.len();
    }
    assert_eq!(entries, 7);
}
