//! The shared tier when Redis or the network to it fails: nothing is counted twice, no request waits in vain, and it
//! recovers on its own.

use std::time::{Duration, Instant};

use limit::Key;
use limit::lease_messages::{LinkError, Op};
use limiter::Link;
use limiter::global::Condition;
use limiter::global::config::{Login, Secret, Topology};

use crate::support::gateway::binary;
use crate::support::redis::{Asked, Node, Redis, add, part, server};
use crate::support::toxic::Toxic;
use crate::support::{Directory, Gateway, eventually, text};

/// A server behind a relay.
fn behind() -> (Redis, Toxic, Node) {
    let redis = Redis::start(&[]);
    let toxic = Toxic::start(redis.addr());
    let node = Node::start(Topology::Single(vec![server(toxic.addr())]));
    (redis, toxic, node)
}

fn counter(redis: &Redis, key: &str) -> u64 {
    redis.cli(&["GET", &format!("sg:pT:{key}")]).trim().parse().unwrap_or(0)
}

const ONE: &str = "AAAAAAAAAAAAAAAAAAAAAQ";
const TWO: &str = "AAAAAAAAAAAAAAAAAAAAAg";

#[test]
fn a_call_whose_reply_is_lost_counts_once() {
    let (redis, toxic, node) = behind();
    let (mut answered, mut rounds) = (0, 0);
    while rounds < 5 || node.status().counts.resent == 0 {
        rounds += 1;
        toxic.cut(true);
        let before = counter(&redis, ONE);
        let renewals: Vec<_> = (0..20).map(|_| node.ask(add(1, 1))).collect();
        let take = node.ask(Op::Take([part(2, 1)].into_iter().collect()));
        // An answer to something else may have been cut before these were sent: then none of them is.
        eventually("one is applied, or none is sent", || {
            (counter(&redis, ONE) > before || !node.status().is_up).then_some(())
        });
        toxic.cut(false);
        for answer in renewals.iter().map(Asked::counted) {
            // What was not sent is known not to count; what was sent is answered in the end.
            assert!(matches!(answer, Ok(_) | Err(LinkError::Down)), "{answer:?}");
            answered += u64::from(answer.is_ok());
        }
        assert_eq!(counter(&redis, ONE), answered, "every one counts once");
        take.counted().ok();
        assert!(counter(&redis, TWO) <= rounds, "a take is never sent again");
        eventually("it is up again", || node.add(1, 0).ok());
    }
}

#[test]
fn calls_that_a_stalled_connection_delivers_late_count_once() {
    let (redis, toxic, node) = behind();
    assert_eq!(node.add(1, 1), Ok(1));
    toxic.freeze();
    let begin = Instant::now();
    let asked: Vec<_> = (0..10).map(|_| node.ask(add(1, 1))).collect();
    assert!(asked.iter().all(|asked| asked.counted().is_ok()), "new connections work");
    assert!(begin.elapsed() < Duration::from_millis(900), "and are used soon");
    toxic.thaw();
    // What was stuck has arrived when connections end: they are closed on our side. Left are two pipelines, the count of
    // nodes, the readings, and who asks here.
    let connected = || redis.info("clients", "connected_clients").parse::<u64>().unwrap_or(0);
    eventually("the old connections are gone", || (connected() <= 5).then_some(()));
    assert_eq!(counter(&redis, ONE), 11);
}

#[test]
fn a_connection_that_lost_calls_is_replaced_as_soon_as_another_works() {
    let (_redis, toxic, node) = behind();
    assert_eq!(node.add(1, 1), Ok(1));
    toxic.freeze_all();
    let asked = node.ask(add(1, 1));
    let before = toxic.accepted();
    eventually("new ways are tried again and again", || (toxic.accepted() >= before + 10).then_some(()));
    assert!(!node.status().is_up);
    // The old ones stay deaf.
    toxic.freeze();
    let back = Instant::now();
    assert_eq!(asked.counted(), Ok(2), "it is asked until it is answered");
    eventually("it is asked again", || node.status().is_up.then_some(()));
    assert!(back.elapsed() < Duration::from_millis(900), "{:?} after there was a way", back.elapsed());
}

