//! PostgreSQL fails over to a standby: gateways serve on, find the new primary, and have what that has.

use std::time::Duration;

use control::database::config::Url;
use control::database::{Database, Error};
use serde_json::Value;

use crate::control_spread::Node;
use crate::database::lab::{alice, config, of_user, runtime};
use crate::support::eventually;
use crate::support::postgres::Postgres;

/// A primary, its standby, and two gateways that know both.
fn fleet(more: &str) -> (Postgres, Postgres, [Node; 2]) {
    let primary = Postgres::start();
    let standby = primary.standby();
    // The standby first: that order says nothing of which is the primary.
    let url = Postgres::url_of_all(&[&standby, &primary], "postgres") + more;
    let nodes = [Node::limited("9/h", &url, None), Node::limited("9/h", &url, None)];
    (primary, standby, nodes)
}

fn limits(nodes: &[Node; 2], limit: u64) {
    for node in nodes {
        node.takes(limit, Duration::from_secs(30));
    }
}

#[test]
fn gateways_serve_on_and_find_the_promoted_standby() {
    for more in ["", "&target_session_attrs=read-write"] {
        let (mut primary, standby, nodes) = fleet(more);
        nodes[0].set(50);
        limits(&nodes, 50);
        primary.is_followed(&standby);
        primary.kill();
        for node in &nodes {
            assert_eq!(node.limit(), 50, "it serves on with what it has");
            let refused = node.ask("POST", "/v1/overrides", &crate::control_spread::of_ann(60));
            assert_eq!(refused.status, 503, "{refused:?}");
        }
        standby.promote();
        nodes[1].set(70);
        limits(&nodes, 70);
        // Both rows are there, the second by the new primary.
        let audit = nodes[0].ask("GET", "/v1/audit", &Value::Null).json();
        assert_eq!(audit["items"].as_array().map(Vec::len), Some(2), "{audit}");
        nodes[0].hears("database", true);
    }
}

#[test]
fn a_change_that_the_standby_never_got_is_gone_at_every_node() {
    let (mut primary, mut standby, nodes) = fleet("");
    nodes[0].set(50);
    limits(&nodes, 50);
    primary.is_followed(&standby);
    standby.stop();
    nodes[0].set(60);
    nodes[0].set(61);
    limits(&nodes, 61);
    primary.kill();
    standby.restart();
    // As long as it is a standby it can be read: it has another history, which is the only one that there is.
    limits(&nodes, 50);
    for node in &nodes {
        let said = "is older than what was in force: later changes are undone";
        let is_told = || node.0.stderr().iter().any(|line| line.contains(said)).then_some(());
        eventually("the log says so", is_told);
    }
    standby.promote();
    limits(&nodes, 50);
    // As many changes as were lost, so the version is the same again, of another history.
    nodes[1].set(80);
    nodes[1].set(81);
    limits(&nodes, 81);
}

#[test]
fn a_standby_is_read_while_there_is_no_primary_and_left_as_soon_as_there_is() {
    let mut primary = Postgres::start();
    let url = |servers: &[&Postgres], more: &str| {
        Url::postgres(&(Postgres::url_of_all(servers, "postgres") + more)).expect("it is a URL")
    };
    let add = async |database: &Database| database.add_override(&alice(), of_user("ada", 1)).await;
    runtime().block_on(async {
        Database::open(&config(url(&[&primary], ""))).await.expect("it makes the tables");
        let standby = primary.standby();
        let both = Database::open(&config(url(&[&standby, &primary], ""))).await.expect("it opens");
        add(&both).await.expect("it goes to the primary");
        primary.is_followed(&standby);
        primary.stop();
        assert_eq!(both.version().await, Ok(1));
        let refused = add(&both).await.expect_err("nobody takes it");
        assert!(matches!(refused, Error::ReadOnly { .. }), "{refused:?}");
        let strict = config(url(&[&standby, &primary], "&target_session_attrs=read-write"));
        let refused = Database::open(&strict).await.expect_err("it wants one that can be written");
        assert!(
            refused.to_string().contains("no server of `url` accepts writes") || refused.is_outage(),
            "{refused:?}"
        );
        primary.restart();
        assert_eq!(both.version().await, Ok(1));
        add(&both).await.expect("the primary is back");
        // A server that is silent holds up no call for longer than its share.
        primary.is_followed(&standby);
        primary.signal_all("STOP");
        let began = std::time::Instant::now();
        while both.version().await != Ok(2) {
            assert!(began.elapsed() < Duration::from_secs(20), "the standby is never asked");
        }
        primary.signal_all("CONT");
    });
}
