//! `/v1/live`: one summary a second for all who watch, until their credentials end or the gateway drains.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use base::clock;

/// A listener whose summaries are numbers that count how many were made.
fn counting(limits: AdminLimits, tokens: Vec<BearerToken>) -> (Admin, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let admin = Admin::of_state(routes::endpoints(), limits, |state| {
        state.access.tokens = tokens;
        state.live = LiveFeed::new(Box::new(move || counted.fetch_add(1, Ordering::Relaxed).to_string()));
    });
    (admin, made)
}

impl TestClient<TcpStream> {
    async fn watch(&mut self, headers: &str) -> String {
        self.request("GET /v1/live", headers).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(within(self.0.read_u8()).await.expect("an answer"));
        }
        String::from_utf8(head).expect("UTF-8")
    }

    /// The next chunk, without its frame; empty at the end.
    async fn event(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(within(self.0.read_u8()).await.expect("a size"));
        }
        let size = String::from_utf8(line).expect("UTF-8");
        let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).expect("a size") + 2];
        within(self.0.read_exact(&mut chunk)).await.expect("a chunk");
        String::from_utf8(chunk).expect("UTF-8").trim_end().to_owned()
    }
}

#[tokio::test]
async fn all_who_watch_share_one_summary_a_second_and_none_is_made_for_nobody() {
    let (admin, made) = counting(AdminLimits::default(), Vec::new());
    let mut watching = [admin.connect().await, admin.connect().await, admin.connect().await];
    for client in &mut watching {
        let head = client.watch("").await;
        assert!(head.contains("content-type: text/event-stream\r\n") && head.contains("no-store"), "{head}");
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        for client in &mut watching {
            seen.push(client.event().await);
        }
    }
    seen.sort();
    seen.dedup();
    assert!((3..=4).contains(&seen.len()) && seen[0] == "data: 0", "{seen:?}");
    drop(watching);
    time::sleep(Duration::from_millis(1200)).await;
    let before = made.load(Ordering::Relaxed);
    time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(made.load(Ordering::Relaxed), before);
}

#[tokio::test]
async fn places_of_those_who_watch_are_not_those_of_pages() {
    let limits = AdminLimits { streams_max: 1, pages_max: 1, ..AdminLimits::default() };
    let (admin, _) = counting(limits, Vec::new());
    let mut first = admin.connect().await;
    assert!(first.watch("").await.starts_with("HTTP/1.1 200"));
    let refused = admin.ask("GET /v1/live", "").await;
    assert_eq!(refused.first_line(), "HTTP/1.1 503 Service Unavailable");
    assert!(refused.has_header("retry-after: 10") && refused.body().contains("live pages are open"));
    assert_eq!(admin.ask("GET /config", "").await.first_line(), "HTTP/1.1 200 OK");
    drop(first);
    let mut again = admin.connect().await;
    while !again.watch("").await.starts_with("HTTP/1.1 200") {
        again = admin.connect().await;
    }
}

#[tokio::test]
async fn it_ends_with_its_token() {
    let now = i64::try_from(clock::unix().as_secs()).expect("before the year 292277026596");
    let brief = BearerToken::of_text("brief", "b", AdminRole::Read, Some(now + 2));
    let (admin, _) = counting(AdminLimits::default(), vec![brief]);
    assert_eq!(admin.ask("GET /v1/live", "").await.first_line(), "HTTP/1.1 401 Unauthorized");
    let mut client = admin.connect().await;
    assert!(client.watch("authorization: Bearer b\r\n").await.starts_with("HTTP/1.1 200"));
    while !client.event().await.is_empty() {}
    let after = i64::try_from(clock::unix().as_secs()).expect("the same");
    assert!((now + 2..now + 5).contains(&after), "{now} {after}");
    let refused = client.ask("GET /v1/live", "authorization: Bearer b\r\n").await;
    assert!(refused.body().contains("has expired"), "{}", refused.0);
}

#[tokio::test]
async fn it_ends_with_a_drain() {
    let (admin, _) = counting(AdminLimits::default(), Vec::new());
    let mut client = admin.connect().await;
    client.watch("").await;
    client.event().await;
    admin.readiness.enter(ProcessPhase::Draining);
    // One more event says so, and the next answer may be a successor's.
    assert!(client.event().await.starts_with("data: "));
    assert_eq!(client.event().await, "");
}

