//! What is said of keys and values that other programs have: each word of `keys/foreign.txt` is told its hint, and what a
//! hint has for the section itself can be written there.

use super::{load, said};

const ROWS: &str = include_str!("../keys/foreign.txt");

/// Headings, and a document that ends in the section.
const SECTIONS: [(&str, &str); 43] = [
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
    ("`max`", "[listener.a]\nbind = \"127.0.0.1:0\"\n[listener.a.max]\n"),
    ("`compress`", "[[route]]\nto = \"http://a\"\n[compress]\n"),
    (
        "`require`",
        "[auth.a]\nkind = \"anonymous\"\n[[route]]\nto = \"http://a\"\nauth = \"a\"\n[route.require]\n",
    ),
];

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
        for (_, document) in SECTIONS.iter().filter(|(heading, _)| headings.contains(heading)) {
            for word in &words {
                let said = said(&format!("{document}\"{word}\" = []\n"));
                assert!(said.contains(&format!("unknown key `{word}`")), "{document}{word}: {said}");
                assert!(said.contains(hint), "{document}{word} is told of another row: {said}");
                told += 1;
            }
        }
    }
    assert!(told > 1_000, "only {told} words were tried");
}

#[test]
fn what_a_hint_has_for_the_section_itself_can_be_written_there() {
    // What is written is taken, and is not all that is needed.
    let more_is_needed =
        [" need", "there is no upstream", "no `[auth", "a CA issues", "to which the rule maps no entry"];
    let elsewhere = [" in `[", "at the route", "beside", "of `[", " and `", ", without"];
    let mut followed = 0;
    for (headings, _, hint) in rows() {
        for (heading, document) in SECTIONS.iter().skip(2).filter(|(heading, _)| headings.contains(heading)) {
            let written = hint.strip_prefix("write `").and_then(|rest| rest.split('`').next());
            let Some((written, (key, _))) = written.and_then(|it| Some((it, it.split_once(" = ")?))) else {
                continue;
            };
            // Its keys depend on its kind.
            if elsewhere.iter().any(|words| hint.contains(words)) || *heading == "[auth.<name>]" {
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
