//! `sluicegate replay` and `suggest`, on logs that real programs have written: what the gateway refused in its life,
//! replay refuses too; what is no line is counted and stops nothing.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::envoy::Envoy;
use crate::support::gateway::binary;
use crate::support::nginx::Nginx;
use crate::support::{Client, Directory, Gateway, Upstream, eventually, text};

/// A route for everything, with these policies.
fn limited(policies: &str, limit: &str) -> String {
    format!("{policies}\n[[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\nlimit = {limit}\nrespond = {{}}\n")
}

fn sluicegate(directory: &Directory, arguments: &[&str]) -> Output {
    let mut command = binary();
    command.current_dir(directory.join("")).args(arguments);
    command.output().expect("the binary under test can be started")
}

/// What a program prints that runs in a directory.
fn stdout_bytes(program: &str, directory: &Directory, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).current_dir(directory.join("")).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}")).stdout
}

/// The report of a replay as JSON.
fn replayed(directory: &Directory, arguments: &[&str]) -> Value {
    let output = sluicegate(directory, &[&["replay", "--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

/// The policy of a name in a report.
fn policy<'r>(report: &'r Value, name: &str) -> &'r Value {
    let policies = report["candidate"]["policies"].as_array().expect("there are policies");
    policies.iter().find(|it| it["policy"] == name).unwrap_or_else(|| panic!("{name} is not in {report:#}"))
}

/// `count` lines of the common format, one every so many seconds, from addresses that take turns.
fn common(count: usize, seconds: f64, addresses: usize) -> String {
    let line = |number: usize| {
        let second = (number as f64 * seconds) as u64;
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        format!(
            "192.0.2.{} - - [20/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET /a/{number} HTTP/1.1\" 200 5\n",
            number % addresses + 1
        )
    };
    (0..count).map(line).collect()
}

#[test]
fn what_the_gateway_refused_its_log_refuses_again() {
    let policies = "\
        [policy.bucket]\nby = [\"header:x-bucket\"]\nmissing = \"skip\"\nlimit = \"30/h burst 7\"\n\
        [policy.fixed]\nby = [\"header:x-fixed\"]\nmissing = \"skip\"\nlimit = \"11/30d\"\nalgorithm = \"fixed-window\"\n\
        [policy.sliding]\nby = [\"header:x-sliding\"]\nmissing = \"skip\"\nlimit = \"9/30d\"\nalgorithm = \"sliding-window\"\n\
        [policy.exact]\nby = [\"header:x-exact\"]\nmissing = \"skip\"\nlimit = \"5/h\"\nalgorithm = \"sliding-log\"\n\
        [policy.both]\nby = [\"header:x-both\"]\nmissing = \"skip\"\nlimit = [\"9/h\", \"17/30d\"]\n\
        [policy.dear]\nby = [\"header:x-dear\"]\nmissing = \"skip\"\nlimit = \"100/h\"\ncost = { default = 30 }\n\
        [policy.counted]\nby = [\"header:x-counted\"]\nmissing = \"skip\"\nlimit = \"6/h\"\ncount-denied = true\n\
        [policy.watched]\nby = [\"header:x-watched\"]\nmissing = \"skip\"\nlimit = \"4/h\"\nshadow = true\n\
        [policy.needed]\nby = [\"query:needed\"]\nmissing = \"reject\"\nlimit = \"3/h\"\nmatch = { path = \"/needed\" }\n";
    let kinds = ["bucket", "fixed", "sliding", "exact", "both", "dear", "counted", "watched"];
    let all: Vec<String> = kinds.iter().chain(&["needed"]).map(|kind| format!("{kind:?}")).collect();
    let fields: Vec<String> = kinds.iter().map(|kind| format!("\"x-{kind}\"")).collect();
    let directory = Directory::new();
    let log = directory.join("access.log").display().to_string();
    let config = format!(
        "[log]\naccess = {{ to = {log:?}, query = \"keep\", headers = [{}] }}\n{}",
        fields.join(", "),
        limited(policies, &format!("[{}]", all.join(", ")))
    );
    let gateway = Gateway::start_in(directory, &config);
    let mut client = gateway.client();
    let mut statuses = Vec::new();
    let mut ask = |target: &str, field: &str| {
        let field: &[&str] = if field.is_empty() { &[] } else { &[field] };
        statuses.push(u64::from(client.request("GET", target, field, "").status));
    };
    for round in 0..24 {
        for kind in kinds {
            ask("/a", &format!("X-{kind}: {}", round % 2));
        }
        ask(&format!("/needed?needed={}", round % 5), "");
        ask("/needed", "");
    }
    let lines = eventually("all lines are in the log", || {
        let lines = gateway.access_log();
        (lines.len() == statuses.len()).then_some(lines)
    });
    let refused = lines.iter().filter(|line| line["decision"] == "denied").count();
    assert!(refused > 90, "{refused}");
    let config = gateway.file("gateway.toml");
    let here = Directory::new();
    let config = config.to_str().expect("the path is text");
    let report = replayed(&here, &["--log", &log, "--config", config]);
    let candidate = &report["candidate"];
    assert_eq!(candidate["requests"], lines.len());
    assert_eq!(candidate["denied"], refused, "{candidate:#}");
    for kind in kinds.iter().chain(&["needed"]) {
        let own = policy(&report, kind);
        let decided = |word: &str| {
            lines.iter().filter(|line| line["policy"] == *kind && line["decision"] == word).count() as u64
        };
        let number = |field: &str| own[field].as_u64().expect("a number");
        let denied = decided("denied") + decided("shadow-denied");
        assert_eq!(number("denied") + number("missing"), denied, "{kind}: {own:#}");
        assert!(denied > 0, "{kind}");
    }
    assert_eq!(policy(&report, "needed")["missing"], 24);
    // The same limit for half as many, and what differs.
    let stricter = here.write(
        "stricter.toml",
        std::fs::read_to_string(config)
            .expect("it was written")
            .replace("\"30/h burst 7\"", "\"30/h burst 3\""),
    );
    let stricter = stricter.to_str().expect("the path is text");
    let report = replayed(&here, &["--log", &log, "--config", stricter, "--against", config]);
    let differences = &report["differences"];
    assert_eq!(differences["newly-denied"], 8, "two keys, four units each: {differences:#}");
    assert_eq!((&differences["newly-admitted"], &differences["both-deny"]), (&0.into(), &refused.into()));
    assert_eq!(differences["routes"][0]["route"], "all");
    assert_eq!(differences["newly-denied-callers"][0]["caller"], "ip=127.0.0.1");
}

#[test]
fn what_the_gateway_refused_before_limits_is_not_counted() {
    let directory = Directory::new();
    let log = directory.join("access.log").display().to_string();
    let config =
        format!("[log]\naccess = {{ to = {log:?} }}\n{}max-body = \"10B\"\n", limited("", "\"3/h by ip\""));
    let gateway = Gateway::start_in(directory, &config);
    let long = "a".repeat(10_000);
    for (target, body, status) in
        [("a", "0123456789a", 413), (&long, "", 414), ("a", "", 200), ("a", "", 200)]
    {
        let mut client = gateway.client();
        assert_eq!(client.request("POST", &format!("/{target}"), &[], body).status, status);
    }
    eventually("all lines are in the log", || (gateway.access_log().len() == 4).then_some(()));
    let config = gateway.file("gateway.toml").display().to_string();
    let report = replayed(&Directory::new(), &["--log", &log, "--config", &config]);
    let candidate = &report["candidate"];
    assert_eq!((&candidate["before-limits"], &candidate["admitted"]), (&2.into(), &2.into()), "{report:#}");
}

#[test]
fn the_log_of_an_nginx_is_replayed() {
    let server = "access_log @ROOT@access.log combined; location / { return 200 x; }";
    let nginx = Nginx::start(server);
    let mut client = Client::connect(nginx.addr());
    for number in 0..20 {
        client.request("GET", &format!("/a%20b/{number}?q=%22x%22"), &["User-Agent: it \"is\" \\ me"], "");
    }
    client.send("\u{16}\u{3}\u{1}\r\n\r\n");
    let log = eventually("nginx has written its lines", || {
        let log = nginx.read("access.log");
        (log.lines().count() >= 21).then_some(log)
    });
    let directory = Directory::new();
    directory.write("access.log", &log);
    directory.write(
        "gateway.toml",
        limited("[policy.p]\nby = [\"ip\", \"header:user-agent\"]\nlimit = \"5/30d\"\nalgorithm = \"fixed-window\"", "\"p\""),
    );
    let report = replayed(&directory, &["--log", "access.log"]);
    let read = &report["logs"][0];
    assert_eq!((&read["format"], &read["unreadable"]), (&"common".into(), &0.into()), "{log}");
    assert_eq!(read["without-request"], 1, "{log}");
    let own = policy(&report, "p");
    assert_eq!((&own["admitted"], &own["denied"], &own["keys"]), (&5.into(), &15.into(), &1.into()), "{log}");
    let caller = own["worst-callers"][0]["caller"].as_str().expect("somebody");
    assert_eq!(caller, "ip=127.0.0.1, header:user-agent=\"it \\\"is\\\" \\\\ me\"");
}

#[test]
fn the_log_of_an_envoy_is_replayed() {
    let origin = Upstream::ok();
    let gateway = Gateway::start(
        "[admin]\nbind = \"127.0.0.1:0\"\ngrpc = \"127.0.0.1:0\"\n[[route]]\npath = \"/\"\nrespond = {}\n",
    );
    let directory = Directory::new();
    let log = directory.join("envoy.log").display().to_string();
    let access = format!(
        "stat_prefix: ingress\n          use_remote_address: true\n          access_log:\n          - name: envoy.access_loggers.file\n            typed_config:\n              \"@type\": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog\n              path: {log}\n"
    );
    let envoy = Envoy::start(origin.addr(), gateway.listener("grpc"), |config| logging(&config, &access));
    let asked = ask(envoy.addr(), 12);
    let lines = eventually("Envoy has written its lines", || {
        let lines = std::fs::read_to_string(&log).unwrap_or_default();
        (lines.lines().count() >= asked).then_some(lines)
    });
    directory.write("gateway.toml", limited("[policy.p]\nby = [\"ip\"]\nlimit = \"4/h\"", "\"p\""));
    let report = replayed(&directory, &["--log", "envoy.log"]);
    assert_eq!(report["logs"][0]["format"], "envoy", "{lines}");
    assert_eq!((&report["logs"][0]["unreadable"], &report["no-host"]), (&0.into(), &0.into()), "{lines}");
    let own = policy(&report, "p");
    assert_eq!((&own["admitted"], &own["denied"]), (&4.into(), &8.into()), "{lines}");
    // Envoy names a client on its own machine by an address of the machine.
    let address = lines.split('"').nth(3).expect("the third text is X-Forwarded-For");
    assert_eq!(own["worst-callers"][0]["caller"], format!("ip={address}"), "{lines}");
}

/// The configuration of an Envoy that writes its default lines, with the keys indented as its own are.
fn logging(config: &str, access: &str) -> String {
    let line =
        config.lines().find(|line| line.contains("stat_prefix:")).expect("it has a connection manager");
    let indent = &line[..line.len() - line.trim_start().len()];
    let is_first = line.trim_start().starts_with("- ");
    let access = access.replace("\n          ", &format!("\n{indent}{}", if is_first { "  " } else { "" }));
    let prefix = line.trim().split(": ").nth(1).expect("it has a value");
    config.replacen(&format!("stat_prefix: {prefix}\n"), &access, 1)
}

/// Sends so many requests.
fn ask(addr: SocketAddr, times: usize) -> usize {
    let mut client = Client::connect(addr);
    for number in 0..times {
        client.request("GET", &format!("/{number}"), &[], "");
    }
    times
}

#[test]
fn lines_that_are_none_are_counted_and_stop_nothing() {
    let directory = Directory::new();
    directory.write("gateway.toml", limited("", "\"3/h by ip\""));
    let log = common(10, 1.0, 1)
        .replace("/a/3 HTTP/1.1\"", "/a/3 HTTP/1.1")
        .replace("/a/5", "/<script>alert(1)</script>\\x1b[31m\\xff/..//%zz");
    let log = format!("\u{0}\u{1}\n{log}192.0.2.1 - - [20/Nov/2026:00:00:09 +0000] \"GET /");
    directory.write("access.log", &log);
    let report = replayed(&directory, &["--log", "access.log"]);
    assert_eq!((&report["logs"][0]["lines"], &report["logs"][0]["unreadable"]), (&12.into(), &3.into()));
    let numbers: Vec<u64> = report["logs"][0]["examples"]
        .as_array()
        .expect("there are examples")
        .iter()
        .filter_map(|it| it["line"].as_u64())
        .collect();
    assert_eq!(numbers, [1, 5, 12]);
    let candidate = &report["candidate"];
    assert_eq!(
        (&candidate["before-limits"], &candidate["admitted"]),
        (&1.into(), &3.into()),
        "{candidate:#}"
    );
    assert_eq!(candidate["denied"], 5);
    let shown = sluicegate(&directory, &["replay", "--log", "access.log"]);
    assert_eq!(shown.status.code(), Some(0));
    assert!(
        text(&shown.stdout)
            .contains("3 that cannot be read:\n    line 1: it does not have the format of the log\n")
    );
}

#[test]
fn what_is_no_log_is_said() {
    let directory = Directory::new();
    directory.write("gateway.toml", limited("", "\"3/h by ip\""));
    directory.write("empty.log", "");
    directory.write("wrong.toml", "workrs = 2");
    let said = |arguments: &[&str]| {
        let output = sluicegate(&directory, &[&["replay"], arguments].concat());
        (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
    };
    let (code, none) = said(&["--log", "gateway.toml", "--log", "empty.log"]);
    assert_eq!(code, Some(1));
    for part in ["empty.log: 0 lines", "5 that cannot be read:\n    line 2: its format is unknown\n"] {
        assert!(none.contains(part), "{part} is not in {none}");
    }
    directory.write("access.log", common(3, 1.0, 1));
    for command in ["replay", "suggest"] {
        let output = sluicegate(&directory, &[command, "--log", "access.log", "--log", "gateway.toml"]);
        assert_eq!(output.status.code(), Some(3), "{command}");
        let said = text(&output.stderr);
        assert!(
            said.contains(
                "no line of gateway.toml can be read as an access log line: the file is skipped; \
            if it is a log, replay it alone with --format"
            ),
            "{said}"
        );
    }
    for (arguments, code, what) in [
        (&["--log", "."][..], 1, "cannot read ."),
        (&["--log", "empty.log"], 1, "the log has no lines"),
        (&["--log", "-", "--log", "-"], 1, "standard input can be read once"),
        (&["--log", "absent.log"], 1, "cannot read absent.log"),
        (&["--log", "gateway.toml"], 1, "no line can be read as an access log line; name their format"),
        (&["--log", "access.log", "--format", "envoy"], 1, "no line has the format that --format names"),
        (&["--log", "empty.log", "--config", "wrong.toml"], 78, "unknown key `workrs`"),
        (&["--log", "empty.log", "--against", "wrong.toml"], 78, "unknown key `workrs`"),
        (&["--log", "empty.log", "--nodes", "0"], 2, "write a whole number from 1 to 1000"),
        (&[], 2, "--log <FILE>"),
    ] {
        let (found, said) = said(arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {said}");
        assert!(said.contains(what), "{arguments:?}: {said}");
    }
}

#[test]
fn compressed_logs_are_read_whatever_their_names_and_a_cut_one_as_far_as_it_goes() {
    let directory = Directory::new();
    directory.write("gateway.toml", limited("", "\"3/h by ip\""));
    let log = common(5_000, 1.0, 200);
    directory.write("access.log", &log);
    let gzip = stdout_bytes("gzip", &directory, &["-c", "access.log"]);
    let zstd = zstd::encode_all(log.as_bytes(), 3).expect("memory takes it");
    for (name, packed) in [("rotated.1", gzip), ("rotated.gz", zstd)] {
        directory.write(name, &packed);
        assert_eq!(replayed(&directory, &["--log", name])["candidate"]["requests"], 5_000, "{name}");
        directory.write("cut", &packed[..packed.len() - 9]);
        let output = sluicegate(&directory, &["replay", "--json", "--log", "cut"]);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("a log could not be read to its end"));
        let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        assert!(report["logs"][0]["ended-early"].is_string());
    }
    let mut child = binary()
        .args(["replay", "--json", "--log", "-", "--config"])
        .arg(directory.join("gateway.toml"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary under test can be started");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    stdin.write_all(log.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(report["candidate"]["requests"], 5_000);
    assert_eq!(report["logs"][0]["name"], "standard input");
}

#[test]
fn a_log_with_its_newest_line_first_is_said() {
    let directory = Directory::new();
    directory.write("gateway.toml", limited("", "\"3/h by ip\""));
    let log = common(400, 5.0, 3);
    directory.write("access.log", log.lines().rev().collect::<Vec<_>>().join("\n"));
    assert_eq!(replayed(&directory, &["--log", "access.log"])["logs"][0]["newest-first"], true);
    let shown = text(&sluicegate(&directory, &["replay", "--log", "access.log"]).stdout);
    assert!(shown.contains("the log is newest first"), "{shown}");
}

#[test]
fn nodes_of_a_fleet_share_their_limits_and_others_do_not() {
    let directory = Directory::new();
    directory.write("access.log", common(4_000, 0.1, 4));
    let limits = limited("[policy.p]\nby = [\"ip\"]\nlimit = \"100/h\"", "\"p\"");
    directory.write("gateway.toml", &limits);
    directory.write("fleet.toml", format!("[redis]\nurl = \"redis://127.0.0.1:1\"\n{limits}"));
    let admitted = |arguments: &[&str]| {
        let report = replayed(&directory, &[&["--log", "access.log"], arguments].concat());
        report["candidate"]["admitted"].as_u64().expect("a number")
    };
    let one = admitted(&[]);
    // 100 at once, and what refills in 400 seconds.
    assert!((440..=448).contains(&one), "{one}");
    assert!(admitted(&["--nodes", "5"]) > 4 * one, "each counts on its own");
    assert_eq!(admitted(&["--nodes", "5", "--spread", "address"]), one, "each address is at one node");
    let fleet = admitted(&["--nodes", "5", "--config", "fleet.toml"]);
    assert!((one..=one * 106 / 100).contains(&fleet), "{fleet} of {one}");
}

#[test]
fn the_page_stands_alone_and_no_value_is_markup() {
    let directory = Directory::new();
    directory.write("gateway.toml", limited("[policy.\"p\"]\nby = [\"query:q\"]\nlimit = \"1/h\"", "\"p\""));
    directory.write("live.toml", limited("", "\"9/h by ip\""));
    let log = common(30, 30.0, 1).replace("/a/", "/a?q=<img/onerror=x>&n=");
    directory.write("<b>.log", &log);
    let output = sluicegate(&directory, &["replay", "--html", "--log", "<b>.log", "--against", "live.toml"]);
    let page = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(
        page.contains("<svg") && page.contains("&lt;b&gt;.log") && page.contains("&lt;img/onerror=x&gt;")
    );
    for outside in ["<img", "<b>.log", "<script", "http://", "https://", " src=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside} is in\n{page}");
    }
    let shown =
        text(&sluicegate(&directory, &["replay", "--log", "<b>.log", "--against", "live.toml"]).stdout);
    for line in ["denied by --config alone", "newly denied", "POLICY", "the worst minute: 2026-11-20"] {
        assert!(shown.contains(line), "{line} is not in\n{shown}");
    }
}

#[test]
fn what_is_suggested_can_be_pasted_and_refuses_no_more_callers_than_asked_for() {
    let directory = Directory::new();
    // A hundred callers with a request every 40 seconds, and one who comes ten times as often.
    let mut lines: Vec<String> = common(20_000, 0.4, 100).lines().map(str::to_owned).collect();
    let often = common(2_000, 4.0, 1).replace("192.0.2.1 ", "198.51.100.7 ");
    lines.extend(often.lines().map(str::to_owned));
    lines.sort_by_key(|line| line[line.find('[').expect("it has a time")..].to_owned());
    directory.write("access.log", lines.join("\n"));
    let suggested = |arguments: &[&str]| {
        let output = sluicegate(&directory, &[&["suggest", "--log", "access.log"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let shown = suggested(&["--by", "ip", "--refuse", "1%"]);
    let (_, policy_shown) = shown.split_once("\n\n").expect("a policy follows");
    assert!(
        policy_shown.contains("22000 requests of 101 keys by ip; these windows refuse 1 of the keys "),
        "{shown}"
    );
    let whole = limited(&shown, "\"suggested-ip\"");
    directory.write("gateway.toml", &whole);
    let checked = sluicegate(&directory, &["check"]);
    assert_eq!(checked.status.code(), Some(0), "{}{shown}", text(&checked.stderr));
    let report = replayed(&directory, &["--log", "access.log"]);
    // A caller of a hundred, and a part of the requests of its own: that is what the windows refuse when they are played.
    let denied = policy(&report, "suggested-ip")["denied"].as_u64().expect("a number");
    let said = format!(" and {denied} of the requests (");
    assert!(denied > 1_000 && policy_shown.contains(&said), "{said}\n{shown}");
    assert_eq!(policy(&report, "suggested-ip")["keys-denied"], 1, "{shown}");
    assert_eq!(policy(&report, "suggested-ip")["worst-callers"][0]["caller"], "ip=198.51.100.7");
    // With nobody refused the one who comes most has room, and a unit less refuses somebody.
    let shown = suggested(&["--by", "ip", "--refuse", "0%"]);
    directory.write("gateway.toml", limited(&shown, "\"suggested-ip\""));
    assert_eq!(policy(&replayed(&directory, &["--log", "access.log"]), "suggested-ip")["denied"], 0);
    let windows = shown.lines().find(|line| line.starts_with("limit = ")).expect("it has windows");
    let longest = windows.rsplit_once('"').and_then(|(rest, _)| rest.rsplit_once('"')).expect("a window").1;
    let (limit, unit) = longest.split_once('/').expect("a limit");
    let less = format!("{}/{unit}", limit.parse::<u64>().expect("a number") - 1);
    directory.write("gateway.toml", limited(&shown.replace(longest, &less), "\"suggested-ip\""));
    assert_eq!(policy(&replayed(&directory, &["--log", "access.log"]), "suggested-ip")["keys-denied"], 1);
}

/// Forty callers with 30 to 69 requests each, some close together.
fn uneven() -> String {
    let mut random = 12_345_u64;
    let callers = (0..40).flat_map(|caller| (0..30 + caller).map(move |_| caller));
    let mut requests: Vec<(u64, u64)> = callers
        .map(|caller| {
            random = (random * 1_103_515_245 + 12_345) % (1 << 31);
            (random % 86_400 / 3_000 * 3_000 + random / 86_400 % 240, caller)
        })
        .collect();
    requests.sort_unstable();
    let line = |(second, caller): &(u64, u64)| {
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        format!(
            "192.0.2.{caller} - - [20/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \"GET /a/ HTTP/1.1\" 200 10\n"
        )
    };
    requests.iter().map(line).collect()
}

#[test]
fn suggest_counts_the_keys_that_a_replay_of_its_windows_refuses() {
    let directory = Directory::new();
    directory.write("access.log", uneven());
    for share in ["5%", "10%", "20%", "40%"] {
        let asked = ["suggest", "--log", "access.log", "--by", "ip", "--refuse", share];
        let shown = text(&sluicegate(&directory, &asked).stdout);
        directory.write("gateway.toml", limited(&shown, "\"suggested-ip\""));
        let denied =
            policy(&replayed(&directory, &["--log", "access.log"]), "suggested-ip")["keys-denied"].clone();
        assert!(shown.contains(&format!("refuse {denied} of the keys")), "{share}, {denied}: {shown}");
    }
}

#[test]
fn each_route_may_have_limits_of_its_own() {
    let directory = Directory::new();
    directory.write("access.log", common(600, 10.0, 3).replace("/a/1", "/b/1"));
    directory.write(
        "gateway.toml",
        "[[route]]\nname = \"one\"\npath = \"/a/{n}\"\nrespond = {}\n[[route]]\nname = \"other one\"\npath = \"/b/{n}\"\nrespond = {}\n",
    );
    let output = sluicegate(&directory, &["suggest", "--log", "access.log", "--per-route"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        shown.contains("[policy.suggested-one-ip]") && shown.contains("[policy.suggested-other-one-ip]"),
        "{shown}"
    );
    assert!(shown.contains("requests without a value for consumer"), "{shown}");
    directory.write("both.toml", limited(&shown, "[\"suggested-one-ip\", \"suggested-other-one-ip\"]"));
    let checked = sluicegate(&directory, &["check", "--config", "both.toml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let by_param = sluicegate(&directory, &["suggest", "--log", "access.log", "--by", "param:m"]);
    assert_eq!(by_param.status.code(), Some(78), "{}", text(&by_param.stdout));
    let none = sluicegate(&directory, &["suggest", "--log", "access.log", "--by", "planet"]);
    assert_eq!(none.status.code(), Some(2));
    for host in ["bad host", "a/b", ""] {
        let none = sluicegate(&directory, &["replay", "--log", "access.log", "--host", host]);
        assert_eq!(none.status.code(), Some(2), "{host:?}");
        assert!(text(&none.stderr).contains("write a host"), "{}", text(&none.stderr));
    }
}
