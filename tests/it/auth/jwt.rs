//! Signed tokens: whose word is taken, and how keys come and go at their issuer.

use std::sync::{Arc, Mutex};

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, get_current_timestamp};
use serde_json::{Value, json};

use super::{Guarded, config};
use crate::support::upstream::Recorded;
use crate::support::{Directory, Gateway, Upstream, eventually, text, tls};

/// A key of an issuer.
pub struct Key {
    kid: String,
    pair: rcgen::KeyPair,
}

impl Key {
    pub fn new(kid: &str) -> Key {
        Key { kid: kid.to_owned(), pair: rcgen::KeyPair::generate().expect("a pair") }
    }

    fn private(&self) -> EncodingKey {
        EncodingKey::from_ec_pem(self.pair.serialize_pem().as_bytes()).expect("a private key")
    }

    pub fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.kid.clone()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &self.private()).expect("the key fits")
    }

    /// A good token for `ann`, as a field of a request.
    pub(super) fn field(&self) -> String {
        format!("Authorization: Bearer {}", self.sign(&claims()))
    }

    fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.private(), Algorithm::ES256).expect("a public key");
        jwk.common.key_id = Some(self.kid.clone());
        serde_json::to_value(jwk).expect("JSON")
    }
}

pub(super) fn claims() -> Value {
    let now = get_current_timestamp();
    json!({ "iss": "me", "aud": ["api"], "sub": "ann", "org": "acme", "plan": "pro", "exp": now + 300 })
}

pub fn set(keys: &[&Key]) -> String {
    json!({ "keys": keys.iter().map(|key| key.jwk()).collect::<Value>() }).to_string()
}

pub(super) fn ways(source: &str) -> String {
    format!(
        "[auth.jwt]\nkind = \"jwt\"\n{source}\nalgorithms = [\"ES256\"]\nissuer = \"me\"\naudience = \"api\"\n\
         consumer = \"claim:sub\"\ntenant = \"claim:org\"\ntier = \"claim:plan\"\n"
    )
}

/// An issuer that publishes what it is told to.
struct Issuer {
    server: Upstream,
    published: Arc<Mutex<String>>,
}

impl Issuer {
    fn publishing(keys: &[&Key]) -> Issuer {
        let published = Arc::new(Mutex::new(set(keys)));
        let shown = Arc::clone(&published);
        let server = Upstream::replying(move |_: &Recorded| {
            let body = shown.lock().expect("nobody panics with it").clone();
            let status = if body.is_empty() { "503 No" } else { "200 OK" };
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
        });
        Issuer { server, published }
    }

    /// Publishes this from now on; nothing: it is down.
    fn publish(&self, text: &str) {
        text.clone_into(&mut self.published.lock().expect("nobody panics with it"));
    }

    /// How the gateway is told of it.
    fn source(&self, fetch: &str) -> String {
        format!("jwks = \"http://{}/keys\"\nfetch = {{ {fetch} }}", self.server.addr())
    }
}

fn guarded(source: &str) -> Guarded {
    Guarded::start(Directory::new(), &ways(source), "\"jwt\"", "")
}

#[test]
fn a_token_identifies_its_client_and_a_wrong_one_does_not() {
    let (key, other) = (Key::new("one"), Key::new("one"));
    let directory = Directory::new();
    directory.write("jwks.json", set(&[&key]));
    let guarded = Guarded::start(directory, &ways("keys = { file = \"jwks.json\" }"), "\"jwt\"", "");
    let good = key.field();
    assert_eq!(guarded.caller(&[&good]), "ann acme pro");
    assert_eq!(guarded.caller(&[&good]), "ann acme pro", "from memory");
    let expired = {
        let mut claims = claims();
        claims["exp"] = (get_current_timestamp() - 60).into();
        key.sign(&claims)
    };
    let unsigned = good.rsplit_once('.').expect("three parts").0.to_owned();
    for wrong in [
        other.field(),
        format!("Authorization: Bearer {expired}"),
        format!("{unsigned}."),
        format!("{good}, Bearer x"),
        format!("Authorization: Bearer {}", "a.".repeat(12_000)),
        "Authorization: Bearer \u{ff}.\u{fe}.é".to_owned(),
        "Authorization: Bearer eyJhbGciOiJub25lIn0.e30.".to_owned(),
    ] {
        let answer = guarded.refuses(&[&wrong]);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"jwt\""));
    }
    guarded.refuses(&[&good, &good]);
    assert!(!text(&guarded.gateway.access_log_bytes()).contains("eyJ"), "no token is logged");
    assert!(!guarded.gateway.stderr().iter().any(|line| line.contains("eyJ")));
}

