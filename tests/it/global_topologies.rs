//! The global tier over several servers: a ring, sentinels, a cluster, and what becomes of it when they change.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use limit::Key;
use limiter::Link;
use limiter::global::Condition;
use limiter::global::config::{DedicatedServer, Topology, WeightedServer};

use crate::support::fleet::{Cluster, Watched};
use crate::support::redis::{Node, Redis, add, free_port, server};
use crate::support::{Gateway, Stop, eventually, heavy};

/// A key as good as any other: shards are chosen by its upper half.
fn key(number: u64) -> u128 {
    u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(number) << 8
}

#[test]
fn a_ring_keeps_keys_apart_and_tenants_on_their_own_server() {
    let (one, other, vip) = (Redis::start(&[]), Redis::start(&[]), Redis::start(&[]));
    let shards = [&one, &other].map(|redis| WeightedServer { server: redis.server(), weight: 1 });
    let dedicated = vec![DedicatedServer { server: vip.server(), tenants: vec!["acme".to_owned()] }];
    let node = Node::start(Topology::Ring { shards: shards.to_vec(), dedicated });
    for number in 0..200 {
        let tenant = (number % 10 == 0).then_some("acme");
        assert_eq!(node.add(node.global.route(Key::new(key(number)), tenant).bits(), 1), Ok(1));
    }
    let keys = |redis: &Redis| {
        redis
            .cli(&["--scan", "--pattern", "sg:pT:*"])
            .lines()
            .filter(|line| line.starts_with("sg:pT:"))
            .count()
    };
    assert_eq!(keys(&vip), 20);
    assert_eq!(keys(&one) + keys(&other), 180);
    assert!(keys(&one) > 40 && keys(&other) > 40);
    let (a, b) = (
        node.global.route(Key::new(key(1)), Some("acme")),
        node.global.route(Key::new(key(2)), Some("acme")),
    );
    assert_eq!(node.global.shard(a), node.global.shard(b));
    assert_ne!(node.global.shard(a), node.global.shard(node.global.route(Key::new(key(1)), None)));
}

#[test]
fn a_server_added_to_the_ring_gives_no_second_burst() {
    let servers = [(); 3].map(|()| Redis::start(&[]));
    let gateway = |count: usize| {
        let shards: Vec<_> = servers[..count]
            .iter()
            .map(|redis| format!("{{ url = \"redis://{}\" }}", redis.addr()))
            .collect();
        let gateway = Gateway::start(&format!(
            "[[route]]\npath = \"/{{kind}}/{{name}}\"\nlimit = [\"exact\", \"log\"]\n\
             respond = {{ status = 200, body = \"\" }}\n\
             [policy.exact]\nby = [\"param:name\"]\nlimit = \"5/d\"\novershoot = 0\n\
             [policy.log]\nby = [\"param:name\"]\nlimit = \"7/d\"\nalgorithm = \"sliding-log\"\n\
             [redis]\ntopology = \"ring\"\ndeadline = \"1s\"\n[redis.ring]\nshards = [{}]\n",
            shards.join(", ")
        ));
        eventually("every server is known", || {
            let up = |redis: &Redis| {
                gateway.metric("sluicegate_redis_up", &[&format!("shard=\"{}\"", redis.addr())]) > 0.5
            };
            servers[..count].iter().all(up).then_some(())
        });
        gateway
    };
    let admitted = |gateway: &Gateway, requests: usize| -> Vec<usize> {
        let mut client = gateway.client();
        let mut spend =
            |name: usize| (0..requests).filter(|_| client.get(&format!("/a/{name}")).status == 200).count();
        (0..60).map(&mut spend).collect()
    };
    let mut old = [gateway(2), gateway(2)];
    assert_eq!(admitted(&old[0], 3), [3; 60]);
    // One after the other, as a fleet is restarted.
    old[0].signal("TERM");
    old[0].wait();
    let first = gateway(3);
    let one = admitted(&first, 1);
    assert_eq!(one, [1; 60], "what is left goes on");
    // Who does not know of the change yet has no second burst of it either.
    let others: usize = admitted(&old[1], 6).iter().sum();
    assert!(others <= 60, "{others} of the one that was left of each");
    old[1].signal("TERM");
    old[1].wait();
    let second = gateway(3);
    let rest = admitted(&second, 6).iter().sum::<usize>() + admitted(&first, 6).iter().sum::<usize>();
    assert!(others + rest <= 60, "{others} and {rest} of the one that was left of each");
    let keys = servers[2].cli(&["KEYS", "sg:*"]);
    assert!(
        keys.lines().filter(|key| !key.contains('!')).count() > 20,
        "the new server has its part: {keys}"
    );
}

