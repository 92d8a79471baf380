//! The fields that every answer has, whoever gives it.

use crate::auth::keys::{KEYS, hashed};
use crate::support::{Directory, Gateway, Response, Upstream, stdout_of};

/// Answers with a field and an id of its own, and switches protocols where it is asked to.
fn upstream() -> Upstream {
    Upstream::replying(|request| match request.header("upgrade") {
        Some(_) => {
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".to_vec()
        }
        None => b"HTTP/1.1 200 OK\r\nX-Request-Id: its-own\r\nContent-Length: 2\r\n\r\nok".to_vec(),
    })
}

/// A route for each way to be answered; `more` goes before them, `listener` into both listeners, `route` into each route.
fn config(upstream: &Upstream, more: &str, listener: &str, route: &str) -> String {
    let server = upstream.addr();
    let routes = [
        ("/up", format!("to = \"http://{server}\"")),
        ("/ws", format!("to = \"http://{server}\"\nupgrade = true")),
        ("/gone", "to = \"http://127.0.0.1:1\"".to_owned()),
        ("/echo", "to = \"echo\"\nmax-body = 10\nmethods = [\"GET\", \"POST\"]".to_owned()),
        ("/fixed", "respond = {}".to_owned()),
        ("/moved", "redirect = \"/\"".to_owned()),
        ("/known", "respond = {}\nauth = \"keys\"".to_owned()),
        ("/limited", "respond = {}\nlimit = \"1/h\"".to_owned()),
        ("/shared", "respond = {}\ncors = { origins = [\"https://app.example\"] }".to_owned()),
        ("/far", "respond = {}\nallow = [\"192.0.2.1\"]".to_owned()),
    ];
    let routes: String = routes
        .iter()
        .map(|(path, keys)| format!("[[route]]\npath = \"{path}\"\n{keys}\n{route}\n"))
        .collect();
    format!(
        "{more}\n{KEYS}\
         [listener.plain]\nbind = \"127.0.0.1:0\"\nmax = {{ uri-bytes = 100 }}\ntimeouts = {{ header = \"300ms\" }}\n{listener}\n\
         [listener.away]\nbind = \"127.0.0.1:0\"\nredirect = \"https\"\n{listener}\n{routes}"
    )
}

fn started(config: &str) -> Gateway {
    let directory = Directory::new();
    directory.write("keys.toml", hashed("right", &["--consumer", "alice"]));
    Gateway::start_in(directory, config)
}

/// An answer of each kind, with what asked for it and the status that it has.
fn answers(gateway: &Gateway) -> Vec<(&'static str, u16, Response)> {
    let ask = |method, target, fields: &[&str], body| gateway.client().request(method, target, fields, body);
    let preflight = |origin| {
        let fields = [&format!("Origin: https://{origin}.example")[..], "Access-Control-Request-Method: GET"];
        ask("OPTIONS", "/shared", &fields, "")
    };
    let switch = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let mut switching = gateway.client();
    switching.send(format!("GET /ws HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n", switch.join("\r\n")));
    let read = |sent: &str| gateway.client().send(sent).response();
    ask("GET", "/limited", &[], "");
    vec![
        ("an upstream's", 200, ask("GET", "/up", &[], "")),
        (
            "an upstream's to HEAD",
            200,
            gateway.client().send("HEAD /up HTTP/1.1\r\nHost: localhost\r\n\r\n").response_to_head(),
        ),
        ("a switch", 101, switching.head()),
        ("no upstream", 502, ask("GET", "/gone", &[], "")),
        ("the head echoed", 200, ask("GET", "/echo", &[], "")),
        ("a body echoed", 200, ask("POST", "/echo", &[], "small")),
        ("too large a body", 413, ask("POST", "/echo", &[], "much too large")),
        ("another method", 405, ask("PUT", "/echo", &[], "")),
        ("a fixed one", 200, ask("GET", "/fixed", &[], "")),
        ("a redirect", 308, ask("GET", "/moved", &[], "")),
        ("no credential", 401, ask("GET", "/known", &[], "")),
        ("a limit", 429, ask("GET", "/limited", &[], "")),
        ("a preflight", 204, preflight("app")),
        ("a preflight from elsewhere", 403, preflight("evil")),
        ("another address", 403, ask("GET", "/far", &[], "")),
        ("no route", 404, ask("GET", "/nowhere", &[], "")),
        ("the server as a whole", 200, ask("OPTIONS", "*", &[], "")),
        ("no host", 400, read("GET / HTTP/1.1\r\n\r\n")),
        ("no HTTP", 400, read("GET / HTTP/1.1\r\nHost: localhost\r\n folded: yes\r\n\r\n")),
        ("a head that does not end", 408, read("GET / HTTP/1.1\r\n")),
        ("the way to https", 308, crate::support::get(gateway.listener("away"), "/up")),
    ]
}