#[test]
fn requests_do_not_wait_for_a_killed_server_and_use_it_again_when_it_is_back() {
    let mut redis = Redis::start(&[]);
    let node = Node::of(&redis);
    assert_eq!(node.add(1, 1), Ok(1));
    redis.kill();
    eventually("the breaker opens", || (node.status().condition == Condition::Unreachable).then_some(()));
    let begin = Instant::now();
    for _ in 0..1_000 {
        assert_eq!(node.take(1, 1), Err(LinkError::Down));
    }
    // No request waits for the network: one attempt to connect takes up to 300 ms.
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?} for 1,000 refusals", begin.elapsed());
    let asked = (0..1_000).filter(|_| node.global.is_up(Key::new(1))).count();
    assert!((5..=15).contains(&asked), "one call in a hundred tries, not {asked} in a thousand");
    redis.restart();
    let back = Instant::now();
    eventually("it is asked again", || node.status().is_up.then_some(()));
    assert!(back.elapsed() < Duration::from_millis(500), "{:?} after it was back", back.elapsed());
    assert_eq!(node.add(1, 1), Ok(1));
}

#[test]
fn a_frozen_server_is_not_asked_until_it_answers_again() {
    let redis = Redis::start(&[]);
    let node = Node::of(&redis);
    assert_eq!(node.add(1, 1), Ok(1));
    redis.signal("STOP");
    let asked: Vec<_> = (0..10).map(|_| node.ask(add(1, 1))).collect();
    eventually("the breaker opens", || (!node.status().is_up).then_some(()));
    let taken = node.take(2, 1);
    assert!(
        matches!(taken, Err(LinkError::Lost | LinkError::Down)),
        "what is sent once is given up: {taken:?}"
    );
    redis.signal("CONT");
    let back = Instant::now();
    eventually("it is asked again", || node.status().is_up.then_some(()));
    assert!(back.elapsed() < Duration::from_millis(700), "{:?} after it was back", back.elapsed());
    let answered = asked.iter().filter(|asked| asked.counted().is_ok()).count() as u64;
    assert!(answered >= 1);
    assert_eq!(node.add_at_last(1, 1), answered + 2, "each that was sent counts once");
}

#[test]
fn a_far_server_is_up_but_not_quick() {
    let (_redis, toxic, node) = behind();
    toxic.delay(Duration::from_millis(25));
    eventually("it is not quick", || {
        assert!(node.add(1, 1).is_ok(), "what can wait is answered");
        (0..50).all(|_| !node.global.is_quick(Key::new(1)) || node.global.is_up(Key::new(1))).then_some(())?;
        ((0..200).filter(|_| node.global.is_quick(Key::new(1))).count() <= 3).then_some(())
    });
    assert!(node.status().is_up);
    let connects = node.status().counts.connects;
    let asked: Vec<_> = (0..500).map(|_| node.ask(add(2, 1))).collect();
    assert!(asked.iter().all(|asked| asked.counted().is_ok()));
    assert!(node.status().counts.connects <= connects + 2, "it is not connected to over and over");
    toxic.delay(Duration::ZERO);
    eventually("it is quick again", || (0..50).all(|_| node.global.is_quick(Key::new(1))).then_some(()));
}

#[test]
fn a_full_server_is_said_to_be_full_and_used_again_when_it_has_room() {
    let redis = Redis::start(&[]);
    let node = Node::of(&redis);
    assert_eq!(node.add(1, 1), Ok(1));
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    eventually("it is full", || {
        assert!(
            matches!(node.add(1, 1), Err(LinkError::Refused)) || node.status().condition == Condition::Up
        );
        (node.status().condition == Condition::Full).then_some(())
    });
    assert!(!node.status().is_up);
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("it is asked again", || node.status().is_up.then_some(()));
    assert_eq!(node.add(1, 1), Ok(2), "what was refused was not counted");
}

