//! The manifest of docs/kubernetes.md: Kubernetes' own schemas take it, and it fits the gateway that it runs.

use std::net::SocketAddr;

use serde_json::Value;

use crate::documents::{blocks, check, documents};
use crate::support::gateway::binary;
use crate::support::{Client, Directory, Gateway, python, text};

const PAGE: &str = "docs/kubernetes.md";

/// The objects of the page's manifest, which the schemas take.
fn objects() -> Vec<Value> {
    let (_, document) = documents().into_iter().find(|(name, _)| name == PAGE).expect("the page is there");
    let shown = blocks(PAGE, &document);
    let manifest = shown.iter().find(|block| block.kind.starts_with("yaml")).expect("it shows the manifest");
    let directory = Directory::new();
    let file = directory.write("manifest.yaml", manifest.text);
    let printed = python::client("manifest.py", &[file.to_str().expect("the path is text")]);
    serde_json::from_str(&printed).expect("JSON")
}

fn of_kind<'o>(objects: &'o [Value], kind: &str) -> &'o Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let object = found.next().unwrap_or_else(|| panic!("{PAGE} has a {kind}"));
    assert_eq!(found.next(), None, "{PAGE} has one {kind}");
    assert_eq!(object["metadata"]["name"], "sluicegate");
    object
}

fn configuration(objects: &[Value]) -> &str {
    of_kind(objects, "ConfigMap")["data"]["gateway.toml"].as_str().expect("it holds the file")
}

/// Seconds as the configuration writes them; without the key none.
fn seconds(table: &toml::Table, key: &str) -> u64 {
    let written = table.get(key).map_or("0s", |value| value.as_str().expect("a duration is text"));
    written.strip_suffix('s').and_then(|number| number.parse().ok()).expect("seconds")
}

#[test]
fn the_configuration_of_the_manifest_passes_check_with_the_secret_alone() {
    let objects = objects();
    let directory = Directory::new();
    assert_eq!(check(&directory, configuration(&objects)).status.code(), Some(78), "the token is a variable");
    let mut command = binary();
    command.env("ADMIN_TOKEN", "secret").current_dir(directory.join("")).arg("check");
    let output = command.output().expect("the binary under test can be started");
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let container = &of_kind(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"][0]["name"], "ADMIN_TOKEN");
}

#[test]
fn the_manifest_names_the_ports_and_the_folder_of_the_configuration() {
    let objects = objects();
    let config: toml::Table = configuration(&objects).parse().expect("it is TOML");
    let pod = &of_kind(&objects, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let port = |bind: &toml::Value| {
        let bind: SocketAddr = bind.as_str().and_then(|bind| bind.parse().ok()).expect("an address");
        assert!(bind.ip().is_unspecified(), "the kubelet and clients come from elsewhere");
        u64::from(bind.port())
    };
    for (name, bind) in [("http", &config["listener"]["http"]["bind"]), ("admin", &config["admin"]["bind"])] {
        let ports = container["ports"].as_array().expect("they are listed");
        let shown = ports.iter().find(|port| port["name"] == name).expect("it is named");
        assert_eq!(shown["containerPort"].as_u64(), Some(port(bind)), "{name}");
    }
    assert_eq!(of_kind(&objects, "Service")["spec"]["ports"][0]["targetPort"], "http");
    assert_eq!(container["readinessProbe"]["httpGet"]["port"], "admin");
    assert_eq!(container["livenessProbe"]["httpGet"]["port"], "admin");
    let scraped =
        &of_kind(&objects, "Deployment")["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"];
    assert_eq!(scraped.as_str(), Some(&*port(&config["admin"]["bind"]).to_string()));
    let page = documents().into_iter().find(|(name, _)| name == PAGE).expect("the page is there").1;
    let folder = container["volumeMounts"][0]["mountPath"].as_str().expect("a path");
    assert!(page.contains(&format!("\"--config\", \"{folder}/gateway.toml\"")), "the image reads {folder}");
    assert_eq!(pod["volumes"][0]["configMap"]["name"], "sluicegate");
}

#[test]
fn a_pod_is_given_the_time_that_its_drain_takes() {
    let objects = objects();
    let config: toml::Table = configuration(&objects).parse().expect("it is TOML");
    let shutdown = config["shutdown"].as_table().expect("it is a table");
    let [ready_delay, drain, tunnels] =
        ["ready-delay", "drain", "drain-tunnels"].map(|key| seconds(shutdown, key));
    // Requests and tunnels end at the same time. Three seconds are for clients of WebSocket, ten for leases and logs.
    let takes = ready_delay + drain.max(tunnels + 3) + 10;
    let pod = &of_kind(&objects, "Deployment")["spec"]["template"]["spec"];
    let given = pod["terminationGracePeriodSeconds"].as_u64().expect("it is written");
    assert!(given >= takes, "{given} s for {takes} s");
    let probe = &pod["containers"][0]["readinessProbe"];
    let noticed = probe["periodSeconds"].as_u64().zip(probe["failureThreshold"].as_u64());
    let noticed = noticed.map(|(period, failures)| period * failures).expect("both are written");
    assert!(noticed < ready_delay, "it is noticed after {noticed} s");
}

#[test]
fn what_the_manifest_asks_of_a_pod_is_served() {
    let objects = objects();
    let config = configuration(&objects)
        .replace("0.0.0.0:8080", "127.0.0.1:0")
        .replace("0.0.0.0:9900", "127.0.0.1:0")
        .replace("redis:6379", "127.0.0.1:1");
    let gateway = Gateway::start_with(Directory::new(), &config, &[("ADMIN_TOKEN", "secret")]);
    let container = &of_kind(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    for probe in ["readinessProbe", "livenessProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().expect("a path");
        assert_eq!(gateway.admin(path).status, 200, "{probe} has no token");
    }
    let metric =
        &of_kind(&objects, "HorizontalPodAutoscaler")["spec"]["metrics"][0]["pods"]["metric"]["name"];
    let metric = metric.as_str().expect("it is named");
    let mut client = Client::connect(gateway.listener("admin"));
    let page = client.request("GET", "/metrics", &["Authorization: Bearer secret"], "").text();
    assert!(page.lines().any(|line| line.starts_with(&format!("{metric} "))), "{metric} is served");
}
