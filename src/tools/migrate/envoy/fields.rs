//! Fields that routes, hosts and tables of routes add and remove.

use super::super::fields::{Fields, TO_CLIENTS, TO_SERVERS};
use super::super::template;
use super::super::values::is_field;
use super::super::yaml::Node;
use super::Reading;

/// The keys of changes in one direction: what is added, what is removed; and the fields that the gateway writes.
pub(super) type Keys = (&'static str, &'static str, &'static [&'static str]);

pub(super) const REQUEST: Keys = ("request_headers_to_add", "request_headers_to_remove", TO_SERVERS);
pub(super) const RESPONSE: Keys = ("response_headers_to_add", "response_headers_to_remove", TO_CLIENTS);

impl<'d> Reading<'d> {
    /// The changes of all levels, the route's first, as `headers` has them. `host` is set beside them. A table that is applied
    /// after its hosts, and they after their routes, has the last word, unless `is_route_last`.
    pub(super) fn changed_fields(
        &mut self,
        levels: &[&'d Node],
        is_route_last: bool,
        keys: Keys,
        host: Option<&str>,
    ) -> Option<String> {
        let mut fields = Fields::default();
        fields.set.extend(host.map(|host| ("host".to_owned(), template::literal(host))));
        let mut levels: Vec<Fields> = levels.iter().map(|level| self.fields_of(level, keys)).collect();
        if is_route_last {
            levels.reverse();
        }
        levels.into_iter().fold(fields, Fields::then).shown(keys.2)
    }

    fn fields_of(&mut self, level: &'d Node, keys: Keys) -> Fields {
        let mut fields = Fields::default();
        level.words(keys.1).into_iter().for_each(|name| fields.take_away(name.to_lowercase()));
        level.list(keys.0).iter().for_each(|option| self.field(option, keys, &mut fields));
        fields
    }

    fn field(&mut self, option: &'d Node, keys: Keys, fields: &mut Fields) {
        let name = option.at(&["header", "key"]).and_then(Node::text).unwrap_or_default().to_lowercase();
        let value = option.at(&["header", "value"]).and_then(Node::text).unwrap_or_default();
        let action = option.word("append_action");
        let is_appended = match action {
            Some(action) => !action.starts_with("OVERWRITE_IF_EXISTS"),
            None => option.get("append").and_then(Node::flag).unwrap_or(true),
        };
        let Some(value) = format(value).filter(|_| is_field(&name)) else {
            let why = match is_appended || keys != REQUEST || !is_field(&name) {
                true => "its value has no counterpart",
                false => fields.take_unknown(name.clone()),
            };
            return self.left_out(option, &format!("header {name}"), why);
        };
        if matches!(action, Some("ADD_IF_ABSENT" | "OVERWRITE_IF_EXISTS")) {
            let why = "it is sent even if the header is already present";
            self.differs(option, &format!("header {name}"), why);
        }
        option.skip(&["keep_empty_value"]);
        if is_appended {
            fields.append(name, value);
        } else {
            fields.replace(name, value);
        }
    }
}

/// A format of Envoy, as values of fields are written; `None` if it holds what no value has.
fn format(value: &str) -> Option<String> {
    let mut template = String::new();
    let mut rest = value;
    while let Some(at) = rest.find('%') {
        template.push_str(&template::literal(&rest[..at]));
        let (inside, behind) = rest[at + 1..].split_once('%')?;
        template.push_str(match inside.to_ascii_uppercase().as_str() {
            "" => "%",
            "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT" | "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT" => {
                "{ip}"
            }
            "REQ(:METHOD)" => "{method}",
            "REQ(:AUTHORITY)" | "REQ(HOST)" => "{host}",
            "REQ(X-REQUEST-ID)" | "STREAM_ID" => "{request_id}",
            "PATH(NQ)" => "{path}",
            "ROUTE_NAME" => "{route}",
            _ => return None,
        });
        rest = behind;
    }
    template.push_str(&template::literal(rest));
    Some(template)
}
