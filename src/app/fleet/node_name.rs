//! What this gateway is called where `[node]` does not say it: as its host.

use config::{self, NODE_NAME_BYTES_MAX, is_node_name};
use gateway::proxy::config::NodeIdentity;

pub(crate) fn node(config: &config::Node) -> NodeIdentity {
    let name = config.name.clone().unwrap_or_else(host);
    NodeIdentity::new(&name, config.shown, config.ids_shown)
}

/// The host's name as a node's: what no such name may have is a `-`.
fn host() -> String {
    let host = rustix::system::uname();
    let mut name: String = host
        .nodename()
        .to_string_lossy()
        .chars()
        .map(|letter| if is_node_name(letter.encode_utf8(&mut [0; 4])) { letter } else { '-' })
        .collect();
    name.truncate(NODE_NAME_BYTES_MAX);
    if name.is_empty() { "localhost".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_own_name_or_the_hosts() {
        let named = config::Node { name: Some("edge-1".to_owned()), ..config::Node::default() };
        assert_eq!(&*node(&named).name, "edge-1");
        assert!(is_node_name(&node(&config::Node::default()).name));
    }
}
