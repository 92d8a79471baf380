//! `sticky = { cookie = "…" }`: a client keeps its server by a signed cookie.

use std::collections::BTreeSet;

use crate::support::named::{HEALTH, Named, wait_for};
use crate::support::{Client, Directory, Gateway, Response, tls};

const SECRET: &str = "a secret of thirty-two bytes or more";

fn upstream(name: &str, servers: &[&Named], sticky: &str) -> String {
    let servers: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.url())).collect();
    format!(
        "[upstream.{name}]\nservers = [{}]\n{HEALTH}\n\
         sticky = {{ cookie = \"at\", secret = \"${{SECRET}}\"{sticky} }}\n",
        servers.join(", ")
    )
}

fn start(config: &str) -> Gateway {
    Gateway::start_with(Directory::new(), &format!("workers = 2\n{config}"), &[("SECRET", SECRET)])
}

fn config(servers: &[&Named]) -> String {
    format!("{}[[route]]\nto = \"u\"\n", upstream("u", servers, ""))
}

fn ask(client: &mut Client, cookie: &str) -> Response {
    client.request("GET", "/", &[&format!("Cookie: theme=dark; {cookie}")], "")
}

/// The cookie that an answer gives, `name=value`.
fn given(answer: &Response) -> Option<String> {
    let field = answer.header("set-cookie")?;
    Some(field.split_once(';').expect("it has attributes").0.to_owned())
}

/// A client's cookie, and the server that it is for.
fn session(gateway: &Gateway) -> (String, String) {
    let answer = gateway.client().get("/");
    (given(&answer).expect("a client without a cookie is given one"), answer.text())
}

#[test]
fn a_client_with_a_cookie_keeps_its_server_on_any_connection_and_at_any_node() {
    let servers = ["a", "b", "c"].map(Named::start);
    let [a, b, c] = servers.each_ref();
    let gateway = start(&config(&[a, b, c]));
    let other = start(&config(&[c, b, a]));
    let mut names = BTreeSet::new();
    for _ in 0..9 {
        let (cookie, name) = session(&gateway);
        for node in [&gateway, &other] {
            for mut client in [node.client(), node.client()] {
                for _ in 0..5 {
                    let answer = ask(&mut client, &cookie);
                    assert_eq!((answer.header("set-cookie"), answer.text()), (None, name.clone()));
                }
            }
        }
        names.insert(name);
    }
    assert_eq!(names.len(), 3, "new clients are balanced");
}

#[test]
fn a_server_that_is_gone_is_chosen_anew_and_the_client_stays_there() {
    let servers = ["a", "b", "c"].map(Named::start);
    let gateway = start(&config(&servers.each_ref()));
    let (cookie, name) = session(&gateway);
    let index = ["a", "b", "c"].iter().position(|known| *known == name).expect("one of the servers");
    servers[index].set_well(false);
    let mut states = ["healthy"; 3];
    states[index] = "unhealthy";
    wait_for(&gateway, &states);
    let mut client = gateway.client();
    let answer = ask(&mut client, &cookie);
    let (renewed, there) = (given(&answer).expect("a new one"), answer.text());
    assert_ne!(there, name);
    servers[index].set_well(true);
    wait_for(&gateway, &["healthy"; 3]);
    assert!((0..10).all(|_| ask(&mut client, &renewed).text() == there), "it stays where its session is now");
}

#[test]
fn a_client_cannot_choose_its_server() {
    let servers = ["a", "b"].map(Named::start);
    let gateway = start(&config(&servers.each_ref()));
    let other = Gateway::start_with(
        Directory::new(),
        &config(&servers.each_ref()),
        &[("SECRET", "another secret of thirty-two bytes or more")],
    );
    let (foreign, _) = session(&other);
    let mut client = gateway.client();
    let hostile = ["at=0", "at=a", "at=", "at", foreign.as_str(), "at=AAAAAAAAAAAAAAAAAAAAAA"];
    for cookie in hostile {
        let names: BTreeSet<String> = (0..10).map(|_| ask(&mut client, cookie).text()).collect();
        assert_eq!(names.len(), 2, "{cookie} is balanced as none would be");
        assert!(given(&ask(&mut client, cookie)).is_some());
    }
}

#[test]
fn cookies_are_secure_over_tls_and_what_the_configuration_says() {
    let server = Named::start("a");
    let directory = Directory::new();
    tls::certify(&directory, "edge", &["localhost"]);
    let sticky = ", max-age = \"1h\", path = \"/app\", same-site = \"strict\"";
    let config = format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\n\
         [listener.edge]\nbind = \"127.0.0.1:0\"\ncerts = {{ cert = \"edge.pem\", key = \"edge.key\" }}\n\
         {}[[route]]\nto = \"u\"\n",
        upstream("u", &[&server], sticky)
    );
    let gateway = Gateway::start_with(directory, &config, &[("SECRET", SECRET)]);
    let attributes = |answer: Response| {
        let field = answer.header("set-cookie").expect("a cookie").to_owned();
        field.split_once(';').expect("it has attributes").1.to_owned()
    };
    let plain = " Path=/app; HttpOnly; SameSite=Strict; Max-Age=3600";
    assert_eq!(attributes(gateway.get("/")), plain);
    let stream = tls::connect(gateway.listener("edge"), "localhost", &["http/1.1"]).expect("it is served");
    assert_eq!(attributes(Client::over(stream).get("/")), format!("{plain}; Secure"));
}

#[test]
fn a_session_keeps_its_upstream_though_that_gets_no_new_clients() {
    let servers = ["a", "b"].map(Named::start);
    let config = |weight| {
        format!(
            "{}{}[[route]]\nto = [{{ upstream = \"old\", weight = {weight} }}, {{ upstream = \"new\", weight = 1 }}]\n",
            upstream("old", &[&servers[0]], ""),
            upstream("new", &[&servers[1]], ""),
        )
    };
    let gateway = start(&config(1));
    let old = (0..10).map(|_| session(&gateway)).find(|(_, name)| name == "a").expect("half of the sessions");
    gateway.reload(&format!("workers = 2\n{}", config(0)));
    let mut client = gateway.client();
    assert!((0..10).all(|_| ask(&mut client, &old.0).text() == "a"));
    assert!((0..10).all(|_| client.get("/").text() == "b"));
}
