//! What `explain` says beside what the gateway does with the same request.

use crate::support::gateway::binary;
use crate::support::redis::{Redis, free_port};
use crate::support::{Directory, Gateway, Response, eventually};

const CONFIG: &str = r#"
[client-ip]
trust = ["127.0.0.2/32"]
[listener.plain]
bind = "127.0.0.1:0"
deny = ["192.0.2.66/32", "127.0.0.3/32"]
max = { uri-bytes = 64 }
[listener.old]
bind = "127.0.0.1:0"
redirect = "https"
[policy.priced]
by = ["ip"]
limit = "10/h"
cost = { default = 1, header = "x-cost", max = 9 }
[[route]]
name = "orders"
path = "/orders"
methods = ["GET"]
limit = "priced"
cors = { origins = ["https://app.example"], methods = ["GET"] }
respond = { status = 200 }
"#;

/// What the configuration says of each listener's port.
const ANY: &str = "bind = \"127.0.0.1:0\"";

/// One request, as explained and as answered.
struct Asked<'a> {
    gateway: &'a Gateway,
    method: &'a str,
    target: &'a str,
    fields: &'a [&'a str],
    from: [u8; 4],
}

impl Asked<'_> {
    fn explained(&self) -> serde_json::Value {
        let mut query = format!("/v1/explain?method={}&url={}", self.method, self.target.replace('%', "%25"));
        for field in self.fields {
            query.push_str(&format!("&header={}", field.replace(' ', "%20")));
        }
        let [a, b, c, d] = self.from;
        self.gateway.admin(&format!("{query}&from={a}.{b}.{c}.{d}")).json()
    }

    fn answered(&self) -> Response {
        let mut client = crate::support::Client::connect_from(self.from, self.gateway.plain());
        client.request(self.method, self.target, self.fields, "")
    }
}

#[test]
fn explain_refuses_what_the_gateway_refuses() {
    let gateway = Gateway::start(CONFIG);
    let long = format!("/{}", "a".repeat(80));
    let preflight = ["origin: https://evil.example", "access-control-request-method: GET"];
    let welcome = ["origin: https://app.example", "access-control-request-method: GET"];
    let cases: [(&str, &str, &[&str], u8, u16); 11] = [
        ("GET", "/orders", &[], 1, 200),
        ("GET", "/nothing", &[], 1, 404),
        ("DELETE", "/orders", &[], 1, 405),
        ("TRACE", "/orders", &[], 1, 501),
        ("GET", &long, &[], 1, 414),
        ("GET", "/a%2fb", &[], 1, 400),
        ("GET", "/orders", &["x_real_ip: 1"], 1, 400),
        ("GET", "/orders", &["expect: tea"], 1, 417),
        ("GET", "/orders", &[], 3, 403),
        ("OPTIONS", "/orders", &preflight, 1, 403),
        ("OPTIONS", "/orders", &welcome, 1, 204),
    ];
    for (method, target, fields, last, status) in cases {
        let asked = Asked { gateway: &gateway, method, target, fields, from: [127, 0, 0, last] };
        let explained = asked.explained();
        let refused = explained["refused"].as_str().and_then(|text| text.split(':').next()?.parse().ok());
        assert_eq!(asked.answered().status, status, "{method} {target}");
        assert_eq!(refused, (status >= 400).then_some(status), "{method} {target}: {explained}");
    }
}

#[test]
fn explain_names_the_route_of_a_path_that_is_refused() {
    let gateway = Gateway::start(&CONFIG.replace("path = \"/orders\"", "path = \"/orders/{*rest}\""));
    let said = |method, target| {
        let asked = Asked { gateway: &gateway, method, target, fields: &[], from: [127, 0, 0, 1] };
        asked.explained()["text"].as_str().expect("a text").to_owned()
    };
    let encoded = said("GET", "/orders/1%2F2");
    assert!(encoded.contains("route    orders, but the request is refused before\n"), "{encoded}");
    assert!(!encoded.contains("not      orders"), "{encoded}");
    assert!(said("get", "/orders/1").contains("other methods, which are case-sensitive"));
}

