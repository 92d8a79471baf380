//! Reads `grpc` of `[admin]`, the listener that proxies ask.

use auth::mtls::CertificateName;
use net::listening::Bind;
use net::tls::{self, Demand};
use rls::{Config, GrpcClient};

use crate::load::text::Text;
use crate::process::admin::SOCKET;
use crate::process::listener;
use crate::reader::Value;

/// Reads an address, or a table with one.
pub(crate) fn read(value: &Value<'_>) -> Option<Config> {
    if !value.is_table() {
        let written = value.text()?;
        let config = Config { bind: listener::bind(&written, SOCKET)?, tls: None, clients: Vec::new() };
        check(&config, &written);
        return Some(config);
    }
    let table = value.table()?;
    let written = table.value("bind").and_then(|value| value.text());
    let bind = written.as_ref().and_then(|written| listener::bind(written, SOCKET));
    let tls = listener::files(&table, bind.as_ref(), Demand::Require);
    let clients = table.value("clients").map(|value| clients(&value, tls.as_ref())).unwrap_or_default();
    let config = Config { bind: bind?, tls, clients };
    written.iter().for_each(|written| check(&config, written));
    Some(config)
}

/// Whoever can connect may spend of every limit that `[rls.*]` names: only this machine, or who shows a certificate.
fn check(config: &Config, written: &Text<'_>) {
    let is_open = matches!(&config.bind, Bind::Tcp(address) if !address.ip().is_loopback());
    let asks = config.tls.as_ref().and_then(|tls| tls.client_auth.as_ref());
    if is_open && asks.is_none_or(|auth| auth.demand != Demand::Require) {
        let message = "the gRPC listener is open to other machines and asks for no certificate";
        let hint = match asks {
            None => "add `certs` and `client-ca`, or bind 127.0.0.1",
            Some(_) => "write `client-cert = \"require\"`, or bind 127.0.0.1",
        };
        written.wrong(message, hint);
    }
}

/// The names in certificates of those who may ask. One that is wrong is reported and left out.
fn clients(value: &Value<'_>, tls: Option<&tls::TlsFiles>) -> Vec<GrpcClient> {
    let asks = tls.and_then(|tls| tls.client_auth.as_ref());
    if asks.is_none_or(|auth| auth.demand != Demand::Require) {
        let hint = "add `client-ca = \"ca.pem\"` with the authorities that issue the clients' certificates";
        value.wrong_key("`clients` needs `client-ca`", hint);
    }
    let names = value.texts();
    if value.is_empty_array() {
        value.wrong(
            "`clients` is empty, so nobody could connect",
            "leave it out to admit every certificate that `client-ca` has issued",
        );
    }
    if names.len() > CLIENTS_MAX {
        value.wrong(format!("there are more than {CLIENTS_MAX} clients"), "remove some");
    }
    let client = |text: &Text<'_>| match CertificateName::written(&text.text) {
        Some((place, name)) => {
            text.spell(format!("{place}={name}"));
            Some(GrpcClient { place, text: name.to_owned() })
        }
        None => {
            text.wrong(format!("{} does not name a part of a certificate", text.shown()), SHOWS);
            None
        }
    };
    names.iter().take(CLIENTS_MAX).filter_map(client).collect()
}

/// Clients of one listener: bounded, because a connection is compared with each.
const CLIENTS_MAX: usize = 256;
const SHOWS: &str =
    "write its kind and the name, for example `\"san:uri=spiffe://mesh/ns/edge\"` or `\"subject:cn=envoy\"`";
