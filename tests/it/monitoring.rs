//! Alerts, dashboards and metrics as Prometheus takes them: its own tools read the rules and the metrics, and a real one
//! scrapes a gateway under load and answers every expression.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::readme::metrics_listed;
use crate::support::python;
use crate::support::redis::{Redis, free_port};
use crate::support::tls::certify;
use crate::support::{
    Client, Directory, Gateway, Response, Stop, Upstream, end, eventually, get, heavy, stdout_of, text,
};

const MONITORING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/monitoring");
const ALERTS: &str = include_str!("../../monitoring/alerts.yml");
const RUNBOOK: &str = include_str!("../../docs/alerts.md");
const DASHBOARDS: [(&str, &str); 2] = [
    ("grafana.json", include_str!("../../monitoring/grafana.json")),
    ("grafana-policy.json", include_str!("../../monitoring/grafana-policy.json")),
];

/// A running Prometheus that scrapes one gateway each second. It is stopped when the test ends.
struct Prometheus {
    child: Child,
    addr: SocketAddr,
    _directory: Directory,
}

impl Prometheus {
    fn start(gateway: SocketAddr) -> Prometheus {
        Prometheus::start_with(gateway, &["exemplar-storage"])
    }

    /// One with these features.
    fn start_with(gateway: SocketAddr, features: &[&str]) -> Prometheus {
        let directory = Directory::new();
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{MONITORING}/alerts.yml]\n\
             scrape_configs:\n  - job_name: sluicegate\n    static_configs: [{{ targets: [\"{gateway}\"] }}]\n"
        );
        let file = directory.write("prometheus.yml", config);
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .arg(format!("--web.listen-address={addr}"))
            .arg(format!("--enable-feature={}", features.join(",")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is installed (tests/all does it)");
        eventually("prometheus is ready", || {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("prometheus ended with {status}");
            }
            std::net::TcpStream::connect(addr).ok()
        });
        eventually("prometheus answers", || (get(addr, "/-/ready").status == 200).then_some(()));
        Prometheus { child, addr, _directory: directory }
    }

    /// What its API answers; panics if it is an error.
    fn api(&self, path: &str) -> Value {
        let answer = get(self.addr, &format!("/api/v1/{path}")).json();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// The exemplars that it has of a metric, each with the labels of its series.
    fn exemplars(&self, metric: &str) -> Vec<(Value, Value)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
        let (start, end) = (now - 600, now + 60);
        let found = self.api(&format!("query_exemplars?query={metric}&start={start}&end={end}"));
        let series = found.as_array().expect("a list").clone();
        let of = |series: Value| {
            let exemplars = series["exemplars"].as_array().expect("a list").clone();
            exemplars.into_iter().map(move |exemplar| (series["seriesLabels"].clone(), exemplar))
        };
        series.into_iter().flat_map(of).collect()
    }

    /// The series that it has of the gateway: names and labels.
    fn series(&self) -> BTreeSet<BTreeMap<String, String>> {
        let found = self.api(&format!("series?match[]={}", encoded("{__name__=~\"sluicegate_.+\"}")));
        let series: BTreeSet<BTreeMap<String, String>> = serde_json::from_value(found).expect("labels");
        let of_target = |mut labels: BTreeMap<String, String>| {
            labels.retain(|name, _| !["job", "instance"].contains(&name.as_str()));
            labels
        };
        series.into_iter().map(of_target).collect()
    }

    /// The values of an expression now; panics if it is none.
    fn values(&self, expression: &str) -> Vec<f64> {
        let data = self.api(&format!("query?query={}", encoded(expression)));
        let value = |sample: &Value| {
            let text = sample["value"][1].as_str().expect("a sample has a value");
            text.parse::<f64>().expect("a number")
        };
        data["result"].as_array().expect("a vector").iter().map(value).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The names of metrics in an expression, as the table of metrics has them.
fn named(expression: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for piece in expression.split("sluicegate_").skip(1) {
        let end = piece.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
        let name = &piece[..end.unwrap_or(piece.len())];
        names.insert(name.strip_suffix("_bucket").unwrap_or(name).to_owned());
    }
    names
}

/// The expressions of a dashboard's panels, each with the panel's title.
fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().expect("a dashboard has panels");
    let targets = |panel: &Value| {
        let title = panel["title"].as_str().expect("a panel has a title").to_owned();
        let targets = panel["targets"].as_array().expect("a panel has targets").clone();
        targets
            .into_iter()
            .map(move |target| (title.clone(), target["expr"].as_str().expect("an expression").to_owned()))
    };
    panels.iter().flat_map(targets).collect()
}

/// The value behind `name: ` of each line that has it, in their order.
fn fields<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(name)).collect()
}

#[test]
fn rules_are_valid_and_each_fires_when_it_should_and_only_then() {
    stdout_of("promtool", &["check", "rules", &format!("{MONITORING}/alerts.yml")]);
    stdout_of("promtool", &["test", "rules", &format!("{MONITORING}/alerts.test.yml")]);
}

#[test]
fn every_alert_is_tested_both_ways_and_explained() {
    let tests = include_str!("../../monitoring/alerts.test.yml");
    let alerts = fields(ALERTS, "alert: ");
    assert!(alerts.len() >= 10, "{alerts:?}");
    let anchors: BTreeSet<String> =
        RUNBOOK.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_lowercase).collect();
    for (alert, runbook) in alerts.iter().zip(fields(ALERTS, "runbook_url: ")) {
        let anchor = alert.to_lowercase();
        assert_eq!(runbook, format!("docs/alerts.md#{anchor}"));
        assert!(anchors.contains(&anchor), "docs/alerts.md has no section {alert}");
        assert!(tests.contains(runbook), "no test has {alert} fire");
    }
    assert_eq!(anchors.len(), alerts.len(), "a section of docs/alerts.md is about no alert");
    // A case of a test that expects an alert has the words behind it; one that expects none ends with the name.
    let lines: Vec<&str> = tests.lines().map(str::trim).collect();
    let silent: BTreeSet<&str> = lines
        .windows(2)
        .filter(|pair| !pair[1].starts_with("exp_alerts"))
        .filter_map(|pair| pair[0].strip_prefix("alertname: "))
        .collect();
    let untested: Vec<_> = alerts.iter().filter(|alert| !silent.contains(*alert)).collect();
    assert!(untested.is_empty(), "no test has these not fire: {untested:?}");
}

#[test]
fn rules_and_dashboards_name_metrics_that_there_are() {
    let listed: BTreeSet<String> = metrics_listed().into_iter().collect();
    let boards = DASHBOARDS.iter().map(|(name, text)| (*name, *text));
    for (name, text) in [("alerts.yml", ALERTS), ("docs/alerts.md", RUNBOOK)].into_iter().chain(boards) {
        let named = named(text);
        assert!(!named.is_empty() && named.is_subset(&listed), "{name}: {:?}", &named - &listed);
    }
}

#[test]
fn dashboards_are_as_the_schema_of_grafana_has_them() {
    let files = DASHBOARDS.map(|(name, _)| format!("{MONITORING}/{name}"));
    assert_eq!(python::client("grafana_dashboard.py", &files.each_ref().map(String::as_str)), "");
}

#[test]
fn panels_lie_apart_and_name_variables_that_there_are() {
    for (name, text) in DASHBOARDS {
        let board: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for field in ["uid", "title"] {
            assert!(board[field].as_str().is_some_and(|value| !value.is_empty()), "{name} has no {field}");
        }
        assert!(board["uid"].as_str().is_some_and(|uid| uid.len() <= 40), "{name}: its uid is too long");
        assert!(board["schemaVersion"].as_u64().is_some_and(|version| version >= 36), "{name}");
        let variables: BTreeSet<&str> = board["templating"]["list"]
            .as_array()
            .expect("variables")
            .iter()
            .map(|variable| variable["name"].as_str().expect("a variable has a name"))
            .collect();
        let mut ids = BTreeSet::new();
        let mut places: Vec<[u64; 4]> = Vec::new();
        for panel in board["panels"].as_array().expect("panels") {
            assert!(ids.insert(panel["id"].as_u64()), "{name}: two panels have one id: {panel}");
            assert!(["timeseries", "stat"].contains(&panel["type"].as_str().expect("a type")), "{name}");
            let place = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().expect("a place"));
            let [x, y, w, h] = place;
            assert!(w > 0 && h > 0 && x + w <= 24, "{name}: {place:?} is not on the grid");
            for [a, b, c, d] in &places {
                let is_apart = x + w <= *a || a + c <= x || y + h <= *b || b + d <= y;
                assert!(is_apart, "{name}: a panel lies over another at {place:?}");
            }
            places.push(place);
            let mut letters = BTreeSet::new();
            for target in panel["targets"].as_array().expect("targets") {
                assert!(letters.insert(target["refId"].as_str()), "{name}: two targets have one letter");
                assert_eq!(target["datasource"], panel["datasource"], "{name}");
                let expression = target["expr"].as_str().expect("an expression");
                for word in expression.split('$').skip(1) {
                    let end = word.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
                    let word = &word[..end.unwrap_or(word.len())];
                    let is_known = word == "__rate_interval" || variables.contains(word);
                    assert!(is_known, "{name}: no variable {word}");
                }
            }
            assert!(!letters.is_empty(), "{name}: a panel shows nothing");
        }
    }
}