#[test]
fn explain_finds_the_client_and_its_cost_as_requests_do() {
    let gateway = Gateway::start(CONFIG);
    let cost = |from: [u8; 4], fields: &[&str]| {
        let asked = Asked { gateway: &gateway, method: "GET", target: "/orders", fields, from };
        let limit = asked.explained()["limits"][0].clone();
        let left = asked.answered().number("x-ratelimit-remaining");
        assert_eq!(limit["remaining"], left, "{from:?} {fields:?}: {limit}");
        (limit["key"]["ip"].as_str().map(str::to_owned), limit["cost"].as_u64())
    };
    let through = ["x-forwarded-for: 203.0.113.7", "x-cost: 4"];
    assert_eq!(cost([127, 0, 0, 1], &through), (Some("127.0.0.1".to_owned()), Some(1)));
    assert_eq!(cost([127, 0, 0, 2], &through), (Some("203.0.113.7".to_owned()), Some(4)));
    // The listener denies by the client's address, too.
    let fields = ["x-forwarded-for: 192.0.2.66"];
    let denied =
        Asked { gateway: &gateway, method: "GET", target: "/orders", fields: &fields, from: [127, 0, 0, 2] };
    assert_eq!(denied.answered().status, 403);
    assert!(denied.explained()["refused"].as_str().is_some_and(|it| it.starts_with("403")));
}

#[test]
fn explain_takes_the_listener_that_the_url_names() {
    let ports = [free_port(), free_port()];
    let [plain, old] = ports.map(|port| format!("bind = \"127.0.0.1:{port}\""));
    let gateway = Gateway::start(&CONFIG.replacen(ANY, &plain, 1).replacen(ANY, &old, 1));
    let old = gateway.listener("old");
    let shown = gateway.admin(&format!("/v1/explain?url=http://{old}/orders")).json();
    assert!(shown["goes-to"].as_str().is_some_and(|it| it.contains("redirects to https")), "{shown}");
    let plain = gateway.plain();
    assert_eq!(gateway.admin(&format!("/v1/explain?url=http://{plain}/orders")).json()["route"], "orders");
}

#[test]
fn explain_does_not_charge_a_retry() {
    let redis = Redis::start(&[]);
    // Redis has time enough to know a key: a retry whose key it does not name in time is charged.
    let shared = format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"500ms\"\n", redis.addr());
    for shared in [String::new(), shared] {
        let gateway = Gateway::start(&format!(
            "[policy.p]\nby = [\"ip\"]\nlimit = [\"1/h\", \"3 in flight\"]\n\
             idempotency-key = {{ key = \"header:idempotency-key\", by-address = true }}\n\
             penalty = {{ after = 1, within = \"1h\", factor = 2, max = \"5h\" }}\n{shared}\
             [[route]]\npath = \"/a\"\nlimit = \"p\"\nrespond = {{}}\n"
        ));
        let ask = |key: &str| {
            let fields = [format!("idempotency-key: {key}")];
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            let asked = Asked {
                gateway: &gateway,
                method: "GET",
                target: "/a",
                fields: &fields,
                from: [127, 0, 0, 1],
            };
            let limits = asked.explained()["limits"].clone();
            (limits, asked.answered().status)
        };
        let (limits, status) = ask("one");
        assert_eq!((&limits[0]["paid"], status), (&false.into(), 200), "{limits}");
        eventually("the key is known", || (ask("one").0[0]["paid"] == true).then_some(()));
        // Others are refused until they are penalised; the retry is admitted all the same.
        assert_eq!([ask("two").1, ask("two").1, ask("two").1], [429; 3]);
        let (limits, _) = ask("two");
        assert_eq!(
            (&limits[0]["penalty"], &limits[0]["admitted"]),
            (&true.into(), &false.into()),
            "{limits}"
        );
        let (limits, status) = ask("one");
        assert_eq!((&limits[0]["paid"], &limits[0]["penalty"]), (&true.into(), &false.into()), "{limits}");
        assert_eq!((&limits[0]["admitted"], status), (&true.into(), 200), "{limits}");
        assert_eq!(
            (&limits[1]["paid"], &limits[1]["cost"]),
            (&false.into(), &1.into()),
            "a retry is in flight"
        );
    }
}

/// The status with which an explanation refuses.
fn refused(explained: &serde_json::Value) -> Option<u16> {
    explained["refused"].as_str()?.split(':').next()?.parse().ok()
}

