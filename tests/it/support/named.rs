//! Upstream servers that answer with their names, and pass their checks or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::upstream::receive;
use super::{Client, Gateway, Upstream, eventually};

/// A server that answers with its name.
pub struct Named {
    upstream: Upstream,
    is_well: Arc<AtomicBool>,
}

impl Named {
    /// Starts one whose checks succeed.
    pub fn start(name: &'static str) -> Named {
        let is_well = Arc::new(AtomicBool::new(true));
        let told = Arc::clone(&is_well);
        let upstream = Upstream::raw(move |stream| {
            let mut peer = Client::over(stream);
            while let Some(request) = receive(&mut peer) {
                let is_refused = request.line.starts_with("GET /healthz") && !told.load(Ordering::SeqCst);
                let status = if is_refused { 503 } else { 200 };
                peer.try_send(format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{name}", name.len()));
            }
        });
        Named { upstream, is_well }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.upstream.addr())
    }

    /// Whether its checks succeed from now on.
    pub fn set_well(&self, is_well: bool) {
        self.is_well.store(is_well, Ordering::SeqCst);
    }
}

/// Checks of `/healthz` that one answer decides.
pub const HEALTH: &str =
    "health = { path = \"/healthz\", every = \"50ms\", unhealthy-after = 1, healthy-after = 1 }";

/// Waits until all servers of all upstreams are in these states.
pub fn wait_for(gateway: &Gateway, wanted: &[&str]) {
    eventually(&format!("servers are {wanted:?}"), || {
        let shown = gateway.admin("/v1/upstreams").json();
        let servers =
            shown.as_array()?.iter().filter_map(|upstream| upstream["servers"].as_array()).flatten();
        let states = servers.map(|server| server["state"].clone());
        (states.collect::<Vec<_>>() == wanted).then_some(())
    });
}
