//! Tiers of gateway.toml over real gateways: each counts in its own way, and a fleet shares each in its own way.

use serde_json::Value;

use crate::auth::keys::hashed;
use crate::support::redis::Redis;
use crate::support::{Directory, Gateway, Response, eventually};

/// Ann of the tier free, Bob of the tier enterprise, and Eve of a tier that nobody has configured.
fn gateway(policy: &str, redis: Option<&Redis>) -> Gateway {
    let directory = Directory::new();
    let keys = [("ann", "free"), ("bob", "enterprise"), ("eve", "unheard-of")];
    let keys = keys.map(|(name, tier)| hashed(name, &["--consumer", name, "--tier", tier]) + "\n");
    directory.write("keys.toml", keys.concat());
    let shared = redis
        .map(|redis| format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"500ms\"\n", redis.addr()))
        .unwrap_or_default();
    let config = format!(
        "[auth.keys]\nkind = \"api-key\"\nkeys = {{ file = \"keys.toml\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nauth = \"keys\"\nlimit = \"calls\"\nrespond = {{}}\n{policy}\n{shared}"
    );
    let gateway = Gateway::start_in(directory, &config);
    if redis.is_some() {
        is_up(&gateway, 1.0);
    }
    gateway
}

fn is_up(gateway: &Gateway, wanted: f64) {
    eventually("the gateway knows how Redis is", || {
        (gateway.metric("sluicegate_redis_up", &[]) == wanted).then_some(())
    });
}

fn get(gateway: &Gateway, consumer: &str) -> Response {
    gateway.client().request("GET", "/", &[&format!("X-Api-Key: {consumer}")], "")
}

/// How the window of a tier is shared, as the page of a key says it.
fn shared(gateway: &Gateway, tier: &str) -> Value {
    let page = gateway.admin("/v1/keys/calls/nobody").json();
    let windows = page["windows"].as_array().expect("a list").clone();
    let window = windows.into_iter().find(|window| window["tier"] == tier).expect("each tier has one");
    window["shared"].clone()
}

const OWN: &str = "[policy.calls]\nby = [\"consumer\"]\n\
    limit = { free = \"5_000/h\", enterprise = { limit = \"5_000/h\", overshoot = 0, when-redis-down = \"deny\" }, \
    default = \"9/h\" }";

const SHARED: &str = "[policy.calls]\nby = [\"consumer\"]\nlimit = \"tier\"\ndefault-tier = \"free\"\n\
    [tier.free]\nlimit = \"5_000/h\"\n\
    [tier.enterprise]\nlimit = \"5_000/h\"\novershoot = 0\nwhen-redis-down = \"deny\"";

#[test]
fn one_tier_is_exact_and_refused_without_redis_and_another_is_neither() {
    for policy in [OWN, SHARED] {
        let mut redis = Redis::start(&[]);
        let gateway = gateway(policy, Some(&redis));
        assert_eq!(
            (shared(&gateway, "free"), shared(&gateway, "enterprise")),
            ("leased".into(), "exact".into())
        );
        assert_eq!((get(&gateway, "ann").status, get(&gateway, "bob").status), (200, 200));
        redis.kill();
        is_up(&gateway, 0.0);
        assert_eq!((get(&gateway, "ann").status, get(&gateway, "bob").status), (200, 503), "{policy}");
        redis.restart();
        eventually("it is decided again", || (get(&gateway, "bob").status == 200).then_some(()));
    }
}

#[test]
fn each_tier_of_a_policy_has_its_windows_and_its_algorithm() {
    let policy = "[policy.calls]\nby = [\"consumer\"]\nalgorithm = \"fixed-window\"\n\
        limit = { free = [\"2/d\", \"50/d\"], enterprise = { limit = \"20/m burst 30\", algorithm = \"token-bucket\" }, \
        default = \"1/d\" }";
    let gateway = gateway(policy, None);
    let policies =
        ["ann", "bob", "eve"].map(|name| get(&gateway, name).header("ratelimit-policy").map(str::to_owned));
    let shown = |text: &str| Some(text.to_owned());
    assert_eq!(
        policies,
        [
            shown("\"calls-free-1d\";q=2;w=86400, \"calls-free-1d-2\";q=50;w=86400"),
            shown("\"calls-enterprise\";q=30;w=90"),
            shown("\"calls\";q=1;w=86400"),
        ]
    );
    let admitted = |name: &str| (0..40).take_while(|_| get(&gateway, name).status == 200).count();
    assert_eq!([admitted("ann"), admitted("eve")], [1, 0]);
    // A bucket refills while it is emptied.
    assert!((29..=35).contains(&admitted("bob")));
}
