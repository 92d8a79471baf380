//! `key-auth`, `jwt` and `acl`: who may use a route.

use config::printer::{array, text};

use super::super::draft::{Section, texts};
use super::super::values::is_field;
use super::super::yaml::Node;
use super::Reading;
use super::plugins::Common;

impl<'d> Reading<'d> {
    /// API keys, from the file that `--keys` names.
    pub(super) fn key_auth(&mut self, plugin: &'d Node, config: &'d Node, common: &mut Common) {
        let Some(file) = self.keys else {
            let why = "run `migrate` with `--keys FILE`, which writes the hashes of its keys; without it its routes \
                are closed (501)";
            self.left_out(plugin, "plugin key-auth", why);
            common.is_closed = true;
            return;
        };
        let mut names: Vec<String> = config.words("key_names").into_iter().map(str::to_lowercase).collect();
        if names.is_empty() {
            names.push("apikey".to_owned());
        }
        let is_on = |key: &str| config.get(key).and_then(Node::flag).unwrap_or(true);
        let (in_header, in_query) = (is_on("key_in_header"), is_on("key_in_query"));
        let places = names.iter().filter(|name| is_field(name)).flat_map(|name| {
            let header = in_header.then(|| text(&format!("header:{name}")));
            header.into_iter().chain(in_query.then(|| text(&format!("query:{name}"))))
        });
        let mut method = Section::new("key-auth");
        method.key("kind", text("api-key"));
        method.key("keys", format!("{{ file = {} }}", text(&file.to_string_lossy())));
        method.key("in", array(places));
        if config.is("hide_credentials") {
            method.key("pass", false);
        }
        if config.is("key_in_body") {
            self.differs(plugin, "key_in_body", "keys in bodies are not read");
        }
        config.skip(&["realm", "run_on_preflight"]);
        common.auth.push(self.draft.add_auth(method));
        common.has_groups = true;
        self.anonymous(config, common);
    }

    /// Who comes without a credential, if that is admitted.
    fn anonymous(&mut self, config: &'d Node, common: &mut Common) {
        common.ways += 1;
        let Some(consumer) = config.word("anonymous").filter(|consumer| !consumer.is_empty()) else { return };
        common.ways_for_anybody += 1;
        // Not admitted, because a plugin of its own may refuse it.
        if self.refused.contains(consumer) {
            return;
        }
        let mut method = Section::new("anonymous");
        method.key("kind", text("anonymous"));
        method.key("consumer", text(consumer));
        let name = self.draft.add_auth(method);
        if !common.auth.contains(&name) {
            common.auth.push(name);
        }
    }

    /// Tokens: a method for each consumer's secret, which is told by the issuer.
    pub(super) fn jwt(&mut self, plugin: &'d Node, config: &'d Node, common: &mut Common) {
        let has_other_claim = config.word("key_claim_name").is_some_and(|claim| claim != "iss");
        if has_other_claim || config.is("secret_is_base64") {
            let why = "only secrets that are not base64 and are found by `iss` can be migrated; its routes are \
                closed (501) until you rewrite it";
            self.left_out(plugin, "plugin jwt", why);
            common.is_closed = true;
            return;
        }
        let verified = config.words("claims_to_verify");
        let queries = config.words("uri_param_names");
        let queries = if queries.is_empty() { vec!["jwt"] } else { queries };
        let places = std::iter::once(text("bearer"));
        let places =
            places.chain(queries.iter().filter(|it| is_field(it)).map(|it| text(&format!("query:{it}"))));
        let places = array(places);
        for name in config
            .words("header_names")
            .into_iter()
            .filter(|name| !name.eq_ignore_ascii_case("authorization"))
        {
            self.differs(
                plugin,
                &format!("header_names: {name}"),
                "a token is read from `Authorization` and the query",
            );
        }
        config.skip(&["realm", "run_on_preflight", "cookie_names"]);
        let root = self.root;
        let before = common.auth.len();
        for consumer in root.list("consumers") {
            let name = consumer.get("username").and_then(Node::peek).unwrap_or("consumer");
            if self.refused.contains(name) {
                consumer.skip(&["jwt_secrets"]);
                continue;
            }
            for credential in self.parts(consumer, "jwt_secrets", "consumer") {
                let method = self.token(credential, name, &places, verified.contains(&"exp"));
                common.auth.extend(method.map(|method| self.draft.add_auth(method)));
            }
        }
        if common.auth.len() == before {
            let why =
                "none of its credentials was taken over; its routes are closed (501) until you rewrite it";
            self.left_out(plugin, "plugin jwt", why);
            common.is_closed = true;
        }
        self.anonymous(config, common);
    }

    fn token(
        &mut self,
        credential: &'d Node,
        consumer: &str,
        places: &str,
        needs_end: bool,
    ) -> Option<Section> {
        let algorithm = credential.word("algorithm").unwrap_or("HS256");
        let bytes_min = match algorithm {
            "HS256" => 32,
            "HS384" => 48,
            "HS512" => 64,
            _ => {
                let why = "write its public key to a file and name the file in `keys`; until then its tokens get 401";
                self.left_out(credential, &format!("jwt_secrets of {consumer}"), why);
                return None;
            }
        };
        let secret = credential
            .word("secret")
            .filter(|secret| secret.len() >= bytes_min && !secret.contains("{vault:"));
        let (Some(secret), Some(issuer)) = (secret, credential.word("key")) else {
            let why =
                format!("a secret for {algorithm} must have at least {bytes_min} bytes; its tokens get 401");
            self.left_out(credential, &format!("jwt_secrets of {consumer}"), &why);
            return None;
        };
        let mut method = Section::new(format!("jwt-{consumer}"));
        method.key("kind", text("jwt"));
        method.key("secret", text(secret));
        method.key("algorithms", text(algorithm));
        method.key("issuer", text(issuer));
        method.key("required", texts(if needs_end { &["exp", "iss"][..] } else { &["iss"] }));
        method.key("consumer", text("claim:iss"));
        method.key("in", places);
        let why =
            "the consumer is named after its key, which tokens carry; `exp` and `nbf` are always checked";
        self.differs(credential, &format!("jwt_secrets of {consumer}"), why);
        Some(method)
    }

    /// Groups of consumers.
    pub(super) fn groups(&mut self, plugin: &'d Node, config: &'d Node, common: &mut Common) {
        config.skip(&["hide_groups_header", "always_use_authenticated_groups"]);
        if ["deny", "blacklist"].iter().any(|key| !config.words(key).is_empty()) {
            let why = "only a list of allowed groups can be migrated; its routes are closed (501) until you rewrite it";
            self.left_out(plugin, "plugin acl", why);
            common.is_closed = true;
            return;
        }
        common
            .groups
            .extend(["allow", "whitelist"].iter().flat_map(|key| config.words(key)).map(str::to_owned));
    }
}