#[test]
fn other_shards_of_a_ring_work_while_one_is_down() {
    let (one, mut other) = (Redis::start(&[]), Redis::start(&[]));
    let shards = [&one, &other].map(|redis| WeightedServer { server: redis.server(), weight: 1 });
    let node = Node::start(Topology::Ring { shards: shards.to_vec(), dedicated: Vec::new() });
    other.kill();
    eventually("its breaker opens", || (!node.global.status()[1].is_up).then_some(()));
    let answered = (0..200).filter(|number| node.add(key(*number), 1).is_ok()).count();
    assert!((60..140).contains(&answered), "{answered} of 200");
    assert!(node.global.status()[0].is_up);
}

#[test]
fn a_node_of_a_cluster_is_no_single_server() {
    let redis = Redis::start(&["--cluster-enabled", "yes"]);
    redis.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let node = Node::of(&redis);
    assert_eq!((node.status().condition, node.status().is_up), (Condition::Failing, false));
    assert!(node.add(1, 1).is_err());
}

#[test]
fn gateways_count_each_other() {
    let redis = Redis::start(&[]);
    let nodes = [Node::of(&redis), Node::of(&redis), Node::of(&redis)];
    for node in &nodes {
        eventually("three are counted", || (node.global.nodes() == 3).then_some(()));
    }
    let [first, second, third] = nodes;
    third.shutdown();
    eventually("one leaves", || (redis.cli(&["ZCARD", "sg:!nodes"]).trim() == "2").then_some(()));
    assert_eq!(first.global.nodes().max(second.global.nodes()), 3, "shares do not grow at once");
}

#[test]
fn a_failover_by_sentinels_is_followed() {
    let _alone = heavy();
    let mut watched = Watched::start();
    let sentinels = watched.sentinels().into_iter().map(server).collect();
    let node = Node::start(Topology::Sentinel { master: "main".to_owned(), sentinels });
    assert_eq!(node.add(1, 1), Ok(1));
    assert_eq!(node.status().server, Some(watched.primary.addr().to_string()));
    eventually("the replica has it", || {
        watched.replica.cli(&["GET", "sg:pT:AAAAAAAAAAAAAAAAAAAAAQ"]).contains('1').then_some(())
    });
    watched.primary.kill();
    eventually("the replica is promoted", || {
        watched.replica.cli(&["ROLE"]).starts_with("master").then_some(())
    });
    let promoted = Instant::now();
    assert_eq!(node.add_at_last(1, 1), 2);
    let took = promoted.elapsed();
    assert!(took < Duration::from_millis(1_500), "followed {took:?} after the promotion");
    assert_eq!(node.status().server, Some(watched.replica.addr().to_string()));
}

#[test]
fn sentinels_that_have_not_noticed_yet_name_no_other_primary() {
    let _alone = heavy();
    let mut watched = Watched::start();
    let sentinels: Vec<_> = watched.sentinels().iter().map(ToString::to_string).collect();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/\"\nlimit = \"5/s\"\nrespond = {{ status = 200, body = \"\" }}\n\
         [redis]\nurl = \"redis://{}\"\ntopology = \"sentinel:main\"\n",
        sentinels.join(",")
    ));
    eventually("it is up", || (gateway.metric("sluicegate_redis_up", &[]) > 0.5).then_some(()));
    let (old, new) = (watched.primary.addr().to_string(), watched.replica.addr().to_string());
    watched.primary.kill();
    eventually("the replica is connected to", || {
        gateway
            .stderr()
            .iter()
            .any(|line| line.contains("connected to Redis") && line.contains(&new))
            .then_some(())
    });
    eventually("the sentinels name it", || {
        let named = |sentinel: &SocketAddr| {
            let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"];
            crate::support::redis::cli(sentinel.port(), &question)
                .contains(&watched.replica.addr().port().to_string())
        };
        watched.sentinels().iter().all(named).then_some(())
    });
    let wrong = |line: &&String| line.contains("another primary") && line.contains(&old);
    assert_eq!(gateway.stderr().iter().find(wrong), None);
}

