//! `certs` of listeners that are ordered by ACME.

use super::{config, said};
use acme::config::Challenge;

fn edge(certs: &str) -> String {
    format!("[listener.edge]\nbind = \"127.0.0.1:0\"\ncerts = {certs}\n")
}

#[test]
fn a_certificate_that_is_ordered_is_read_and_written() {
    let short =
        edge(r#"{ acme = "https://ca.example/dir", names = ["Api.Example.", "api.example"], agree = true }"#);
    let full = edge(
        r#"[{ cert = "/a.pem", key = "/a.key" }, { acme = "https://ca.example/dir", names = ["a.example", "b.example"],
        email = "ops@a.example", agree = true, ca = "/ca.pem", challenge = "tls-alpn-01", state = "/srv/state" }]"#,
    );
    let shared = format!(
        "{}[redis]\nurl = \"redis://r\"\n",
        short.replace("agree = true", "agree = true, secret = \"${LONG_SECRET}\"")
    );
    for text in [&short, &full] {
        let first = config(text);
        assert!(config(&first.effective()) == first, "{}", first.effective());
    }
    let listener = &config(&short).listeners[0];
    assert_eq!(listener.acme[0].names, ["api.example"]);
    let file = std::path::Path::new("/var/lib/sluicegate/acme/ca.example-dir/api.example.pem");
    assert_eq!((listener.certs[0].cert.as_path(), listener.certs[0].key.as_path()), (file, file));
    assert_eq!(listener.ways(&listener.acme[0], std::slice::from_ref(listener)), [Challenge::TlsAlpn01]);
    assert_eq!(config(&full).listeners[0].certs.len(), 2);
    let shared = config(&shared);
    assert_eq!(shared.listeners[0].acme[0].secret.as_ref().map(|secret| secret.0.len()), Some(39));
    assert!(!format!("{shared:?}").contains("hunter2") && !shared.effective().contains("hunter2"));
}

#[test]
fn what_no_authority_would_issue_is_an_error() {
    let names = |names: &str| {
        edge(&format!("{{ acme = \"https://ca.example/dir\", names = {names}, agree = true }}"))
    };
    let more = |more: &str| {
        edge(&format!("{{ acme = \"https://ca.example/dir\", names = [\"a.example\"], {more} }}"))
    };
    let directory =
        |url: &str| edge(&format!("{{ acme = \"{url}\", names = [\"a.example\"], agree = true }}"));
    let insists = format!("{}client-ca = \"/ca.pem\"\n", names("[\"a.example\"]"));
    let twice = format!(
        "{}{}",
        names("[\"a.example\"]"),
        names("[\"a.example\", \"b.example\"]").replace("edge", "other")
    );
    let many =
        format!("[{}]", (0..101).map(|name| format!("\"n{name}.example\"")).collect::<Vec<_>>().join(", "));
    for (text, message) in [
        (more("email = \"ops@a.example\""), "only if you agree to its terms"),
        (more("agree = false"), "only if you agree to its terms"),
        (more("agree = true, email = \"ops\""), "`ops` is not an e-mail address"),
        (more("agree = true, challenge = \"http-01\""), "no listener can prove `a.example`"),
        (more("agree = true, days = 3"), "`days`"),
        (
            more("agree = true, secret = \"${LONG_SECRET}\""),
            "`secret` shares the certificate of `a.example` through Redis, but there is no [redis]",
        ),
        (insists, "no listener can prove `a.example`"),
        (edge("{ acme = \"https://ca.example/dir\", agree = true }"), "needs `names`"),
        (names("[]"), "`names` is empty"),
        (names(&many), "101 names are more than the 100 of one certificate"),
        (names("[\"*.a.example\"]"), "cannot be proved by http-01 or tls-alpn-01"),
        (names("[\"192.0.2.1\"]"), "`192.0.2.1` is not a DNS name"),
        (names("[\"a..example\"]"), "`a..example` is not a DNS name"),
        (names("[\"../../etc\"]"), "`../../etc` is not a DNS name"),
        (directory("ca.example"), "`ca.example` is not a URL"),
        (directory("https://user@ca.example/dir"), "cannot hold a user name"),
        (directory("http://ca.example/dir"), "anyone on the network path could pose as the authority"),
        (twice, "would share a file"),
    ] {
        let said = said(&text);
        assert!(said.contains(message), "{text}\n{said}");
    }
}
