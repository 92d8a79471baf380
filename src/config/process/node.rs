//! Reads `[node]`, what this gateway is called among several, and `[privacy]`, how much of clients is shown.

use crate::keys::process::{ADDRESSES, SHOWN};
use crate::load::sections;
use crate::reader::Table;
use crate::settings::Node;
use policy::keys::naming::AddressDetail;

pub(crate) fn read(documents: &[Table<'_>]) -> Node {
    let mut node = Node::default();
    let Some(table) = sections::table(documents, "node") else {
        return node;
    };
    if let Some(name) = table.value("name").and_then(|value| value.text()) {
        match is_node_name(&name.text) {
            true => node.name = Some(name.text),
            false => name.wrong(format!("{} cannot be the name of a node", name.shown()), NODE_NAMES),
        }
    }
    table.word("header", &SHOWN, &mut node.shown);
    table.word("request-id", &SHOWN, &mut node.ids_shown);
    node
}

pub(crate) fn read_privacy(documents: &[Table<'_>]) -> AddressDetail {
    let Some(table) = sections::table(documents, "privacy") else { return AddressDetail::default() };
    let addresses = table.value("addresses").and_then(|value| value.choice(&ADDRESSES));
    addresses.unwrap_or_default()
}

/// Whether a text can name a node: it stands in a header field, in logs and in a database.
pub fn is_node_name(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=NODE_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_known)
}

/// Bytes of a node's name: those of a host's.
pub const NODE_NAME_BYTES_MAX: usize = 255;
const NODE_NAMES: &str = "write up to 255 letters, digits, `-`, `_`, `.` and `:`, for example `edge-1`";
