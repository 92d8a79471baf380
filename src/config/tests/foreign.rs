//! What is said of keys and values that other programs have: each word of `keys/foreign.txt` is told its hint, and what a
//! hint has for the section itself can be written there.

use std::collections::BTreeSet;

use super::{load, said};

const ROWS: &str = include_str!("../keys/foreign.txt");

/// Headings, and a document that ends in the section.
const SECTIONS: [(&str, &str); 51] = [
    ("the configuration", ""),
    ("any section", "[privacy]\n"),
    ("[redis]", "[redis]\nurl = \"redis://a\"\n"),
    ("[database]", "[database]\nurl = \"sqlite:a\"\n"),
    ("[admin]", "[admin]\n"),
    ("[listener.<name>]", "[listener.a]\nbind = \"127.0.0.1:0\"\n"),
    ("[log]", "[log]\n"),
    ("`access`", "[log.access]\n"),
    ("a route", "[[route]]\nto = \"http://a\"\n"),
    ("[upstream.<name>]", "[upstream.a]\nservers = \"https://a\"\n"),
    ("a server", "[[upstream.a.servers]]\nurl = \"http://a\"\n"),
    ("`health`", "[upstream.a]\nservers = \"http://a\"\n[upstream.a.health]\npath = \"/\"\n"),
    ("`eject`", "[upstream.a]\nservers = \"http://a\"\n[upstream.a.eject]\n"),
    ("`connections`", "[upstream.a]\nservers = \"http://a\"\n[upstream.a.connections]\n"),
    ("`timeouts`", "[upstream.a]\nservers = \"http://a\"\n[upstream.a.timeouts]\n"),
    ("`retry`", "[upstream.a]\nservers = \"http://a\"\n[upstream.a.retry]\n"),
    ("`redirect`", "[[route]]\n[route.redirect]\nto = \"/a\"\n"),
    ("`mirror`", "[[route]]\nto = \"http://a\"\n[route.mirror]\nto = \"http://b\"\n"),
    (
        "a pair of `certs`",
        "[listener.a]\nbind = \"127.0.0.1:0\"\n[[listener.a.certs]]\ncert = \"a\"\nkey = \"b\"\n",
    ),
    ("`tls`", "[upstream.a]\nservers = \"https://a\"\n[upstream.a.tls]\n"),
    (
        "`sticky`",
        "[upstream.a]\nservers = \"http://a\"\n[upstream.a.sticky]\ncookie = \"a\"\nsecret = \"${SECRET}\"\n",
    ),
    ("`match`", "[[route]]\nto = \"http://a\"\n[route.match]\n"),
    ("`respond`", "[[route]]\n[route.respond]\n"),
    ("an upstream", "[[route]]\n[route.to]\nupstream = \"http://a\"\n"),
    ("`cors`", "[[route]]\nto = \"http://a\"\n[route.cors]\norigins = [\"https://a.example.com\"]\n"),
    (
        "a rule",
        "[admin]\ngrpc = \"127.0.0.1:0\"\n[[rls.a.descriptors]]\nentries = { a = \"*\" }\nlimit = \"1/s\"\n",
    ),
    ("[rls.<name>]", "[rls.a]\ndescriptors = []\n"),
    ("[tier.<name>]", "[tier.a]\nlimit = \"1/s\"\n"),
    ("[shutdown]", "[shutdown]\n"),
    ("[trace]", "[trace]\notlp = \"http://127.0.0.1:1\"\n"),
    ("[client-ip]", "[client-ip]\n"),
    ("[overload]", "[overload]\n"),
    ("[dns]", "[dns]\n"),
    ("[node]", "[node]\n"),
    ("[limits]", "[limits]\n"),
    ("[policy.<name>]", "[policy.a]\nby = []\nlimit = \"1/s\"\n"),
    ("`penalty`", "[policy.a]\nby = []\nlimit = \"1/s\"\n[policy.a.penalty]\nafter = 1\n"),
    ("`cost`", "[policy.a]\nby = []\nlimit = \"1000/s\"\n[policy.a.cost]\n"),
    ("`exempt`", "[policy.a]\nby = []\nlimit = \"1/s\"\n[policy.a.exempt]\n"),
    ("[auth.<name>]", "[auth.a]\nkind = \"anonymous\"\n"),
    ("[auth.<name>]", "[auth.a]\nkind = \"api-key\"\nkeys = \"database\"\n"),
    ("[auth.<name>]", "[auth.a]\nkind = \"jwt\"\njwks = \"https://a/\"\nalgorithms = \"ES256\"\n"),
    ("[auth.<name>]", "[auth.a]\nkind = \"basic\"\nusers = { file = \"a\" }\n"),
    ("[auth.<name>]", "[auth.a]\nkind = \"mtls\"\nconsumer = \"san:email\"\n"),
    ("`timeouts`", "[listener.a]\nbind = \"127.0.0.1:0\"\n[listener.a.timeouts]\n"),
    ("`timeouts`", "[[route]]\nto = \"http://a\"\n[route.timeouts]\n"),
    ("`match`", "[policy.a]\nby = []\nlimit = \"1/s\"\n[policy.a.match]\n"),
    ("`retry`", "[[route]]\nto = \"http://a\"\n[route.retry]\n"),
    ("`max`", "[listener.a]\nbind = \"127.0.0.1:0\"\n[listener.a.max]\n"),
    ("`compress`", "[[route]]\nto = \"http://a\"\n[compress]\n"),
    (
        "`require`",
        "[auth.a]\nkind = \"anonymous\"\n[[route]]\nto = \"http://a\"\nauth = \"a\"\n[route.require]\n",
    ),
];

