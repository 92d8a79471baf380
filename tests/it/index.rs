//! The index of the documents: every page is reached from it, every word that users of other gateways search for leads to an
//! answer, and no page is too long to read.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::documents::{anchor, documents, documents_of_the_code};

const INDEX: &str = "docs/README.md";
const WORDS_HEAD: &str = "| word | answer |\n";

/// Words that users of nginx, HAProxy, Envoy, Kong, Traefik and Caddy search for.
const WORDS: &[&str] = &[
    "429",
    "502",
    "503",
    "504",
    "access log",
    "ACME",
    "allowlist",
    "API key",
    "ban",
    "basic auth",
    "body size limit",
    "burst",
    "caching",
    "canary",
    "circuit breaker",
    "compression",
    "connection limit",
    "consistent hashing",
    "CORS",
    "denylist",
    "DNS",
    "Docker",
    "dry run",
    "Envoy",
    "error pages",
    "fail closed",
    "fail open",
    "forward auth",
    "graceful shutdown",
    "Grafana",
    "gRPC",
    "gzip",
    "header rewrite",
    "health check",
    "hot reload",
    "HTTP/2",
    "HTTP/3",
    "idempotency key",
    "ingress",
    "IP allow list",
    "JWKS",
    "JWT",
    "keep-alive",
    "Kubernetes",
    "least connections",
    "Let's Encrypt",
    "load balancing",
    "Lua",
    "maintenance mode",
    "mirroring",
    "mTLS",
    "multi-tenant",
    "OIDC",
    "OpenTelemetry",
    "outlier detection",
    "path rewrite",
    "plugins",
    "Prometheus",
    "PROXY protocol",
    "quota",
    "rate limit",
    "real IP",
    "redirect",
    "Redis Cluster",
    "Redis Sentinel",
    "Retry-After",
    "retry budget",
    "service discovery",
    "shadow",
    "slow start",
    "SNI",
    "SSE",
    "sticky session",
    "systemd",
    "throttle",
    "timeout",
    "tracing",
    "traffic splitting",
    "WAF",
    "WebSocket",
    "X-Forwarded-For",
    "zero downtime",
];

/// The most bytes that a document may have, tables that are generated apart.
const BYTES_MAX: &[(&str, usize)] =
    &[("README.md", 8 << 10), ("ARCHITECTURE.md", 12 << 10), ("SECURITY.md", 6 << 10)];
const PAGE_BYTES_MAX: usize = 16 << 10;
/// Of the reference of the configuration: five minutes of reading.
const REFERENCE_BYTES_MAX: usize = 8 << 10;

fn document(name: &str) -> Option<String> {
    let all = documents().into_iter().chain(documents_of_the_code());
    all.into_iter().find(|(it, _)| it == name).map(|(_, text)| text)
}

/// The document that a link in another one leads to, and the heading in it.
fn target(page: &str, link: &str) -> (String, String) {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let mut path = PathBuf::from(page);
    if !file.is_empty() {
        path = path.with_file_name(file);
    }
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    (plain.display().to_string(), heading.to_owned())
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.filter(|link| !link.contains("://"))
}

/// What stands under a heading and those below it, or all of a document.
fn section(text: &str, heading: &str) -> String {
    if heading.is_empty() {
        return text.to_owned();
    }
    let depth = |line: &str| line.chars().take_while(|sign| *sign == '#').count();
    let mut lines = text.lines().skip_while(|line| !line.starts_with('#') || anchor(line) != heading);
    let head = lines.next().unwrap_or_default();
    let inside = lines.take_while(|line| !(1..=depth(head)).contains(&depth(line)));
    inside.fold(head.to_owned(), |all, line| format!("{all}\n{line}"))
}

/// The entries of the index of words: their words, and the link of the answer.
fn entries() -> Vec<(Vec<String>, String)> {
    let index = document(INDEX).expect("there is an index");
    let mut found = Vec::new();
    for table in index.split(WORDS_HEAD).skip(1) {
        for row in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
            let (words, answer) = row.trim_matches('|').split_once(" | ").expect("it has two cells");
            let words = words.split(", ").map(|word| word.trim().to_owned()).collect();
            found.push((words, links(answer).next().expect("an answer is a link").to_owned()));
        }
    }
    found
}

#[test]
fn every_word_that_is_searched_for_leads_to_an_answer() {
    let entries = entries();
    let has = |word: &str| entries.iter().any(|(words, _)| words.iter().any(|it| it == word));
    let missing: Vec<&&str> = WORDS.iter().filter(|word| !has(word)).collect();
    assert!(missing.is_empty(), "{INDEX} has no entry of {missing:?}");
    let mut wrong = Vec::new();
    for (words, link) in &entries {
        let (page, heading) = target(INDEX, link);
        let text = document(&page).unwrap_or_else(|| panic!("{INDEX}: there is no {page}"));
        let section = section(&text, &heading).to_lowercase();
        if !words.iter().any(|word| section.contains(&word.to_lowercase())) {
            wrong.push(format!("{link} says nothing of {words:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let firsts: Vec<String> = entries.iter().map(|(words, _)| words[0].to_lowercase()).collect();
    assert!(firsts.is_sorted(), "the words are not in order: {firsts:?}");
}

#[test]
fn every_page_is_reached_from_the_index() {
    let pages: BTreeSet<String> =
        documents().into_iter().map(|(name, _)| name).filter(|name| name.starts_with("docs/")).collect();
    let mut reached = BTreeSet::from([INDEX.to_owned()]);
    let mut next = vec![INDEX.to_owned()];
    while let Some(page) = next.pop() {
        let text = document(&page).unwrap_or_default();
        for link in links(&text) {
            let (to, _) = target(&page, link);
            if pages.contains(&to) && reached.insert(to.clone()) {
                next.push(to);
            }
        }
    }
    let lost: Vec<&String> = pages.difference(&reached).collect();
    assert!(lost.is_empty(), "no link leads to {lost:?}");
}

/// The bytes of a document, tables that are generated apart.
fn bytes(text: &str) -> usize {
    let (mut bytes, mut is_generated) = (0, false);
    for line in text.lines() {
        is_generated = line.starts_with("<!-- ") || is_generated && line.starts_with('|');
        bytes += if is_generated { 0 } else { line.len() + 1 };
    }
    bytes
}

#[test]
fn no_document_is_too_long() {
    let mut long = Vec::new();
    for (name, text) in documents().into_iter().chain(documents_of_the_code()) {
        let own = BYTES_MAX.iter().find(|(it, _)| *it == name).map(|(_, most)| *most);
        let most = match own {
            Some(most) => most,
            None if name.starts_with("docs/reference/configuration/") => REFERENCE_BYTES_MAX,
            None if name.starts_with("docs/") => PAGE_BYTES_MAX,
            None => continue,
        };
        if bytes(&text) > most {
            long.push(format!("{name}: {} bytes of {most}", bytes(&text)));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn sections_links_and_generated_tables_are_told_apart() {
    let text = "# A\none\n## B b\ntwo\n### C\nthree\n## D\nfour\n";
    assert_eq!(section(text, "b-b"), "## B b\ntwo\n### C\nthree");
    assert_eq!(section(text, "d"), "## D\nfour");
    assert_eq!(target("docs/a/b.md", "../c.md#d"), ("docs/c.md".to_owned(), "d".to_owned()));
    assert_eq!(target("docs/a/b.md", "#d"), ("docs/a/b.md".to_owned(), "d".to_owned()));
    assert_eq!(bytes("a\n<!-- keys: b -->\n| c |\n| d |\n\n| e |\n"), 2 + 1 + 6);
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(INDEX).exists());
}
