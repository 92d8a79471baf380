//! Reads and writes `[node]`, what this gateway is called among several, and `[privacy]`, how much of clients is shown.

use crate::keys::process::{ADDRESSES, SHOWN};
use crate::load::sections;
use crate::printer::{Page, text, word};
use crate::reader::Table;
use crate::settings::Node;
use crate::values::Keys;
use policy::keys::naming::AddressDetail;

/// Reads `[node]`.
pub(crate) fn read(documents: &[Table<'_>]) -> Node {
    let mut node = Node::default();
    let Some(mut table) = sections::table(documents, "node") else {
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

/// Writes `[node]`. A name that is not written is the host's, which another machine than this one may have to read.
pub(crate) fn show(page: &mut Page, node: &Node) {
    page.heading("[node]");
    node.name.iter().for_each(|name| page.key("name", text(name)));
    page.key("header", text(word(&SHOWN, &node.shown)));
    page.key("request-id", text(word(&SHOWN, &node.ids_shown)));
}

/// Reads `[privacy]`.
pub(crate) fn read_privacy(documents: &[Table<'_>]) -> AddressDetail {
    let Some(table) = sections::table(documents, "privacy") else { return AddressDetail::default() };
    let addresses = table.value("addresses").and_then(|value| value.choice(&ADDRESSES));
    addresses.unwrap_or_default()
}

/// Writes `[privacy]`.
pub(crate) fn show_privacy(page: &mut Page, addresses: AddressDetail) {
    page.heading("[privacy]");
    page.key("addresses", text(word(&ADDRESSES, &addresses)));
}

/// Whether a text can name a node: it stands in a header field, in logs and in a database.
pub fn is_node_name(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=NODE_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_known)
}

/// Bytes of a node's name: those of a host's.
pub const NODE_NAME_BYTES_MAX: usize = 255;
const NODE_NAMES: &str = "write up to 255 letters, digits, `-`, `_`, `.` and `:`, as in `edge-1`";
