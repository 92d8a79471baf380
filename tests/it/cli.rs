//! The command line: exit codes, and what is said before a port is opened.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use crate::support::gateway::{binary, complete};
use crate::support::tls::{Authority, certify};
use crate::support::{Directory, Gateway, eventually, stdout_of, text};

/// Runs a command on a configuration; `FILE` in the arguments is its path.
fn sluicegate(arguments: &[&str], config: &str) -> Output {
    let directory = Directory::new();
    let file = directory.write("gateway.toml", config).display().to_string();
    let arguments = arguments.iter().map(|argument| if *argument == "FILE" { &file } else { *argument });
    binary().args(arguments).output().expect("the binary under test can be started")
}

/// What a command printed, on both outputs.
fn said(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

const GOOD: &str =
    "[[route]]\npath = \"/api/{*rest}\"\nto = \"http://127.0.0.1:3000\"\nlimit = \"100/m burst 20 by ip\"\n";
const BAD: &str = "workrs = 2\n[[route]]\npath = \"/a\"\nto = \"orders\"\nlimit = \"100/fortnight by ip\"\n";

#[test]
fn check_accepts_the_first_file_a_user_writes() {
    let output = sluicegate(&["check", "--config", "FILE"], GOOD);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn check_accepts_the_file_that_comes_with_the_source() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/gateway.toml");
    let output =
        binary().args(["check", "--config", file]).output().expect("the binary under test can be started");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn check_names_every_error_with_its_place() {
    let output = sluicegate(&["check", "--config", "FILE"], BAD);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(78), "{said}");
    for expected in
        ["gateway.toml:1:1", "workrs", "workers", "gateway.toml:4:", "orders", "gateway.toml:5:", "fortnight"]
    {
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
}

#[test]
fn check_warns_of_a_log_whose_directory_is_not_there() {
    let config = "[log]\naccess = { to = \"/nonexistent/access.log\" }\n[[route]]\nrespond = {}\n";
    let output = sluicegate(&["check", "--config", "FILE"], config);
    assert_eq!(output.status.code(), Some(0));
    let said = said(&output);
    assert!(said.contains("warning: the directory /nonexistent of a log does not exist here"), "{said}");
    let output =
        sluicegate(&["check", "--config", "FILE"], &config.replace("/nonexistent/access.log", "/tmp"));
    assert!(text(&output.stderr).contains("warning: the log /tmp is a directory: name a file in it"));
}

#[test]
fn upgrade_says_where_it_has_looked_for_a_gateway() {
    let config = "admin = false\n[listener.l]\nbind = \"127.0.0.1:1\"\n[[route]]\nrespond = {}\n";
    let output = sluicegate(&["upgrade", "--config", "FILE"], config);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("none that listens on 127.0.0.1:1. "), "{said}");
}

#[test]
fn check_names_the_damaged_file_of_a_time_zone() {
    let directory = Directory::new();
    let zones = directory.join("zones");
    fs::create_dir_all(zones.join("Europe")).expect("it is ours");
    fs::copy("/usr/share/zoneinfo/UTC", zones.join("UTC")).expect("every machine has it");
    directory.write("zones/Europe/Berlin", "TZif2, and then nothing");
    let check = |zone: &str| {
        let policy = format!("[policy.p]\nlimit = \"9/day\"\nby = []\ntime-zone = \"{zone}\"\n");
        let file =
            directory.write("gateway.toml", format!("{policy}[[route]]\nlimit = \"p\"\nto = \"echo\"\n"));
        let output = binary().arg("check").arg("--config").arg(file).env("TZDIR", &zones).output();
        said(&output.expect("the binary under test can be started"))
    };
    let damaged = check("Europe/Berlin");
    let file = zones.join("Europe/Berlin").display().to_string();
    assert!(damaged.contains(&format!("the file of this time zone is damaged: {file}")), "{damaged}");
    assert!(check("Europe/Berlim").contains("`Europe/Berlim` is not a time zone"));
}

#[test]
fn check_says_what_an_overshoot_is_a_share_of() {
    let config = |limit: &str| {
        format!(
            "[[route]]\npath = \"/\"\nto = \"echo\"\nlimit = \"p\"\n[policy.p]\nby = []\nlimit = \"{limit}\"\n\
             overshoot = \"5%\"\n[redis]\nurl = \"redis://127.0.0.1:1\"\n"
        )
    };
    let worst = |limit: &str, whole: &str| -> f64 {
        let said = said(&sluicegate(&["check", "--config", "FILE"], &config(limit)));
        let of = format!(": at most {whole} in one period (a full bucket, and the units that refill)");
        assert!(said.contains(&of), "{of} is not in\n{said}");
        let (_, share) = said.split_once("with Redis: at most ").expect("a fleet's overshoot is printed");
        let (units, _) = share.split_once(" more").expect("units");
        let of_whole = |units: &str| units.parse::<f64>().expect("a number");
        // Less than one unit of it is rounded up.
        100.0 * (of_whole(units) - 1.0) / of_whole(whole)
    };
    // Clocks drift, which is a little more.
    for (limit, whole) in [("200/s burst 100", "300"), ("100/s burst 200", "300"), ("6000/m", "12000")] {
        let share = worst(limit, whole);
        assert!((4.0..=5.05).contains(&share) || limit == "6000/m" && share <= 5.05, "{limit}: {share}");
    }
}

#[test]
fn check_says_how_to_hold_a_long_window_to_its_limit() {
    let config = |limit: &str| format!("[[route]]\npath = \"/\"\nto = \"echo\"\nlimit = \"{limit} by ip\"\n");
    let said_of = |limit: &str| said(&sluicegate(&["check", "--config", "FILE"], &config(limit)));
    let bare = said_of("100_000/d");
    assert!(bare.contains("100000/d burst 100000: at most 200000 in one period ("), "{bare}");
    for way in ["`burst` below 100000", "sliding-window", "`100000/day`"] {
        assert!(bare.contains(way), "{way} is not in\n{bare}");
    }
    for limit in ["100_000/d burst 99_999", "100/59m", "5 in flight"] {
        let short = said_of(limit);
        assert!(!short.contains("calendar"), "{limit}: {short}");
    }
}

#[test]
fn check_says_who_spends_a_limit_of_fewer_units_than_nodes() {
    for (limit, spenders) in [("1/h", 1), ("5/h", 5), ("5 in flight", 5), ("15/m", 15)] {
        for algorithm in ["token-bucket", "fixed-window"] {
            let config = format!(
                "[[route]]\npath = \"/\"\nto = \"echo\"\nlimit = \"p\"\n[policy.p]\nby = []\nlimit = \"{limit}\"\n\
                 algorithm = \"{algorithm}\"\novershoot = \"5%\"\n[redis]\nurl = \"redis://127.0.0.1:1\"\n"
            );
            let said = said(&sluicegate(&["check", "--config", "FILE"], &config));
            let who = format!(", because only {spenders} of the nodes admit a given key");
            assert!(said.contains("while Redis is down: ") && said.contains(&who), "{who} is not in\n{said}");
        }
    }
}

#[test]
fn what_stands_between_a_colon_and_an_at_sign_is_never_printed() {
    let urls = [
        "rediss//gate:hunter2@h",
        "redis:/gate:hunter2@h",
        "redis:gate:hunter2@h",
        "redsi://gate:hunter2@h",
        "gate:hunter2@h:6379/0",
        "redis://gate:hunter2@h:none",
        "redis://gate:hunter2@h/x",
        "redis://gate:hun,h:@ter2@",
        "http//gate:hunter2@h",
        "http://gate:hunter2@h/path",
        "https:gate:hunter2@h",
    ];
    let configs = [
        "[redis]\nurl = URL\n",
        "[redis]\nurl = URL\ntopology = \"cluster\"\ndeadline = \"2s\"\n",
        "[redis]\ntopology = \"ring\"\n[redis.ring]\nshards = [{ url = \"redis://a\" }, { url = URL, weight = 0 }]\n",
        "[redis]\ntopology = \"ring\"\n[redis.ring]\nshards = []\ndedicated = [{ url = URL, tenants = [] }]\n",
        "[redis]\ntopology = URL\nurl = \"redis://a\"\nprefix = URL\n",
        "[upstream.u]\nservers = [\"http://a\", URL]\n",
        "[upstream.u]\nservers = { url = URL, weight = 2 }\n",
        "[[route]]\npath = URL\nto = URL\nlimit = URL\nhost = URL\nredirect = URL\n",
        "[auth.a]\nkind = \"jwt\"\nkeys = { jwks = URL }\nissuer = 1\n",
        "[auth.a]\nkind = \"jwt\"\njwks = URL\nissuer = URL\naudience = 1\n",
        "[listener.a]\nbind = URL\nlog = URL\n",
        "[admin]\nbind = URL\n",
        "URL = 1\n",
        "a = 1\na = URL\n",
        "[redis]\nurl = \"\"\"\nURL\n\"\"\"\n",
        "[redis]\nurl = \"${URL}\"\n",
        "[redis]\nurl = \"x\" URL\n",
        "include = [URL]\n",
    ];
    for url in urls {
        let quotes = ["\"URL\"", "'URL'", "URL", "\"URL", "\"\"\"URL\"\"\""];
        let secret = &url[url.find("hun").expect("it is in each")..url.rfind('@').expect("it is in each")];
        for (config, quote) in configs.iter().flat_map(|config| quotes.map(|quote| (config, quote))) {
            let config = config.replace("URL", &quote.replace("URL", url));
            let said = said(&sluicegate(&["check", "--config", "FILE"], &config));
            assert!(
                !said.contains(secret) && !said.contains("hun") && !said.contains("ter2"),
                "{config}\n{said}"
            );
        }
    }
}

#[test]
fn check_reads_keys_and_users_and_names_the_line_that_is_wrong() {
    let directory = Directory::new();
    certify(&directory, "good", &["a.example"]);
    directory.write("keys.toml", "[[key]]\nsha256 = \"hunter2\"\nconsumer = \"ann\"\n");
    directory.write("users.toml", "[[user]]\nname = \"ann\"\nhash = \"hunter2\"\n");
    directory.write("jwks.json", "{ \"keys\": [] }");
    directory.write("no.pem", "nothing");
    let config = "[listener.a]\nbind = \"127.0.0.1:0\"\ncerts = [{ cert = \"good.pem\", key = \"good.key\" }]\n\
        client-ca = \"no.pem\"\n\
        [listener.b]\nbind = \"127.0.0.1:0\"\ncerts = [{ cert = \"good.pem\", key = \"good.key\" }]\n\
        client-ca = \"good.pem\"\nclient-crl = \"gone.pem\"\n\
        [auth.a]\nkind = \"api-key\"\nkeys = { file = \"keys.toml\" }\n\
        [auth.b]\nkind = \"basic\"\nusers = { file = \"users.toml\" }\n\
        [auth.c]\nkind = \"jwt\"\nkeys = { file = \"jwks.json\" }\nalgorithms = [\"ES256\"]\nissuer = \"me\"\n\
        audience = \"api\"\nconsumer = \"claim:sub\"\n\
        [[route]]\npath = \"/\"\nauth = [\"a\", \"b\", \"c\"]\nrespond = { status = 200 }\n\
        [listener.c]\nbind = \"127.0.0.1:0\"\ncerts = [{ cert = \"good.pem\", key = \"good.key\" }]\n\
        client-ca = \"good.pem\"\nclient-crl = \"no.pem\"\n";
    let file = directory.write("gateway.toml", config);
    let output = binary().args(["check", "--config"]).arg(file).output().expect("the binary can be started");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(78), "{said}");
    let places = [
        ("4:13", "no.pem"),
        ("9:14", "gone.pem"),
        ("12:8", "keys.toml:2: `digest` must be `sha256:` and 64"),
    ];
    let more = [
        ("15:9", "users.toml:3: `hash` must be an argon2id hash"),
        ("18:8", "jwks.json: it has no key"),
        ("31:14", "no.pem: no revocation list in it: write lists in PEM"),
    ];
    for (place, complaint) in places.into_iter().chain(more) {
        assert!(said.contains(&format!("gateway.toml:{place}")), "{place} is not in\n{said}");
        assert!(said.contains(complaint), "{complaint} is not in\n{said}");
    }
    assert!(said.contains("6 errors") && !said.contains("hunter2"), "{said}");
}

