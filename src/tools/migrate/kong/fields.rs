//! `request-transformer` and `response-transformer`, as far as they change fields.

use super::super::fields::Fields;
use super::super::template;
use super::super::values::is_field;
use super::super::yaml::Node;
use super::Reading;

impl<'d> Reading<'d> {
    pub(super) fn transformer(&mut self, config: &'d Node, fields: &mut Fields) {
        let names = config.at(&["remove", "headers"]).map(Node::texts).unwrap_or_default();
        fields.remove.extend(names.into_iter().filter(|name| is_field(name)).map(str::to_lowercase));
        for kind in ["replace", "add", "append"] {
            for written in config.at(&[kind, "headers"]).map(Node::items).unwrap_or_default() {
                let Some((name, value)) = written.text().and_then(changed) else {
                    let name =
                        written.peek().and_then(|it| it.split_once(':')).map_or("", |(name, _)| name.trim());
                    let why = match kind == "append" || !is_field(name) {
                        true => "its value has no counterpart",
                        false => fields.take_unknown(name.to_lowercase()),
                    };
                    self.left_out(written, &format!("{kind}.headers"), why);
                    continue;
                };
                match kind {
                    "append" => fields.append(name, value),
                    _ => {
                        let why = match kind {
                            "replace" => "it is sent even if the header is already present",
                            _ => "it replaces an existing header",
                        };
                        self.differs(written, &format!("{kind}.headers {name}"), why);
                        fields.set.push((name, value));
                    }
                }
            }
        }
    }
}

/// `name:value`; `None` if the value is made of the request.
fn changed(written: &str) -> Option<(String, String)> {
    let (name, value) = written.split_once(':')?;
    let is_plain = is_field(name.trim()) && !value.contains("$(");
    is_plain.then(|| (name.trim().to_lowercase(), template::literal(value.trim())))
}