#[test]
fn a_token_without_a_name_identifies_no_consumer() {
    let key = Key::new("one");
    let directory = Directory::new();
    directory.write("jwks.json", set(&[&key]));
    let guarded = Guarded::start(
        directory,
        &ways("keys = { file = \"jwks.json\" }"),
        "\"jwt\"",
        "limit = \"3/h by consumer\"",
    );
    let named = |name: Value| {
        let mut claims = claims();
        claims["sub"] = name;
        format!("Authorization: Bearer {}", key.sign(&claims))
    };
    let mut missing = claims();
    missing.as_object_mut().expect("an object").remove("sub");
    guarded.refuses(&[&format!("Authorization: Bearer {}", key.sign(&missing))]);
    for nobody in [json!(null), json!(""), json!(true), json!(4.5), json!(42.0), json!(["ann"]), json!({})] {
        guarded.refuses(&[&named(nobody)]);
    }
    // An id of a database is a name in its digits, and has one count however it is written.
    assert_eq!(guarded.caller(&[&named(json!(42))]), "42 acme pro");
    assert_eq!(guarded.ask(&[&named(json!("42"))]).number("x-ratelimit-remaining"), 1);
}

#[test]
fn a_token_that_says_what_no_field_can_is_refused() {
    let key = Key::new("one");
    let directory = Directory::new();
    directory.write("jwks.json", set(&[&key]));
    let ways = ways("keys = { file = \"jwks.json\" }");
    let fields = "response-headers = { set = { x-roles = \"{claim:roles}\" } }\nlimit = \"100/h by consumer\"\n\
                  [[route]]\npath = \"/fixed/{what}\"\nauth = \"jwt\"\n\
                  respond = { headers = { x-what = \"<{what}> {claim:roles}\" } }\n\
                  [[route]]\npath = \"/named/{what}\"\nresponse-headers = { add = { x-what = \"{what}\" } }\nrespond = {}";
    let guarded = Guarded::start(directory, &ways, "\"jwt\"", fields);
    let named = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        format!("Authorization: Bearer {}", key.sign(&claims))
    };
    let unfit = [" acme", "acme ", "\tacme", "ac\nme", "acme\r", "ac\u{0}me", "\u{7f}", " "];
    for (name, unfit) in
        ["sub", "org", "plan", "roles"].iter().flat_map(|name| unfit.map(|unfit| (name, unfit)))
    {
        let token = named(name, json!(unfit));
        let refused = guarded.refuses(&[&token]);
        assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"jwt\""));
        assert_eq!(refused.number("x-ratelimit-limit"), 100, "it is charged like any other");
        let id = refused.header("x-request-id").expect("an id").to_owned();
        let line = guarded.gateway.logged_where("the refusal", |line| line["request_id"] == *id);
        assert_eq!(line["cause"], "identity-unfit", "{name} {unfit:?}");
    }
    let encoded: String = named("org", json!("x ")).bytes().map(|byte| format!("%{byte:02X}")).collect();
    let explained = guarded.gateway.admin(&format!("/v1/explain?url=/&header={encoded}")).json();
    assert!(
        explained["text"].as_str().is_some_and(|text| text.contains("401: a claim or a name")),
        "{explained}"
    );
    // What is missing or empty leaves its field out, and blanks within are no fault.
    assert_eq!(guarded.caller(&[&named("org", json!(""))]), "ann - pro");
    assert_eq!(guarded.caller(&[&named("org", json!("ac me \u{e9}"))]), "ann ac me \u{e9} pro");
    let ask = |path: &str, token: &str| guarded.gateway.client().request("GET", path, &[token], "");
    let good = named("roles", json!(["a", "b"]));
    assert_eq!(ask("/fixed/%20x%20", &good).header("x-what"), Some("< x > a,b"));
    assert_eq!(ask("/fixed/x", &named("roles", json!(["a", "b "]))).status, 401);
    for (path, status) in
        [("/fixed/%0A", 400), ("/named/%20x", 400), ("/named/x%20", 400), ("/named/x%20y", 200)]
    {
        assert_eq!(ask(path, &good).status, status, "{path}");
    }
}

