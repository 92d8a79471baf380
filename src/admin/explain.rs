//! The query of `/v1/explain`: a request to be explained, in the words of `sluicegate explain`.
//!
//! It deliberately explains nothing: `app` asks the routes and the limiter.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

/// A request that is only asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainRequest {
    /// `GET` if the query names none.
    pub method: Method,
    /// An absolute URL, or a path with its query.
    pub url: Uri,
    /// The client's address, if the query names one.
    pub from: Option<IpAddr>,
    /// In the order the query names them.
    pub headers: HeaderMap,
    /// Whether every route is to be named, not only the nearest.
    pub all: bool,
}

/// What is wrong with a query; the client that asked is told.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("say which url: /v1/explain?method=GET&url=/v1/orders&from=192.0.2.1&header=x-plan:pro")]
    NoUrl,
    #[error("parameters are method, url, from, all and header, each but header once")]
    Parameter,
    #[error("a value is not percent-encoded UTF-8")]
    Encoding,
    #[error("method is not an HTTP method")]
    Method,
    #[error("url is neither an http URL nor a path")]
    Url,
    #[error("from is not an IP address")]
    From,
    #[error("all is true or false")]
    All,
    #[error("header is not of the form name:value")]
    Header,
}

impl ExplainRequest {
    /// Reads a query string: `method=GET&url=%2Fa&from=192.0.2.1&header=x-a%3A1&header=x-b%3A2`.
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
    if is_http || text.starts_with('/') { Ok(url) } else { Err(Error::Url) }
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), Error> {
    let (name, value) = text.split_once(':').ok_or(Error::Header)?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| Error::Header)?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| Error::Header)?;
    Ok((name, value))
}

/// Takes off percent-encoding, and `+` for a space, as forms and `curl --data-urlencode` write them.
fn decode(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let [high, low, after @ ..] = after else {
                    return Err(Error::Encoding);
                };
                bytes.push(hex(*high)? << 4 | hex(*low)?);
                rest = after;
            }
            plain => bytes.push(*plain),
        }
    }
    String::from_utf8(bytes).map_err(|_| Error::Encoding)
}

fn hex(digit: u8) -> Result<u8, Error> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(Error::Encoding),
    }
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
    fn a_path_alone_is_enough() {
        let request = ExplainRequest::parse("url=/v1/orders").expect("a request");
        assert_eq!((request.method, request.url.path()), (Method::GET, "/v1/orders"));
    }

    #[test]
    fn what_is_wrong_is_said() {
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