#[test]
fn check_reads_certificates_and_names_the_pair_that_is_wrong() {
    let directory = Directory::new();
    certify(&directory, "good", &["a.example"]);
    certify(&directory, "other", &["a.example"]);
    directory.write("empty.pem", "");
    let config = "[listener.t]\nbind = \"127.0.0.1:0\"\ncerts = [\n\
        { cert = \"good.pem\", key = \"good.key\" },\n\
        { cert = \"good.pem\", key = \"other.key\" },\n\
        { cert = \"empty.pem\", key = \"good.key\" },\n\
        { cert = \"made.pem\", key = \"made.key\", self-signed = true },\n\
        { cert = \"gone.pem\", key = \"gone.key\" },\n]\n";
    let file = directory.write("gateway.toml", format!("{config}{GOOD}"));
    let output = binary().args(["check", "--config"]).arg(&file).output();
    let output = output.expect("the binary under test can be started");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(78), "{said}");
    for place in ["gateway.toml:5:", "gateway.toml:6:", "gateway.toml:8:", "3 errors"] {
        assert!(said.contains(place), "{place} is not in\n{said}");
    }
    assert!(!said.contains("gateway.toml:4:") && !said.contains("gateway.toml:7:"), "{said}");
    assert!(!directory.join("made.pem").exists(), "check makes no files");
}