#[test]
fn the_first_method_that_recognises_the_client_counts() {
    let key = Key::new("one");
    let directory = Directory::new();
    directory.write("jwks.json", set(&[&key]));
    directory.write("keys.toml", "");
    let all = ways("keys = { file = \"jwks.json\" }")
        + "[auth.keys]\nkind = \"api-key\"\npass = false\nkeys = { file = \"keys.toml\" }\n\
           [auth.open]\nkind = \"anonymous\"\nconsumer = \"guest\"\n";
    let guarded = Guarded::start(directory, &all, "[\"keys\", \"jwt\", \"open\"]", "");
    assert_eq!(guarded.caller(&[&key.field()]), "ann acme pro", "the bearer is no key but a token");
    let forged = guarded.ask(&[&key.field(), "X-Api-Key: forged"]);
    let request = guarded.upstream.request();
    assert_eq!(
        (forged.status, request.header("x-api-key")),
        (200, None),
        "keys are not passed on, good or bad"
    );
    assert_eq!(guarded.caller(&[]), "guest - -");
    let answer = guarded.refuses(&["Authorization: Bearer x"]);
    let challenges = answer.all("www-authenticate");
    assert_eq!(challenges, ["Bearer realm=\"keys\"", "Bearer realm=\"jwt\""]);
}

#[test]
fn keys_are_there_before_the_first_request_and_an_issuer_that_is_down_changes_nothing() {
    let key = Key::new("one");
    let issuer = Issuer::publishing(&[&key]);
    let down = Issuer::publishing(&[]);
    let without = guarded(&down.source("every = \"1s\", pause = \"1s\""));
    let said = "JWT keys not fetched: there are none yet, so every token gets 401";
    // It has failed twice, and the third attempt begins.
    (0..3).for_each(|_| drop(down.server.request()));
    let complaints = |line: &String| line.contains(said);
    assert_eq!(without.gateway.stderr().iter().filter(|line| complaints(line)).count(), 1);
    let guarded = guarded(&issuer.source("every = \"1s\", pause = \"1s\""));
    assert_eq!(issuer.server.request().line, "GET /keys HTTP/1.1");
    assert_eq!(guarded.ask(&[&key.field()]).status, 200);
    issuer.publish("");
    let said = "JWT keys not fetched: the previous keys stay in use";
    eventually("the complaint", || {
        guarded.gateway.stderr().iter().any(|line| line.contains(said)).then_some(())
    });
    assert_eq!(guarded.ask(&[&key.field()]).status, 200);
    issuer.publish("{\"keys\":[]}");
    let said = "it has no key for the allowed";
    eventually("the complaint", || {
        guarded.gateway.stderr().iter().any(|line| line.contains(said)).then_some(())
    });
    assert_eq!(guarded.ask(&[&key.field()]).status, 200);
}

#[test]
fn a_new_key_is_fetched_when_a_token_names_it_and_an_old_one_is_forgotten() {
    let (old, new) = (Key::new("old"), Key::new("new"));
    let issuer = Issuer::publishing(&[&old]);
    let guarded = guarded(&issuer.source("every = \"1h\", pause = \"1s\""));
    let (by_old, by_new) = (old.field(), new.field());
    assert_eq!(guarded.ask(&[&by_old]).status, 200);
    issuer.publish(&set(&[&new]));
    eventually("the new key", || (guarded.ask(&[&by_new]).status == 200).then_some(()));
    assert_eq!(guarded.ask(&[&by_old]).status, 401, "though it was believed before");
}

#[test]
fn unknown_key_names_start_no_flood_of_fetches() {
    let key = Key::new("one");
    let issuer = Issuer::publishing(&[&key]);
    let guarded = guarded(&issuer.source("every = \"1h\", pause = \"30s\""));
    issuer.server.request();
    for number in 0..100 {
        assert_eq!(guarded.ask(&[&Key::new(&number.to_string()).field()]).status, 401);
    }
    assert!(issuer.server.is_quiet(), "they rest");
    assert_eq!(guarded.ask(&[&key.field()]).status, 200);
}

