//! Reads `[listener.*]` and `[client-ip]`. It binds nothing and reads no certificate.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv6Net};

use gateway::proxy::config::ClientIp;
use gateway::service::config::ListenerConfig;
use net::listening::Bind;
use net::tls::{self, Demand};
use net::unix_socket::Rights;
use policy::access::AddressRules;
use policy::nat64::Nat64;

use crate::keys::foreign::foreign_value;
use crate::keys::listener::{DEMANDS, FORWARDED, SNI, UNDERSCORES};
use crate::load::context::{Context, ImpliedSection};
use crate::load::report::{DefinitionSpans, Fields, SourceSpan, Subject, quoted};
use crate::load::sections;
use crate::load::sections::NamedTable;
use crate::load::text::Text;
use crate::printer::{array, text as show_text};
use crate::process::acme;
use crate::process::protocol;
use crate::reader::{Table, Value};
use crate::routes::{headers, redirect};
use crate::settings::Config;
use crate::upstream::socket;

/// Reads every listener. If none is written, there is one with plain HTTP on 127.0.0.1:8080.
pub(crate) fn read_all(documents: &[Table<'_>]) -> (Vec<ListenerConfig>, Vec<Fields>) {
    let mut listeners = Vec::new();
    let mut places = Vec::new();
    let mut bound: Vec<(Bind, SourceSpan, String)> = Vec::new();
    for named in sections::named(documents, "listener") {
        places.push(named.table.places());
        let (listener, bind) = read(named);
        if let Some(bind) = bind {
            let taken = bound.iter().find(|(other, ..)| meet(other, &listener.bind));
            if let Some((_, first, name)) = taken {
                bind.wrong_beside(
                    format!("{} is taken by the listener `{name}`", listener.bind),
                    "choose another address or port",
                    *first,
                    "here",
                );
            }
            bound.push((listener.bind.clone(), bind.place, listener.name.clone()));
        }
        listeners.push(listener);
    }
    // Errors must not mention the default listener only because the written ones could not be read.
    if listeners.is_empty() {
        let listener = ListenerConfig::named("default".to_owned());
        if let Some(document) = documents.first() {
            let keys = vec![
                ("bind", show_text(&listener.bind.to_string())),
                ("max-connections-per-ip", listener.connections_per_ip_max.to_string()),
            ];
            document.ctx.make(ImpliedSection {
                section: "listener",
                name: listener.name.clone(),
                comment: None,
                keys,
            });
        }
        listeners.push(listener);
        places.push(Fields::default());
    }
    (listeners, places)
}

/// Reports listeners on the port of the admin listener or of gRPC's, which share their ports with no other listener.
pub(crate) fn check_admin(ctx: &Context<'_>, config: &Config, places: &DefinitionSpans) {
    let admin = config.admin.iter().map(|admin| (&admin.bind, "bind", "the admin listener"));
    let alone = admin.chain(config.grpc.iter().map(|grpc| (&grpc.bind, "grpc", "the gRPC listener")));
    for (taken, field, by) in alone {
        for (listener, fields) in config.listeners.iter().zip(&places.listeners) {
            let bind = &listener.bind;
            // At the other one otherwise, because one of the two may be a default that is written nowhere.
            let place = fields.place("bind").or_else(|| places.find(Subject::Section("admin"), field));
            let Some(place) = place.filter(|_| meet_alone(bind, taken)) else { continue };
            let (by, hint) = match fields.whole {
                Some(_) => (by, "choose another address or port; `[admin]` has its own"),
                None => {
                    (DEFAULT_LISTENER, "choose another, or write `[listener.NAME]` with a `bind` of its own")
                }
            };
            ctx.wrong(place, format!("{bind} is taken by {by}"), hint);
        }
    }
}

/// Whether two listeners that share their addresses with nobody would meet.
pub(crate) fn meet_alone(one: &Bind, other: &Bind) -> bool {
    match (one, other) {
        (Bind::Tcp(one), Bind::Tcp(other)) => {
            let is_on_any = one.ip().is_unspecified() || other.ip().is_unspecified();
            // Port 0 meets nobody, because it is another port for each that asks.
            one.port() == other.port() && one.port() != 0 && (one.ip() == other.ip() || is_on_any)
        }
        _ => one == other,
    }
}

fn meet(one: &Bind, other: &Bind) -> bool {
    match (one, other) {
        (Bind::Tcp(one), Bind::Tcp(other)) => overlaps(*one, *other),
        _ => one == other,
    }
}

/// Whether two listeners would take each other's connections. `[::]` accepts IPv4 as well.
pub(crate) fn overlaps(one: SocketAddr, other: SocketAddr) -> bool {
    let takes_all = |ip: IpAddr| ip == IpAddr::from([0u16; 8]);
    one.port() == other.port()
        && one.port() != 0
        && (one.ip() == other.ip()
            || (takes_all(one.ip()) && other.ip().is_unspecified())
            || (takes_all(other.ip()) && one.ip().is_unspecified()))
}

/// An address and a port, or `unix:` and a path; `example` shows how the latter is written.
pub(crate) fn bind(text: &Text<'_>, example: &str) -> Option<Bind> {
    match socket::is_meant(&text.text) {
        true => socket::path(text, example).map(Bind::Unix),
        false => address(text).map(Bind::Tcp),
    }
}

/// `mode`, `owner` and `group` of a Unix socket.
fn rights(table: &Table<'_>, bind: Option<&Bind>, rights: &mut Rights) {
    let values = ["mode", "owner", "group"].map(|key| table.value(key));
    for value in values.iter().flatten().filter(|_| matches!(bind, Some(Bind::Tcp(_)))) {
        let hint = "leave it out: only a Unix socket has a file";
        value.wrong_key(format!("`{}` needs a Unix socket in `bind`", value.key), hint);
    }
    let [mode, owner, group] = values;
    if let Some(text) = mode.and_then(|value| value.text()) {
        match u32::from_str_radix(&text.text, 8) {
            Ok(mode) if mode <= 0o777 => rights.mode = mode,
            _ => text.wrong(format!("{} is not a file mode", text.shown()), "write it like `0660`"),
        }
    }
    if let Some(Bind::Unix(_)) = bind {
        table.spell("mode", show_text(&format!("{:04o}", rights.mode)));
    }
    rights.owner = owner.and_then(|value| value.text()).map(|text| text.text);
    rights.group = group.and_then(|value| value.text()).map(|text| text.text);
}

/// `address:port`, with port 0 for any free one.
pub(crate) fn address(text: &Text<'_>) -> Option<SocketAddr> {
    if let Ok(address) = text.text.parse() {
        text.spell(address);
        return Some(address);
    }
    let hint = match text.text.rsplit_once(':') {
        _ if text.text.contains("://") && !text.has_reference => {
            format!("leave the scheme out: `{}`", text.text.split("://").last().unwrap_or_default())
        }
        Some((host, port)) if !text.has_reference && port.parse::<u64>().is_ok_and(|it| it > 65_535) => {
            format!("write a port from 0 to 65535, for example `{host}:8080`")
        }
        Some(("" | "*", port)) if port.parse::<u16>().is_ok() => {
            format!("write `[::]:{port}` for every address")
        }
        Some(("localhost", port)) if port.parse::<u16>().is_ok() => format!("write `127.0.0.1:{port}`"),
        _ if text.text.parse::<u16>().is_ok() => format!("write `[::]:{}` for every address", text.text),
        Some((ip, port)) if ip.parse::<Ipv6Addr>().is_ok() && port.parse::<u16>().is_ok() => {
            format!("write `[{ip}]:{port}`")
        }
        _ if text.text.starts_with('/') && !text.has_reference => {
            format!("write {}", quoted(&format!("unix:{}", text.text)))
        }
        _ => "write an address and a port, for example `127.0.0.1:8080` or `[::]:443`".to_owned(),
    };
    text.wrong(format!("{} is not an address to listen on", text.shown()), hint);
    None
}

pub(crate) fn read_client_ip(documents: &[Table<'_>]) -> ClientIp {
    let mut client_ip = ClientIp::default();
    let Some(table) = sections::table(documents, "client-ip") else { return client_ip };
    if let Some(value) = table.value("trust") {
        let texts = value.texts();
        for text in texts.iter().filter(|text| text.text.ends_with("/0")) {
            text.warn("every client may name any address as its own", "list only your own proxies");
        }
        (client_ip.trust, client_ip.trusts_unix) = peers(&texts);
    }
    table.word("header", &FORWARDED, &mut client_ip.header);
    table.number("ipv6-prefix", &mut client_ip.ipv6_prefix);
    if let Some(value) = table.value("nat64") {
        client_ip.nat64 = Nat64::new(value.texts().iter().filter_map(translator).collect());
    }
    client_ip
}

/// The prefix of a translator.
fn translator(text: &Text<'_>) -> Option<Ipv6Net> {
    match network(text)? {
        IpNet::V6(prefix) if Nat64::is_length(prefix.prefix_len()) => Some(prefix),
        _ => {
            let hint =
                "write an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, for example `2001:db8:64::/96`";
            text.wrong(format!("{} is no prefix of a NAT64 translator", text.shown()), hint);
            None
        }
    }
}

/// `allow` and `deny`: the addresses of clients that are admitted.
pub(crate) fn addresses(table: &Table<'_>) -> AddressRules {
    let nobody = "leave it out to admit every address; `deny = [\"0.0.0.0/0\", \"::/0\"]` admits none";
    AddressRules {
        allow: networks(table, "allow", nobody).into(),
        deny: networks(table, "deny", "leave it out").into(),
    }
}

/// A list of address ranges; empty where it is not written.
fn networks(table: &Table<'_>, key: &'static str, where_empty: &'static str) -> Vec<IpNet> {
    list(table, key, where_empty).iter().filter_map(network).collect()
}

fn list<'c>(table: &Table<'c>, key: &'static str, where_empty: &'static str) -> Vec<Text<'c>> {
    let Some(value) = table.value(key) else { return Vec::new() };
    let texts = value.some_texts(where_empty);
    if texts.len() > NETWORKS_MAX {
        let hint = "merge some of them";
        value.wrong(format!("`{key}` has more than {NETWORKS_MAX} ranges"), hint);
    }
    texts
}

