//! A Redis that answers later than requests wait: logs and `check` tell the operator.

use std::time::{Duration, Instant};

use crate::support::gateway::binary;
use crate::support::redis::Redis;
use crate::support::toxic::Toxic;
use crate::support::{Directory, Gateway, eventually, text};

fn config(toxic: &Toxic, deadline: &str) -> String {
    format!(
        "[[route]]\npath = \"/\"\nlimit = \"p\"\nrespond = {{ status = 200, body = \"\" }}\n\
         [policy.p]\nby = []\nlimit = \"1000000/s\"\novershoot = 0\n\
         [redis]\nurl = \"redis://{}\"\ndeadline = \"{deadline}\"\n",
        toxic.addr()
    )
}

#[test]
fn lateness_is_one_line_in_the_log_and_its_end_another() {
    let redis = Redis::start(&[]);
    let toxic = Toxic::start(redis.addr());
    toxic.delay(Duration::from_millis(30));
    // Long enough for a busy machine.
    let gateway = Gateway::start(&config(&toxic, "20ms"));
    let lines = |what: &str| gateway.stderr().iter().filter(|line| line.contains(what)).count();
    let late = || lines("Redis answers after the deadline");
    let in_time = || lines("Redis answers within the deadline again");
    let metric = |name: &str| gateway.metric(name, &[]);
    eventually("lateness is told", || (late() == 1).then_some(()));
    let round_trip = metric("sluicegate_redis_round_trip_seconds");
    assert!((0.030..0.500).contains(&round_trip), "{round_trip} s");
    assert_eq!(metric("sluicegate_redis_in_time"), 0.0);
    let [sum, count] =
        ["sum", "count"].map(|end| metric(&format!("sluicegate_redis_call_duration_seconds_{end}")));
    assert!(count >= 1.0 && sum / count >= 0.030, "{count} calls took {sum} s");
    // Many requests, and the probes of a while, change nothing about it.
    let before = metric("sluicegate_redis_calls_total");
    eventually("it is asked on", || {
        assert_eq!(gateway.get("/").status, 200);
        (metric("sluicegate_redis_round_trip_seconds") > 0.0).then_some(())?;
        (metric("sluicegate_requests_total") >= 200.0).then_some(())
    });
    assert!(metric("sluicegate_redis_calls_total") >= before);
    assert_eq!((late(), in_time()), (1, 0));
    toxic.delay(Duration::ZERO);
    eventually("its end is told", || (in_time() == 1).then_some(()));
    assert_eq!(lines("round_trip="), 1, "the round trip that is known then is still the one of before");
    assert_eq!((late(), metric("sluicegate_redis_in_time")), (1, 1.0));
    eventually("the way is known to be shorter", || {
        (metric("sluicegate_redis_round_trip_seconds") < round_trip).then_some(())
    });
}

#[test]
fn check_measures_the_round_trip_and_warns_where_it_is_above_the_deadline() {
    let redis = Redis::start(&[]);
    let toxic = Toxic::start(redis.addr());
    let directory = Directory::new();
    let check = |deadline: &str| {
        let file = directory.write("gateway.toml", config(&toxic, deadline));
        let output = binary().arg("check").arg("--config").arg(file).output().expect("the binary runs");
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let (is_valid, said, warned) = check("1s");
    assert!(is_valid && said.contains(&format!("redis {}: a round trip takes ", toxic.addr())), "{said}");
    assert_eq!(warned, "");
    toxic.delay(Duration::from_millis(10));
    let begun = Instant::now();
    let (is_valid, _, warned) = check("2ms");
    let most = begun.elapsed().as_secs_f64() * 1e3;
    assert!(is_valid);
    // The way takes ten milliseconds, and what the machine adds.
    let begin = format!("warning: a round trip to redis {} takes ", toxic.addr());
    let (took, rest) = warned.strip_prefix(&begin).and_then(|rest| rest.split_once(" ms")).expect(&warned);
    let took: f64 = took.parse().expect("a number of milliseconds");
    assert!((10.0..=most).contains(&took) && rest.contains("`deadline` of [redis] (2 ms)"), "{warned}");
    // Too far away for a login.
    toxic.delay(Duration::from_millis(400));
    let (_, _, warned) = check("2ms");
    assert!(warned.contains("it is silent, too slow or too far away"), "{warned}");
    drop(toxic);
    let toxic = Toxic::start(redis.addr());
    let file = directory.write("gateway.toml", config(&toxic, "2ms"));
    drop(toxic);
    let output = binary().arg("check").arg("--config").arg(file).output().expect("the binary runs");
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("cannot be reached from here"), "{}", text(&output.stderr));
}

#[test]
fn the_deadline_follows_the_round_trip_unless_it_is_written() {
    let redis = Redis::start(&[]);
    let toxic = Toxic::start(redis.addr());
    toxic.delay(Duration::from_millis(8));
    let written = config(&toxic, "2ms");
    let auto = written.replace("deadline = \"2ms\"\n", "");
    let directory = Directory::new();
    let check = |config: &str, word: Option<&str>| {
        let file = directory.write("gateway.toml", config);
        let output =
            binary().arg("check").args(word).arg("--config").arg(file).output().expect("the binary runs");
        text(&output.stdout)
    };
    assert!(check(&auto, None).contains("(by default)"), "{}", check(&auto, None));
    assert!(check(&written, None).contains("a request waits at most 2.0 ms (`deadline`)"));
    assert!(check(&auto, Some("--effective")).contains("deadline = \"auto\""));
    let gateway = Gateway::start(&auto);
    let metric = |name: &str| gateway.metric(name, &[]);
    eventually("it waits for a Redis in the next zone", || {
        let (takes, waits) =
            (metric("sluicegate_redis_round_trip_seconds"), metric("sluicegate_redis_deadline_seconds"));
        (takes >= 0.008 && (0.012..=0.020).contains(&waits)).then_some(())
    });
    toxic.delay(Duration::from_millis(40));
    let gateway = Gateway::start(&auto);
    eventually("and for one in another region", || {
        (0.060..=0.100).contains(&gateway.metric("sluicegate_redis_deadline_seconds", &[])).then_some(())
    });
    let gateway = Gateway::start(&written);
    assert_eq!(gateway.metric("sluicegate_redis_deadline_seconds", &[]), 0.002);
}