#[test]
fn a_server_that_forgets_keys_is_known() {
    let redis = Redis::start(&["--maxmemory-policy", "allkeys-lru"]);
    assert!(Node::of(&redis).status().evicts);
    let redis = Redis::start(&[]);
    let node = Node::of(&redis);
    assert!(!node.status().evicts);
    // It may become one at any time, and cease to be one.
    for (policy, evicts) in [("volatile-ttl", true), ("noeviction", false)] {
        redis.cli(&["CONFIG", "SET", "maxmemory-policy", policy]);
        eventually(policy, || (node.status().evicts == evicts).then_some(()));
    }
}

#[test]
fn a_wrong_password_is_said_so_and_nothing_else_is() {
    let redis = Redis::start(&["--requirepass", "right"]);
    let login = |password: &str| Login { username: None, password: Some(Secret(password.to_owned())), db: 0 };
    let wrong = limiter::global::config::Server { login: login("wrong"), ..redis.server() };
    let node = Node::start(Topology::Single(vec![wrong]));
    assert_eq!(node.status().condition, Condition::Refusing);
    assert_eq!(node.add(1, 1), Err(LinkError::Down));
    assert_eq!(Node::of(&redis).status().condition, Condition::Refusing, "and so is none");
    let right = limiter::global::config::Server { login: login("right"), ..redis.server() };
    let node = Node::start(Topology::Single(vec![right]));
    assert_eq!(node.add(1, 1), Ok(1));
}

#[test]
fn a_demoted_primary_is_left_for_the_one_that_can_be_written_to() {
    let (one, other) = (Redis::start(&[]), Redis::start(&[]));
    let node = Node::start(Topology::Single(vec![one.server(), other.server()]));
    assert_eq!(node.add(1, 1), Ok(1));
    one.cli(&["REPLICAOF", "127.0.0.1", &other.addr().port().to_string()]);
    let begin = Instant::now();
    eventually("the other one is asked", || node.add(1, 1).ok());
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_eq!(node.status().server, Some(other.addr().to_string()));
}

#[test]
fn a_busy_server_is_not_asked_until_its_script_ends() {
    let redis = Redis::start(&["--lua-time-limit", "50"]);
    let node = Node::of(&redis);
    assert_eq!(node.add(1, 1), Ok(1));
    let port = redis.addr().port().to_string();
    let mut endless = std::process::Command::new("timeout")
        .args(["10", "redis-cli", "-p", &port, "EVAL", "while true do end", "0"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("redis-cli is installed");
    eventually("it is busy", || {
        node.add(1, 1).ok();
        (node.status().condition == Condition::Busy).then_some(())
    });
    assert!(!node.status().is_up);
    redis.cli(&["SCRIPT", "KILL"]);
    eventually("it is asked again", || node.status().is_up.then_some(()));
    crate::support::end(&mut endless);
}

#[test]
fn a_server_whose_clock_is_set_an_hour_back_counts_on() {
    let redis = Redis::with_clock();
    let node = Node::of(&redis);
    let clock =
        || -> i64 { redis.cli(&["TIME"]).lines().next().and_then(|line| line.parse().ok()).unwrap_or(0) };
    let before = clock();
    assert_eq!(node.add(1, 1), Ok(1));
    redis.set_clock("-1h");
    eventually("its clock is back", || (clock() < before - 3_000).then_some(()));
    for count in 2..20 {
        assert_eq!(node.add(1, 1), Ok(count));
    }
    assert!(node.status().is_up);
}

#[test]
fn a_drain_sends_what_is_queued() {
    let redis = Redis::start(&[]);
    let node = Node::of(&redis);
    let asked: Vec<_> = (0..500).map(|_| node.ask(add(1, 1))).collect();
    let begin = Instant::now();
    node.shutdown();
    let is_cut_short = begin.elapsed() >= Duration::from_millis(500);
    let answered = asked.iter().filter(|asked| asked.counted().is_ok()).count() as u64;
    assert!(answered == 500 || is_cut_short, "{answered} of 500");
    assert!((answered..=500).contains(&counter(&redis, ONE)), "{answered} answered");
}

#[test]
fn a_drain_that_waits_for_a_frozen_server_rests() {
    let redis = Redis::start(&[]);
    let node = Node::of(&redis);
    assert_eq!(node.add(1, 1), Ok(1));
    redis.signal("STOP");
    let asked = node.ask(add(1, 1));
    let (begin, busy) = (Instant::now(), node.shutdown());
    assert!(begin.elapsed() >= Duration::from_millis(500), "it waits for the answer");
    assert!(busy < Duration::from_millis(400), "at work for {busy:?} of it");
    assert_eq!(asked.counted(), Err(LinkError::Lost));
}

#[test]
fn an_outage_is_one_line_in_the_log_and_a_metric() {
    let mut redis = Redis::start(&[]);
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/\"\nlimit = \"5/s\"\nrespond = {{ status = 200, body = \"\" }}\n\
         [redis]\nurl = \"redis://{}\"\n",
        redis.addr()
    ));
    let shard = format!("shard=\"{}\"", redis.addr());
    let up = || gateway.metric("sluicegate_redis_up", &[&shard]);
    let lines = |what: &str| gateway.stderr().iter().filter(|line| line.contains(what)).count();
    eventually("it is up", || (up() > 0.5).then_some(()));
    // A busy machine may have been too slow for the first connection.
    let before = lines("Redis does not answer");
    eventually("the start is one line", || (lines("limits are shared") == before + 1).then_some(()));
    redis.kill();
    eventually("it is down", || (up() < 0.5).then_some(()));
    eventually("that is told", || (lines("Redis does not answer") > before).then_some(()));
    for _ in 0..50 {
        gateway.get("/");
    }
    redis.restart();
    eventually("it is up again", || (up() > 0.5).then_some(()));
    eventually("both are told", || (lines("Redis answers") == before + 1).then_some(()));
    assert_eq!(lines("Redis does not answer"), before + 1, "{:?}", gateway.stderr());
}