/// `proxy-protocol`: the proxies that must send its header.
fn proxies(value: &Value<'_>) -> (Vec<IpNet>, bool) {
    let Some(table) = value.table() else { return Default::default() };
    let texts = list(&table, "from", "name the proxies that speak it, or leave `proxy-protocol` out");
    peers(&texts)
}

/// Address ranges, and whether `unix` is among them: whoever connects over a Unix socket.
fn peers(texts: &[Text<'_>]) -> (Vec<IpNet>, bool) {
    let networks = texts.iter().filter(|text| text.text != UNIX).filter_map(network);
    (networks.collect(), texts.iter().any(|text| text.text == UNIX))
}

/// An address range; a single address is one.
pub(crate) fn network(text: &Text<'_>) -> Option<IpNet> {
    if let Ok(address) = text.text.parse::<IpAddr>() {
        // Canonical, because clients' addresses are compared in that form.
        let network: IpNet = address.to_canonical().into();
        text.spell(network);
        return Some(network);
    }
    let Ok(network) = text.text.parse::<IpNet>() else {
        let foreign = || foreign_value(&text.key, &text.text, &[]).map(str::to_owned);
        let hint = foreign().or_else(|| text.each()).unwrap_or_else(|| {
            "write a range, for example `10.0.0.0/8` or `fd00::/8`, or one address".to_owned()
        });
        text.wrong(format!("{} is not an address or a range", text.shown()), hint);
        return None;
    };
    // An error, because bits after the prefix mean that one of the two is wrong, and whom to trust must not be guessed.
    if network != network.trunc() {
        text.wrong(
            format!("{} has bits set after its prefix", text.shown()),
            format!("write `{}`", network.trunc()),
        );
    }
    // An error, because a client's IPv4-mapped address is compared as IPv4: such a range would never match.
    if let ipnet::IpNet::V6(mapped) = network
        && mapped.prefix_len() >= 96
        && let Some(address) = mapped.addr().to_ipv4_mapped()
    {
        let hint = format!("write `{address}/{}`", mapped.prefix_len() - 96);
        text.wrong(format!("{} is an IPv4 range in IPv6 form, which never matches", text.shown()), hint);
    }
    text.spell(network);
    Some(network)
}

/// Reads one listener. Also returns the text of its address, for errors about addresses that overlap.
fn read<'c>(named: NamedTable<'c>) -> (ListenerConfig, Option<Text<'c>>) {
    let table = named.table;
    let mut listener = ListenerConfig::named(named.name);
    let written = table.value("bind").and_then(|value| value.text());
    let bind = written.as_ref().and_then(|written| bind(written, "unix:/run/sluicegate/edge.sock"));
    let is_read = bind.is_some();
    rights(&table, bind.as_ref(), &mut listener.rights);
    listener.bind = bind.unwrap_or(listener.bind);
    if let Some(value) = table.value("http") {
        (listener.http1, listener.http2) = versions(&value);
    }
    if let Some(value) = table.value("certs") {
        (listener.certs, listener.acme) = acme::certs(&value);
    }
    listener.protocol = protocol::read(&table, table.has("certs"));
    table.word("sni", &SNI, &mut listener.sni_strict);
    table.word("underscores", &UNDERSCORES, &mut listener.underscores);
    table.boolean("early-hints", &mut listener.early_hints);
    table.boolean("reuse-port", &mut listener.reuse_port);
    if let Some(value) = table.value("redirect") {
        listener.redirect_https = redirect::of_listener(&value);
        if listener.redirect_https.is_some() && !listener.certs.is_empty() {
            value.wrong("a listener with `certs` is https already", "leave `redirect` or `certs` out");
        }
    }
    table.number("max-connections", &mut listener.connections_max);
    // Before it is read, so that the default per address is never more than the maximum in all.
    listener.connections_per_ip_max = listener.connections_per_ip_max.min(listener.connections_max);
    table.number("max-connections-per-ip", &mut listener.connections_per_ip_max);
    table.spell("max-connections-per-ip", listener.connections_per_ip_max.to_string());
    if let Some(table) = table.table("timeouts") {
        table.duration("handshake", &mut listener.timeouts.handshake);
        table.duration("header", &mut listener.timeouts.header);
        table.duration("idle", &mut listener.timeouts.idle);
        table.duration("body-stall", &mut listener.timeouts.body_stall);
    }
    if let Some(table) = table.table("max") {
        table.size("header-bytes", &mut listener.max.header_bytes);
        table.number("headers", &mut listener.max.headers);
        table.size("uri-bytes", &mut listener.max.uri_bytes);
        table.size("body", &mut listener.max.body_bytes);
        table.number("streams", &mut listener.max.streams);
    }
    if let Some(value) = table.value("response-headers") {
        listener.response_headers = headers::of_listener(&value);
    }
    listener.client_auth = client_auth(&table, !listener.certs.is_empty(), tls::Demand::Require);
    listener.addresses = addresses(&table);
    if let Some(value) = table.value("proxy-protocol") {
        (listener.proxies, listener.has_unix_proxies) = proxies(&value);
    }
    (listener, written.filter(|_| is_read))
}

