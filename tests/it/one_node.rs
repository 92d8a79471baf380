//! What each node of a fleet remembers on its own: idempotency keys without Redis, as the documents say.

use crate::support::redis::Redis;
use crate::support::{Gateway, eventually};

/// A gateway with one policy under this text, and Redis where one is given.
fn gateway(policy: &str, redis: Option<&Redis>) -> Gateway {
    let store = redis
        .map(|redis| format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"500ms\"\n", redis.addr()))
        .unwrap_or_default();
    let gateway = Gateway::start(&format!(
        "[policy.p]\nby = [\"ip\"]\n{policy}\n[[route]]\npath = \"/\"\nlimit = \"p\"\nrespond = {{ status = 200 }}\n{store}"
    ));
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

fn retry(gateway: &Gateway) -> u16 {
    gateway.client().request("GET", "/", &["Idempotency-Key: one"], "").status
}

const KEYS: &str =
    "limit = \"3/d\"\nidempotency-key = { key = \"header:idempotency-key\", by-address = true }";

#[test]
fn an_idempotency_key_is_the_gateways_own_without_redis() {
    let [one, other] = [0, 1].map(|_| gateway(KEYS, None));
    assert!((0..10).all(|_| retry(&one) == 200));
    // Charged here again, and once only.
    assert!((0..10).all(|_| retry(&other) == 200));
    assert_eq!(other.get("/").number("x-ratelimit-remaining"), 1);
}

#[test]
fn an_idempotency_key_is_not_kept_while_redis_is_down() {
    let mut redis = Redis::start(&[]);
    let gateway = gateway(KEYS, Some(&redis));
    redis.kill();
    is_up(&gateway, 0.0);
    assert_eq!([0; 4].map(|_| retry(&gateway)), [200, 200, 200, 429]);
}
