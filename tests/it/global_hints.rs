//! Hints by Redis' pub/sub reach every node over every topology, also after an outage, and need rights of their own.

use std::time::Duration;

use limiter::global::Hints;
use limiter::global::config::{Login, Secret, Server, Topology, WeightedServer};

use crate::support::fleet::{Cluster, Watched};
use crate::support::redis::{Node, Redis, config, server};
use crate::support::{eventually, heavy};

/// A node that tells and one that listens.
struct Pair {
    teller: Node,
    listener: Node,
    told: Hints,
    heard: Hints,
}

impl Pair {
    fn start(topology: &Topology) -> Pair {
        let [teller, listener] = [(); 2].map(|()| Node::shipped(config(topology.clone())));
        let [told, heard] = [&teller, &listener].map(|node| node.block_on(async { node.global.hints() }));
        let mut pair = Pair { teller, listener, told, heard };
        pair.hear(true);
        pair
    }

    /// Waits until both can hear hints, or neither can.
    fn hear(&mut self, can: bool) {
        for (node, hints) in [(&self.teller, &mut self.told), (&self.listener, &mut self.heard)] {
            node.block_on(async { while within(hints).await != Some(can) {} });
        }
    }

    /// Whether a hint arrives.
    fn passes(&mut self) -> bool {
        // What happened before is no hint.
        self.listener.block_on(async { while soon(&mut self.heard).await.is_some() {} });
        let mut teller = self.told.teller();
        self.teller.block_on(teller.tell(7));
        self.listener.block_on(within(&mut self.heard)) == Some(true)
    }
}

/// Waits for the next event for as long as it may take to connect anew.
async fn within(hints: &mut Hints) -> Option<bool> {
    tokio::time::timeout(Duration::from_secs(20), hints.next()).await.ok()
}

/// The same where nothing is expected.
async fn soon(hints: &mut Hints) -> Option<bool> {
    tokio::time::timeout(Duration::from_millis(300), hints.next()).await.ok()
}

#[test]
fn a_hint_arrives_and_one_of_another_fleet_does_not() {
    let redis = Redis::start(&[]);
    let mut pair = Pair::start(&Topology::Single(vec![redis.server()]));
    assert!(pair.passes());
    assert_eq!(redis.cli(&["PUBLISH", "sg2:config", "8"]).trim(), "0");
    assert_eq!(pair.listener.block_on(soon(&mut pair.heard)), None);
    assert_eq!(redis.cli(&["PUBLISH", "sg:config", "forged"]).trim(), "2");
    assert_eq!(pair.listener.block_on(within(&mut pair.heard)), Some(true));
}

#[test]
fn hints_are_heard_again_after_an_outage() {
    let mut redis = Redis::start(&[]);
    let mut pair = Pair::start(&Topology::Single(vec![redis.server()]));
    redis.kill();
    pair.hear(false);
    redis.restart();
    pair.hear(true);
    assert!(pair.passes());
    // A server that says nothing is as good as gone.
    redis.signal("STOP");
    pair.hear(false);
    redis.signal("CONT");
    pair.hear(true);
    assert!(pair.passes());
    // One connection that is cut.
    redis.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    pair.hear(true);
    assert!(pair.passes());
}

#[test]
fn a_ring_is_told_on_every_shard_that_answers() {
    let mut servers = [(); 3].map(|()| Redis::start(&[]));
    let shards = servers.each_ref().map(|redis| WeightedServer { server: redis.server(), weight: 1 });
    let mut pair = Pair::start(&Topology::Ring { shards: shards.to_vec(), dedicated: Vec::new() });
    assert!(pair.passes());
    servers[0].kill();
    pair.hear(true);
    assert!(pair.passes());
    servers[0].restart();
    eventually("the first is listened to again", || {
        (servers[0].cli(&["PUBSUB", "NUMSUB", "sg:config"]).trim().ends_with('2')).then_some(())
    });
    assert!(pair.passes());
}

#[test]
fn hints_follow_a_failover_by_sentinels() {
    let _alone = heavy();
    let mut watched = Watched::start();
    let sentinels = watched.sentinels().into_iter().map(server).collect();
    let mut pair = Pair::start(&Topology::Sentinel { master: "main".to_owned(), sentinels });
    assert!(pair.passes());
    watched.primary.kill();
    pair.hear(true);
    eventually("they pass at the new primary", || pair.passes().then_some(()));
}

#[test]
fn hints_pass_through_a_cluster_with_a_node_less() {
    let _alone = heavy();
    let mut cluster = Cluster::start();
    let mut pair = Pair::start(&Topology::Cluster(cluster.nodes.iter().map(Redis::server).collect()));
    assert!(pair.passes());
    let subscribed = |node: &Redis| node.cli(&["PUBSUB", "NUMSUB", "sg:config"]).trim().ends_with('2');
    let first = cluster.nodes.iter().position(subscribed).expect("both listen at the first shard's");
    cluster.nodes[first].kill();
    pair.hear(true);
    eventually("they pass without it", || pair.passes().then_some(()));
}

#[test]
fn rights_that_are_missing_are_not_tried_and_looked_for_again() {
    let redis = Redis::start(&[]);
    let rights = ["~sg:*", "+@read", "+@write", "+@scripting", "+@connection", "+time", "resetchannels"];
    redis.cli(&[&["ACL", "SETUSER", "gw", "on", ">word"], rights.as_slice()].concat());
    let login = Login { username: Some("gw".to_owned()), password: Some(Secret("word".to_owned())), db: 0 };
    let topology = Topology::Single(vec![Server { login, ..redis.server() }]);
    let node = Node::shipped(config(topology.clone()));
    for changed in [vec![], vec!["&sg:config", "+subscribe"], vec!["-subscribe", "+publish"]] {
        redis.cli(&[&["ACL", "SETUSER", "gw"], changed.as_slice()].concat());
        let mut hints = node.block_on(async { node.global.hints() });
        assert_eq!(node.block_on(soon(&mut hints)), None, "{changed:?}");
        let mut teller = hints.teller();
        node.block_on(teller.tell(1));
    }
    redis.cli(&["ACL", "SETUSER", "gw", "+subscribe"]);
    let mut pair = Pair::start(&topology);
    assert!(pair.passes());
    assert_eq!(redis.cli(&["ACL", "LOG"]).trim(), "", "nothing is tried that is not allowed");
}