fn versions(value: &Value<'_>) -> (bool, bool) {
    let (mut http1, mut http2) = (false, false);
    let texts = value.texts();
    for text in &texts {
        match text.choice(&[("http/1.1", false), ("h2", true)]) {
            Some(true) => http2 = true,
            Some(false) => http1 = true,
            None => {}
        }
    }
    if texts.is_empty() && value.is_array() {
        value
            .wrong("`http` is empty: the listener would speak no protocol", "write `[\"h2\", \"http/1.1\"]`");
    }
    let spoken = [("h2", http2), ("http/1.1", http1)];
    value.spell(array(spoken.iter().filter(|(_, served)| *served).map(|(name, _)| show_text(name))));
    (http1, http2)
}

/// A certificate and its key that are in files.
pub(crate) fn pair(table: Table<'_>) -> Option<tls::CertificatePair> {
    let file = |key| table.value(key).and_then(|value| value.path());
    let (cert, key) = (file("cert"), file("key"));
    let mut self_signed = false;
    table.boolean("self-signed", &mut self_signed);
    let absent = if self_signed { tls::AbsentPair::MakeSelfSigned } else { tls::AbsentPair::Refuse };
    Some(tls::CertificatePair { cert: cert?, key: key?, absent })
}

/// `certs`, `client-ca`, `client-cert` and `client-crl` of a listener of `[admin]`; clients are asked for a certificate so,
/// unless `client-cert` says how.
pub(crate) fn files(table: &Table<'_>, bind: Option<&Bind>, unless_said: Demand) -> Option<tls::TlsFiles> {
    let certs = table.value("certs");
    let client_auth = client_auth(table, certs.is_some(), unless_said);
    let certs = certs?;
    if let Some(Bind::Unix(_)) = bind {
        certs.wrong_key(
            "`certs` cannot be combined with a Unix socket",
            "leave `certs` out: the file's mode decides who can connect",
        );
    }
    Some(tls::TlsFiles { certs: acme::certs(&certs).0, client_auth })
}