/// Requests over a connection that is kept, until it is told to stop.
fn load(gateway: &Gateway, stop: &AtomicBool) {
    let mut client = gateway.client();
    while !stop.load(Ordering::SeqCst) {
        for path in ["/leased", "/exact"] {
            client.get(path);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_real_prometheus_takes_every_metric_and_answers_every_expression() {
    let _alone = heavy();
    let redis = Redis::start(&[]);
    let directory = Directory::new();
    certify(&directory, "good", &["a.example"]);
    let gateway = Gateway::start_in(
        directory,
        &format!(
            "[listener.plain]\nbind = \"127.0.0.1:0\"\n[listener.tls]\nbind = \"127.0.0.1:0\"\n\
             certs = [{{ cert = \"good.pem\", key = \"good.key\" }}]\n\
             [admin]\nbind = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\n[database]\nurl = \"sqlite:state.db\"\n\
             [redis]\nurl = \"redis://{}\"\n\
             [policy.leased]\nby = [\"ip\"]\nlimit = [\"20/s\", \"1_000_000/h\"]\n\
             [policy.exact]\nby = [\"ip\"]\nlimit = \"1_000/s\"\novershoot = 0\n\
             [[route]]\npath = \"/leased\"\nto = \"echo\"\nlimit = \"leased\"\n\
             [[route]]\npath = \"/exact\"\nto = \"echo\"\nlimit = \"exact\"\n",
            redis.addr()
        ),
    );
    let prometheus = Prometheus::start(gateway.listener("admin"));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| load(&gateway, &stop));
        let mut open: BTreeMap<String, String> = BTreeMap::new();
        for (name, text) in DASHBOARDS {
            let board: Value = serde_json::from_str(text).expect("JSON");
            for (title, expression) in expressions(&board) {
                let ready = expression
                    .replace("$job", "sluicegate")
                    .replace("$policy", "leased")
                    .replace("$__rate_interval", "5s");
                assert!(!ready.contains('$'), "{name}: {expression}");
                open.insert(ready, format!("{name}: {title}"));
            }
        }
        assert!(open.len() > 30, "{}", open.len());
        // A server is saturated or not only from its second reading on.
        let began = Instant::now();
        while !open.is_empty() {
            open.retain(|expression, _| !prometheus.values(expression).iter().any(|value| value.is_finite()));
            assert!(began.elapsed() < Duration::from_secs(45), "no data for {open:#?}");
            thread::sleep(Duration::from_millis(200));
        }
        rules_run(&prometheus);
        assert_eq!(prometheus.values("scrape_samples_scraped{job=\"sluicegate\"} > 100").len(), 1);
        tools_find_nothing(&gateway.admin("/metrics").text());
    });
}