#[tokio::test]
async fn who_reads_nothing_is_let_go_and_who_reads_is_not() {
    let limits = AdminLimits { stall: Duration::from_millis(1500), answer: SHORT, ..AdminLimits::default() };
    let admin = Admin::of_state(routes::endpoints(), limits, |state| {
        // More than the buffers of both sides of a socket take.
        state.live = LiveFeed::new(Box::new(|| "\"x\"".repeat(4 * 1024 * 1024)));
    });
    let (mut reading, mut silent) = (admin.connect().await, admin.connect().await);
    reading.watch("").await;
    silent.watch("").await;
    for _ in 0..4 {
        assert!(reading.event().await.len() > 1024 * 1024);
    }
    // What was on its way arrives, and then the end comes in the middle of an event.
    let mut rest = Vec::new();
    let _ = within(silent.0.read_to_end(&mut rest)).await;
    assert!(rest.len() < 12 * 1024 * 1024 * 2, "{}", rest.len());
}

#[tokio::test]
async fn browsers_get_the_page_without_a_token_and_others_the_list_with_one() {
    let admin = Admin::start(Some("secret"), AdminLimits::default());
    let page = admin.ask("GET /", "accept: text/html,application/xhtml+xml;q=0.9\r\n").await;
    assert_eq!(page.first_line(), "HTTP/1.1 200 OK");
    assert!(
        page.has_header("vary: accept") && page.has_header("x-content-type-options: nosniff"),
        "{}",
        page.0
    );
    assert!(page.0.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{}", page.0);
    assert!(page.body().starts_with("<!doctype html>"));
    for accept in ["", "accept: */*\r\n", "accept: text/plain\r\n", "accept: text/htmlx\r\n"] {
        assert_eq!(admin.ask("GET /", accept).await.first_line(), "HTTP/1.1 401 Unauthorized", "{accept}");
    }
    let listed = admin.ask("GET /", "authorization: Bearer secret\r\n").await;
    assert!(listed.has_header("vary: accept") && listed.body().contains("/v1/live"), "{}", listed.0);
    let me = admin.ask("GET /v1/whoami", "authorization: Bearer secret\r\n").await;
    assert_eq!(me.body(), r#"{"expires":null,"role":"admin","who":"token"}"#);
    assert_eq!(admin.ask("GET /v1/whoami", "").await.first_line(), "HTTP/1.1 401 Unauthorized");
}

/// A page in a browser is as much a target of DNS rebinding as its data.
#[tokio::test]
async fn the_page_is_for_hosts_that_are_served_only() {
    let admin = Admin::of_state(routes::endpoints(), AdminLimits::default(), |state| {
        state.access.hosts = Some(Vec::new());
    });
    for path in ["/", "/page/page.js"] {
        let mut client = admin.connect().await;
        client.send(&format!("GET {path} HTTP/1.1\r\nhost: evil.example\r\naccept: text/html\r\n\r\n")).await;
        assert_eq!(client.answer().await.first_line(), "HTTP/1.1 421 Misdirected Request", "{path}");
    }
}

#[tokio::test]
async fn files_of_the_page_are_asked_for_again_and_sent_once() {
    let admin = Admin::start(Some("secret"), AdminLimits::default());
    let file = admin.ask("GET /page/page.js", "").await;
    assert!(
        file.has_header("content-type: text/javascript; charset=utf-8")
            && file.has_header("cache-control: no-cache")
    );
    let tag = file.0.lines().find_map(|line| line.strip_prefix("etag: ")).expect("a tag");
    let same = admin.ask("GET /page/page.js", &format!("if-none-match: {tag}\r\n")).await;
    assert_eq!((same.first_line(), same.body()), ("HTTP/1.1 304 Not Modified", ""));
    let other = admin.ask("GET /page/page.js", "if-none-match: \"0\"\r\n").await;
    assert_eq!(other.first_line(), "HTTP/1.1 200 OK");
    assert_eq!(admin.ask("GET /page/mod.rs", "").await.first_line(), "HTTP/1.1 404 Not Found");
    assert_eq!(admin.ask("POST /page/page.js", "").await.first_line(), "HTTP/1.1 405 Method Not Allowed");
}