/// `client-ca`, `client-cert` and `client-crl`; `unwritten` is what is demanded if nothing is.
pub(crate) fn client_auth(
    table: &Table<'_>,
    has_certs: bool,
    unwritten: tls::Demand,
) -> Option<tls::ClientAuth> {
    let demand = table.value("client-cert");
    let crl = table.value("client-crl");
    let Some(ca) = table.value("client-ca") else {
        for value in [demand, crl].into_iter().flatten() {
            value.wrong_key(
                format!("`{}` needs `client-ca`", value.key),
                "add `client-ca = \"ca.pem\"`, the authorities of clients",
            );
        }
        return None;
    };
    if !has_certs {
        ca.wrong_key("`client-ca` needs `certs`", "add `certs`: clients can show certificates only over TLS");
    }
    let demand = demand.and_then(|value| value.choice(&DEMANDS));
    let crl = crl.and_then(|value| value.path());
    Some(tls::ClientAuth { ca: ca.path()?, demand: demand.unwrap_or(unwritten), crl })
}

const DEFAULT_LISTENER: &str = "the default listener, because the file has no [listener]";

/// Whoever connects over a Unix socket, in a list of addresses.
const UNIX: &str = "unix";

/// Lists are bounded, because each client is compared with every range of one.
const NETWORKS_MAX: usize = 1_000;
