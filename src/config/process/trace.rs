//! Reads `[trace]`: where spans go, and of which requests.

use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Uri};

use observe::trace::{Config, OtlpProtocol, ParentSampling, TRACES_PATH, TraceparentTrust};
use policy::response::changes::is_framing;

use crate::keys::log::{DECIDES, HEEDED, PROTOCOLS};
use crate::load::sections;
use crate::load::text::Text;
use crate::reader::{Table, Value};
use crate::upstream::trust;

/// Reads `[trace]`. `None`: no request is traced.
pub(crate) fn read(documents: &[Table<'_>]) -> Option<Config> {
    let table = sections::table(documents, "trace")?;
    let written = table.value("otlp");
    let otlp = written.as_ref().and_then(Value::text).and_then(|text| url(&text));
    let protocol = table.value("protocol").and_then(|value| value.choice(&PROTOCOLS));
    if let (Some(GRPC_PORT), None, Some(written)) =
        (otlp.as_ref().and_then(Uri::port_u16), protocol, &written)
    {
        written.warn("port 4317 is that of OTLP over gRPC", "add `protocol = \"grpc\"`, or write port 4318");
    }
    if let (Some(OtlpProtocol::Grpc), Some(otlp), Some(written)) = (protocol, &otlp, &written)
        && otlp.path().trim_end_matches('/').ends_with(TRACES_PATH)
    {
        written
            .warn("`/v1/traces` is a path of OTLP over HTTP", "leave it out, or write `protocol = \"http\"`");
    }
    let tls = table.value("tls");
    if let (Some(tls), Some(otlp)) = (&tls, &otlp)
        && otlp.scheme() != Some(&Scheme::HTTPS)
    {
        tls.wrong_key("`tls` has no effect on plain http", "write `otlp = \"https://…\"`, or remove `tls`");
    }
    let trust = tls.map(|tls| trust::read(&tls)).unwrap_or_default();
    let headers = table.table("headers").map(|headers| fields(&headers)).unwrap_or_default();
    let service = table.value("service").and_then(|value| value.text());
    if let Some(service) = service.as_ref().filter(|service| service.text.is_empty()) {
        service.wrong("`service` is empty", "write the name that traces show");
    }
    let service = service.map_or_else(|| SERVICE.to_owned(), |service| service.text);
    let protocol = protocol.unwrap_or_default();
    let (sample_ppm, decides, parent) = (SAMPLE_PPM, ParentSampling::default(), TraceparentTrust::default());
    let url = otlp.clone().unwrap_or_default();
    let mut config = Config { otlp: url, protocol, trust, headers, sample_ppm, decides, parent, service };
    table.share("sample", &mut config.sample_ppm);
    table.word("decides", &DECIDES, &mut config.decides);
    table.word("parent", &HEEDED, &mut config.parent);
    otlp.map(|_| config)
}

fn url(text: &Text<'_>) -> Option<Uri> {
    let url = text.text.parse::<Uri>().ok();
    let is_right = |url: &Uri| {
        let is_http = url.scheme() == Some(&Scheme::HTTP) || url.scheme() == Some(&Scheme::HTTPS);
        let has_host = url.host().is_some_and(|host| !host.is_empty());
        let has_name = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        // The text is searched for a fragment, because the `Uri` leaves it out.
        is_http && has_host && !has_name && url.query().is_none() && !text.text.contains('#')
    };
    let right = url.filter(is_right);
    if let Some(authority) = right.as_ref().and_then(Uri::authority)
        && text.has_wrong_port(authority)
    {
        return None;
    }
    if right.is_none() {
        let hint = "write it like `http://127.0.0.1:4318` or `https://collector.example.com`";
        text.wrong(format!("{} is not the URL of a collector", text.shown()), hint);
    }
    right.iter().for_each(|url| text.spell(url.to_string().trim_end_matches('/')));
    right
}

/// Fields of the requests to the collector.
fn fields(table: &Table<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields = Vec::new();
    for entry in table.entries() {
        let name = HeaderName::from_bytes(entry.key.as_bytes()).ok();
        if name.is_none() {
            entry.wrong_key(format!("`{}` is not a header's name", entry.key.escape_debug()), "");
        }
        if let Some(name) = name.as_ref().filter(|name| is_of_the_message(name)) {
            let hint = "leave it out; `headers` are for credentials";
            entry.wrong_key(format!("`{name}` cannot be set: the gateway sets it for each message"), hint);
        }
        let Some(text) = entry.text() else { continue };
        let Ok(mut value) = HeaderValue::from_str(&text.text) else {
            text.wrong(format!("the value of `{}` is not valid in a header", entry.key.escape_debug()), "");
            continue;
        };
        value.set_sensitive(true);
        fields.extend(name.map(|name| (name, value)));
    }
    fields
}

/// Whether a field says how a message is framed, coded or routed, which the exporter alone knows.
fn is_of_the_message(name: &HeaderName) -> bool {
    is_framing(name) || OF_THE_MESSAGE.contains(&name.as_str()) || name.as_str().starts_with(GRPC)
}

/// Refused beside those that frame a message, because the exporter sets them, or HTTP gives them to no sender of a
/// whole one.
const OF_THE_MESSAGE: [&str; 7] =
    ["content-encoding", "content-range", "content-type", "expect", "host", "http2-settings", "range"];
/// Names that begin so are gRPC's own.
const GRPC: &str = "grpc-";
/// One trace in a hundred.
const SAMPLE_PPM: u32 = 10_000;
const SERVICE: &str = "sluicegate";
/// Where collectors speak gRPC.
const GRPC_PORT: u16 = 4317;
