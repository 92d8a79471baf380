//! Who may use a route once it is known who calls: requirements, addresses, other origins.

use super::keys::{KEYS, directory, entry};
use super::{Guarded, config};
use crate::support::{Gateway, Upstream};

#[test]
fn a_known_client_without_access_gets_403_and_is_charged() {
    let keys = entry("pro", "tier = \"pro\"\nclaims = { roles = [\"dev\", \"ops\"] }")
        + &entry("free", "tier = \"free\"\nclaims = { roles = [\"ops\"] }")
        + &entry("bare", "tier = \"pro\"");
    let extra = "require = { tiers = [\"pro\", \"internal\"], claims = { roles = [\"ops\", \"admin\"] } }\n\
                 limit = \"4/h by header:x-api-key\"";
    let guarded = Guarded::start(directory(&keys), KEYS, "\"keys\"", extra);
    assert_eq!(guarded.caller(&["X-Api-Key: pro"]), "ann - pro");
    for key in ["X-Api-Key: free", "X-Api-Key: bare"] {
        let answer = guarded.ask(&[key]);
        assert_eq!((answer.status, answer.json()["reason"].as_str()), (403, Some("forbidden")));
        assert_eq!((answer.header("www-authenticate"), answer.number("x-ratelimit-remaining")), (None, 3));
    }
    assert!(guarded.upstream.is_quiet());
    guarded.refuses(&["X-Api-Key: wrong"]);
    let line = guarded.gateway.logged_where("403", |line| line["status"] == 403);
    assert_eq!((line["consumer"].as_str(), line["reason"].as_str()), (Some("ann"), Some("forbidden")));
}

#[test]
fn addresses_are_let_in_by_listener_and_by_route() {
    let upstream = Upstream::ok();
    let route = |path: &str, lists: &str| {
        format!("[[route]]\npath = \"{path}\"\nto = \"http://{}\"\n{lists}\n", upstream.addr())
    };
    let gateway = Gateway::start(&format!(
        "[client-ip]\ntrust = [\"127.0.0.1\"]\n\
         [listener.plain]\nbind = \"127.0.0.1:0\"\ndeny = [\"203.0.113.0/24\"]\n\
         [listener.inner]\nbind = \"127.0.0.1:0\"\nallow = [\"10.0.0.0/8\", \"127.0.0.1\"]\n{}{}{}",
        route("/all", ""),
        route("/some", "allow = [\"192.0.2.0/24\", \"2001:db8::/32\"]\ndeny = [\"192.0.2.7\"]"),
        route("/limited", "deny = [\"192.0.2.7\"]\nlimit = \"1/h\""),
    ));
    let from = |listener: &str, path: &str, client: &str| {
        let field = format!("X-Forwarded-For: {client}");
        crate::support::Client::connect(gateway.listener(listener)).request("GET", path, &[&field], "")
    };
    let status = |path: &str, client: &str| from("plain", path, client).status;
    assert_eq!([status("/all", "192.0.2.1"), status("/all", "203.0.113.9")], [200, 403]);
    assert_eq!([status("/some", "192.0.2.1"), status("/some", "192.0.2.7")], [200, 403]);
    assert_eq!([status("/some", "2001:db8::1"), status("/some", "198.51.100.1")], [200, 403]);
    assert_eq!(status("/some", "::ffff:192.0.2.7"), 403, "IPv4 in IPv6 is IPv4");
    assert_eq!(status("/nowhere", "203.0.113.9"), 403, "not even what is there");
    assert_eq!([status("/limited", "192.0.2.7"), status("/limited", "192.0.2.8")], [403, 200], "uncharged");
    assert_eq!(from("inner", "/all", "10.1.2.3").status, 200);
    let answer = from("inner", "/all", "192.0.2.1");
    assert_eq!((answer.status, answer.json()["reason"].as_str()), (403, Some("address-denied")));
    assert_eq!(gateway.logged_where("403", |line| line["status"] == 403)["reason"], "address-denied");
}

const CORS: &str = "cors = { origins = [\"https://app.example.com\", \"https://*.example.org\"], \
                    headers = [\"x-api-key\"], expose = [\"x-request-id\"], credentials = true, max-age = \"1h\" }\n\
                    methods = [\"GET\", \"POST\"]";

fn preflight(guarded: &Guarded, origin: &str, method: &str) -> crate::support::Response {
    let fields = [
        format!("Origin: {origin}"),
        format!("Access-Control-Request-Method: {method}"),
        "Access-Control-Request-Headers: x-api-key, x-other".to_owned(),
    ];
    guarded.gateway.client().request("OPTIONS", "/", &fields.each_ref().map(String::as_str), "")
}

