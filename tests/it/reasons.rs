//! What the access log says of requests that failed, the metrics count: the same reasons, and every exchange once.

use crate::support::{Client, Gateway, Upstream, eventually};

#[test]
fn a_reason_that_is_known_only_at_the_end_is_counted_too() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        match peer.try_head() {
            Some(head) if head.starts_with("GET /cut") => {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
            }
            Some(head) if head.starts_with("GET /stall") => {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
                peer.rest();
            }
            Some(_) => drop(peer.rest()),
            None => {}
        }
    });
    let gateway = Gateway::start(&format!(
        "[upstream.u]\nservers = [\"http://{}\"]\ntimeouts = {{ response = \"30s\", total = \"1s\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\n[[route]]\npath = \"/patient\"\nto = \"u\"\n\
         timeouts = {{ total = \"60s\" }}\n",
        upstream.addr()
    ));
    for target in ["/cut", "/cut", "/stall"] {
        let mut client = gateway.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.rest();
    }
    let mut impatient = gateway.client();
    impatient.send("GET /patient HTTP/1.1\r\nHost: a\r\n\r\n");
    let sent = |outcome: &[&str]| gateway.metric("sluicegate_upstream_exchanges_total", outcome);
    eventually("the upstream has the request", || (upstream.connections() >= 4).then_some(()));
    drop(impatient);
    let log = eventually("all are logged", || Some(gateway.access_log()).filter(|log| log.len() == 4));
    for (reason, count) in [("upstream-reset", 2), ("upstream-timeout", 1), ("client-gone", 1)] {
        let logged = log.iter().filter(|line| line["reason"] == reason).count();
        let label = format!("reason=\"{reason}\"");
        let counted = || gateway.metric("sluicegate_refused_requests_total", &[&label]);
        assert_eq!((logged, counted()), (count, count as f64), "{reason}");
    }
    assert_eq!(sent(&[]), 4.0);
    assert_eq!((sent(&["outcome=\"client-gone\""]), sent(&["outcome=\"reset\""])), (1.0, 2.0));
}