/// What a hint has that names a key of another section.
const ELSEWHERE: [&str; 6] = ["`[", "at the top", "at the route", "beside", " and `", ", without"];

/// Headings, words and hint of each row.
fn rows() -> Vec<(Vec<&'static str>, Vec<&'static str>, &'static str)> {
    let row = |line: &'static str| {
        let mut parts = line.splitn(4, " | ");
        let mut next = || parts.next().unwrap_or_else(|| panic!("it has four parts: {line}"));
        let (headings, words, _, hint) = (next(), next(), next(), next());
        (headings.split(", ").collect(), words.split(' ').collect(), hint)
    };
    ROWS.lines().map(row).collect()
}

#[test]
fn each_word_is_told_its_hint() {
    let mut told = 0;
    for (headings, words, hint) in rows() {
        for heading in SECTIONS.iter().map(|(heading, _)| heading).filter(|it| headings.contains(it)) {
            // One of those with this heading, because their keys differ.
            let of_heading = SECTIONS.iter().filter(|(it, _)| it == heading);
            for word in &words {
                let mut said =
                    of_heading.clone().map(|(_, document)| said(&format!("{document}\"{word}\" = []\n")));
                let is_told =
                    said.any(|it| it.contains(&format!("unknown key `{word}`")) && it.contains(hint));
                assert!(is_told, "{word} in {heading} is told of another row than {hint}");
                told += 1;
            }
        }
    }
    assert!(told > 1_000, "only {told} words were tried");
}

#[test]
fn no_hint_names_a_key_that_its_section_does_not_take() {
    let words: BTreeSet<&str> = rows().into_iter().flat_map(|(_, words, _)| words).collect();
    let words: Vec<&str> = words.into_iter().collect();
    let mut named = 0;
    for (_, document) in SECTIONS.iter().skip(2) {
        let said_of_none = said(&format!("{document}zzzzz = []\n"));
        // But of a table of the operator's own keys.
        let Some((_, taken)) = said_of_none.split_once("it takes ") else { continue };
        let taken: Vec<&str> =
            taken.lines().next().unwrap_or_default().split('`').skip(1).step_by(2).collect();
        // So many at a time as are shown.
        let texts = words.chunks(150).map(|words| {
            let given = words.iter().filter(|word| !taken.contains(word));
            given.fold((*document).to_owned(), |text, word| format!("{text}\"{word}\" = []\n"))
        });
        let said: Vec<String> = texts.map(|text| said(&text)).collect();
        for error in said.iter().flat_map(|said| said.split("error: unknown key `").skip(1)) {
            let hint = error.split_once("^ ").map_or(error, |(_, hint)| hint);
            let meant = hint.strip_prefix("did you mean `").and_then(|rest| rest.split('`').next());
            let written =
                hint.strip_prefix("write `").and_then(|rest| rest.split('`').next()?.split_once(" = "));
            let written = written.map(|(key, _)| key);
            let written = written.filter(|_| !ELSEWHERE.iter().any(|words| hint.contains(words)));
            if let Some(key) = meant.or(written) {
                assert!(taken.contains(&key), "{document}{error}");
                named += 1;
            }
            // Another section only if it is next to this one.
            let of_secrets = ["key of `[redis]`", "key of `[database]`", "key of `[admin]`"];
            assert!(!of_secrets.iter().any(|home| hint.contains(home)), "{document}{error}");
        }
    }
    assert!(named > 1_000, "only {named} hints named a key");
}