#[test]
fn preflights_are_answered_before_authentication() {
    let extra = format!("{CORS}\nlimit = \"1/h\"");
    let guarded = Guarded::start(directory(&entry("secret", "")), KEYS, "\"keys\"", &extra);
    for origin in ["https://app.example.com", "https://a.example.org"] {
        let answer = preflight(&guarded, origin, "POST");
        assert_eq!(answer.status, 204, "{answer:?}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
        assert_eq!(answer.header("access-control-allow-methods"), Some("GET, POST, HEAD"));
        assert_eq!(answer.header("access-control-allow-headers"), Some("x-api-key"));
        assert_eq!(answer.header("access-control-allow-credentials"), Some("true"));
        assert_eq!(answer.header("access-control-max-age"), Some("3600"));
        assert!(answer.all("vary").contains(&"Origin"));
        assert_eq!(answer.header("x-ratelimit-remaining"), None);
    }
    for origin in ["https://evil.example", "https://a.b.example.org", "http://app.example.com", "null"] {
        let answer = preflight(&guarded, origin, "POST");
        assert_eq!((answer.status, answer.json()["reason"].as_str()), (403, Some("origin-denied")));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    assert_eq!(preflight(&guarded, "https://app.example.com", "DELETE").status, 405, "no route takes it");
    assert!(guarded.upstream.is_quiet());
    assert_eq!(guarded.ask(&["X-Api-Key: secret"]).status, 200, "the one request there is is left");
}

#[test]
fn answers_and_refusals_are_for_the_origins_that_may() {
    let extra = format!("{CORS}\nlimit = \"1/h by header:x-api-key\"");
    let directory = directory(&(entry("secret", "") + &entry("other", "")));
    let mut guarded = Guarded::start(directory, KEYS, "\"keys\"", &extra);
    let own = Upstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nAccess-Control-Allow-Origin: *\r\nVary: Accept\r\n\r\nok",
    );
    guarded.gateway.reload(&config(&own, KEYS, "\"keys\"", &extra));
    guarded.upstream = own;
    let app = "Origin: https://app.example.com";
    let answer = guarded.ask(&["X-Api-Key: secret", app]);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
    assert_eq!(answer.header("access-control-expose-headers"), Some("x-request-id"));
    assert_eq!(answer.header("access-control-allow-credentials"), Some("true"));
    assert_eq!(answer.all("vary"), ["Accept", "Origin"]);
    for (fields, status) in [(&["X-Api-Key: secret", app][..], 429), (&["X-Api-Key: wrong", app], 401)] {
        let answer = guarded.ask(fields);
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
    }
    for stranger in ["Origin: https://evil.example", "X-No: origin"] {
        let answer = guarded.ask(&["X-Api-Key: other", stranger]);
        assert_eq!(answer.header("access-control-allow-origin"), None, "{answer:?}");
        assert_eq!(answer.all("vary").last(), Some(&"Origin"));
    }
    let twice = guarded.ask(&["X-Api-Key: other", app, "Origin: https://evil.example"]);
    assert_eq!(twice.header("access-control-allow-origin"), None);
}

#[test]
fn any_origin_may_where_that_is_written_and_any_header_too() {
    let guarded =
        Guarded::start(directory(&entry("secret", "")), KEYS, "\"keys\"", "cors = { origins = [\"*\"] }");
    let answer = preflight(&guarded, "https://anybody.example", "PUT");
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.header("access-control-allow-headers"), Some("x-api-key, x-other"));
    assert_eq!(answer.header("access-control-allow-methods"), Some("GET, HEAD, POST, PUT, PATCH, DELETE"));
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    let answer = guarded.ask(&["X-Api-Key: secret", "Origin: https://anybody.example"]);
    assert_eq!((answer.header("access-control-allow-origin"), answer.header("vary")), (Some("*"), None));
}

#[test]
fn an_options_request_that_is_no_preflight_is_like_any_other() {
    let guarded =
        Guarded::start(directory(&entry("secret", "")), KEYS, "\"keys\"", "cors = { origins = [\"*\"] }");
    let ask = |fields: &[&str]| guarded.gateway.client().request("OPTIONS", "/", fields, "").status;
    assert_eq!(ask(&[]), 401);
    assert_eq!(ask(&["X-Api-Key: secret", "Origin: https://a.example"]), 200);
    assert_eq!(guarded.upstream.request().line, "OPTIONS / HTTP/1.1");
}
