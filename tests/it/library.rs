//! The limiter as a library, in a program that is no gateway.

use crate::support::redis::Redis;

#[allow(dead_code, reason = "its `main` is the program's")]
#[path = "../examples/mail_quota.rs"]
mod mail_quota;

#[tokio::test]
async fn processes_that_are_no_gateway_share_a_limit() {
    let redis = Redis::start(&[]);
    // Each call connects and counts as a process of its own does.
    for (customer, mails, sendable) in [(1, 60, 60), (1, 60, 40), (2, 101, 100)] {
        let sent = mail_quota::sendable(redis.addr().port(), customer, mails).await;
        assert_eq!(sent.expect("Redis is there"), sendable);
    }
}
