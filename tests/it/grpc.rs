//! gRPC: HTTP/2 on both sides, every kind of call, the status in the trailers.

use crate::support::{Directory, Gateway, Python, python, tls};

#[test]
fn a_grpc_client_talks_to_a_grpc_server() {
    let server = Python::serve("grpc_server.py");
    let gateway = Gateway::start(&format!(
        "[upstream.echo-service]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"echo-service\"",
        server.addr()
    ));
    assert_eq!(python::client("grpc_client.py", &[&gateway.plain().to_string()]), "called\n");
    let line = gateway.logged("/test.Echo/Unary");
    assert_eq!((line["status"].as_u64(), line["protocol"].as_str()), (Some(200), Some("HTTP/2.0")));
}

#[test]
fn grpc_runs_over_tls_too() {
    let server = Python::serve("grpc_server.py");
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let file = directory.join("a").display().to_string();
    let text = format!(
        "[listener.tls]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"{file}.pem\", key = \"{file}.key\" }}]\n\
         [upstream.echo-service]\nservers = [\"http://{}\"]\nhttp = \"h2\"\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"echo-service\"",
        server.addr()
    );
    let gateway = Gateway::start_in(directory, &text);
    let address = format!("localhost:{}", gateway.listener("tls").port());
    assert_eq!(python::client("grpc_client.py", &[&address, &format!("{file}.pem")]), "called\n");
}
