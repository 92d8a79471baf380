//! Several redis-servers that belong together: a primary with replicas under sentinels, a cluster.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use super::redis::{Redis, cli, free_port};
use super::{Directory, end, eventually};

/// A primary and its replica, watched by three sentinels under the name `main`.
pub struct Watched {
    pub primary: Redis,
    pub replica: Redis,
    sentinels: Vec<(Child, u16)>,
    _directory: Directory,
}

impl Watched {
    /// Starts them, the primary known to be down after half a second.
    pub fn start() -> Watched {
        let primary = Redis::start(&[]);
        let port = primary.addr().port();
        let replica =
            Redis::start(&["--replicaof", "127.0.0.1", &port.to_string(), "--repl-diskless-sync-delay", "0"]);
        eventually("the replica follows", || {
            (replica.info("replication", "master_link_status") == "up").then_some(())
        });
        let directory = Directory::new();
        let sentinels: Vec<_> = (0..3).map(|number| sentinel(&directory, number, port)).collect();
        let watched = Watched { primary, replica, sentinels, _directory: directory };
        for (_, sentinel) in &watched.sentinels {
            eventually("sentinels know each other and the replica", || {
                let said = cli(*sentinel, &["SENTINEL", "MASTER", "main"]);
                let field = |name: &str| {
                    let mut lines = said.lines().skip_while(|line| *line != name);
                    lines.nth(1).map(str::to_owned)
                };
                let others = field("num-other-sentinels")?;
                (others == "2" && field("num-slaves")? == "1").then_some(())
            });
        }
        watched
    }

    /// Where the sentinels are.
    pub fn sentinels(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(|(_, port)| SocketAddr::from(([127, 0, 0, 1], *port))).collect()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.sentinels.iter_mut().for_each(|(child, _)| end(child));
    }
}

fn sentinel(directory: &Directory, number: usize, primary: u16) -> (Child, u16) {
    let port = free_port();
    let file = directory.write(
        &format!("sentinel-{number}.conf"),
        format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n"
        ),
    );
    let child = Command::new("redis-sentinel")
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-sentinel is installed (tests/all does it)");
    (child, port)
}

/// Six nodes: three primaries with a replica each.
pub struct Cluster {
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts one whose nodes are known to be down after half a second.
    pub fn start() -> Cluster {
        let nodes: Vec<Redis> = (0..6)
            .map(|_| {
                Redis::start(&[
                    "--cluster-enabled",
                    "yes",
                    "--cluster-node-timeout",
                    "500",
                    "--cluster-require-full-coverage",
                    "no",
                    "--repl-diskless-sync-delay",
                    "0",
                ])
            })
            .collect();
        let cluster = Cluster { nodes };
        let mut arguments = vec!["--cluster".to_owned(), "create".to_owned()];
        arguments.extend(cluster.nodes.iter().map(|node| node.addr().to_string()));
        arguments.extend(["--cluster-replicas", "1", "--cluster-yes"].map(str::to_owned));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = super::stdout_of("redis-cli", &arguments);
        assert!(said.contains("All 16384 slots covered"), "{said}");
        eventually("every node knows the whole cluster", || {
            let is_whole = |node: &Redis| {
                let said = node.cli(&["CLUSTER", "INFO"]);
                said.contains("cluster_state:ok") && said.contains("cluster_known_nodes:6")
            };
            cluster.nodes.iter().all(is_whole).then_some(())
        });
        eventually("every replica follows", || {
            let follows = |node: &Redis| {
                let said = node.cli(&["INFO", "replication"]);
                said.contains("role:master") || said.contains("master_link_status:up")
            };
            cluster.nodes.iter().all(follows).then_some(())
        });
        cluster
    }

    /// Indices of the primaries.
    pub fn primaries(&self) -> Vec<usize> {
        let is_primary = |index: &usize| self.nodes[*index].cli(&["ROLE"]).starts_with("master");
        (0..self.nodes.len()).filter(is_primary).collect()
    }

    /// Moves so many slots from one node to another, keys and all.
    pub fn reshard(&self, from: usize, to: usize, slots: u32) {
        let id = |index: usize| self.nodes[index].cli(&["CLUSTER", "MYID"]).trim().to_owned();
        let (from, to, slots) = (id(from), id(to), slots.to_string());
        let addr = self.nodes[0].addr().to_string();
        super::stdout_of(
            "redis-cli",
            &[
                "--cluster",
                "reshard",
                &addr,
                "--cluster-from",
                &from,
                "--cluster-to",
                &to,
                "--cluster-slots",
                &slots,
                "--cluster-yes",
            ],
        );
    }
}
