//! Traces: contexts that go on, spans that a collector decodes, and collectors that are slow, away or refuse.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;

use crate::support::upstream::{Recorded, receive};
use crate::support::{Client, Directory, Gateway, Python, Upstream, eventually};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A collector that takes everything.
pub fn collector() -> Upstream {
    Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
}

/// A gateway that traces to this collector, with routes of its own.
fn tracing(collector: &Upstream, keys: &str, more: &str) -> Gateway {
    let otlp = collector.addr();
    // The log's own default hides values of queries.
    let directory = Directory::new();
    let log = directory.join("access.log").display().to_string();
    let log = format!("[log]\naccess = {{ to = {log:?} }}\n");
    Gateway::start_in(directory, &format!("{log}[trace]\notlp = \"http://{otlp}\"\n{keys}\n{more}"))
}

/// The next batch that a collector gets.
fn batch(recorded: &Recorded) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest::decode(&*recorded.body).expect("it is a batch")
}

/// The next span.
pub fn span(collector: &Upstream) -> Span {
    let batch = batch(&collector.request());
    batch.resource_spans[0].scope_spans[0].spans[0].clone()
}

pub fn shown(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| {
        let value = attribute.value.clone().and_then(|value| value.value);
        let text = match value {
            Some(Value::StringValue(text)) => text,
            Some(Value::IntValue(number)) => number.to_string(),
            other => panic!("{other:?}"),
        };
        (attribute.key.clone(), text)
    };
    attributes.iter().map(text).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn counted(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric("sluicegate_spans_total", &[&format!("result=\"{result}\"")])
}

#[test]
fn a_span_says_what_happened_and_the_trace_goes_on_upstream() {
    let (collector, upstream) = (collector(), Upstream::ok());
    let more = format!(
        "[client-ip]\ntrust = [\"127.0.0.1\"]\n[policy.p]\nby = []\nlimit = \"5/m\"\n\
         [upstream.orders]\nservers = \"http://{}\"\n\
         [[route]]\nname = \"orders\"\npath = \"/v1/orders/{{id}}\"\nlimit = \"p\"\nto = \"orders\"\n",
        upstream.addr()
    );
    let gateway = tracing(&collector, "sample = \"0%\"\nservice = \"edge\"", &more);
    let traceparent = format!("traceparent: {PARENT}");
    let fields = [
        &*traceparent,
        "tracestate: a=1,b=2",
        "baggage: user=7",
        "X-Forwarded-For: 192.0.2.7",
        "User-Agent: test/1",
        "Host: api.example.com:81",
    ];
    let answer = gateway.client().request("GET", "/v1/orders/7?code=secret&a=", &fields, "");
    assert_eq!(answer.status, 200);
    let sent = upstream.request();
    let batch = batch(&collector.request());
    let resource = shown(&batch.resource_spans[0].resource.as_ref().expect("there is one").attributes);
    assert_eq!(resource["service.name"], "edge");
    assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
    assert!(!resource["service.instance.id"].is_empty());
    let span = &batch.resource_spans[0].scope_spans[0].spans[0];
    let span_id = hex(&span.span_id);
    assert_eq!(hex(&span.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(
        (hex(&span.parent_span_id).as_str(), span.trace_state.as_str()),
        ("b7ad6b7169203331", "a=1,b=2")
    );
    assert_eq!((span.name.as_str(), span.kind, span.flags), ("GET /v1/orders/{id}", 2, 0x301));
    let upstream_parent = format!("00-0af7651916cd43dd8448eb211c80319c-{span_id}-01");
    assert_eq!(sent.all("traceparent"), [upstream_parent.as_str()]);
    assert_eq!((sent.all("tracestate"), sent.all("baggage")), (vec!["a=1,b=2"], vec!["user=7"]));
    let attributes = shown(&span.attributes);
    for (key, value) in [
        ("http.request.method", "GET"),
        ("url.scheme", "http"),
        ("url.path", "/v1/orders/7"),
        ("url.query", "code=*&a="),
        ("http.route", "/v1/orders/{id}"),
        ("server.address", "api.example.com"),
        ("server.port", "81"),
        ("client.address", "192.0.2.7"),
        ("network.peer.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "test/1"),
        ("http.response.status_code", "200"),
        ("http.response.body.size", "2"),
        ("sluicegate.route", "orders"),
        ("sluicegate.policy", "p"),
        ("sluicegate.decision", "admitted"),
        ("sluicegate.decided", "local"),
        ("sluicegate.limit", "5"),
        ("sluicegate.remaining", "4"),
        ("sluicegate.upstream", "orders"),
    ] {
        assert_eq!(attributes.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(!attributes.contains_key("error.type"));
    let steps: Vec<&str> = span.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(steps, ["decide", "connect", "first_byte"]);
    let mut before = span.start_time_unix_nano;
    for event in &span.events {
        assert!((before..=span.end_time_unix_nano).contains(&event.time_unix_nano), "{span:?}");
        before = event.time_unix_nano;
    }
    let line = gateway.logged("/v1/orders/7?code=*&a=");
    assert_eq!(
        (line["trace_id"].as_str(), line["span_id"].as_str()),
        (Some("0af7651916cd43dd8448eb211c80319c"), Some(&*span_id))
    );
    eventually("the span is counted", || (counted(&gateway, "exported") == 1.0).then_some(()));
}

#[test]
fn a_strangers_context_is_replaced_and_linked() {
    let (collector, upstream) = (collector(), Upstream::ok());
    let route = format!("[[route]]\nto = \"http://{}\"\n", upstream.addr());
    let gateway = tracing(&collector, "sample = \"100%\"", &route);
    let traceparent = format!("traceparent: {PARENT}");
    gateway.client().request("GET", "/a", &[&traceparent, "tracestate: a=1", "baggage: user=7"], "");
    let (sent, span) = (upstream.request(), span(&collector));
    let passed = sent.header("traceparent").expect("there is one");
    assert_eq!(passed, format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id)));
    assert!(!passed.contains("0af7651916cd43dd8448eb211c80319c") && span.parent_span_id.is_empty());
    assert_eq!((sent.all("tracestate").len(), sent.all("baggage")), (0, vec!["user=7"]));
    assert_eq!(hex(&span.links[0].trace_id), "0af7651916cd43dd8448eb211c80319c");
    // Refusals and failures are spans, too.
    gateway.client().request("BREW", "/%zz", &[], "");
    let refused = collector.request();
    let refused = batch(&refused).resource_spans[0].scope_spans[0].spans[0].clone();
    let attributes = shown(&refused.attributes);
    assert_eq!(attributes["http.request.method"], "_OTHER");
    assert_eq!(attributes["http.request.method_original"], "BREW");
    assert_eq!((attributes["sluicegate.reason"].as_str(), refused.name.as_str()), ("malformed", "HTTP"));
    assert_eq!((&refused.status, attributes.get("error.type")), (&None, None), "it is the client's error");
}

#[test]
fn without_a_sampled_parent_the_share_decides_and_off_passes_everything() {
    let (collector, upstream) = (collector(), Upstream::ok());
    let route = format!("[[route]]\nto = \"http://{}\"\n", upstream.addr());
    let gateway = tracing(&collector, "sample = \"0%\"\nparent = \"always\"", &route);
    gateway.client().request("GET", "/a", &[], "");
    let begun = upstream.request().header("traceparent").expect("a trace begins");
    assert!(begun.starts_with("00-") && begun.ends_with("-00"), "{begun}");
    let line = gateway.logged("/a");
    // Its id is the request's, so whoever has an answer's X-Request-Id has the trace.
    assert_eq!((line["request_id"].as_str(), &begun[36..52]), (Some(&begun[3..35]), &begun[19..35]));
    // The trace may be found elsewhere; a span that is sent to nobody is found nowhere.
    assert_eq!(
        (line["trace_id"].as_str(), &line["span_id"]),
        (Some(&begun[3..35]), &serde_json::Value::Null)
    );
    let unsampled = PARENT.replace("-01", "-00");
    gateway.client().request("GET", "/b", &[&format!("traceparent: {unsampled}")], "");
    assert_eq!(upstream.request().header("traceparent"), Some(unsampled));
    assert_eq!(gateway.logged("/b")["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    gateway.client().request("GET", "/c", &[&format!("traceparent: {PARENT}")], "");
    assert_eq!(hex(&span(&collector).trace_id), "0af7651916cd43dd8448eb211c80319c");
    // Two are none.
    let twice = format!("traceparent: {PARENT}");
    upstream.request();
    gateway.client().request("GET", "/d", &[&twice, &twice, "tracestate: a=1"], "");
    let sent = upstream.request();
    assert!(sent.all("traceparent").len() == 1 && sent.all("tracestate").is_empty(), "{sent:?}");
    // Off, everything passes as it came.
    gateway.reload(&route);
    gateway.client().request("GET", "/e", &["traceparent: odd", "traceparent: odd", "tracestate: a=1"], "");
    let sent = upstream.request();
    assert_eq!((sent.all("traceparent"), sent.all("tracestate")), (vec!["odd", "odd"], vec!["a=1"]));
    assert_eq!(gateway.logged("/e")["trace_id"], serde_json::Value::Null);
    assert_eq!(counted(&gateway, "exported"), 1.0);
}

#[test]
fn whoever_comes_next_is_told_once_unless_the_route_says_otherwise() {
    let (collector, upstream, shadow) = (collector(), Upstream::ok(), Upstream::ok());
    let routes = [
        ("/plain", "to = \"first\"\nmirror = \"shadow\""),
        ("/changed", "to = \"first\"\nheaders = { set = { x-a = \"b\" } }"),
        ("/removed", "to = \"first\"\nheaders = { remove = [\"traceparent\"] }"),
        ("/own", "to = \"first\"\nheaders = { set = { traceparent = \"{request_id}\" } }"),
        ("/echo", "to = \"echo\""),
    ];
    let routes = routes.map(|(path, keys)| format!("[[route]]\npath = \"{path}\"\n{keys}\n")).concat();
    let servers = [("first", upstream.addr()), ("shadow", shadow.addr())];
    let servers = servers.map(|(name, addr)| format!("[upstream.{name}]\nservers = \"http://{addr}\"\n"));
    let gateway = tracing(&collector, "sample = \"0%\"", &(servers.concat() + &routes));
    let told = |path: &str, parent: &str| {
        let fields = [&*format!("traceparent: {parent}"), "tracestate: a=1"];
        let (target, fields) =
            if parent.is_empty() { (path.to_owned(), &[][..]) } else { (format!("{path}?a="), &fields[..]) };
        let answer = gateway.client().request("GET", &target, fields, "").text();
        let trace = gateway.logged(&target)["trace_id"].as_str().expect("there is one").to_owned();
        (answer, trace)
    };
    for parent in ["", PARENT] {
        let (_, trace) = told("/plain", parent);
        let (sent, copy) = (upstream.request(), shadow.request());
        let line = sent.header("traceparent").expect("there is one");
        assert!(line.starts_with(&format!("00-{trace}-")) && line.ends_with("-00"), "{line}");
        assert_eq!((sent.all("traceparent").len(), sent.all("tracestate").len()), (1, 0));
        assert_eq!(copy.all("traceparent"), [&*line], "a copy is of the same trace");
        let (_, trace) = told("/changed", parent);
        let sent = upstream.request();
        assert!(sent.all("traceparent").len() == 1 && sent.all("x-a") == ["b"], "{sent:?}");
        assert_eq!(sent.header("traceparent").expect("there is one")[3..35], trace);
        told("/removed", parent);
        assert!(upstream.request().all("traceparent").is_empty());
        told("/own", parent);
        let sent = upstream.request();
        assert_eq!(sent.all("traceparent"), sent.all("x-request-id"));
        let (answer, trace) = told("/echo", parent);
        let lines: Vec<_> = answer.lines().filter(|line| line.starts_with("traceparent: ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(&trace), "{answer}");
    }
}

#[test]
fn a_collector_over_grpc_gets_the_same_and_its_metadata() {
    let (collector, python) = (collector(), Python::serve("otlp_collector.py"));
    let keys = format!(
        "protocol = \"grpc\"\nsample = \"100%\"\nheaders = {{ x-hand-to = \"{}\" }}",
        collector.addr()
    );
    let otlp = python.addr();
    let gateway =
        Gateway::start(&format!("[trace]\notlp = \"http://{otlp}\"\n{keys}\n[[route]]\nrespond = {{}}\n"));
    assert_eq!(gateway.get("/over-grpc").status, 200);
    let recorded = collector.request();
    assert_eq!(recorded.line, "POST /grpc HTTP/1.1");
    let span = batch(&recorded).resource_spans[0].scope_spans[0].spans[0].clone();
    assert_eq!(shown(&span.attributes)["url.path"], "/over-grpc");
    eventually("the span is counted", || (counted(&gateway, "exported") == 1.0).then_some(()));
    // The headers to a collector are its credentials.
    let effective = gateway.admin("/config").text();
    assert!(effective.contains("x-hand-to = \"********\""), "{effective}");
}

#[test]
fn who_refuses_costs_the_batch_and_who_is_busy_gets_it_again() {
    let answers = std::sync::atomic::AtomicUsize::new(0);
    let partial = ExportTraceServiceResponse {
        partial_success: Some(ExportTracePartialSuccess {
            rejected_spans: 1,
            error_message: "too\nold".into(),
        }),
    };
    let partial = partial.encode_to_vec();
    let collector =
        Upstream::replying(move |_| match answers.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => b"HTTP/1.1 503 No\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n".to_vec(),
            1 => b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec(),
            2 | 4 => b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
            3 => b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
            _ => {
                [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", partial.len()).as_bytes(), &partial]
                    .concat()
            }
        });
    let gateway = tracing(&collector, "sample = \"100%\"", "[[route]]\nrespond = {}\n");
    gateway.get("/busy");
    let first = collector.request();
    let asked = Instant::now();
    let again = collector.request();
    assert_eq!(first.body, again.body);
    assert!(asked.elapsed() > Duration::from_millis(800), "no wait is asked for: {:?}", asked.elapsed());
    eventually("it is taken", || (counted(&gateway, "exported") == 1.0).then_some(()));
    for (path, lost) in
        [("/refused", 1.0), ("/refused-otherwise", 2.0), ("/refused", 3.0), ("/rejected", 4.0)]
    {
        gateway.get(path);
        eventually("it is lost", || (counted(&gateway, "dropped") == lost).then_some(()));
    }
    assert_eq!(counted(&gateway, "exported"), 1.0);
    let said = gateway.stderr().join("\n");
    for words in [
        "trace export failed: spans are dropped until it works error=\"the collector refuses spans: 400",
        "for another reason error=\"the collector refuses spans: 401\" spans_lost=1",
        "accepts spans again spans_lost=3",
        "or sent a warning rejected=1 says=too\\nold",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(said.matches("trace export").count(), 2, "a line for each reason: {said}");
}

#[test]
fn a_collector_that_hangs_costs_spans_and_no_request() {
    let hanging = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {}
    });
    let mut gateway = tracing(&hanging, "sample = \"100%\"", "[[route]]\nrespond = {}\n");
    let mut client = gateway.client();
    let began = Instant::now();
    // One batch is on its way, the queue takes 4096, and the rest is lost at once.
    for _ in 0..6_000 {
        assert_eq!(client.get("/a").status, 200);
    }
    eventually("spans are lost", || (counted(&gateway, "dropped") > 500.0).then_some(()));
    assert_eq!(counted(&gateway, "exported"), 0.0);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    // The end does not wait for it either.
    let began = Instant::now();
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let said = gateway.stderr().join("\n");
    let lost =
        said.split("before shutdown spans_lost=").nth(1).and_then(|rest| rest.split_whitespace().next());
    let lost: u64 = lost.and_then(|lost| lost.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    assert_eq!(lost, 6_000, "the batch that was on its way, the queue, and what found no room");
}

#[test]
fn a_collector_that_is_too_slow_is_said_to_be_and_when_it_is_no_longer() {
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let collector = Upstream::replying(move |_| {
        // Each batch waits for its turn; once nobody holds the other end, none does.
        let _ = gate.lock().expect("no test panics here").recv();
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let gateway = tracing(&collector, "sample = \"100%\"", "[[route]]\nrespond = {}\n");
    let mut client = gateway.client();
    let said = |words: &str| gateway.stderr().iter().filter(|line| line.contains(words)).count();
    for _ in 0..6_000 {
        assert_eq!(client.get("/a").status, 200);
    }
    eventually("spans are lost", || (counted(&gateway, "dropped") > 500.0).then_some(()));
    release.send(()).expect("it waits");
    eventually("it is said", || (said("trace queue is full") == 1).then_some(()));
    drop(release);
    let lost = eventually("it has caught up", || {
        let line = gateway.stderr().into_iter().find(|line| line.contains("trace queue has room again"))?;
        line.split("spans_lost=").nth(1)?.split_whitespace().next()?.parse::<f64>().ok()
    });
    assert_eq!(lost, counted(&gateway, "dropped"));
    assert_eq!(said("trace queue is full"), 1);
}

#[test]
fn a_method_that_the_conventions_do_not_know_names_no_span() {
    let collector = collector();
    let gateway = tracing(&collector, "sample = \"100%\"", "[[route]]\npath = \"/a\"\nrespond = {}\n");
    gateway.client().request("PURGE", "/a", &[], "");
    let span = span(&collector);
    let attributes = shown(&span.attributes);
    let methods = ["http.request.method", "http.request.method_original"].map(|key| attributes[key].as_str());
    assert_eq!((span.name.as_str(), methods), ("HTTP /a", ["_OTHER", "PURGE"]));
}

/// Whether a span is an error, and of what type.
fn failed(span: &Span) -> (bool, Option<String>) {
    let is_error = span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error);
    (is_error, shown(&span.attributes).remove("error.type"))
}

#[test]
fn an_answer_that_breaks_off_is_an_error_whatever_its_status() {
    let collector = collector();
    let broken = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nContent-Type: application/grpc\r\n\r\nabc");
        }
    });
    let route = format!("[[route]]\nto = \"http://{}\"\n", broken.addr());
    let gateway = tracing(&collector, "sample = \"100%\"", &route);
    gateway.client().send("GET /cut HTTP/1.1\r\nHost: a\r\n\r\n").rest();
    let cut = span(&collector);
    assert_eq!(failed(&cut), (true, Some("upstream-reset".to_owned())));
    assert_eq!(shown(&cut.attributes)["http.response.status_code"], "200");
    let url = format!("http://{}/call", gateway.plain());
    let call = ["-s", "--http2-prior-knowledge", "-H", "Content-Type: application/grpc", "-d", "", &url];
    Command::new("curl").args(call).output().expect("curl can be started");
    let call = span(&collector);
    assert_eq!(failed(&call), (true, Some("upstream-reset".to_owned())));
    assert_eq!(shown(&call.attributes)["http.response.status_code"], "200");
}

#[test]
fn a_client_that_has_gone_was_sent_no_status() {
    let (collector, hanging) = (collector(), Upstream::raw(|stream| drop(Client::over(stream).rest())));
    let route = format!("[[route]]\nto = \"http://{}\"\n", hanging.addr());
    let gateway = tracing(&collector, "sample = \"100%\"", &route);
    let mut client = gateway.client();
    client.send("GET /gone HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is on its way", || (hanging.connections() > 0).then_some(()));
    drop(client);
    let gone = span(&collector);
    let attributes = shown(&gone.attributes);
    assert_eq!(attributes["url.path"], "/gone");
    assert_eq!(failed(&gone), (true, Some("client-gone".to_owned())));
    assert_eq!(attributes.get("http.response.status_code"), None);
    assert_eq!(gateway.logged("/gone")["status"], 499, "the log has one all the same");
}

#[test]
fn a_refused_client_is_no_error_of_the_server() {
    let collector = collector();
    let route = "[[route]]\nlimit = \"1/h\"\nrespond = {}\n";
    let gateway = tracing(&collector, "sample = \"100%\"", route);
    gateway.get("/a");
    span(&collector);
    assert_eq!(gateway.get("/a").status, 429);
    let refused = span(&collector);
    assert_eq!(failed(&refused), (false, None));
    let attributes = shown(&refused.attributes);
    assert_eq!(
        (&*attributes["sluicegate.reason"], &*attributes["sluicegate.decision"]),
        ("limited", "denied")
    );
    // A target without a path, which is refused.
    let client = &mut gateway.client();
    client.send("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n").response();
    let connect = shown(&span(&collector).attributes);
    let target = ["url.path", "server.address", "server.port"].map(|key| &*connect[key]);
    assert_eq!(target, ["/", "a.example", "443"]);
}

#[test]
fn the_server_is_the_one_that_the_client_asked() {
    let collector = collector();
    let trust = |net: &str| format!("[client-ip]\ntrust = [\"{net}\"]\n[[route]]\nrespond = {{}}\n");
    let gateway = tracing(&collector, "sample = \"100%\"", &trust("127.0.0.1"));
    let asked = |fields: &[&str]| {
        gateway.client().request("GET", "/a", fields, "");
        let attributes = shown(&span(&collector).attributes);
        ["url.scheme", "server.address", "server.port"]
            .map(|key| attributes.get(key).cloned().unwrap_or_default())
    };
    assert_eq!(asked(&["Host: [2001:db8::1]:81"]), ["http", "2001:db8::1", "81"]);
    let hop = ["Host: inside", "X-Forwarded-Host: shop.example:8443", "X-Forwarded-Proto: https"];
    assert_eq!(asked(&hop), ["https", "shop.example", "8443"]);
    let otlp = collector.addr();
    gateway.reload(&format!("[trace]\notlp = \"http://{otlp}\"\nsample = \"100%\"\n{}", trust("192.0.2.1")));
    assert_eq!(asked(&hop), ["http", "inside", ""], "anybody could say so");
}

#[test]
fn a_collectors_url_may_have_the_path_already() {
    for (path, called) in [("", "/v1/traces"), ("/v1/traces", "/v1/traces"), ("/otlp/", "/otlp/v1/traces")] {
        let collector = collector();
        let otlp = format!("http://{}{path}", collector.addr());
        let route = "[[route]]\nrespond = {}\n";
        let gateway = Gateway::start(&format!("[trace]\notlp = {otlp:?}\nsample = \"100%\"\n{route}"));
        gateway.get("/a");
        assert_eq!(collector.request().line, format!("POST {called} HTTP/1.1"));
    }
}

#[test]
fn what_was_sampled_before_a_stop_is_sent() {
    let collector = collector();
    let mut gateway = tracing(&collector, "sample = \"100%\"", "[[route]]\nrespond = {}\n");
    gateway.get("/last");
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert_eq!(shown(&span(&collector).attributes)["url.path"], "/last");
}
