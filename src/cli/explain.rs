//! `sluicegate explain`: which route answers a request, who sent it and which limits it meets, without spending any.
//!
//! It asks the running gateway over its admin listener, because only that knows what is left of local limits. If no
//! gateway answers, it explains from the file, and from Redis if the file names one, and says so.

use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use clap::builder::NonEmptyStringValueParser;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use super::admin_client::{self, AdminClient, encoded};
use super::admin_target::AdminTarget;
use super::check::EXIT_CONFIG;
use app::explain_from_outside;
use base::identity::NO_ADDRESS;
use config::Config;
use control::admin::{self, ExplainRequest};

/// The request to explain. Clap shows these comments as the help text.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The method, such as GET
    #[arg(value_parser = method, required_unless_present = "request")]
    method: Option<Method>,
    /// The URL, or its path and query, or * with OPTIONS
    #[arg(value_parser = url, required_unless_present = "request")]
    url: Option<Uri>,
    /// Explain the decision on a past request, by its x-request-id
    // Hyphens are allowed, because whoever gave the request its id may have begun it with a dash.
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new(), allow_hyphen_values = true, conflicts_with_all = ["method", "url", "headers", "from", "offline", "all"])]
    request: Option<String>,
    /// A header, as "name: value"; can be repeated
    #[arg(short = 'H', long = "header", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The address that the request comes from: the client's, or a trusted hop's; `unix` over a Unix socket. Default:
    /// 127.0.0.1, or ::1 if the URL or its listener has an IPv6 address
    #[arg(long, value_name = "IP", value_parser = from)]
    from: Option<IpAddr>,
    /// Explain from the file alone, without asking a running gateway or Redis
    #[arg(long, conflicts_with = "place")]
    offline: bool,
    /// Show for every route why it does not answer, not only for the ten nearest
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    whom: AdminTarget,
}

fn method(text: &str) -> Result<Method, &'static str> {
    text.parse().map_err(|_| "write the method first: `explain GET /`")
}

fn url(text: &str) -> Result<Uri, &'static str> {
    // A scheme is needed, because without one `example.com` would parse as a host without a path, which is not a
    // request target.
    let url = text.parse::<Uri>().ok();
    let is_http = |url: &Uri| matches!(url.scheme_str(), Some("http" | "https"));
    url.filter(|url| is_http(url) || text.starts_with('/') || text == "*")
        .ok_or("write an http URL, or a path such as /v1/orders")
}

fn from(text: &str) -> Result<IpAddr, &'static str> {
    match text {
        "unix" => Ok(NO_ADDRESS),
        _ => text.parse().map_err(|_| "write an address such as 192.0.2.1, or unix"),
    }
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write it as \"name: value\"")?;
    let name = name.trim().parse().map_err(|_| "the header name is invalid: write, for example, x-plan")?;
    let value = HeaderValue::from_str(value.trim())
        .map_err(|_| "the header value is invalid: it contains a control character")?;
    Ok((name, value))
}