#[test]
fn every_answer_has_the_id_that_its_request_is_logged_with() {
    let upstream = upstream();
    let gateway = started(&config(&upstream, "", "", ""));
    let answers = answers(&gateway);
    for (kind, status, answer) in &answers {
        assert_eq!(answer.status, *status, "{kind}: {answer:?}");
        let ids = answer.all("x-request-id");
        assert!(matches!(ids[..], [id] if id.len() == 32), "{kind}: {ids:?}");
        gateway.logged_where(kind, |line| line["request_id"] == ids[0] && line["status"] == *status);
    }
    let url = format!("http://{}/up", gateway.plain());
    let head = stdout_of("curl", &["-s", "--http2-prior-knowledge", "-o", "/dev/null", "-D", "-", &url]);
    assert!(head.contains("\nx-request-id: ") && !head.contains("its-own"), "{head}");
}

#[test]
fn whose_answers_have_an_id_is_a_choice() {
    let upstream = upstream();
    let gateway = started(&config(&upstream, "[node]\nrequest-id = \"never\"", "", ""));
    let with_id = |gateway: &Gateway| -> Vec<&str> {
        let answers = answers(gateway).into_iter();
        let named = answers.filter(|(_, _, answer)| {
            answer.header("x-request-id").is_some() || answer.text().contains("request-id\":")
        });
        named.map(|(kind, ..)| kind).collect()
    };
    // Where the gateway says nothing, what an upstream says is its own.
    assert_eq!(with_id(&gateway), ["an upstream's", "an upstream's to HEAD"]);
    let trusted = "[node]\nrequest-id = \"trusted\"";
    gateway.reload(&config(&upstream, trusted, "", ""));
    assert_eq!(with_id(&gateway), [""; 0]);
    gateway.reload(&config(&upstream, &format!("{trusted}\n[client-ip]\ntrust = [\"127.0.0.1\"]"), "", ""));
    assert_eq!(with_id(&gateway).len(), answers(&gateway).len());
    let theirs = gateway.client().request("GET", "/up", &["X-Request-Id: theirs"], "");
    assert_eq!(theirs.all("x-request-id"), ["theirs"]);
}

#[test]
fn a_route_may_change_the_id_it_answers_with() {
    let upstream = upstream();
    for (changes, ids) in
        [("remove = [\"x-request-id\"]", &[][..]), ("set = { x-request-id = \"a-{route}\" }", &["a-/up"])]
    {
        let gateway = started(&config(&upstream, "", "", &format!("response-headers = {{ {changes} }}")));
        assert_eq!(gateway.get("/up").all("x-request-id"), ids, "{changes}");
    }
}

/// What says no route of an answer: that of a listener, or of a request that no route takes.
const OF_NO_ROUTE: [&str; 8] = [
    "another method",
    "a preflight",
    "no route",
    "the server as a whole",
    "no host",
    "no HTTP",
    "a head that does not end",
    "the way to https",
];

#[test]
fn fields_of_a_listener_are_on_every_answer_and_those_of_a_route_too_where_it_says_always() {
    let upstream = upstream();
    let of_listener =
        "response-headers = { set = { x-of = \"listener\", x-frame = \"deny\" }, add = { x-both = \"1\" } }";
    let of_route = "response-headers = { set = { x-frame = \"{route}\", x-who = \"{consumer}\" }, add = { x-both = \"2\" }";
    let with_route = |always: &str| {
        let gateway = started(&config(&upstream, "", of_listener, &format!("{of_route}{always} }}")));
        let mut with = Vec::new();
        for (kind, status, answer) in answers(&gateway) {
            assert_eq!((answer.status, answer.all("x-of")), (status, vec!["listener"]), "{kind}: {answer:?}");
            let (frames, both) = (answer.all("x-frame"), answer.all("x-both"));
            match frames[..] {
                ["deny"] => assert_eq!(both, ["1"], "{kind}"),
                [path] => assert!(path.contains('/') && both == ["1", "2"], "{kind}: {answer:?}"),
                _ => panic!("{kind}: {answer:?}"),
            }
            with.extend((frames != ["deny"]).then_some(kind));
        }
        let known = gateway.client().request("GET", "/known", &["X-API-Key: right"], "");
        assert_eq!((known.status, known.header("x-who")), (200, Some("alice")));
        with
    };
    let of_a_route: Vec<&str> = answers(&started(&config(&upstream, "", "", "")))
        .iter()
        .map(|(kind, ..)| *kind)
        .filter(|kind| !OF_NO_ROUTE.contains(kind))
        .collect();
    assert_eq!(with_route(", always = true"), of_a_route);
    let refused =
        ["too large a body", "no credential", "a limit", "a preflight from elsewhere", "another address"];
    let answered: Vec<&str> = of_a_route.into_iter().filter(|kind| !refused.contains(kind)).collect();
    assert_eq!(with_route(""), answered);
}

#[test]
fn a_refusal_says_for_whom_it_is_where_its_route_always_does() {
    let upstream = upstream();
    let changes =
        "response-headers = { set = { x-who = \"{consumer}\" }, always = true }\nlimit = \"1/h by consumer\"";
    let routes = format!("[[route]]\npath = \"/mine\"\nauth = \"keys\"\nrespond = {{}}\n{changes}\n");
    let gateway = started(&(config(&upstream, "", "", "") + &routes));
    for status in [200, 429] {
        let answer = gateway.client().request("GET", "/mine", &["X-API-Key: right"], "");
        assert_eq!((answer.status, answer.header("x-who")), (status, Some("alice")));
    }
}
