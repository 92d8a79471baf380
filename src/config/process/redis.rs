//! Reads `[redis]`, the Redis that the nodes of a fleet share. It connects to nothing.

use std::time::Duration;

use limiter::global::Config;
use limiter::global::config::{
    CONNECTIONS, DedicatedServer, Login, PORT, PREFIX, SENTINEL_PORT, Secret, Server, Topology,
    WeightedServer,
};

use crate::keys::foreign::foreign_key;
use crate::load::mask;
use crate::load::sections;
use crate::load::text::Text;
use crate::reader::{Table, Value};

/// Reads `[redis]`. `None`: each node limits on its own.
pub(crate) fn read(documents: &[Table<'_>]) -> Option<Config> {
    let table = sections::table(documents, "redis")?;
    let topology = read_topology(&table);
    let mut config = Config {
        topology: Topology::Single(Vec::new()),
        deadline: None,
        prefix: PREFIX.to_owned(),
        key_secret: None,
        connections: CONNECTIONS,
        ca: None,
    };
    table.set("deadline", &mut config.deadline, |value| read_deadline(&value));
    table.set("prefix", &mut config.prefix, |value| prefix(&value.text()?));
    table.number("connections", &mut config.connections);
    table.set("key-secret", &mut config.key_secret, |value| Some(Some(Secret(value.text()?.secret()))));
    table.path_if("ca", &mut config.ca);
    Some(Config { topology: topology?, ..config })
}

/// Servers as one URL. All have the login of the first.
pub(crate) fn url(servers: &[Server]) -> String {
    let Some(first) = servers.first() else { return String::new() };
    let mut url = if first.tls { "rediss://" } else { "redis://" }.to_owned();
    if first.login.username.is_some() || first.login.password.is_some() {
        url += first.login.username.as_deref().unwrap_or("");
        if let Some(password) = &first.login.password {
            url += ":";
            url += &password.0;
        }
        url += "@";
    }
    url += &servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    if first.login.db > 0 { format!("{url}/{}", first.login.db) } else { url }
}

fn read_topology(table: &Table<'_>) -> Option<Topology> {
    let (url, ring) = (table.value("url"), table.value("ring"));
    let word = table.value("topology").and_then(|value| value.text());
    let master = word.as_ref().and_then(|word| word.text.strip_prefix("sentinel:")).map(str::to_owned);
    let kind = match (&word, &master) {
        (None, _) => Kind::Single,
        (Some(word), _) if matches!(&*word.text, "sentinel" | "sentinel:") => {
            let hint = "write the name the sentinels watch: `sentinel:mymaster`";
            word.wrong(format!("{} names no primary", word.shown()), hint);
            return None;
        }
        (Some(_), Some(_)) => Kind::Sentinel,
        (Some(word), None) => word.choice_beside(&KINDS, &["sentinel:NAME"])?,
    };
    if kind == Kind::Ring {
        if let Some(url) = url {
            url.wrong_key("a ring cannot have `url`", "write a `url` for each shard in `[redis.ring]`");
        }
        let Some(ring) = ring else {
            table.lacks(
                &["ring"],
                "a ring needs `[redis.ring]`",
                "write `ring = { shards = [{ url = \"redis://a\" }] }`",
            );
            return None;
        };
        return read_ring(ring.table()?);
    }
    if let Some(ring) = ring {
        ring.wrong_key(
            "`[redis.ring]` needs `topology = \"ring\"`",
            "write that in `[redis]`, or remove `[redis.ring]`",
        );
        return None;
    }
    let Some(url) = url else {
        table.lacks(&["url"], "`[redis]` needs `url`", "write `url = \"redis://127.0.0.1:6379\"`");
        return None;
    };
    let port = if kind == Kind::Sentinel { SENTINEL_PORT } else { PORT };
    let text = url.text()?;
    let servers = read_url(&text, port)?;
    // Refused, because a cluster has only the database 0.
    if kind == Kind::Cluster && servers[0].login.db > 0 {
        text.wrong("Redis Cluster has only database 0", "end the URL after its hosts");
    }
    Some(match (kind, master) {
        (Kind::Sentinel, Some(master)) => Topology::Sentinel { master, sentinels: servers },
        (Kind::Cluster, _) => Topology::Cluster(servers),
        _ => Topology::Single(servers),
    })
}

fn read_ring(table: Table<'_>) -> Option<Topology> {
    let mut shards = Vec::new();
    let written = table.value("shards").and_then(|value| value.array()).unwrap_or_default();
    let has_none = written.is_empty();
    for value in written {
        let Some(shard) = value.table() else { continue };
        let mut weight = 1;
        shard.number("weight", &mut weight);
        shards.extend(one_server(&shard).map(|server| WeightedServer { server, weight }));
    }
    let mut dedicated = Vec::new();
    for value in table.value("dedicated").and_then(|value| value.array()).unwrap_or_default() {
        let Some(shard) = value.table() else { continue };
        let tenants: Vec<String> =
            shard.value("tenants").iter().flat_map(Value::texts).map(|text| text.text).collect();
        if tenants.is_empty() {
            shard.wrong("a dedicated shard needs `tenants`", "write `tenants = [\"acme\"]`");
        }
        dedicated.extend(one_server(&shard).map(|server| DedicatedServer { server, tenants }));
    }
    if has_none || shards.len() > SHARDS_MAX || dedicated.len() > DEDICATED_MAX {
        table.wrong(
            format!("a ring has 1 to {SHARDS_MAX} shards and at most {DEDICATED_MAX} dedicated ones"),
            "write `shards = [{ url = \"redis://a\" }, { url = \"redis://b\", weight = 2 }]`",
        );
        return None;
    }
    (!shards.is_empty()).then_some(Topology::Ring { shards, dedicated })
}

fn one_server(table: &Table<'_>) -> Option<Server> {
    let text = table.value("url")?.text()?;
    let mut servers = read_url(&text, PORT)?;
    if servers.len() > 1 {
        text.wrong("a shard is one server", "write one host");
        return None;
    }
    servers.pop()
}

/// `redis://[user][:password]@host[:port][,host[:port]…][/db]`; `rediss://` over TLS. User and password are taken
/// literally, up to the last `@`, and not percent-decoded, because a password out of a `${file:…}` is not encoded.
fn read_url(text: &Text<'_>, default_port: u16) -> Option<Vec<Server>> {
    let wrong = |message: &str, hint: &'static str| {
        text.wrong(format!("`url` {message}"), hint);
        None
    };
    let (tls, rest) = match text.text.split_once("://") {
        Some(("redis", rest)) => (false, rest),
        Some(("rediss", rest)) => (true, rest),
        Some((scheme, _)) if let Some((_, hint)) = foreign_key("the scheme of Redis", scheme) => {
            return wrong("is not a Redis URL", hint);
        }
        _ => return wrong("is not a Redis URL", "write it like `redis://127.0.0.1:6379`"),
    };
    let (user, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (username, password) = user.split_once(':').map_or((user, None), |(user, word)| (user, Some(word)));
    if password.is_some() && !text.has_reference {
        text.warn("a password is written in plain text", mask::OUT_OF_FILE);
    }
    // An error, because everybody knows the mask.
    if mask::is_mask(password.unwrap_or(username)) {
        text.wrong(format!("the password of `url` {}", mask::MASKED), mask::WRITE_SECRET);
    }
    let (hosts, db) = hosts.split_once('/').unwrap_or((hosts, ""));
    let Ok(db) = (if db.is_empty() { "0" } else { db }).parse::<u16>() else {
        return wrong("has an invalid database", "write its number, for example `/0`, or leave it out");
    };
    let login = Login {
        username: Some(username).filter(|name| !name.is_empty()).map(str::to_owned),
        password: password.filter(|word| !word.is_empty()).map(|word| Secret(word.to_owned())),
        db,
    };
    let mut servers = Vec::new();
    for host in hosts.split(',') {
        let Some((host, port)) = host_and_port(host, default_port) else {
            return wrong("has an invalid host or port", "write hosts like `r1:6379,r2:6379`");
        };
        servers.push(Server { host, port, tls, login: login.clone() });
    }
    text.spell(url(&servers));
    Some(servers)
}

fn host_and_port(text: &str, default_port: u16) -> Option<(String, u16)> {
    let authority: http::uri::Authority = text.parse().ok()?;
    let host = authority.host();
    let port = match authority.port_u16() {
        Some(port) => port,
        // The lengths tell the two cases apart, because a written port that is no number makes `port_u16` return
        // `None`, too.
        None if authority.as_str().len() == host.len() => default_port,
        None => return None,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    (!host.is_empty() && port > 0).then_some((host, port))
}

/// `None`: it follows the round trip.
fn read_deadline(value: &Value<'_>) -> Option<Option<Duration>> {
    let is_auto = value.is_string() && value.text().is_some_and(|text| text.text == "auto");
    if is_auto { Some(None) } else { value.duration().map(Some) }
}

fn prefix(text: &Text<'_>) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
    if text.text.is_empty() || text.text.len() > PREFIX_BYTES_MAX || !text.text.bytes().all(is_plain) {
        let hint = format!("write 1 to {PREFIX_BYTES_MAX} printable ASCII characters, no spaces, no braces");
        text.wrong(format!("{} is not a valid prefix of keys", text.shown()), hint);
        return None;
    }
    Some(text.text.clone())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single,
    Sentinel,
    Cluster,
    Ring,
}

const KINDS: [(&str, Kind); 3] = [("single", Kind::Single), ("cluster", Kind::Cluster), ("ring", Kind::Ring)];
const PREFIX_BYTES_MAX: usize = 32;
const SHARDS_MAX: usize = 256;
const DEDICATED_MAX: usize = 255;
