//! What the pages of metrics and of the access log list is what there is, and nothing that there is lacks.

use std::collections::{BTreeMap, BTreeSet};

use crate::documents::documents_with;
use crate::support::redis::Redis;
use crate::support::tls::certify;
use crate::support::{Directory, Gateway, Upstream, eventually};

/// The head of tables of metrics.
const METRICS: &str = "| metric | labels |";

/// The rows of the tables under this head, wherever they stand, each as its cells.
fn rows(head: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    let mut rows = Vec::new();
    for (_, document) in documents_with(head) {
        for table in document.split(head).skip(1) {
            rows.extend(table.lines().skip(2).take_while(|line| line.starts_with('|')).map(cells));
        }
    }
    rows
}

/// Words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names of the table of metrics.
pub fn metrics_listed() -> Vec<String> {
    rows(METRICS).iter().flat_map(|row| quoted(&row[0])).map(str::to_owned).collect()
}

/// What a scrape shows: metrics by name, without what belongs to a histogram, and the labels of each.
fn served(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut served = BTreeMap::new();
    for line in page.lines() {
        if let Some((name, _)) = line.strip_prefix("# TYPE sluicegate_").and_then(|line| line.split_once(' '))
        {
            served.insert(name.to_owned(), BTreeSet::new());
            continue;
        }
        let Some((name, rest)) = line.strip_prefix("sluicegate_").and_then(|line| line.split_once('{'))
        else {
            continue;
        };
        let family = ["", "_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end).filter(|name| served.contains_key(*name)));
        let labels = served.get_mut(family.expect("a sample follows its type")).expect("it was found");
        // Values of labels here hold neither commas nor equals signs.
        let (inside, _) = rest.rsplit_once('}').expect("labels end");
        let names =
            inside.split("\",").filter_map(|pair| pair.split_once('=')).map(|(name, _)| name.to_owned());
        labels.extend(names.filter(|name| name != "le"));
    }
    served
}

#[test]
fn every_metric_that_is_served_stands_in_the_table_with_its_labels() {
    let redis = Redis::start(&[]);
    let directory = Directory::new();
    certify(&directory, "good", &["a.example"]);
    // Some are served once there is something to count: a second try that won, a copy that failed, a cost known later.
    let silent = Upstream::raw(|mut stream| drop(std::io::copy(&mut stream, &mut std::io::sink())));
    let quick = Upstream::ok();
    let config = format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\n[listener.tls]\nbind = \"127.0.0.1:0\"\n\
         certs = [{{ cert = \"good.pem\", key = \"good.key\" }}]\n\
         [admin]\nbind = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\n[database]\nurl = \"sqlite:state.db\"\n[redis]\nurl = \"redis://{}\"\n\
         [upstream.u]\nservers = \"http://localhost:1\"\neject = {{ after = 5, most = \"100%\" }}\n\
         [policy.p]\nby = []\nlimit = \"9/s\"\n[policy.q]\nreplaces = \"p\"\nlimit = \"8/s\"\n\
         [upstream.two]\nservers = [\"http://{}\", \"http://{}\"]\nbalance = \"round-robin\"\n\
         retry = {{ hedge-after = \"5ms\" }}\n\
         [[route]]\npath = \"/hedged\"\nto = \"two\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\nto = \"u\"\nmirror = \"http://127.0.0.1:1\"\nlimit = [\"9/s by ip\", \"busy\"]\n\
         [policy.busy]\nby = []\nlimit = \"1_000_000/m\"\ncost = {{ response-time = \"1s\" }}\n",
        redis.addr(),
        silent.addr(),
        quick.addr()
    );
    let gateway = Gateway::start_in(directory, &config);
    assert_eq!(gateway.get("/").status, 502);
    // In turn: one of two goes to the server that says nothing, and then to the other.
    assert_eq!([gateway.get("/hedged").status, gateway.get("/hedged").status], [200, 200]);
    eventually("the request is counted", || {
        (gateway.metric("sluicegate_requests_total", &["route=\"all\""]) > 0.0).then_some(())
    });
    // One of sixteen is measured; how much Redis works is known from its second reading on.
    eventually("a decision is measured", || {
        gateway.get("/");
        (gateway.metric("sluicegate_decision_duration_seconds_count", &[]) > 0.0).then_some(())
    });
    eventually("redis is read twice", || {
        gateway.admin("/metrics").text().contains("sluicegate_redis_saturation_ratio{").then_some(())
    });
    let served = served(&gateway.admin("/metrics").text());
    let mut listed: BTreeMap<&str, &str> = BTreeMap::new();
    let rows = rows(METRICS);
    for row in &rows {
        for name in quoted(&row[0]) {
            assert_eq!(listed.insert(name, &row[1]), None, "{name} is listed twice");
        }
    }
    let names = |all: &BTreeMap<String, BTreeSet<String>>| all.keys().cloned().collect::<BTreeSet<_>>();
    let listed_names: BTreeSet<String> = listed.keys().map(|name| (*name).to_owned()).collect();
    assert_eq!(names(&served), listed_names);
    for (name, labels) in &served {
        let about: BTreeSet<String> = quoted(listed[name.as_str()]).map(str::to_owned).collect();
        assert!(labels.is_subset(&about), "{name} has the labels {labels:?}, the table says {about:?}");
    }
}

#[test]
fn every_reason_of_the_metrics_stands_in_the_table_of_reasons() {
    let gateway = Gateway::start("[[route]]\npath = \"/\"\nto = \"echo\"\n");
    let page = gateway.admin("/metrics").text();
    let reasons =
        page.lines().filter_map(|line| line.strip_prefix("sluicegate_refused_requests_total{reason=\""));
    let served: BTreeSet<&str> =
        reasons.filter_map(|line| line.split_once('"')).map(|(reason, _)| reason).collect();
    let rows = rows("| reason | status |");
    let listed: BTreeSet<&str> = rows.iter().flat_map(|row| quoted(&row[0])).collect();
    assert!(!served.is_empty());
    assert_eq!(served, listed);
}