/// A server with a user `gw` whose rights can be changed, and how that user logs in.
fn with_user() -> (Redis, Login) {
    let redis = Redis::start(&[]);
    let rights = ["~sg:*", "+@read", "+@write", "+@scripting", "+@connection", "+time", "+info"];
    redis.cli(&[&["ACL", "SETUSER", "gw", "on", ">word"], rights.as_slice()].concat());
    let login = Login { username: Some("gw".to_owned()), password: Some(Secret("word".to_owned())), db: 0 };
    (redis, login)
}

#[test]
fn a_redis_that_refuses_is_not_said_to_be_away() {
    let (redis, _) = with_user();
    let at = redis.addr();
    let config = |url: &str| {
        format!(
            "[[route]]\npath = \"/\"\nlimit = \"5/s\"\nrespond = {{ status = 200 }}\n[redis]\nurl = \"{url}\"\n"
        )
    };
    let login = "correct the user and password in `url` of [redis]";
    let directory = Directory::new();
    for (url, more, why, advice) in [
        (format!("redis://gw:other@{at}"), "", "AuthenticationFailed", login),
        (format!("redis://gw:word@{at}/99"), "", "switch database", "correct what its error says"),
        (
            format!("redis://{at}"),
            "topology = \"cluster\"",
            "cluster support disabled",
            "`topology` of [redis]",
        ),
        (format!("redis://{at}"), "topology = \"sentinel:main\"", "SENTINEL", "`topology` of [redis]"),
    ] {
        let config = config(&url) + more;
        let file = directory.write("gateway.toml", &config);
        let output = binary().arg("check").arg("--config").arg(file).output().expect("the binary runs");
        let warned = format!("warning: Redis at {at} refuses calls (");
        let said = text(&output.stderr);
        assert!(
            said.contains(&warned) && said.contains(why) && said.contains(advice),
            "{url} {more}: {said}"
        );
        assert!(!text(&output.stdout).contains("start it"), "{url} {more}");
        let gateway = Gateway::start(&config);
        let line = eventually("it is told", || {
            gateway.stderr().into_iter().find(|line| line.contains("Redis refuses calls"))
        });
        assert!(line.contains(why) && line.contains(advice) && line.contains("a restart"), "{line}");
        assert!(!gateway.stderr().iter().any(|line| line.contains("on their own")), "{:?}", gateway.stderr());
        // An attempt that takes too long on a busy machine is one that hears nothing, until the next.
        eventually("explain says the same", || {
            let explained = gateway.admin("/v1/explain?url=/").text();
            explained.contains("Redis refuses calls").then_some(())
        });
    }
}

