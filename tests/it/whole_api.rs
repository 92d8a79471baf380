//! The gateway of docs/whole-api.md, with real upstreams and a real Redis: what the page says about it holds.

use std::fs;
use std::time::Instant;

use serde_json::json;

use crate::auth::jwt::{Key, set};
use crate::auth::keys::hashed;
use crate::documents::{blocks, documents};
use crate::support::redis::Redis;
use crate::support::tls::{self, certify};
use crate::support::{Client, Directory, Gateway, Response, Upstream, eventually, get};

const PAGE: &str = "docs/whole-api.md";

/// Everything around the nodes.
struct Api {
    key: Key,
    issuer: Upstream,
    redis: Redis,
    orders: Upstream,
    search: Upstream,
}

/// A server that answers with its name, the request's line and the identity that it was sent.
fn service(name: &'static str) -> Upstream {
    Upstream::replying(move |request| {
        let sent = |field| request.header(field).unwrap_or_else(|| "-".to_owned());
        let body = format!("{name}: {}, {} of {}", request.line, sent("x-user"), sent("x-tenant"));
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    })
}

impl Api {
    fn start() -> Api {
        let key = Key::new("one");
        let keys = set(&[&key]);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{keys}", keys.len());
        let issuer = Upstream::answering(answer);
        Api { key, issuer, redis: Redis::start(&[]), orders: service("orders"), search: service("search") }
    }

    /// A node with the file of the page, whose addresses are those of this test.
    fn node(&self) -> Gateway {
        let (_, document) =
            documents().into_iter().find(|(name, _)| name == PAGE).expect("the page is there");
        let shown = blocks(PAGE, &document);
        let file = shown.iter().find(|block| block.kind == "toml files").expect("it shows the file").text;
        let redis = format!("redis://{}\"\ndeadline = \"1s", self.redis.addr());
        let own = [
            ("[::]:80", "127.0.0.1:0".to_owned()),
            ("[::]:443", "127.0.0.1:0".to_owned()),
            ("127.0.0.1:9900", "127.0.0.1:0".to_owned()),
            ("redis://10.0.1.5:6379", redis),
            ("https://id.example.com/.well-known/jwks.json", format!("http://{}/", self.issuer.addr())),
            (
                "\"http://10.0.2.10:8080\", \"http://10.0.2.11:8080\"",
                format!("\"http://{}\"", self.orders.addr()),
            ),
            ("http://10.0.3.10:8080", format!("http://{}", self.search.addr())),
        ];
        let config = own.iter().fold(file.to_owned(), |config, (shown, own)| {
            assert!(config.contains(shown), "{PAGE} has {shown}");
            config
                .replace(&format!("{shown}\""), &format!("{own}\""))
                .replace(&format!("{shown}]"), &format!("{own}]"))
        });
        let directory = Directory::new();
        fs::create_dir_all(directory.join("certs")).expect("the target directory is writable");
        certify(&directory, "certs/api", &["api.example.com"]);
        let batch = hashed("a key of acme", &["--consumer", "batch", "--tenant", "acme", "--tier", "pro"]);
        let lone = hashed("a key of nobody's tenant", &["--consumer", "lone", "--tier", "pro"]);
        directory.write("keys.toml", format!("{batch}\n{lone}\n"));
        let node = Gateway::start_in(directory, &config);
        eventually("the node has its Redis", || {
            node.stderr().iter().any(|line| line.contains("connected to Redis")).then_some(())
        });
        node
    }

    /// A user's token, as a field of a request.
    fn user(&self, name: &str, tenant: &str, plan: &str) -> String {
        let until = jsonwebtoken::get_current_timestamp() + 300;
        let claims = json!({
            "iss": "https://id.example.com/", "aud": "api", "exp": until, "sub": name, "org": tenant, "plan": plan,
        });
        format!("Authorization: Bearer {}", self.key.sign(&claims))
    }
}

/// A connection to the listener of clients.
fn client(node: &Gateway) -> Client<tls::Stream> {
    let addr = node.listener("edge");
    Client::over(tls::connect(addr, "api.example.com", &["http/1.1"]).expect("the handshake succeeds"))
}

fn ask(client: &mut Client<tls::Stream>, path: &str, credential: &str) -> Response {
    let fields = ["Host: api.example.com", credential];
    client.request("GET", path, &fields[..if credential.is_empty() { 1 } else { 2 }], "")
}

/// Asks each node in turn until they refuse. How many requests passed; how many of them may have refilled meanwhile or
/// are owed, one at each node; the refusal. The last unit may be at a node that was not asked for it.
fn spend(nodes: &[Gateway], path: &str, credential: &str, per_minute: u64) -> (u64, u64, Response) {
    let began = Instant::now();
    let mut clients: Vec<_> = nodes.iter().map(client).collect();
    let (mut passed, mut refused) = (0, 0);
    for turn in 0..2_000 {
        let at = turn % clients.len();
        let response = ask(&mut clients[at], path, credential);
        if response.status != 429 {
            assert_eq!(response.status, 200, "{}", response.text());
            (passed, refused) = (passed + 1, 0);
            continue;
        }
        // What the other node still holds may come to this one with its next renewals.
        refused += 1;
        if refused == REFUSALS {
            let refilled = began.elapsed().as_secs() * per_minute / 60 + 1;
            return (passed, refilled + nodes.len() as u64, response);
        }
    }
    panic!("nobody refuses {path}");
}