#[test]
fn explain_applies_the_bounds_of_the_listener_to_fields() {
    let config = "[listener.plain]\nbind = \"127.0.0.1:0\"\n\
                  max = { headers = 20, header-bytes = \"1KiB\", body = \"1KiB\" }\n\
                  [[route]]\npath = \"/\"\nrespond = {}\n[[route]]\npath = \"/big\"\nmax-body = \"1MiB\"\nrespond = {}\n";
    let gateway = Gateway::start(config);
    let many: Vec<String> = (0..25).map(|index| format!("x-{index}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let long = format!("x-long: {}", "a".repeat(1100));
    let cases: [(&str, &[&str], u16); 10] = [
        ("/", &[], 200),
        ("/", &many, 431),
        ("/", &[&long], 431),
        ("/", &["content-length: abc"], 400),
        ("/", &["content-length: 1", "content-length: 1"], 400),
        ("/", &["content-length: 1", "transfer-encoding: chunked"], 400),
        ("/", &["transfer-encoding: gzip"], 501),
        ("/", &["content-length: 2000"], 413),
        ("/big", &["content-length: 2000000"], 413),
        ("/", &["transfer-encoding: chunked, chunked"], 400),
    ];
    for (target, fields, status) in cases {
        let asked = Asked { gateway: &gateway, method: "POST", target, fields, from: [127, 0, 0, 1] };
        let explained = asked.explained();
        assert_eq!(refused(&explained), (status >= 400).then_some(status), "{fields:?}: {explained}");
        assert_eq!(asked.answered().status, status, "{fields:?}");
    }
}

#[test]
fn explain_takes_the_listener_on_the_address_of_the_url() {
    let port = free_port();
    let gateway = Gateway::start(&format!(
        "[listener.a]\nbind = \"127.0.0.1:0\"\nredirect = \"https\"\n\
         [listener.b]\nbind = \"127.0.0.2:{port}\"\ndeny = [\"127.0.0.0/8\"]\n\
         [listener.c]\nbind = \"127.0.0.1:{port}\"\n\
         [listener.d]\nbind = \"[::1]:{port}\"\nredirect = \"https\"\n\
         [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\nrespond = {{}}\n"
    ));
    let ask =
        |method: &str, url: &str| gateway.admin(&format!("/v1/explain?method={method}&url={url}")).json();
    let listener = |url: &str| ask("GET", url)["listener"].as_str().unwrap_or_default().to_owned();
    assert_eq!(refused(&ask("GET", &format!("http://127.0.0.2:{port}/"))), Some(403));
    assert_eq!(ask("GET", &format!("http://127.0.0.1:{port}/"))["route"], "all");
    let sixth = ask("GET", &format!("http://[::1]:{port}/"));
    assert!(sixth["goes-to"].as_str().is_some_and(|it| it.contains("listener d")), "{sixth}");
    // curl tries ::1 first for this name.
    assert_eq!(listener(&format!("http://localhost:{port}/")), format!("d on [::1]:{port}"));
    // What is guessed is said.
    let named = listener(&format!("http://name.example:{port}/"));
    assert_eq!(named, format!("b on 127.0.0.2:{port} (the first of 3 on port {port})"));
    let other = listener(&format!("http://127.0.0.3:{port}/"));
    assert!(other.ends_with(&format!("(a guess: no listener is on 127.0.0.3:{port})")), "{other}");
    let nobody = listener("http://name.example:1/");
    assert!(nobody.ends_with("(a guess: no listener is on port 1)"), "{nobody}");
    // A path alone is not for a listener that only redirects.
    assert!(listener("/v1/x").starts_with("b on "), "{}", listener("/v1/x"));
    let tls = ask("GET", &format!("https://127.0.0.1:{port}/"));
    assert!(tls["refused"].as_str().is_some_and(|it| it.starts_with("no HTTP response")), "{tls}");
    let server = ask("OPTIONS", "*");
    assert!(
        server["goes-to"].as_str().is_some_and(|it| it.contains("OPTIONS *"))
            || refused(&server) == Some(403)
    );
}

#[test]
fn explain_comes_from_where_a_client_on_this_machine_does() {
    let directory = crate::support::Directory::new();
    let socket = directory.join("gate.sock").display().to_string();
    let port = free_port();
    let gateway = Gateway::start(&format!(
        "[client-ip]\ntrust = [\"unix\"]\n[listener.six]\nbind = \"[::1]:{port}\"\n\
         [listener.unix]\nbind = \"unix:{socket}\"\n\
         [policy.p]\nby = [\"ip\"]\nlimit = \"9/m\"\n\
         [[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nrespond = {{}}\n"
    ));
    let ask = |query: &str| gateway.admin(&format!("/v1/explain?{query}")).json();
    let six = ask(&format!("url=http://[::1]:{port}/"));
    assert_eq!(six["limits"][0]["key"]["ip"], "::", "{six}");
    let unix = ask("url=/&from=unix&header=x-forwarded-for:203.0.113.7");
    assert_eq!(unix["limits"][0]["key"]["ip"], "203.0.113.7", "{unix}");
    assert!(unix["listener"].as_str().is_some_and(|it| it.starts_with("unix on unix:")), "{unix}");
}

#[test]
fn explain_reads_a_url_as_curl_does() {
    let directory = crate::support::Directory::new();
    crate::support::tls::certify(&directory, "good", &["a.example"]);
    directory.write("ca.pem", std::fs::read_to_string(directory.join("good.pem")).expect("it was made"));
    let port = free_port();
    let gateway = Gateway::start_in(
        directory,
        &format!(
            "[listener.tls]\nbind = \"127.0.0.1:{port}\"\nclient-ca = \"ca.pem\"\nclient-cert = \"ask\"\n\
             certs = [{{ cert = \"good.pem\", key = \"good.key\" }}]\n\
             [listener.plain]\nbind = \"127.0.0.1:0\"\n\
             [auth.certificates]\nkind = \"mtls\"\nconsumer = \"san:email\"\n[auth.anybody]\nkind = \"anonymous\"\n\
             [[route]]\nname = \"all\"\npath = \"/{{*rest}}\"\nrespond = {{}}\n\
             [[route]]\npath = \"/mtls\"\nauth = \"certificates\"\nrespond = {{}}\n\
             [[route]]\npath = \"/either\"\nauth = [\"certificates\", \"anybody\"]\nrespond = {{}}\n"
        ),
    );
    let ask = |url: &str| gateway.admin(&format!("/v1/explain?url={url}&header=host:name.example")).json();
    // No name is sent in the hello for an address, so the host may be any.
    assert_eq!(ask(&format!("https://127.0.0.1:{port}/"))["route"], "all");
    assert_eq!(refused(&ask(&format!("https://other.example:{port}/"))), Some(421));
    let user = gateway.admin(&format!("/v1/explain?url=https://me:secret@a.example:{port}/")).json();
    assert_eq!((&user["route"], &user["refused"]), (&"all".into(), &serde_json::Value::Null), "{user}");
    // What only a certificate tells is not known.
    let mtls = ask(&format!("https://127.0.0.1:{port}/mtls"));
    assert_eq!(mtls["refused"], serde_json::Value::Null, "{mtls}");
    assert!(mtls["identity"].as_str().is_some_and(|it| it.contains("only a real request shows")), "{mtls}");
    let either = ask(&format!("https://127.0.0.1:{port}/either"));
    assert!(
        either["identity"].as_str().is_some_and(|it| it.contains("unless [auth.certificates]")),
        "{either}"
    );
}

#[test]
fn explain_and_the_gateways_log_show_no_secret_of_the_configuration() {
    let directory = Directory::new();
    directory.write("hidden", "hunter2\n");
    let config = "[admin]\nbind = \"127.0.0.1:0\"\n[listener.plain]\nbind = \"127.0.0.1:0\"\n\
                  [upstream.nowhere]\nservers = \"http://${file:hidden}.invalid\"\n\
                  [[route]]\npath = \"/old\"\nredirect = { to = \"https://a.example/${file:hidden}\" }\n\
                  [[route]]\npath = \"/new\"\nto = \"nowhere\"\nrewrite = \"/${file:hidden}/a\"\n";
    let file = directory.write("gateway.toml", config);
    let offline = |path: &str| {
        let mut command = binary();
        let output = command.args(["explain", "--offline", "GET", path, "--config"]).arg(&file).output();
        String::from_utf8(output.expect("it starts").stdout).expect("text")
    };
    let gateway = Gateway::start_in(directory, config);
    for (path, shown) in [("/old", "a redirect to https://a.example/********"), ("/new", "as /********/a")] {
        let explained = gateway.admin(&format!("/v1/explain?method=GET&url={path}")).json();
        let goes_to = explained["goes-to"].as_str().unwrap_or_default();
        assert!(goes_to.ends_with(shown) && !explained.to_string().contains("hunter2"), "{explained}");
        let offline = offline(path);
        assert!(offline.contains(shown) && !offline.contains("hunter2"), "{offline}");
    }

    let told = || gateway.stderr().into_iter().find(|line| line.contains("does not resolve"));
    let line = eventually("the name does not resolve", told);
    assert!(line.contains("server=********.invalid"), "{line}");
}