#[test]
fn an_issuer_that_cannot_be_reached_stops_no_start() {
    let key = Key::new("one");
    let issuer = Issuer::publishing(&[]);
    issuer.publish("");
    let guarded = guarded(&issuer.source("every = \"1h\", pause = \"1s\""));
    assert_eq!(guarded.ask(&[&key.field()]).status, 401);
    issuer.publish(&set(&[&key]));
    eventually("the key", || (guarded.ask(&[&key.field()]).status == 200).then_some(()));
}

#[test]
fn a_reload_forgets_no_key_that_was_fetched() {
    let key = Key::new("one");
    let issuer = Issuer::publishing(&[&key]);
    let source = issuer.source("every = \"1h\", pause = \"1s\"");
    let guarded = guarded(&source);
    let field = key.field();
    assert_eq!(guarded.ask(&[&field]).status, 200);
    issuer.publish("");
    let other = "limit = \"100/h by claim:org\"";
    guarded.gateway.reload(&config(&guarded.upstream, &ways(&source), "\"jwt\"", other));
    let answer = guarded.ask(&[&field]);
    assert_eq!((answer.status, answer.number("x-ratelimit-remaining")), (200, 99));
}

#[test]
fn tokens_are_judged_over_http2_and_tls_alike() {
    let key = Key::new("one");
    let directory = Directory::new();
    directory.write("jwks.json", set(&[&key]));
    tls::certify(&directory, "a", &["localhost"]);
    let listeners = "[listener.plain]\nbind = \"127.0.0.1:0\"\n[listener.tls]\nbind = \"127.0.0.1:0\"\n\
                     certs = [{ cert = \"a.pem\", key = \"a.key\" }]\n";
    let ways = listeners.to_owned() + &ways("keys = { file = \"jwks.json\" }");
    let guarded = Guarded::start(directory, &ways, "\"jwt\"", "");
    let field = key.field();
    for (listener, scheme, version) in [
        ("plain", "http", "--http2-prior-knowledge"),
        ("tls", "https", "--http2"),
        ("tls", "https", "--http1.1"),
    ] {
        let url = format!("{scheme}://{}/", guarded.gateway.listener(listener));
        let status = |fields: &[&str]| {
            let mut arguments = vec!["-sSk", version, "-o", "/dev/null", "-w", "%{http_code}", &url];
            arguments.extend(fields.iter().flat_map(|field| ["-H", *field]));
            crate::support::stdout_of("curl", &arguments)
        };
        assert_eq!(status(&[&field]), "200", "{listener} {version}");
        assert_eq!(guarded.upstream.request().header("x-consumer").as_deref(), Some("ann"));
        assert_eq!(status(&[]), "401", "{listener} {version}");
        assert_eq!(status(&[&field, &field]), "401", "{listener} {version}");
        assert_eq!(status(&["Authorization: Bearer x.y.z"]), "401", "{listener} {version}");
    }
    assert!(guarded.upstream.is_quiet());
}

#[test]
fn keys_over_https_are_taken_from_an_issuer_that_is_trusted() {
    let key = Key::new("one");
    let directory = Directory::new();
    tls::certify(&directory, "issuer", &["localhost"]);
    let trust = directory.join("issuer.pem").display().to_string();
    let pair = directory.join("issuer").display().to_string();
    // A gateway is an issuer as good as any: it publishes a fixed answer.
    let issuer = Gateway::start(&format!(
        "[listener.tls]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"{pair}.pem\", key = \"{pair}.key\" }}]\n\
         [[route]]\npath = \"/keys\"\nrespond = {{ body = {:?} }}\n",
        set(&[&key])
    ));
    let url = format!("https://localhost:{}/keys", issuer.listener("tls").port());
    let upstream = Upstream::ok();
    let all = config(&upstream, &ways(&format!("jwks = \"{url}\"")), "\"jwt\"", "");
    let start = |trust: &str| Gateway::start_with(Directory::new(), &all, &[("SSL_CERT_FILE", trust)]);
    let ask = |gateway: &Gateway| gateway.client().request("GET", "/", &[&key.field()], "").status;
    assert_eq!(ask(&start(&trust)), 200);

    tls::certify(&directory, "other", &["localhost"]);
    let gateway = start(&directory.join("other.pem").display().to_string());
    assert_eq!(ask(&gateway), 401);
    assert_eq!(gateway.logged("/")["cause"], "token-keys-unread");
    assert!(gateway.stderr().iter().any(|line| line.contains("keys not fetched")), "{:?}", gateway.stderr());
}