/// In a row: a limit is spent.
const REFUSALS: u32 = 100;

fn refused_by(response: &Response) -> String {
    assert!(response.number("retry-after") > 0);
    response.json()["violations"][0]["policy"].as_str().expect("a policy is named").to_owned()
}

#[test]
fn requests_reach_the_upstream_of_their_route_with_their_identity() {
    let api = Api::start();
    let node = api.node();
    let mut client = client(&node);
    let ann = api.user("ann", "acme", "free");
    for (credential, who) in [(&*ann, "ann of acme"), ("X-Api-Key: a key of acme", "batch of acme")] {
        let response = ask(&mut client, "/v1/orders/7", credential);
        assert_eq!(
            (response.status, response.text()),
            (200, format!("orders: GET /orders/7 HTTP/1.1, {who}"))
        );
        let response = ask(&mut client, "/v1/search?q=a", credential);
        assert_eq!(response.text(), "search: GET /v1/search?q=a HTTP/1.1, - of -");
    }
    let stranger =
        Key::new("one").sign(&json!({ "iss": "https://id.example.com/", "aud": "api", "sub": "ann" }));
    for credential in ["", "X-Api-Key: guessed", &format!("Authorization: Bearer {stranger}")] {
        assert_eq!(ask(&mut client, "/v1/orders/7", credential).status, 401, "{credential}");
    }
    assert_eq!(ask(&mut client, "/healthz", "").text(), "ok");
    assert_eq!(ask(&mut client, "/elsewhere", &ann).status, 404);
    let sent_away = get(node.listener("web"), "/v1/orders/7");
    assert_eq!(sent_away.status, 308);
    assert!(
        sent_away
            .header("location")
            .is_some_and(|to| to.starts_with("https://") && to.ends_with("/v1/orders/7"))
    );
    assert_eq!(node.admin("/metrics").status, 401);
    assert_eq!(node.admin("/readyz").status, 200);
}

#[test]
fn guessing_runs_into_the_limit_of_the_address() {
    let api = Api::start();
    let node = api.node();
    let mut client = client(&node);
    let began = Instant::now();
    let all: Vec<Response> =
        (0..1_500).map(|_| ask(&mut client, "/v1/orders/7", "X-Api-Key: guessed")).collect();
    let most = 1_200 + 20 * (began.elapsed().as_secs() as usize + 1);
    let (guesses, refused): (Vec<_>, Vec<_>) = all.iter().partition(|response| response.status == 401);
    // A lease that runs dry between two renewals refuses for some milliseconds.
    assert!((800..=most).contains(&guesses.len()), "{} guesses", guesses.len());
    for response in refused {
        assert_eq!((response.status, refused_by(response)), (429, "per-address".to_owned()));
    }
}

#[test]
fn a_user_has_the_limit_of_its_tier_over_all_nodes() {
    let api = Api::start();
    let nodes = [api.node(), api.node()];
    for (plan, limit) in [("free", 60), ("pro", 240), ("unheard-of", 60)] {
        let user = api.user(&format!("user-{plan}"), &format!("tenant-{plan}"), plan);
        let (passed, more, refusal) = spend(&nodes, "/v1/orders/7", &user, limit);
        assert!((limit - nodes.len() as u64..=limit + more).contains(&passed), "{plan}: {passed} of {limit}");
        assert_eq!(refused_by(&refusal), "per-user");
    }
    let searcher = api.user("searcher", "readers", "free");
    let (passed, more, _) = spend(&nodes, "/v1/search", &searcher, 60);
    assert!((11..=12 + more / 5 + 1).contains(&passed), "{passed} searches");
}

#[test]
fn all_users_of_a_tenant_share_its_limit() {
    let api = Api::start();
    let nodes = [api.node(), api.node()];
    let mut passed = 0;
    for (name, refuses) in [("ann", "per-user"), ("bob", "per-tenant")] {
        let user = api.user(name, "acme", "pro");
        let (more, _, refusal) = spend(&nodes, "/v1/orders/7", &user, 240);
        assert_eq!(refused_by(&refusal), refuses);
        passed += more;
    }
    assert!((298..330).contains(&passed), "{passed} of the tenant");
    let mut client = client(&nodes[0]);
    for credential in [&*api.user("carl", "umbrella", "free"), "X-Api-Key: a key of nobody's tenant"] {
        assert_eq!(ask(&mut client, "/v1/orders/7", credential).status, 200, "{credential}");
    }
}