/// A sentinel that names this address and says nothing else, after a moment; `None`: it says nothing at all.
fn sentinel(named: Option<SocketAddr>, after: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream, named, after));
        }
    });
    addr
}

fn answer(mut stream: TcpStream, named: Option<SocketAddr>, after: Duration) {
    let mut asked = [0; 4_096];
    while let Ok(count) = stream.read(&mut asked)
        && count > 0
    {
        let Some(named) = named else { continue };
        let asked = String::from_utf8_lossy(&asked[..count]).to_uppercase();
        let (host, port) = (named.ip().to_string(), named.port().to_string());
        let reply = if asked.contains("GET-MASTER") {
            thread::sleep(after);
            format!("*2\r\n${}\r\n{host}\r\n${}\r\n{port}\r\n", host.len(), port.len())
        } else if asked.contains("PING") {
            "+PONG\r\n".to_owned()
        } else {
            "-ERR not now\r\n".to_owned()
        };
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn the_primary_is_found_though_sentinels_disagree_and_one_hangs() {
    let redis = Redis::start(&[]);
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let sentinels = [
        sentinel(Some(redis.addr()), Duration::ZERO),
        sentinel(Some(nobody), Duration::from_millis(20)),
        sentinel(None, Duration::ZERO),
    ];
    let sentinels = sentinels.into_iter().map(server).collect();
    let node = Node::start(Topology::Sentinel { master: "main".to_owned(), sentinels });
    assert_eq!(node.add_at_last(1, 1), 1);
    assert_eq!(node.status().server, Some(redis.addr().to_string()));
    let connects = node.status().counts.connects;
    for count in 2..100 {
        assert_eq!(node.add(1, 1), Ok(count), "it stays where it is");
    }
    assert!(node.status().counts.connects <= connects + 2, "and is not looked for over and over");
}

#[test]
fn a_primary_that_hangs_is_logged_once() {
    let redis = Redis::start(&[]);
    let sentinels = [sentinel(Some(redis.addr()), Duration::ZERO), sentinel(None, Duration::ZERO)];
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/\"\nlimit = \"5/s\"\nrespond = {{ status = 200, body = \"\" }}\n\
         [redis]\nurl = \"redis://{},{}\"\ntopology = \"sentinel:main\"\n",
        sentinels[0], sentinels[1]
    ));
    let lines = || gateway.stderr().iter().filter(|line| line.contains("Redis does not answer")).count();
    eventually("it is up", || (gateway.metric("sluicegate_redis_up", &[]) > 0.5).then_some(()));
    let before = lines();
    redis.signal("STOP");
    eventually("that is told", || {
        gateway.get("/");
        (lines() > before).then_some(())
    });
    // It is looked for three times a second, by what sentinels name and by what their replicas say.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        gateway.get("/");
    }
    assert_eq!(lines(), before + 1, "{:?}", gateway.stderr());
    redis.signal("CONT");
    eventually("it is up again", || (gateway.metric("sluicegate_redis_up", &[]) > 0.5).then_some(()));
}

