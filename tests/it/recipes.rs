//! Recipes of docs/recipes that need servers of their own, or several nodes: they do what they say. `documented.rs`
//! runs the others.

use std::time::Instant;

use crate::documents::{blocks, documents};
use crate::support::redis::Redis;
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Upstream, eventually};

/// The configuration of a recipe, with these addresses in the place of its own.
fn recipe(name: &str, own: &[(&str, String)]) -> String {
    let name = format!("docs/recipes/{name}.md");
    let (_, document) = documents().into_iter().find(|(page, _)| *page == name).expect("the page is there");
    let shown = blocks(&name, &document);
    let config = shown.iter().find(|block| block.kind == "toml").expect("it shows one").text.to_owned();
    own.iter().fold(config, |config, (shown, own)| {
        assert!(config.contains(shown), "{name} has {shown}");
        config.replace(shown, own)
    })
}

fn answering(body: &str) -> Upstream {
    Upstream::answering(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

#[test]
fn a_canary_gets_its_share_of_the_clients_and_keeps_them() {
    let (stable, canary) = (answering("\"stable\""), answering("\"canary\""));
    let both = format!("\"http://{}\"", stable.addr());
    let gateway = Gateway::start(&recipe(
        "canary",
        &[
            ("\"http://10.0.1.10:8080\", \"http://10.0.1.11:8080\"", both),
            ("10.0.2.10:8080", canary.addr().to_string()),
        ],
    ));
    let from = |number: u8| {
        let mut client = Client::connect_from([127, 0, 1, number], gateway.plain());
        let texts: Vec<String> = (0..3).map(|_| client.get("/api/a").text()).collect();
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?} for one client");
        texts[0] == "\"canary\""
    };
    let moved = (1..=250).filter(|number| from(*number)).count();
    assert!((2..=30).contains(&moved), "{moved} of 250 clients");
    assert_eq!(gateway.client().request("GET", "/api/a", &["X-Canary: 1"], "").text(), "\"canary\"");
}

#[test]
fn a_login_counts_wrong_passwords_of_an_account() {
    let application = Upstream::replying(|request| {
        let body = String::from_utf8_lossy(&request.body);
        let status = if body.contains("right") { "200 OK" } else { "401 Unauthorized" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let own = [("127.0.0.1:3000", application.addr().to_string())];
    let gateway = Gateway::start(&recipe("protect-a-login", &own));
    let mut client = gateway.client();
    let mut login = |user: &str, password: &str| {
        let form = format!("{{\"user\":\"{user}\",\"password\":\"{password}\"}}");
        client.request("POST", "/login", &["Content-Type: application/json"], &form).status
    };
    assert!((0..20).all(|_| login("ann", "right") == 200));
    assert!((0..5).all(|_| login("ann", "guess") == 401));
    assert_eq!([login("ann", "guess"), login("ann", "right"), login("bob", "right")], [429, 429, 200]);
}

#[test]
fn a_budget_of_tokens_is_one_for_each_model() {
    let model = answering("{\"usage\":{\"total_tokens\":150000}}");
    let gateway = Gateway::start(&recipe(
        "token-budget",
        &[("http://10.0.3.10:8000", format!("http://{}", model.addr()))],
    ));
    let mut client = gateway.client();
    let mut ask = |body: &str| client.request("POST", "/v1/chat", &["X-Api-Key: k"], body);
    let statuses = [0; 3].map(|_| ask("{\"model\":\"large\",\"max_tokens\":100}").status);
    assert_eq!(statuses, [200, 200, 429], "the second leaves a debt");
    assert_eq!(ask("{\"model\":\"small\",\"max_tokens\":100}").status, 200);
    assert_eq!(ask("{\"max_tokens\":100}").status, 400);
}

#[test]
fn three_nodes_have_one_limit_and_an_exact_one() {
    let (redis, upstream) = (Redis::start(&[]), Upstream::ok());
    let config = recipe(
        "three-nodes",
        &[
            ("redis://10.0.1.5:6379\"", format!("redis://{}\"\ndeadline = \"1s\"", redis.addr())),
            ("10.0.2.10:8080", upstream.addr().to_string()),
        ],
    );
    let nodes = [(); 3].map(|()| Gateway::start(&config));
    for node in &nodes {
        eventually("the node has its Redis", || {
            (node.metric("sluicegate_redis_up", &[]) > 0.0).then_some(())
        });
    }
    let began = Instant::now();
    let statuses = (0..20).flat_map(|_| nodes.each_ref().map(|node| node.get("/payments").status));
    let admitted = statuses.filter(|status| *status == 200).count() as u64;
    let refilled = began.elapsed().as_secs() / 3 + 1;
    assert!((20..=20 + refilled).contains(&admitted), "{admitted} of 20");
}

#[test]
fn the_sixth_websocket_of_a_client_is_refused() {
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            peer.send(switched);
            peer.rest();
        }
    });
    let gateway = Gateway::start(&recipe("websocket", &[("10.0.1.10:8080", upstream.addr().to_string())]));
    let fields = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let mut clients: Vec<_> = (0..6).map(|_| gateway.client()).collect();
    let statuses: Vec<u16> =
        clients.iter_mut().map(|client| client.request("GET", "/ws", &fields, "").status).collect();
    assert_eq!(statuses, [101, 101, 101, 101, 101, 503]);
    drop(clients);
    eventually("the places are free again", || {
        (gateway.client().request("GET", "/ws", &fields, "").status == 101).then_some(())
    });
}
