//! A host is the same in keys of limits, in header matches and in header values, however a client spells it.

use crate::support::gateway::binary;
use crate::support::{Directory, Gateway, Upstream, get, stdout_of, text};

/// Spellings of one host that are all routed alike.
const SPELLINGS: [&str; 6] = [
    "api.example.com",
    "API.example.com",
    "api.example.com.",
    "api.example.com:8080",
    "Api.Example.Com.:81",
    "api.EXAMPLE.com:443",
];

fn ask(gateway: &Gateway, path: &str, host: &str) -> u16 {
    gateway.client().request("GET", path, &[&format!("Host: {host}")], "").status
}

#[test]
fn a_host_is_counted_once_whatever_its_spelling() {
    for by in ["host", "header:host"] {
        let gateway = Gateway::start(&format!(
            "[[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nrespond = {{ status = 200 }}\n\
             [policy.p]\nby = [\"{by}\"]\nlimit = \"6/d\"\nmissing = \"reject\"\n"
        ));
        for host in SPELLINGS {
            assert_eq!(ask(&gateway, "/", host), 200, "{by} {host}");
        }
        for host in SPELLINGS {
            assert_eq!(ask(&gateway, "/", host), 429, "{by} {host}");
        }
        // Over HTTP/2 there is no field of that name; another spelling in the target is no other host either.
        let url = format!("http://{}/", gateway.plain());
        for arguments in
            [["--http2-prior-knowledge", "Host: aPi.example.com"], ["--http1.1", "Host: API.example.com.:9"]]
        {
            let status =
                ["-s", "-o", "/dev/null", "-w", "%{http_code}", arguments[0], "-H", arguments[1], &url];
            assert_eq!(stdout_of("curl", &status), "429", "{by} {arguments:?}");
        }
        let mut absolute = gateway.client();
        absolute.send("GET http://api.EXAMPLE.com:1/ HTTP/1.1\r\nHost: api.example.com:1\r\n\r\n");
        assert_eq!(absolute.response().status, 429);
        assert_eq!(ask(&gateway, "/", "other.example.com"), 200);
        // An address has one spelling, too.
        let addresses = ["[::1]", "[0:0::1]", "[::1]:80", "[0:0:0:0:0:0:0:1]", "[0::1]:1", "[::0:1]"];
        assert!(addresses.iter().all(|host| ask(&gateway, "/", host) == 200));
        assert!(addresses.iter().all(|host| ask(&gateway, "/", host) == 429));
        // Operators find the key however they spell it.
        let shown = get(gateway.listener("admin"), "/v1/keys/p/API.example.com:80").json();
        assert_eq!(shown["windows"][0]["remaining"], 0, "{shown}");
    }
}

#[test]
fn a_route_asks_for_a_host_and_sends_it_in_one_form() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\nname = \"asked\"\npath = \"/\"\nmatch = {{ header = {{ host = \"Api.example.com.\" }} }}\n\
         to = \"http://{}\"\nheaders = {{ set = {{ x-host = \"{{host}}\" }} }}\n\
         [[route]]\nname = \"some\"\npath = \"/some\"\nmatch = {{ header = {{ host = true }} }}\nrespond = {{ status = 200 }}\n",
        upstream.addr()
    ));
    for host in SPELLINGS {
        assert_eq!(ask(&gateway, "/", host), 200, "{host}");
        assert_eq!(upstream.request().header("x-host").as_deref(), Some("api.example.com"), "{host}");
    }
    assert_eq!(ask(&gateway, "/", "other.example.com"), 404);
    let url = format!("http://{}/some", gateway.plain());
    let status = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "--http2-prior-knowledge", &url];
    assert_eq!(stdout_of("curl", &status), "200", "over HTTP/2 a request has a host as well");
}

#[test]
fn a_header_match_on_a_host_with_a_port_or_wildcard_is_an_error() {
    for (written, said) in [
        ("api.example.com:80", "a host must have neither scheme nor port"),
        ("*.example.com", "write `host = \"*.example.com\"` on the route itself"),
    ] {
        let directory = Directory::new();
        let config = format!(
            "[[route]]\npath = \"/\"\nto = \"echo\"\nmatch = {{ header = {{ host = \"{written}\" }} }}\n"
        );
        let file = directory.write("gateway.toml", config);
        let output =
            binary().args(["check", "--config"]).arg(file).output().expect("the binary can be started");
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{errors}");
        assert!(errors.contains(said) && errors.contains("gateway.toml:4:"), "{errors}");
    }
}