/// Every rule was evaluated without an error.
fn rules_run(prometheus: &Prometheus) {
    let rules = eventually("rules are evaluated", || {
        let answer = get(prometheus.addr, "/api/v1/rules").json();
        let rules = answer["data"]["groups"][0]["rules"].as_array().cloned().unwrap_or_default();
        (!rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown")).then_some(rules)
    });
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    assert_eq!(rules.len(), fields(ALERTS, "alert: ").len());
}

/// `promtool check metrics` neither fails nor has advice.
fn tools_find_nothing(page: &str) {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool comes with prometheus");
    let mut input = child.stdin.take().expect("it was asked for");
    input.write_all(page.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
fn an_exemplar_leads_to_the_decision_about_its_request() {
    let _alone = heavy();
    let gateway = Gateway::start(
        "[log]\ndecisions = { sample = \"100%\" }\n[policy.few]\nby = [\"ip\"]\nlimit = \"3/h\"\n\
         [[route]]\npath = \"/\"\nto = \"echo\"\nlimit = \"few\"\n[[route]]\npath = \"/free\"\nto = \"echo\"\n",
    );
    // One of sixteen decisions is measured, and only those have an exemplar of their own.
    for _ in 0..200 {
        gateway.get("/");
        gateway.get("/free");
    }
    for features in [&["exemplar-storage"][..], &["exemplar-storage", "native-histograms"]] {
        let prometheus = Prometheus::start_with(gateway.listener("admin"), features);
        let ending = if features.len() == 1 { "_bucket" } else { "" };
        for metric in ["sluicegate_request_duration_seconds", "sluicegate_decision_duration_seconds"] {
            let found = eventually("there are exemplars", || {
                Some(prometheus.exemplars(&format!("{metric}{ending}"))).filter(|found| !found.is_empty())
            });
            for (series, exemplar) in &found {
                assert_ne!(series["route"], "/free", "nothing is kept of its requests");
                let id = exemplar["labels"]["request_id"].as_str().expect("it has an id");
                let known = gateway.admin(&format!("/v1/decisions/{id}"));
                assert_eq!(known.status, 200, "{metric}: {exemplar}");
                let number = |text: &Value| text.as_str().and_then(|text| text.parse::<f64>().ok());
                let value = number(&exemplar["value"]).expect("it has a value");
                assert!(number(&series["le"]).is_none_or(|bound| value <= bound), "{series}: {exemplar}");
            }
        }
    }
}

#[test]
fn a_traced_request_is_an_exemplar_with_its_trace() {
    let gateway = Gateway::start(
        "[trace]\notlp = \"http://127.0.0.1:1\"\nsample = \"100%\"\n[[route]]\npath = \"/\"\nto = \"echo\"\n",
    );
    gateway.get("/");
    let line = gateway.logged("/");
    let ids = ["request_id", "trace_id"].map(|name| line[name].as_str().expect("an id").to_owned());
    let shown = format!("{{request_id=\"{}\",trace_id=\"{}\"}} ", ids[0], ids[1]);
    let page = scraped(&gateway, "application/openmetrics-text").text();
    let exemplars: Vec<&str> =
        page.lines().filter_map(|line| line.split_once(" # ")).map(|it| it.1).collect();
    assert!(exemplars.len() == 1 && exemplars[0].starts_with(&shown), "{exemplars:?}");
    assert!(!gateway.admin("/metrics").text().contains(" # {"));
}

fn scraped(gateway: &Gateway, accept: &str) -> Response {
    let mut client = Client::connect(gateway.listener("admin"));
    client.request("GET", "/metrics", &[&format!("Accept: {accept}")], "")
}

#[test]
fn native_histograms_say_what_classic_ones_say_but_closer() {
    let _alone = heavy();
    let redis = Redis::start(&[]);
    // From 2 to 21 ms, by the number that the path ends with.
    let upstream = Upstream::replying(|request| {
        let number = request.line.split(['/', ' ']).rev().find_map(|part| part.parse::<u64>().ok());
        thread::sleep(Duration::from_millis(2 + number.unwrap_or_default() % 20));
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let gateway = Gateway::start(&format!(
        "[redis]\nurl = \"redis://{}\"\n[upstream.slow]\nservers = \"http://{}\"\n\
         [[route]]\nname = \"slow\"\npath = \"/slow/{{number}}\"\nto = \"slow\"\nlimit = \"1_000/s by ip\"\n",
        redis.addr(),
        upstream.addr()
    ));
    let prometheus =
        Prometheus::start_with(gateway.listener("admin"), &["native-histograms", "exemplar-storage"]);
    eventually("it scrapes", || (!prometheus.values("sluicegate_build_info").is_empty()).then_some(()));
    let mut client = gateway.client();
    for number in 0..REQUESTS {
        client.get(&format!("/slow/{number}"));
    }
    let histogram = "sluicegate_request_duration_seconds{route=\"slow\"}";
    eventually("all requests are scraped", || {
        (prometheus.values(&format!("histogram_count({histogram})")) == [REQUESTS as f64]).then_some(())
    });
    let mut took: Vec<f64> = eventually("all requests are logged", || {
        let log = gateway.access_log();
        (log.len() == REQUESTS).then(|| log.iter().filter_map(|line| line["total_us"].as_f64()).collect())
    });
    took.sort_by(f64::total_cmp);
    let page = gateway.admin("/metrics").text();
    for quantile in [0.5, 0.9, 0.99] {
        let exact = took[(quantile * REQUESTS as f64).ceil() as usize - 1] / 1e6;
        let [native] = prometheus.values(&format!("histogram_quantile({quantile}, {histogram})"))[..] else {
            panic!("no data")
        };
        assert!((native / exact - 1.0).abs() < 0.1, "{quantile}: {native} beside {exact}");
        let (lower, upper) = classic_bucket(&page, quantile);
        // The native bucket may reach over the bound of the classic one by its own width.
        let is_there = lower / 1.1 < native && native <= upper * 1.1;
        assert!(is_there, "{quantile}: {native} between {lower} and {upper}");
        let rated = prometheus.values(&format!("histogram_quantile({quantile}, rate({histogram}[1m]))"));
        let range = took[0] * 0.9e-6..took[REQUESTS - 1] * 1.1e-6;
        assert!(rated.len() == 1 && range.contains(&rated[0]), "{quantile}: {rated:?} in {range:?}");
    }
    // Everything else is called as it is in the text.
    eventually("series are the same", || {
        let text = text_series(&gateway.admin("/metrics").text());
        (text == prometheus.series()).then_some(())
    });
}

/// The bounds of the classic bucket that a quantile of the route `slow` lies in.
fn classic_bucket(page: &str, quantile: f64) -> (f64, f64) {
    let mut lower = 0.0;
    for line in page.lines() {
        let Some(rest) = line.strip_prefix("sluicegate_request_duration_seconds_bucket{route=\"slow\",le=\"")
        else {
            continue;
        };
        let (bound, count) = rest.split_once("\"} ").expect("a bound and a count");
        let number = |text: &str| text.parse::<f64>().expect("a number");
        if number(count) >= quantile * REQUESTS as f64 {
            return (lower, number(bound));
        }
        lower = number(bound);
    }
    panic!("no bucket holds {quantile} of\n{page}");
}

/// The series of a page of text: names and labels. Of a histogram there is one, as of a native one.
fn text_series(page: &str) -> BTreeSet<BTreeMap<String, String>> {
    let histograms: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" histogram")).collect();
    let series = |line: &str| {
        let (name, labels) =
            line.rsplit_once(' ')?.0.split_once('{').unwrap_or((line.split(' ').next()?, ""));
        let pairs = labels.trim_end_matches('}').split("\",").filter_map(|pair| pair.split_once("=\""));
        let mut labels: BTreeMap<String, String> =
            pairs.map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned())).collect();
        // An empty label is no label to Prometheus.
        labels.retain(|name, value| name != "le" && !value.is_empty());
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end).filter(|family| histograms.contains(family)));
        labels.insert("__name__".to_owned(), family.unwrap_or(name).to_owned());
        Some(labels)
    };
    page.lines().filter(|line| !line.starts_with('#')).filter_map(series).collect()
}