#[test]
fn a_cluster_may_be_resharded_and_lose_a_primary() {
    let _alone = heavy();
    let mut cluster = Cluster::start();
    let node = Node::start(Topology::Cluster(vec![cluster.nodes[0].server()]));
    // Of every key, how many additions were answered, and how many had no answer: these may have counted or not.
    let mut counts: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for number in 0..300 {
        assert_eq!(node.add(key(number), 1), Ok(1), "{:?}", node.global.status());
        counts.insert(number, (1, 0));
    }
    let primaries = cluster.primaries();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Also if it fails: the loop below would go on for ever.
            let _over = Stop(&is_over);
            cluster.reshard(primaries[0], primaries[1], 600);
        });
        while !is_over.load(Ordering::SeqCst) {
            let asked: Vec<_> = (0..300).map(|number| (number, node.ask(add(key(number), 1)))).collect();
            for (number, asked) in asked {
                let (answered, unanswered) = counts.entry(number).or_default();
                *(if asked.counted().is_ok() { answered } else { unanswered }) += 1;
            }
        }
    });
    for (number, (answered, unanswered)) in &counts {
        let stands = node.add_at_last(key(*number), 0);
        assert!(
            (*answered..=answered + unanswered).contains(&stands),
            "every answered one counts once: {stands}, {answered} answered and {unanswered} not"
        );
    }
    let killed = cluster.primaries()[2];
    cluster.nodes[killed].kill();
    let begin = Instant::now();
    for number in 0..300 {
        node.add_at_last(key(number), 1);
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    eventually("every shard is up", || node.global.status().iter().all(|shard| shard.is_up).then_some(()));
}

#[test]
fn a_slot_moving_to_a_node_without_slots_is_followed() {
    let _alone = heavy();
    let cluster = Cluster::start();
    let node = Node::start(Topology::Cluster(vec![cluster.nodes[0].server()]));
    assert_eq!(node.add_at_last(key(1), 1), 1);
    let new = Redis::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "500"]);
    let port = new.addr().port().to_string();
    cluster.nodes[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &port]);
    eventually("all know the new one", || {
        let knows = |node: &Redis| {
            let said = node.cli(&["CLUSTER", "INFO"]);
            said.contains("cluster_known_nodes:7") && said.contains("cluster_state:ok")
        };
        (knows(&new) && cluster.nodes.iter().all(knows)).then_some(())
    });
    let found = cluster.primaries().into_iter().find_map(|index| {
        let owner = &cluster.nodes[index];
        let keys = owner.cli(&["KEYS", "sg:*pT:*"]);
        keys.lines().find(|name| name.contains("pT:")).map(|name| (owner, name.to_owned()))
    });
    let (owner, name) = found.expect("some node has the key");
    let slot = owner.cli(&["CLUSTER", "KEYSLOT", &name]).trim().to_owned();
    let id = |redis: &Redis| redis.cli(&["CLUSTER", "MYID"]).trim().to_owned();
    new.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(owner)]);
    owner.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(&new)]);
    let said = owner.cli(&["MIGRATE", "127.0.0.1", &port, &name, "0", "5000"]);
    assert!(said.contains("OK"), "{said}");
    // It stays half-way for as long as somebody likes.
    let level = eventually("the new node is asked", || node.take(key(1), 1).ok());
    for more in 1..50 {
        assert_eq!(node.take(key(1), 1), Ok(level + more));
    }
    assert!(node.global.status().iter().all(|shard| shard.is_up), "{:?}", node.global.status());
}

#[test]
fn a_lost_cluster_node_is_one_line_in_the_log() {
    let _alone = heavy();
    let mut cluster = Cluster::start();
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/\"\nlimit = \"5/s\"\nrespond = {{ status = 200, body = \"\" }}\n\
         [redis]\nurl = \"redis://{}\"\ntopology = \"cluster\"\n",
        cluster.nodes[0].addr()
    ));
    let up = || gateway.metric("sluicegate_redis_up", &[]);
    let lines = |what: &str| gateway.stderr().iter().filter(|line| line.contains(what)).count();
    eventually("it is up", || (up() > 63.5).then_some(()));
    // A busy machine may have been too slow for the first connections.
    let before = [lines("Redis does not answer"), lines("Redis answers")];
    assert!(before[0] <= 3 && before[1] <= 6, "{:?}", gateway.stderr());
    let killed = cluster.primaries()[1];
    cluster.nodes[killed].kill();
    eventually("a third of it is away", || (up() < 50.0).then_some(()));
    eventually("it is up again", || (up() > 63.5).then_some(()));
    eventually("that is told", || (lines("Redis answers") > before[1]).then_some(()));
    let told = [lines("Redis does not answer") - before[0], lines("Redis answers") - before[1]];
    assert!(told.iter().all(|lines| (1..=6).contains(lines)), "{told:?}: {:?}", gateway.stderr());
    assert!(gateway.stderr().iter().any(|line| line.contains("shards=")), "{:?}", gateway.stderr());
}