#[test]
fn check_warns_of_certificates_that_clients_refuse_for_their_time() {
    let directory = Directory::new();
    for (name, years) in [("old", [2019, 2020]), ("new", [2019, 2099]), ("early", [2098, 2099])] {
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
        [params.not_before, params.not_after] = years.map(|year| rcgen::date_time_ymd(year, 1, 1));
        let key = rcgen::KeyPair::generate().expect("a key");
        directory.write(&format!("{name}.pem"), params.self_signed(&key).expect("signed").pem());
        directory.write(&format!("{name}.key"), key.serialize_pem());
    }
    let nameless = rcgen::CertificateParams::new(Vec::new()).expect("no name");
    let key = rcgen::KeyPair::generate().expect("a key");
    directory.write("nameless.pem", nameless.self_signed(&key).expect("signed").pem());
    directory.write("nameless.key", key.serialize_pem());
    let authority = Authority::new("clients");
    directory.write("ca.pem", &authority.pem);
    directory.write("crl.pem", authority.revoking_until(&[1], 2025));
    let config = "[listener.t]\nbind = \"127.0.0.1:0\"\ncerts = [\n\
        { cert = \"old.pem\", key = \"old.key\" },\n\
        { cert = \"new.pem\", key = \"new.key\" },\n\
        { cert = \"early.pem\", key = \"early.key\" },\n\
        { cert = \"nameless.pem\", key = \"nameless.key\" },\n]\n\
        client-ca = \"ca.pem\"\nclient-crl = \"crl.pem\"\n\
        [upstream.u]\nservers = \"https://127.0.0.1:1\"\n\
        tls = { ca = \"ca.pem\", cert = \"old.pem\", key = \"old.key\" }\n\
        [[route]]\npath = \"/u\"\nto = \"u\"\n";
    let file = directory.write("gateway.toml", format!("{config}{GOOD}"));
    let output = binary().args(["check", "--config"]).arg(&file).output();
    let output = output.expect("the binary under test can be started");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for (place, wanted) in [
        ("gateway.toml:4:", "has expired"),
        ("gateway.toml:6:", "is not valid yet"),
        ("gateway.toml:7:", "nameless.pem has no subjectAltName: clients refuse it"),
        ("gateway.toml:10:", "crl.pem has expired: clients of its authority are refused"),
        ("gateway.toml:13:", "old.pem has expired: servers that verify it refuse the gateway"),
    ] {
        assert!(said.contains(place) && said.contains(wanted), "{place} {wanted} is not in\n{said}");
    }
    assert_eq!((said.matches("warning: ").count(), said.contains("gateway.toml:5:")), (5, false), "{said}");
}