const REQUESTS: usize = 300;

#[test]
fn a_flush_of_redis_is_noticed_and_said_once() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(&format!(
        "[redis]\nurl = \"redis://{}\"\n[[route]]\npath = \"/\"\nto = \"echo\"\nlimit = \"9/s by ip\"\n",
        redis.addr()
    ));
    let vanished = || gateway.metric("sluicegate_redis_keys_vanished_total", &[]);
    eventually("the marker is left", || (redis.cli(&["EXISTS", "sg:!marker"]).trim() == "1").then_some(()));
    eventually("what the server says is shown", || {
        (gateway.metric("sluicegate_redis_keys", &[]) >= 1.0).then_some(())
    });
    assert!(gateway.metric("sluicegate_redis_memory_bytes", &[]) > 100_000.0);
    let said = || gateway.stderr().iter().filter(|line| line.contains("all keys of Redis are gone")).count();
    assert_eq!((vanished() as u64, said()), (0, 0));
    redis.cli(&["FLUSHALL"]);
    eventually("the flush is noticed", || (vanished() > 0.0).then_some(()));
    assert_eq!((vanished() as u64, said()), (1, 1));
}

#[test]
fn units_of_leases_and_those_that_were_waited_for_are_told_apart() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(&format!(
        "[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n[policy.leased]\nby = [\"ip\"]\nlimit = \"1_000/s\"\n\
         [policy.exact]\nby = [\"ip\"]\nlimit = \"100_000/h\"\novershoot = 0\ncost = 3\n\
         [[route]]\npath = \"/leased\"\nto = \"echo\"\nlimit = \"leased\"\n\
         [[route]]\npath = \"/exact\"\nto = \"echo\"\nlimit = \"exact\"\n",
        redis.addr()
    ));
    eventually("redis is there", || (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
    let units = |from: &str| gateway.metric("sluicegate_redis_units_total", &[&format!("from=\"{from}\"")]);
    // Each of them waits: nobody else asks, so each question is one request's.
    let tier = "tier=\"global\"";
    for _ in 0..10 {
        gateway.get("/exact");
    }
    let waited = gateway.metric("sluicegate_decisions_by_total", &["policy=\"exact\"", tier]);
    assert!(waited > 0.0);
    assert_eq!((units("lease"), units("wait")), (0.0, 3.0 * waited));
    let before = units("wait");
    eventually("a lease is spent from and reported", || {
        for _ in 0..50 {
            gateway.get("/leased");
        }
        (units("lease") >= 50.0).then_some(())
    });
    let sent = gateway.metric("sluicegate_requests_total", &["route=\"/leased\""]);
    assert!(units("lease") + units("wait") - before <= sent, "{} of {sent}", units("lease"));
}

#[test]
fn windows_count_what_each_of_them_says() {
    let gateway = Gateway::start(
        "[policy.two]\nby = [\"ip\", \"route\"]\nlimit = [\"3/h\", \"1000/d\"]\n\
         [[route]]\npath = \"/\"\nto = \"echo\"\nlimit = \"two\"\n",
    );
    for _ in 0..5 {
        gateway.get("/");
    }
    let said = |window: &str, outcome: &str| {
        let labels = [
            format!("window=\"{window}\""),
            format!("outcome=\"{outcome}\""),
            "policy=\"two\",".to_owned(),
            "by=\"ip,route\",tier=\"local\"".to_owned(),
        ];
        gateway.metric("sluicegate_window_decisions_total", &labels.each_ref().map(String::as_str)) as u64
    };
    assert_eq!((said("two-1h", "admitted"), said("two-1h", "denied")), (3, 2));
    assert_eq!((said("two-1d", "admitted"), said("two-1d", "denied")), (5, 0), "it has room for all of them");
}

#[test]
fn a_refused_file_is_shown_until_one_is_in_force() {
    let config = "[[route]]\npath = \"/\"\nto = \"echo\"\n";
    let gateway = Gateway::start(config);
    let is_in_force = || gateway.metric("sluicegate_config_last_reload_successful", &[]) as u64;
    assert_eq!(is_in_force(), 1);
    gateway.reload_refused("[[route]]\npath = \"/\"\nto = \"nobody\"\n");
    assert_eq!(is_in_force(), 0);
    gateway.reload(config);
    assert_eq!(is_in_force(), 1);
}

#[test]
fn files_that_are_refused_between_reloads_are_shown_until_they_are_read() {
    let directory = Directory::new();
    certify(&directory, "a", &["localhost"]);
    for (name, text) in [("keys.toml", KEY), ("404.html", "no")] {
        directory.write(name, text);
    }
    let config = "[listener.tls]\nbind = \"127.0.0.1:0\"\ncerts = [{ cert = \"a.pem\", key = \"a.key\" }]\n\
                  [errors]\n404 = \"404.html\"\n\
                  [auth.keys]\nkind = \"api-key\"\nkeys = { file = \"keys.toml\" }\n\
                  [[route]]\npath = \"/\"\nauth = \"keys\"\nto = \"echo\"\n";
    let gateway = Gateway::start_in(directory, config);
    let key = std::fs::read_to_string(gateway.file("a.key")).expect("it was written");
    let stale = |of: &str| gateway.metric("sluicegate_files_stale", &[&format!("of=\"{of}\"")]);
    let all = || ["listener", "auth", "errors"].map(stale);
    assert_eq!(all(), [0.0; 3]);
    gateway.write("keys.toml", "[[key]]\n");
    gateway.write("a.key", "no key");
    std::fs::remove_file(gateway.file("404.html")).expect("it is there");
    eventually("all are refused", || (all() == [1.0; 3]).then_some(()));
    assert_eq!(gateway.metric("sluicegate_config_last_reload_successful", &[]), 1.0, "it was no reload");
    gateway.write("keys.toml", format!("# The same.\n{KEY}"));
    eventually("the keys are read", || (all() == [1.0, 0.0, 1.0]).then_some(()));
    gateway.write("404.html", "none");
    gateway.write("a.key", &key);
    eventually("all are read", || (all() == [0.0; 3]).then_some(()));
    let mut over = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let key = rcgen::KeyPair::from_pem(&key).expect("a key");
    let ends = std::time::SystemTime::now() + std::time::Duration::from_secs(2);
    for (ends, said) in [
        (rcgen::date_time_ymd(2020, 1, 1), "a.pem has expired: clients refuse it"),
        (ends.into(), "has just expired: replace the file"),
    ] {
        over.not_after = ends;
        gateway.write("a.pem", over.self_signed(&key).expect("signed").pem());
        eventually(said, || gateway.stderr().iter().any(|line| line.contains(said)).then_some(()));
    }
}

const KEY: &str = "[[key]]\nsha256 = \"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\"\n\
                   consumer = \"ann\"\n";

#[test]
fn utilisation_is_the_greatest_of_its_parts() {
    let gateway = Gateway::start(
        "workers = 1\n[listener.plain]\nbind = \"127.0.0.1:0\"\nmax-connections = 4\n\
         [[route]]\npath = \"/\"\nto = \"echo\"\n",
    );
    let part =
        |part: &str| gateway.metric("sluicegate_utilisation_part_ratio", &[&format!("part=\"{part}\"")]);
    let clients = [(); 3].map(|()| {
        let mut client = gateway.client();
        client.get("/");
        client
    });
    assert_eq!(part("connections"), 0.75);
    assert!(part("memory") > 0.0 && part("memory") < 0.75, "{}", part("memory"));
    let whole = || gateway.metric("sluicegate_utilisation_ratio", &[]);
    assert!(whole() >= 0.75);
    drop(clients);
    // A worker that has nothing but this to do is busy, once two comparisons are over.
    eventually("the worker is seen to work", || {
        for _ in 0..100 {
            gateway.get("/");
        }
        (part("workers") > 0.01).then_some(())
    });
    assert!(part("workers") <= 1.0 && whole() <= 1.0);
}
