//! Consumers: their keys as hashes, for the file of keys, and what else they have.

use auth::keys;

use super::super::draft::KeyEntry;
use super::super::yaml::Node;
use super::{Reading, plugins};

impl<'d> Reading<'d> {
    /// The entries of the file of keys.
    pub(super) fn consumers(&mut self) {
        let root = self.root;
        for consumer in root.list("consumers") {
            let name = consumer.word("username").or_else(|| consumer.word("custom_id")).unwrap_or("consumer");
            consumer.skip(&["custom_id"]);
            let groups: Vec<String> = self
                .parts(consumer, "acls", "consumer")
                .into_iter()
                .filter_map(|group| group.word("group"))
                .map(str::to_owned)
                .collect();
            for plugin in self.parts(consumer, "plugins", "consumer") {
                self.consumer_plugin(plugin, consumer, name);
            }
            for credential in self.parts(consumer, "keyauth_credentials", "consumer") {
                match self.refused.contains(name) {
                    true => credential.dismiss(),
                    false => self.key(credential, name, &groups),
                }
            }
        }
    }

    /// A plugin of a consumer alone: a limit of its own is listed, anything else may refuse it.
    fn consumer_plugin(&mut self, plugin: &'d Node, consumer: &'d Node, name: &str) {
        if plugin.get("enabled").and_then(Node::flag) == Some(false) {
            return plugin.dismiss();
        }
        let kind = plugin.word("name").unwrap_or_default();
        let what = format!("plugin {kind} of {name}");
        if plugins::is_harmless(kind) || kind.contains("rate-limiting") {
            let why =
                "write a tier: `tier` in the file of keys, [tier.…], and `limit = \"tier\"` of a policy";
            return self.left_out(plugin, &what, why);
        }
        self.left_out(
            plugin,
            &what,
            "it may refuse this consumer, so none of the consumer's credentials is taken over",
        );
        let names = ["username", "custom_id", "id"].iter().filter_map(|key| consumer.get(key)?.peek());
        self.refused.extend(names.map(str::to_owned));
        self.refused.insert(name.to_owned());
    }

    fn key(&mut self, credential: &'d Node, consumer: &str, groups: &[String]) {
        if self.keys.is_none() {
            // Not listed here, because the plugin says that the file is missing.
            return credential.dismiss();
        }
        let key = credential.word("key").filter(|key| !key.contains("{vault:"));
        let usable = key.filter(|key| !key.is_empty() && key.trim() == *key && key.len() <= KEY_BYTES_MAX);
        match usable {
            Some(key) => self.draft.keys.push(KeyEntry {
                digest: keys::written(key.as_bytes()),
                consumer: consumer.to_owned(),
                groups: groups.to_vec(),
            }),
            None => {
                let why = "a key must be one line without spaces around it";
                self.left_out(credential, &format!("keyauth_credentials of {consumer}"), why);
            }
        }
    }
}

/// The longest key that a request may have.
const KEY_BYTES_MAX: usize = 1024;
