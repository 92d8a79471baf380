//! `sluicegate migrate nginx`: a file whose maps choose the upstream does what a real nginx does with it.

use crate::migrate::Migrated;
use crate::support::nginx::Nginx;
use crate::support::{Client, Gateway, text};

#[test]
fn maps_lead_requests_where_nginx_leads_them() {
    let servers = ["a", "b", "c"]
        .map(|name| Nginx::start(&format!("location / {{ return 200 \"{name} $request_uri\"; }}")));
    let [a, b, c] = servers.each_ref().map(Nginx::addr);
    let places = "location / { proxy_pass http://$by_host; }\n\
         location /m/ { proxy_pass http://$by_method$request_uri; }\nlocation /p/ { proxy_pass http://$by_path; }\n\
         location /p/own/ { return 403; }\nlocation /adm/ { deny all; proxy_pass http://$by_host; }\n\
         location /fixed { set $to http://$by_host; proxy_pass $to/new; }";
    // The last brace is not there, because what starts nginx closes a block behind these lines.
    let maps = format!(
        "map $host $by_host {{ hostnames; default $by_field; b.test {b}; *.c.test {c}; ~^x.*\\.d\\.test$ {b}; }}\n\
         map $http_x_env $by_field {{ default {a}; 2 {b}; ~^(3|4)$ {c}; }}\n\
         map $request_method $by_method {{ default {a}; PUT {b}; GET {c}; }}\n\
         map $uri $by_path {{ default {a}; /p/1 {b}; ~^/p/2/ {c}; ~^/p/own/ {c}; "
    );
    let nginx = Nginx::start(&format!("{places} }}\n{maps}"));
    let config = format!("http {{\nserver {{ listen 127.0.0.1:8080; {places} }}\n{maps} }}\n}}\n");
    let migrated = Migrated::of("nginx", &[("nginx.conf", &config)]);
    let gateway = Gateway::start(&migrated.text.replace("127.0.0.1:8080", "127.0.0.1:0"));
    let answer = |addr, method: &str, host: &str, path: &str, fields: &str| {
        let sent = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n{fields}\r\n");
        let answer = Client::connect(addr).send(sent).response();
        (answer.status, if answer.status == 200 { text(&answer.body) } else { String::new() })
    };
    for host in ["a.test", "b.test", "B.TEST:80", "x.c.test", "y.x.c.test", "c.test"] {
        for path in ["/", "/x?q=1", "/m/x?q=1", "/p/1", "/p/2/x", "/p/3", "/p/own/z", "/adm/x", "/fixed"] {
            for (method, fields) in
                [("GET", ""), ("PUT", ""), ("POST", ""), ("GET", "x-env: 2\r\n"), ("GET", "x-env: 4\r\n")]
            {
                let theirs = answer(nginx.addr(), method, host, path, fields);
                let ours = answer(gateway.listener("port-8080"), method, host, path, fields);
                assert_eq!(ours, theirs, "{method} {host} {path} {fields:?} of\n{}", migrated.text);
            }
        }
    }
    let closed = answer(gateway.listener("port-8080"), "GET", "x1.d.test", "/", "");
    assert_eq!(closed.0, 501, "{}", migrated.text);
    assert!(migrated.said_of("nginx.conf:8").contains("no route can say where"), "{}", migrated.text);
}
