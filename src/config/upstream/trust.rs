//! Reads `tls = { ca, cert, key, sni, min-version, verify }` of whom the gateway itself asks: an upstream, an
//! issuer of keys, a collector of traces.

use rustls::pki_types::ServerName;

use net::trust::{ClientPair, Trust};

use crate::keys::listener::TLS_VERSIONS;
use crate::reader::Value;

pub(crate) fn read(value: &Value<'_>) -> Trust {
    let mut trust = Trust::default();
    let Some(table) = value.table() else { return trust };
    table.path_if("ca", &mut trust.ca);
    table.word("min-version", &TLS_VERSIONS, &mut trust.min_version);
    table.boolean("verify", &mut trust.verify);
    let file = |key: &'static str| table.value(key).and_then(|value| value.path());
    trust.shown = match (file("cert"), file("key")) {
        (Some(cert), Some(key)) => Some(ClientPair { cert, key }),
        _ => None,
    };
    for (key, other) in [("cert", "key"), ("key", "cert")] {
        if let (Some(value), None) = (table.value(key), table.value(other)) {
            value.wrong_key(format!("`{key}` needs `{other}`"), "write both, a certificate and its key");
        }
    }
    if let Some(name) = table.value("sni").and_then(|value| value.text()) {
        match ServerName::try_from(name.text.clone()) {
            Ok(_) => trust.sni = Some(name.text),
            Err(_) => name.wrong(
                format!("{} is not a name that a certificate can have", name.shown()),
                "write it like `orders.internal`",
            ),
        }
    }
    if let Some(value) = table.value("verify") {
        if !trust.verify && trust.ca.is_some() {
            value.wrong("without `verify`, `ca` has no effect", "keep one of the two");
        } else if !trust.verify {
            value.warn(
                "without `verify` anyone on the network path can pose as the server",
                "name the authority instead: `ca = \"ca.pem\"`",
            );
        }
    }
    if trust == Trust::default() {
        value.spell("");
    }
    trust
}