#[test]
fn what_a_hint_has_for_the_section_itself_can_be_written_there() {
    // What is written is taken, and is not all that is needed.
    let more_is_needed =
        [" need", "there is no upstream", "no `[auth", "a CA issues", "to which the rule maps no entry"];
    let mut followed = 0;
    for (headings, words, hint) in rows() {
        for (heading, document) in SECTIONS.iter().skip(2).filter(|(heading, _)| headings.contains(heading)) {
            let written = hint.strip_prefix("write `").and_then(|rest| rest.split('`').next());
            let Some((written, (key, _))) = written.and_then(|it| Some((it, it.split_once(" = ")?))) else {
                continue;
            };
            // Its keys depend on its kind.
            if ELSEWHERE.iter().any(|words| hint.contains(words)) || *heading == "[auth.<name>]" {
                continue;
            }
            // Sections with the same heading have other keys.
            let told = |word: &&str| load(&[&format!("{document}\"{word}\" = []\n")]).err();
            if !words.iter().filter_map(told).any(|said| said.lines().any(|line| line.ends_with(hint))) {
                continue;
            }
            let is_instead = |line: &&str| {
                line.starts_with(&format!("{key} = ")) || key == "respond" && line.starts_with("to = ")
            };
            let lines = document.lines().filter(|line| !is_instead(line));
            let text: String =
                lines.chain([&*written.replace("NAME", "SECRET")]).map(|line| format!("{line}\n")).collect();
            let said = load(&[&text]).err().unwrap_or_default();
            let errors = said.lines().filter(|line| line.starts_with("error: "));
            let refused: Vec<&str> =
                errors.filter(|line| !more_is_needed.iter().any(|more| line.contains(more))).collect();
            assert!(refused.is_empty(), "{text}{said}");
            followed += 1;
        }
    }
    assert!(followed > 100, "only {followed} hints were followed");
}

