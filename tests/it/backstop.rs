//! Without Redis, under `when-redis-down = "allow"`: what one address is admitted, whatever the policy counts.

use crate::support::redis::Redis;
use crate::support::{Client, Gateway, eventually};

/// A gateway whose policies of three requests a day each count by one thing that a client chooses.
const CHOSEN: &str = r#"
[[route]]
path = "/header"
limit = "header"
respond = { status = 200 }
[policy.header]
by = ["header:x-key"]
limit = "3/d"
when-redis-down = "allow"

[[route]]
path = "/query"
limit = "query"
respond = { status = 200 }
[policy.query]
by = ["query:q", "ip"]
limit = "3/d"
algorithm = "fixed-window"
when-redis-down = "allow"

[[route]]
path = "/param/{name}"
limit = "param"
respond = { status = 200 }
[policy.param]
by = ["param:name"]
limit = "3/d"
algorithm = "sliding-log"
overshoot = 0
when-redis-down = "allow"
"#;

#[test]
fn without_redis_an_address_is_limited_whatever_else_it_sends() {
    let mut redis = Redis::start(&[]);
    let gateway = Gateway::start(&format!("{CHOSEN}\n[redis]\nurl = \"redis://{}\"\n", redis.addr()));
    let is_up = |wanted: f64| (gateway.metric("sluicegate_redis_up", &[]) == wanted).then_some(());
    eventually("it is connected", || is_up(1.0));
    redis.kill();
    eventually("the gateway has noticed", || is_up(0.0));
    let admitted = |source: [u8; 4], target: &dyn Fn(usize) -> String| {
        let mut client = Client::connect_from(source, gateway.plain());
        let mut ask = |number: usize| {
            let key = format!("x-key: {number}");
            client.request("GET", &target(number), &[&key], "").status == 200
        };
        (0..60).filter(|number| ask(*number)).count()
    };
    for target in [
        &(|_| "/header".to_owned()) as &dyn Fn(usize) -> String,
        &|number| format!("/query?q={number}"),
        &|number| format!("/param/{number}"),
    ] {
        // Ten times the limit, for each address and each policy of its own.
        assert_eq!(admitted([127, 0, 0, 1], target), 30, "{}", target(0));
        assert_eq!(admitted([127, 0, 0, 2], target), 30, "{}", target(0));
        assert_eq!(admitted([127, 0, 0, 1], target), 0, "{}", target(0));
    }
}