/// Prints the explanation on `out`.
///
/// # Errors
/// If neither a gateway nor the file explains it.
pub fn run(
    arguments: &Arguments,
    file: &Path,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> anyhow::Result<u8> {
    if arguments.request.is_some() || arguments.whom.place.is_some() {
        let client = arguments.whom.client(file, PATIENCE, admin::Config::own_token)?;
        let text = match &arguments.request {
            Some(id) => sent(&client, id)?,
            None => match ask(&client, arguments) {
                Err(NoExplanation::Unheard(error)) => return Err(error),
                answer => answer.map_err(|why| anyhow!("{why}"))?.text,
            },
        };
        write!(out, "{text}")?;
        return Ok(0);
    }
    let loaded = match config::load(file) {
        Ok(loaded) => loaded,
        Err(found) => {
            writeln!(errors, "{found}\n\nto ask a running gateway, add --url")?;
            return Ok(EXIT_CONFIG);
        }
    };
    let mut config = loaded.config;
    let asked = match &config.admin {
        _ if arguments.offline => Err(NoExplanation::Offline),
        None => Err(NoExplanation::Nobody),
        Some(admin) => ask(&arguments.whom.of(admin, admin.own_token(), PATIENCE)?, arguments),
    };
    let why = match asked {
        Ok(answer) => {
            write!(out, "{}{}", answer.text, answer.notes(&config, loaded.report.has_admin(), file))?;
            return Ok(0);
        }
        Err(why) => why,
    };
    if arguments.offline {
        // Without Redis, because `--offline` asks nobody.
        config.redis = None;
    }
    let claims: Vec<Box<str>> = loaded.table.claims().into_iter().map(Into::into).collect();
    let method = |config: &auth::Config| auth::Method::new(config.clone(), &claims).map(Arc::new);
    let auth_methods = config.auth.iter().map(method).collect::<Result<_, _>>()?;
    let explained = explain_from_outside(&config, loaded.table, &auth_methods, &arguments.asked())?;
    let source = if explained.is_from_redis() { "from the file and Redis" } else { "from the file only" };
    writeln!(out, "{}note     {why}: explained {source}", explained.to_text())?;
    Ok(0)
}

impl Arguments {
    /// The request. Without `--request` clap has seen to it that there are a method and a URL.
    fn asked(&self) -> ExplainRequest {
        ExplainRequest {
            method: self.method.clone().unwrap_or_default(),
            url: self.url.clone().unwrap_or_default(),
            from: self.from,
            headers: self.headers.iter().cloned().collect(),
            all: self.all,
        }
    }
}

/// What the running gateway, or its database, knows of a request that was sent.
fn sent(client: &AdminClient, id: &str) -> anyhow::Result<String> {
    let shown = client.read(&format!("/v1/decisions/{}", encoded(id)))?;
    Ok(shown["text"].as_str().unwrap_or_default().to_owned())
}

/// The explanation of the running gateway; `None` if none answers.
fn ask(client: &AdminClient, arguments: &Arguments) -> Result<Explanation, NoExplanation> {
    let answer = client.ask(&Method::GET, &target(&arguments.asked()), &HeaderMap::new(), None);
    let answer = answer.map_err(NoExplanation::Unheard)?;
    if answer.status() != StatusCode::OK {
        let problem = serde_json::from_slice(answer.body()).unwrap_or_default();
        return Err(NoExplanation::Refused(client.place.refusal(answer.status(), &problem)));
    }
    let explained: Option<serde_json::Value> = serde_json::from_slice(answer.body()).ok();
    let explained = explained.ok_or(NoExplanation::Nobody)?;
    let text = explained["text"].as_str().ok_or(NoExplanation::Nobody)?;
    let text = base::words::plain_lines(text);
    Ok(Explanation { text, gateway: explained["gateway"].clone() })
}

struct Explanation {
    text: String,
    /// Its version, and which configuration it runs.
    gateway: serde_json::Value,
}

impl Explanation {
    /// Who has answered, and whether what it runs is what the file says.
    fn notes(&self, config: &Config, has_admin: bool, file: &Path) -> String {
        let Some(bind) = config.admin.as_ref().map(|admin| &admin.bind) else { return String::new() };
        let file = file.display();
        let version = self.gateway["version"].as_str().unwrap_or("of another version");
        let generation = self.gateway["generation"].as_u64().unwrap_or_default();
        let default = if has_admin { String::new() } else { format!(", the default: {file} has no [admin]") };
        let mut notes = format!(
            "note     answered by the gateway on {bind} (sluicegate {version}, configuration {generation}){default}\n"
        );
        if self.gateway["fingerprint"].as_str() != Some(&config.fingerprint()) {
            let database = if config.database.is_some() { ", its database" } else { "" };
            notes += &format!(
                "note     its configuration{database} or its environment variables differ from {file} and this shell: \
                 --offline explains the file\n"
            );
        }
        notes
    }
}

/// Why no running gateway has explained the request.
enum NoExplanation {
    Nobody,
    /// Nobody listens there, or somebody does who was not asked: the listener wants a certificate, or is not that of the
    /// file.
    Unheard(anyhow::Error),
    Offline,
    /// What it says instead, because it may have another token.
    Refused(String),
}

impl fmt::Display for NoExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoExplanation::Nobody => f.write_str("no gateway answers on the admin address"),
            NoExplanation::Unheard(error) => {
                write!(f, "no gateway answers on the admin address ({})", error.root_cause())
            }
            NoExplanation::Offline => f.write_str("no gateway was asked"),
            NoExplanation::Refused(why) => f.write_str(why),
        }
    }
}

fn target(asked: &ExplainRequest) -> String {
    let mut query: Vec<(&str, Vec<u8>)> =
        vec![("method", asked.method.as_str().into()), ("url", asked.url.to_string().into())];
    let from = asked.from.map(|from| if from == NO_ADDRESS { "unix".to_owned() } else { from.to_string() });
    query.extend(from.map(|from| ("from", from.into())));
    query.extend(asked.all.then(|| ("all", "true".into())));
    let header = |(name, value): (&HeaderName, &HeaderValue)| {
        ("header", [name.as_str().as_bytes(), b":", value.as_bytes()].concat())
    };
    query.extend(asked.headers.iter().map(header));
    admin_client::target("/v1/explain", query)
}

/// How long to wait for the answer: so long, because `--all` over a million routes takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);