#[test]
fn a_file_of_keys_is_read_again_and_a_secret_is_never_shown() {
    let (old, new) = (Key::new("one"), Key::new("one"));
    let directory = Directory::new();
    directory.write("jwks.json", set(&[&old]));
    let file = ways("keys = { file = \"jwks.json\" }");
    let guarded = Guarded::start(directory, &file, "\"jwt\"", "");
    let (by_old, by_new) = (old.field(), new.field());
    assert_eq!(guarded.ask(&[&by_old]).status, 200);
    guarded.gateway.write("jwks.json", set(&[&new]));
    eventually("the new key", || (guarded.ask(&[&by_new]).status == 200).then_some(()));
    assert_eq!(guarded.ask(&[&by_old]).status, 401);

    let secret = "0123456789abcdef0123456789abcdef";
    let by_secret = ways(&format!("secret = \"{secret}\"")).replace("ES256", "HS256");
    guarded.gateway.reload(&config(&guarded.upstream, &by_secret, "\"jwt\"", ""));
    let key = EncodingKey::from_secret(secret.as_bytes());
    let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims(), &key).expect("the key fits");
    assert_eq!(guarded.ask(&[&format!("Authorization: Bearer {token}")]).status, 200);
    let shown = guarded.gateway.admin("/config").text();
    assert!(shown.contains("[auth.jwt]") && !shown.contains(secret), "{shown}");
    assert!(!guarded.gateway.stderr().iter().any(|line| line.contains(secret)));
}

#[test]
fn no_signature_is_checked_for_an_address_over_its_limit() {
    let (key, forger) = (Key::new("one"), Key::new("one"));
    let directory = Directory::new();
    directory.write("jwks.json", set(&[&key]));
    let ways = format!(
        "workers = 1\n[client-ip]\ntrust = [\"127.0.0.1/32\"]\n{}",
        ways("keys = { file = \"jwks.json\" }")
    );
    let guarded = Guarded::start(directory, &ways, "\"jwt\"", "limit = \"5/h by ip\"");
    let verified = || guarded.gateway.metric("sluicegate_auth_verifications_total", &[]);
    let from =
        |client: &str, token: &str| guarded.ask(&[&format!("x-forwarded-for: {client}"), token]).status;
    let good = key.field();
    assert_eq!((from("192.0.2.1", &good), verified()), (200, 1.0));
    assert_eq!((from("192.0.2.1", &good), verified()), (200, 1.0), "from memory");
    for number in 2..=4 {
        assert_eq!((from("192.0.2.1", &forger.field()), verified()), (401, f64::from(number)));
    }
    for _ in 0..20 {
        assert_eq!((from("192.0.2.1", &forger.field()), verified()), (429, 4.0));
    }
    // What is known is asked of nobody else; what is not may come from elsewhere.
    assert_eq!((from("192.0.2.1", &good), verified()), (429, 4.0));
    assert_eq!((from("192.0.2.2", &forger.field()), verified()), (401, 5.0));
}

#[test]
fn a_tier_is_found_out_before_its_limit_is_asked() {
    let key = Key::new("one");
    let directory = Directory::new();
    directory.write("jwks.json", set(&[&key]));
    let ways = format!(
        "[tier.free]\nlimit = \"1/h\"\n[tier.pro]\nlimit = \"100/h\"\n[policy.plan]\nby = [\"ip\"]\nlimit = \"tier\"\n{}",
        ways("keys = { file = \"jwks.json\" }")
    );
    let guarded = Guarded::start(directory, &ways, "\"jwt\"", "limit = \"plan\"");
    for _ in 0..5 {
        // Each token is a new one: signatures by elliptic curves differ every time.
        assert_eq!(guarded.caller(&[&key.field()]), "ann acme pro");
    }
}