#[test]
fn check_reads_the_authorities_of_redis() {
    let config = |ca: &str| format!("[redis]\nurl = \"rediss://127.0.0.1:1\"\nca = \"{ca}\"\n{GOOD}");
    let output = sluicegate(&["check", "--config", "FILE"], &config("/nonexistent/ca.pem"));
    let said = said(&output);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("gateway.toml:3:6") && said.contains("/nonexistent/ca.pem"), "{said}");
    let directory = Directory::new();
    certify(&directory, "ca", &["a.example"]);
    let ca = directory.join("ca.pem").display().to_string();
    assert_eq!(sluicegate(&["check", "--config", "FILE"], &config(&ca)).status.code(), Some(0));
}

#[test]
fn a_bad_configuration_never_starts() {
    let output = sluicegate(&["run", "--config", "FILE"], BAD);
    assert_eq!(output.status.code(), Some(78), "{}", said(&output));
    assert!(!said(&output).contains("listener"), "{}", said(&output));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let output = binary().args(["check", "--config", "/nonexistent/gateway.toml"]).output();
    let output = output.expect("the binary under test can be started");
    assert_eq!(output.status.code(), Some(78), "{}", said(&output));
    assert!(said(&output).contains("/nonexistent/gateway.toml"));
}

#[test]
fn the_effective_configuration_can_be_loaded_again() {
    let directory = Directory::new();
    // A secret that is masked is as long as it has to be.
    let secret = format!(
        "[auth.tokens]\nkind = \"jwt\"\naudience = \"a\"\nalgorithms = [\"HS512\"]\nsecret = \"{}\"\n",
        "s".repeat(64)
    );
    let config = complete(&format!("{GOOD}{secret}"), &directory);
    let first = sluicegate(&["check", "--effective", "--config", "FILE"], &config);
    assert_eq!(first.status.code(), Some(0), "{}", said(&first));
    let shown = text(&first.stdout);
    assert!(
        shown.contains("burst") && shown.contains("drain"),
        "defaults and shorthands are written out:\n{shown}"
    );
    // Only its secrets are missing.
    let filled = shown.replace("********", &"s".repeat(64));
    let second = sluicegate(&["check", "--effective", "--config", "FILE"], &filled);
    assert_eq!(second.status.code(), Some(0), "{}", said(&second));
    assert_eq!(text(&second.stdout), shown);
}

