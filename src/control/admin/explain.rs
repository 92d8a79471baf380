//! Parses the query of `/v1/explain` into a request to explain. The explanation itself is `app::explain`.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use base::identity::NO_ADDRESS;
use policy::percent::{self, Plus};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainRequest {
    /// `GET` if the query names none.
    pub method: Method,
    /// An absolute URL, or a path with its query.
    pub url: Uri,
    /// The address it comes from, which may be that of a trusted hop; [`NO_ADDRESS`] for a Unix socket, and loopback if
    /// the query names none.
    pub from: Option<IpAddr>,
    /// The `header` parameters, in the order of the query.
    pub headers: HeaderMap,
    /// Whether to list every route, not only the nearest.
    pub all: bool,
}

/// What is wrong with a query; the client that asked is told.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("url is missing: write /v1/explain?method=GET&url=/v1/orders&from=192.0.2.1&header=x-plan:pro")]
    NoUrl,
    #[error("the parameters are method, url, from, all and header; only header may come several times")]
    Parameter,
    #[error("a value is not percent-encoded UTF-8")]
    Encoding,
    #[error("method is not an HTTP method: write, for example, GET")]
    Method,
    #[error("url is neither an http URL nor a path: write, for example, /v1/orders")]
    Url,
    #[error("from is not an IP address: write an address such as 192.0.2.1, or unix")]
    From,
    #[error("all must be true or false")]
    All,
    #[error("header is invalid: write name:value, for example x-plan:pro")]
    Header,
}

impl ExplainRequest {
    pub(super) fn parse(query: &str) -> Result<ExplainRequest, Error> {
        let (mut method, mut url, mut from, mut all) = (None, None, None, None);
        let mut headers = HeaderMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(Error::Parameter)?;
            let value = decode(value)?;
            match name {
                "method" => {
                    once(&mut method, Method::from_bytes(value.as_bytes()).map_err(|_| Error::Method)?)?
                }
                "url" => once(&mut url, parse_url(&value)?)?,
                "from" if value == "unix" => once(&mut from, NO_ADDRESS)?,
                "from" => once(&mut from, value.parse().map_err(|_| Error::From)?)?,
                "all" => once(&mut all, value.parse().map_err(|_| Error::All)?)?,
                "header" => {
                    let (name, value) = parse_header(&value)?;
                    headers.append(name, value);
                }
                _ => return Err(Error::Parameter),
            }
        }
        Ok(ExplainRequest {
            method: method.unwrap_or(Method::GET),
            url: url.ok_or(Error::NoUrl)?,
            from,
            headers,
            all: all.unwrap_or(false),
        })
    }
}

fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), Error> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::Parameter),
    }
}

fn parse_url(text: &str) -> Result<Uri, Error> {
    let url: Uri = text.parse().map_err(|_| Error::Url)?;
    let is_http = url.scheme_str().is_some_and(|scheme| scheme == "http" || scheme == "https");
    if is_http || text.starts_with('/') || text == "*" { Ok(url) } else { Err(Error::Url) }
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), Error> {
    let (name, value) = text.split_once(':').ok_or(Error::Header)?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| Error::Header)?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| Error::Header)?;
    Ok((name, value))
}

/// Decodes a value; `+` is a space, as forms and `curl --data-urlencode` write it. Routing takes a broken `%` as
/// itself. It is refused here, because it is an operator's slip, and the explanation would be of another request than
/// was meant.
fn decode(text: &str) -> Result<String, Error> {
    if !percent::is_well_formed(text) {
        return Err(Error::Encoding);
    }
    String::from_utf8(percent::decode(text, Plus::Space).collect()).map_err(|_| Error::Encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_query_is_read() {
        let request = ExplainRequest::parse(
            "method=POST&url=https%3A%2F%2Fapi.example.com%2Fa%3Fb%3D1&from=2001:db8::1&header=x-plan:+pro\
             &header=X-Plan%3Afree",
        )
        .expect("a request");
        assert_eq!(request.method, Method::POST);
        assert_eq!(request.url, "https://api.example.com/a?b=1");
        assert_eq!(request.from, "2001:db8::1".parse().ok());
        assert_eq!(request.headers.get_all("x-plan").iter().collect::<Vec<_>>(), ["pro", "free"]);
    }

    #[test]
    fn a_path_is_enough() {
        let request = ExplainRequest::parse("url=/v1/orders").expect("a request");
        assert_eq!((request.method, request.url.path()), (Method::GET, "/v1/orders"));
    }

    #[test]
    fn a_wrong_query_is_refused_with_its_reason() {
        for (query, error) in [
            ("", Error::NoUrl),
            ("method=GET", Error::NoUrl),
            ("url=/a&url=/b", Error::Parameter),
            ("url=/a&colour=red", Error::Parameter),
            ("url", Error::Parameter),
            ("url=/a%2", Error::Encoding),
            ("url=/a%zz", Error::Encoding),
            ("url=/%ff", Error::Encoding),
            ("url=/a&method=G%20T", Error::Method),
            ("url=orders", Error::Url),
            ("url=ftp://a/b", Error::Url),
            ("url=/a&from=home", Error::From),
            ("url=/a&header=x", Error::Header),
            ("url=/a&header=x:a%0d%0ab", Error::Header),
        ] {
            assert_eq!(ExplainRequest::parse(query), Err(error), "{query}");
        }
    }
}