#[test]
fn a_key_that_means_something_else_elsewhere_is_not_sent_there() {
    let auth = "[auth.j]\nkind = \"jwt\"\njwks = \"https://a/\"\nalgorithms = \"ES256\"\n";
    let upstream = "[upstream.u]\nservers = \"http://a\"\n";
    let listener = "[listener.l]\nbind = \"127.0.0.1:0\"\n";
    for (section, line, hint) in [
        (auth, "prefix = \"Bearer\"", "leave it out: a bearer token has no other prefix"),
        (auth, "url = \"http://auth/\"", "docs/not-included.md"),
        (auth, "token = \"a\"", "it takes `kind`, "),
        ("[[route]]\nto = \"http://a\"\n", "password = \"a\"", "it takes "),
        (upstream, "retry = { methods = [\"POST\"] }", "only idempotent requests without a body are retried"),
        (upstream, "health = { path = \"/\", host = \"a\" }", "`path` asks with GET"),
        (listener, "ca = \"ca.pem\"", "write `client-ca = "),
        (listener, "timeouts = { read = \"5s\" }", "write `header = \"5s\"` for the head"),
        (listener, "timeouts = \"5s\"", "write `timeouts = { header = "),
        ("[[route]]\nto = \"http://a\"\n", "host_header = \"x\"", "write `headers = { set = { host = "),
        ("[[route]]\nto = \"http://a\"\n", "allow_methods = [\"POST\"]", "write `methods = "),
        ("[[route]]\n", "return = \"301 /new\"", "write `redirect = { to = \"/new\", status = 301 }` at"),
        (
            "[[route]]\n",
            "return = \"301 https://$host$request_uri\"",
            "`redirect = { to = \"https\", status = 301 }`",
        ),
        ("[[route]]\n", "return = 403", "write `respond = { status = 403 }` at"),
        ("[[route]]\n", "return = \"200 'ok'\"", "write `respond = { status = 200, body = \"ok\" }`"),
        (
            "[[route]]\n",
            "return = \"301 /a$is_args\"",
            "write `redirect = { to = \"https://www.example.com{path}\"",
        ),
        ("[[route]]\nto = \"http://a\"\n", "limits = [\"p\"]", "or `limit = \"NAME\"` of a `[policy.NAME]`"),
        (listener, "max-body = \"1MB\"", "write `max = { body = \"1MB\" }`"),
        (upstream, "balance = \"hash:remote_addr\"", "write `hash:ip`"),
        ("[[route]]\nto = \"http://a\"\n", "path = \"\"", "`path` is empty"),
        ("[[route]]\n", "to = \"\"", "there is no upstream with an empty name"),
        (upstream, "keepalive = 32", "write `connections = { idle = 32 }`"),
        (upstream, "keepalive_timeout = \"75s\"", "write `connections = { idle-timeout = \"75s\" }`"),
        (
            upstream,
            "host = \"api.internal\"",
            "write `headers = { set = { host = \"api.internal\" } }` at the routes",
        ),
        ("[[route]]\nto = \"http://a\"\n", "client_max_body_size = \"8m\"", "write `max-body = \"8MiB\"` at"),
        (
            "[[route]]\nto = \"http://a\"\n",
            "rewrite = \"http://x/y\"",
            "write the path alone: the server goes into `to`",
        ),
        (
            "[policy.p]\nby = []\nlimit = \"1/s\"\n",
            "host = \"a.example\"",
            "write `limit = \"NAME\"` at the route",
        ),
        (
            "[policy.p]\nby = []\nlimit = \"1/s\"\n",
            "match = { prefix = \"/y\" }",
            "write `path = \"/api/{*rest}\"`\n",
        ),
        ("[policy.p]\nby = []\n", "limit = \"100/m by url\"", "no limit counts by path"),
        ("[policy.p]\nlimit = \"1/s\"\n", "replaces = \"q\"", "write the name of a `[policy.<name>]`"),
        ("[auth.b]\nkind = \"basic\"\n", "users = [\"a:b\"]", "hash-key --basic --consumer NAME"),
        ("[auth.j]\nkind = \"jwt\"\n", "secret = \"${SECRET}\"", "or `[\"HS256\"]` for a `secret`"),
        ("", "grace = \"30s\"", "write `[shutdown]` with `drain"),
        ("", "cache = { ttl = 5 }", "the gateway does not cache responses"),
        ("[log]\n", "access = \"off\"", "write `access = false` for no log"),
        ("[admin]\n", "bind = false", "`admin = false`"),
    ] {
        let said = said(&format!("{section}{line}\n"));
        assert!(format!("{said}\n").contains(hint), "{line}: {said}");
        assert!(!said.contains("did you mean"), "{line}: {said}");
    }
    for (server, hint) in [
        ("http+srv://_http._tcp.a.internal:80", "write `http+srv://_http._tcp.a.internal`"),
        ("http+srv://a.internal", "write `http+srv://_http._tcp.a.internal`"),
        ("srv://_http._tcp.a.internal", "write `http+srv://_http._tcp.a.internal`"),
        ("srv+https://_http._tcp.a.internal", "write `https+srv://_http._tcp.a.internal`"),
        ("http:/10.0.0.1", "write `http://10.0.0.1`"),
    ] {
        let said = said(&format!("[upstream.u]\nservers = \"{server}\"\n"));
        assert!(said.contains(hint), "{server}: {said}");
    }
}