#[test]
fn a_mask_is_never_taken_for_a_secret() {
    let stars = "*".repeat(64);
    let upstream = format!("sticky = {{ cookie = \"at\", secret = \"{stars}\" }}");
    let route = |change: &str| format!("[[route]]\npath = \"/\"\nrespond = {{}}\n{change}\n");
    for (place, config) in [
        ("`token`", format!("[admin]\ntoken = \"{stars}\"\n")),
        ("`token`", "[admin]\ntoken = \"*\"\n".to_owned()),
        ("`token`", format!("[admin]\ntoken = \"${{SLUICEGATE_UNSET:-{stars}}}\"\n")),
        (
            "`secret`",
            format!(
                "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\nalgorithms = [\"HS256\"]\nsecret = \"{stars}\"\n"
            ),
        ),
        ("`secret`", format!("[upstream.u]\nservers = [\"http://a\"]\n{upstream}\n")),
        ("`key-secret`", format!("[redis]\nurl = \"redis://a\"\nkey-secret = \"{stars}\"\n")),
        ("the password of `url`", format!("[redis]\nurl = \"redis://gate:{stars}@a\"\n")),
        (
            "the password of `url`",
            format!(
                "[redis]\ntopology = \"ring\"\n[redis.ring]\nshards = [{{ url = \"redis://:{stars}@a\" }}]\n"
            ),
        ),
        ("`authorization`", route(&format!("headers = {{ set = {{ authorization = \"{stars}\" }} }}"))),
        ("`x-token`", route(&format!("response-headers = {{ add = {{ x-token = \"{stars}\" }} }}"))),
        ("`x-api-key`", route(&format!("match = {{ header = {{ x-api-key = \"{stars}\" }} }}"))),
    ] {
        for command in ["check", "run"] {
            let output = sluicegate(&[command, "-c", "FILE"], &config);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(78), "{config}{said}");
            let error = format!("error: {place} is only asterisks, the mask that `check --effective`");
            assert!(said.contains(&error) && said.matches("error: ").count() == 1, "{said}");
        }
    }
}

#[test]
fn secrets_are_not_shown() {
    let config = format!("{GOOD}[admin]\nbind = \"127.0.0.1:0\"\ntoken = \"hunter2-and-more\"\n");
    let output = sluicegate(&["check", "--effective", "--config", "FILE"], &config);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(!said(&output).contains("hunter2"), "{}", said(&output));
}

#[test]
fn version_is_printed() {
    let output = sluicegate(&["version"], "");
    assert_eq!(
        (output.status.code(), text(&output.stdout).trim()),
        (
            Some(0),
            concat!(
                "sluicegate ",
                env!("CARGO_PKG_VERSION"),
                "\nfeatures: acme, control, migrate, otlp, replay, rls, top"
            )
        )
    );
}