#[test]
fn a_right_that_is_lost_is_logged_once() {
    let (redis, _) = with_user();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/\"\nlimit = \"p\"\nrespond = {{ status = 200, body = \"\" }}\n\
         [policy.p]\nby = []\nlimit = \"1000000/s\"\novershoot = 0\n\
         [redis]\nurl = \"redis://gw:word@{}\"\n",
        redis.addr()
    ));
    let up = || gateway.metric("sluicegate_redis_up", &[]);
    let lines = |what: &str| gateway.stderr().iter().filter(|line| line.contains(what)).count();
    for (rounds, right) in ["evalsha", "mget", "time"].into_iter().enumerate() {
        eventually("that it is up is told", || (lines("limits are shared") == rounds + 1).then_some(()));
        let before = lines("Redis refuses calls");
        redis.cli(&["ACL", "SETUSER", "gw", &format!("-{right}")]);
        let mut client = gateway.client();
        let mut ask = || {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client.response().status
        };
        eventually("that is seen", || {
            assert_eq!(ask(), 200, "without Redis its own part is this gateway's");
            (up() < 0.5).then_some(())
        });
        // A dozen probes.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(1_200) {
            assert_eq!(ask(), 200);
        }
        assert_eq!(lines("Redis refuses calls"), before + 1, "{right}: {:?}", gateway.stderr());
        redis.cli(&["ACL", "SETUSER", "gw", &format!("+{right}")]);
    }
}

#[test]
fn trouble_that_keeps_coming_back_is_not_logged_each_time() {
    let (redis, _) = with_user();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/{{name}}\"\nlimit = \"p\"\nrespond = {{ status = 200, body = \"\" }}\n\
         [policy.p]\nby = [\"param:name\"]\nlimit = \"100/s\"\novershoot = 0\n\
         [redis]\nurl = \"redis://gw:word@{}\"\n",
        redis.addr()
    ));
    eventually("it is up", || (gateway.metric("sluicegate_redis_up", &[]) > 0.5).then_some(()));
    // The key of a probe is written, those of charges are not.
    redis.cli(&["ACL", "SETUSER", "gw", "resetkeys", "~sg:up*", "~sg:!*"]);
    let mut client = gateway.client();
    let mut number = 0;
    eventually("it was thought to be over time and again", || {
        for _ in 0..20 {
            number += 1;
            client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(client.response().status, 200);
        }
        (gateway.metric("sluicegate_redis_breaker_opened_total", &[]) >= 12.0).then_some(())
    });
    let lines = gateway.stderr().iter().filter(|line| line.contains("Redis refuses calls")).count();
    assert!((1..=6).contains(&lines), "{:?}", gateway.stderr());
    redis.cli(&["ACL", "SETUSER", "gw", "~sg:*"]);
    eventually("it is up for good", || {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client.response();
        (gateway.metric("sluicegate_redis_condition", &["condition=\"up\""]) > 0.5).then_some(())
    });
}

#[test]
fn a_refused_count_of_nodes_opens_no_new_connections() {
    let redis = Redis::start(&[]);
    redis.cli(&["RPUSH", "sg:!nodes", "x"]);
    let node = Node::of(&redis);
    let asked = || {
        let stats = redis.cli(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_eval:calls="))?;
        line.split(',').next()?.parse::<u64>().ok()
    };
    let connection = || {
        let list = redis.cli(&["CLIENT", "LIST"]);
        let line = list.lines().find(|line| line.contains("cmd=eval "))?;
        line.split(' ').next().map(str::to_owned)
    };
    let after = |count| eventually("it is asked again", || (asked()? >= count).then(connection)?);
    let begun = eventually("it is asked", asked);
    // Connections are greeted with an EVAL, too: by then that is over.
    let first = after(begun + 4);
    assert_eq!(after(begun + 6), first);
    assert_eq!(node.status().condition, Condition::Up);
}