#[test]
fn wrong_usage_is_2() {
    let explain = ["explain", "GET", "example.com"];
    for arguments in [&["sprint"][..], &["run", "--speed"], &["explain"], &explain] {
        assert_eq!(sluicegate(arguments, GOOD).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn the_file_may_stand_before_the_command() {
    for arguments in [["-c", "FILE", "check"], ["check", "--config", "FILE"]] {
        assert_eq!(sluicegate(&arguments, GOOD).status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn explain_serves_no_method_that_the_gateway_does_not() {
    let config = "[[route]]\nrespond = {}\n[admin]\nbind = \"127.0.0.1:1\"";
    let output = sluicegate(&["explain", "TRACE", "/a", "-c", "FILE"], config);
    assert!(
        said(&output).contains("refused  501: the gateway does not support this request method"),
        "{}",
        said(&output)
    );
}

const REFUSED_TOKEN: &str = "this token is invalid: set SLUICEGATE_TOKEN to a token of [admin], or name its file with \
                             --token-file";

#[test]
fn explain_says_if_a_gateway_is_there_and_refuses() {
    let gateway = Gateway::start(
        "[admin]\nbind = \"127.0.0.1:0\"\ntoken = \"sesame\"\n[[route]]\npath = \"/\"\nrespond = {}\n",
    );
    let (addr, version) = (gateway.listener("admin"), env!("CARGO_PKG_VERSION"));
    for (token, note) in [
        ("sesame", format!("answered by the gateway on {addr} (sluicegate {version}, configuration 1)")),
        (
            "other",
            format!("the gateway on {addr} answers 401: {REFUSED_TOKEN}: explained from the file only"),
        ),
    ] {
        let config = format!(
            "[admin]\nbind = \"{addr}\"\ntoken = \"{token}\"\n[[route]]\npath = \"/\"\nrespond = {{}}\n"
        );
        let output = sluicegate(&["explain", "GET", "/", "-c", "FILE"], &config);
        let said = text(&output.stdout);
        assert_eq!(said.lines().find_map(|line| line.strip_prefix("note     ")), Some(&*note), "{said}");
    }
    // A file with a mistake keeps nobody from a gateway that is named.
    let url = format!("http://{addr}");
    for asked in [&["explain", "GET", "/"][..], &["explain", "--request", "none"], &["why", "ann"]] {
        let mut command = binary();
        command.args(asked).args(["--url", &url, "-c", "/nowhere.toml"]).env("SLUICEGATE_TOKEN", "sesame");
        let output = command.output().expect("it can be started");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!said.contains("nowhere") && !said.contains("answers 401"), "{asked:?}: {said}");
        let output = binary().args(asked).args(["--url", "http://127.0.0.1:1"]).output();
        let said = text(&output.expect("it can be started").stderr);
        assert!(said.contains("no gateway answers on 127.0.0.1:1 (Connection refused"), "{asked:?}: {said}");
    }
}

#[test]
fn explain_says_if_the_gateway_runs_another_configuration() {
    let port = crate::support::redis::free_port();
    let gateway = Gateway::start(&format!(
        "[admin]\nbind = \"127.0.0.1:{port}\"\n[[route]]\nname = \"one\"\npath = \"/\"\nrespond = {{}}\n"
    ));
    let running = gateway.admin("/config").text();
    let config = |name: &str| running.replace("name = \"one\"", &format!("name = \"{name}\""));
    let explain = |name: &str, more: &[&str]| {
        let arguments = [&["explain", "GET", "/", "-c", "FILE"][..], more].concat();
        text(&sluicegate(&arguments, &config(name)).stdout)
    };
    let same = explain("one", &[]);
    assert!(same.contains("note     answered by the gateway on 127.0.0.1:"), "{same}");
    assert!(same.contains("route    one") && !same.contains("differ from"), "{same}");
    let other = explain("two", &[]);
    assert!(
        other.contains("route    one") && other.contains("its environment variables differ from "),
        "{other}"
    );
    let offline = explain("two", &["--offline"]);
    assert!(offline.contains("route    two") && !offline.contains("answered by"), "{offline}");
    assert!(offline.contains("note     no gateway was asked: explained from the file only"), "{offline}");
}

#[test]
fn explain_shows_addresses_as_they_are_configured() {
    for (addresses, shown) in
        [("whole", "by ip 192.0.2.77:"), ("prefix", "by ip 192.0.2.0/24:"), ("hash", "by ip #")]
    {
        let config = format!(
            "[admin]\nbind = \"127.0.0.1:0\"\n[privacy]\naddresses = \"{addresses}\"\n\
             [[route]]\npath = \"/\"\nlimit = \"9/m by ip\"\nrespond = {{}}\n"
        );
        let gateway = Gateway::start(&config);
        let running = config.replace("127.0.0.1:0", &gateway.listener("admin").to_string());
        for more in [&[][..], &["--offline"]] {
            let arguments =
                [&["explain", "GET", "/", "--from", "192.0.2.77", "-c", "FILE"][..], more].concat();
            let said = text(&sluicegate(&arguments, &running).stdout);
            assert!(said.contains(shown), "{addresses}, {more:?}: {said}");
            assert_eq!(said.contains("192.0.2.77"), addresses == "whole", "{addresses}, {more:?}: {said}");
        }
    }
}

#[test]
fn explain_passes_the_bytes_of_a_header_on() {
    let gateway = Gateway::start(
        "[admin]\nbind = \"127.0.0.1:0\"\n[policy.p]\nby = [\"header:x-u\"]\nlimit = \"9/m\"\n\
         [[route]]\npath = \"/\"\nlimit = \"p\"\nrespond = {}\n",
    );
    let config = format!(
        "[admin]\nbind = \"{}\"\n[[route]]\npath = \"/\"\nrespond = {{}}\n",
        gateway.listener("admin")
    );
    let said = text(&sluicegate(&["explain", "GET", "/", "-H", "x-u: \u{fc}", "-c", "FILE"], &config).stdout);
    assert!(said.contains("header:x-u \"\\xc3\\xbc\""), "{said}");
}

#[test]
fn explain_says_which_route_and_which_limit() {
    let config = "[policy.p]\nby = [\"header:x-user\"]\nlimit = \"10/m\"\n\
                  [[route]]\nname = \"orders\"\npath = \"/orders/{id}\"\nlimit = \"p\"\nto = \"http://127.0.0.1:1\"\n\
                  [[route]]\nname = \"rest\"\npath = \"/{*rest}\"\nto = \"http://127.0.0.1:1\"\n";
    let url = "http://localhost/orders/7";
    let output = sluicegate(
        &["explain", "GET", url, "-H", "X-User: k", "--from", "203.0.113.9", "--config", "FILE"],
        config,
    );
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for expected in ["orders", "rest", "10", "p by header:x-user \"k\""] {
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
}

#[test]
fn explain_shows_who_is_counted_but_no_secret() {
    let config = "[[route]]\npath = \"/{id}\"\nto = \"echo\"\n\
                  limit = \"9/m by ip header:x-plan header:authorization header:cookie query:q param:id\"\n";
    let arguments = [
        &["explain", "GET", "/a%22b", "-H", "Authorization: Bearer hunter2", "-H", "Cookie: s=hunter3"][..],
        &["-H", "X-Plan: pro\u{e9}", "--from", "2001:db8::7", "--config", "FILE"][..],
    ];
    let said = said(&sluicegate(&arguments.concat(), config));
    let counted = "ip 2001:db8::, header:x-plan \"pro\\xc3\\xa9\", header:authorization ********, \
                   header:cookie ********, query:q is absent, so ip 2001:db8:: is counted instead, param:id \"a\\\"b\"";
    assert!(said.contains(counted), "{counted} is not in\n{said}");
    assert!(!said.contains("hunter"), "{said}");
}

#[test]
fn a_taken_port_is_an_error_that_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = taken.local_addr().expect("it is bound").to_string();
    let config = format!("[listener.plain]\nbind = \"{addr}\"\n{GOOD}[admin]\nbind = \"127.0.0.1:0\"\n");
    let output = sluicegate(&["run", "--config", "FILE"], &config);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains(&addr), "{}", said(&output));
}

#[test]
fn the_access_log_goes_to_standard_output_by_default() {
    let directory = Directory::new();
    let config = "[listener.plain]\nbind = \"127.0.0.1:0\"\n[admin]\nbind = \"127.0.0.1:0\"\n\
                  [[route]]\npath = \"/a\"\nrespond = { status = 200, body = \"ok\" }\n";
    let file = directory.write("gateway.toml", config);
    let mut child = binary()
        .args(["run", "--config"])
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary under test can be started");
    let mut said =
        BufReader::new(child.stderr.take().expect("it was asked for")).lines().map_while(Result::ok);
    let line = said.find(|line| line.contains("listener \"plain\"")).expect("it says where it listens");
    let (_, addr) = line.rsplit_once("://").expect("as a URL");
    assert_eq!(crate::support::get(addr.parse().expect("an address"), "/a").text(), "ok");
    let logged = BufReader::new(child.stdout.take().expect("it was asked for")).lines().next();
    crate::support::end(&mut child);
    let logged: serde_json::Value =
        serde_json::from_str(&logged.and_then(Result::ok).unwrap_or_default()).expect("a line of JSON");
    assert_eq!((logged["path"].as_str(), logged["status"].as_u64()), (Some("/a"), Some(200)));
}

#[test]
fn the_file_in_the_working_directory_is_the_one() {
    let directory = Directory::new();
    directory.write("gateway.toml", GOOD);
    let output = binary().arg("check").current_dir(directory.join("")).output();
    let output = output.expect("the binary under test can be started");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

#[test]
fn parts_of_a_configuration_may_lie_in_other_files() {
    let directory = Directory::new();
    std::fs::create_dir(directory.join("conf.d")).expect("the target directory is writable");
    directory.write("conf.d/a.toml", "[[route]]\npath = \"/a\"\nrespond = { status = 200, body = \"a\" }\n");
    let gateway = Gateway::start_in(directory, "include = [\"conf.d/*.toml\"]\n");
    assert_eq!(gateway.get("/a").text(), "a");
}

#[test]
fn values_come_from_the_environment_and_from_files() {
    let directory = Directory::new();
    let body = directory.write("body", "from a file");
    let gateway = Gateway::start_in(
        directory,
        &format!(
            "[[route]]\npath = \"/a\"\nrespond = {{ status = 200, body = \"${{file:{}}} ${{SLUICEGATE_UNSET:-and a default}}\" }}",
            body.display()
        ),
    );
    assert_eq!(gateway.get("/a").text(), "from a file and a default");
}

#[test]
fn a_gateway_that_is_ready_says_which_curl_to_try() {
    let gateway = Gateway::start(
        "[[route]]\npath = \"/{*rest}\"\nto = \"echo\"\n[[route]]\npath = \"/limited\"\nto = \"echo\"\nlimit = \"1/h by ip\"",
    );
    let line = eventually("the line", || gateway.stderr().into_iter().find(|line| line.contains("curl")));
    let url = line.strip_prefix("sluicegate: try  curl -i ").expect("it begins as it always does");
    assert_eq!(url, format!("http://{}/limited", gateway.plain()));
    let first = stdout_of("curl", &["-sS", "-i", url]);
    assert!(first.starts_with("HTTP/1.1 200 ") && first.contains("ratelimit: "), "{first}");
}

#[test]
fn the_curl_to_try_shows_no_path_that_came_from_a_file() {
    let directory = Directory::new();
    let token = directory.write("token", "hunter2-of-hooks").display().to_string();
    let config = format!("[[route]]\npath = \"/hook/${{file:{token}}}\"\nrespond = {{}}");
    let gateway = Gateway::start_in(directory, &config);
    let line = eventually("the line", || gateway.stderr().into_iter().find(|line| line.contains("curl")));
    assert_eq!(line, format!("sluicegate: try  curl -i http://{}/hook/********", gateway.plain()));
    assert_eq!(gateway.get("/hook/hunter2-of-hooks").status, 200);
}

#[test]
fn a_gateway_without_descriptors_for_its_workers_is_never_ready() {
    let directory = Directory::new();
    let file = directory.write("gateway.toml", complete("workers = 3\n", &directory)).display().to_string();
    let mut was_ready = false;
    for count in 10..60 {
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -n {count}; exec \"$0\" run --config \"$1\"")])
            .args([binary().get_program(), file.as_ref()])
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell can be started");
        let lines = BufReader::new(child.stderr.take().expect("it was asked for")).lines();
        let is_ready = lines.map_while(Result::ok).any(|line| line.starts_with("sluicegate: ready"));
        if is_ready {
            assert_eq!(workers(child.id()), 3, "with {count} descriptors");
            child.kill().expect("it is a child of ours");
        }
        let status = child.wait().expect("it is a child of ours");
        assert!(is_ready || status.code() == Some(1), "{status} with {count} descriptors");
        was_ready |= is_ready;
    }
    assert!(was_ready, "60 descriptors are enough");
}

/// How many threads of a process are workers.
fn workers(process: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("worker-")).count()
}
