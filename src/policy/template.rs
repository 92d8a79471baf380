//! `{...}` in header values and rewritten paths.
//!
//! A name is a parameter of the route's path or one of a fixed list; `{{` and `}}` are literal braces. There are
//! deliberately no conditions and no functions.

use std::borrow::Cow;
use std::fmt::Write as _;

use http::HeaderValue;

use super::braces::{self, BracePiece};
use super::matching::pattern::{Pattern, PatternSegment};
use super::percent::{self, Plus};
use super::request::TemplateValues;
use base::identity::Claim;
use base::identity::NO_ADDRESS;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub(super) parts: Box<[TemplatePart]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplatePart {
    Literal(Box<str>),
    Value(Placeholder),
    Claim(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placeholder {
    /// The parameter at this segment of the route's path.
    Param(usize),
    Ip,
    Host,
    Method,
    Path,
    Query,
    Route,
    Consumer,
    Tenant,
    Tier,
    RequestId,
}

/// What is wrong with a template. Offsets are bytes into its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Brace(#[from] braces::Error),
    #[error("`{name}` does not exist here; write {}", instead(.name, .known))]
    UnknownName {
        offset: usize,
        name: String,
        /// The names there are: the path's parameters, then the fixed ones.
        known: Vec<String>,
    },
    #[error(
        "`{name}` is both a parameter of the path and the gateway's own `{{{name}}}`; rename the parameter"
    )]
    Ambiguous {
        /// Where its brace stands.
        offset: usize,
        name: String,
    },
    #[error("a header value must not contain control characters, or spaces at its ends")]
    HeaderText,
    #[error("`Host` must be one host, for example `api.example.com` or `api.example.com:8443`")]
    NotHost,
    #[error("`{{{name}}}` differs by request, and these headers are the same in every response")]
    NotFixed { name: String },
    #[error("a rewritten path starts with `/`, or with `{{path}}`")]
    NoSlash,
    #[error("`{found}` is not part of a path; leave it out: the query is not rewritten")]
    NotPath { found: char },
    /// What stands for something in the paths of others, and here only for itself.
    #[error("`{found}` is sent literally; write `{{{instead}}}`, or `{encoded}` for the character itself")]
    Foreign {
        found: String,
        /// A placeholder that may have been meant.
        instead: String,
        /// Its first character, encoded.
        encoded: &'static str,
    },
    #[error("a redirect must go to a path, or to a URL such as `https://new.example.com{{path}}`")]
    NotLocation,
    #[error(
        "the host of a redirect must be written out or be `{{host}}`, so that no client chooses it; end it with \
         `/` or `{{path}}`"
    )]
    HostOfClient,
    #[error("`{}` must be percent-encoded in a redirect", .found.escape_default())]
    NotInLocation { found: char },
    #[error("a rewritten path must not contain `.` or `..` segments")]
    DotSegment,
    #[error("`%` must be followed by two hex digits; write %25 for a percent sign")]
    Percent,
}

/// The name that is meant, or all there are: `{*rest}` of a path is `{rest}` elsewhere.
fn instead(name: &str, known: &[String]) -> String {
    match name.strip_prefix('*').filter(|bare| known.iter().any(|known| known == bare)) {
        Some(bare) => format!("`{{{bare}}}`"),
        None => format!("one of {}, or claim:<name>", known.join(", ")),
    }
}

/// The value of a header: bytes known beforehand, or made for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTemplate {
    Fixed(HeaderValue),
    Made(Template),
}

/// What cannot be the value of a header: it begins or ends with a blank, or holds a control character. The request is
/// refused then, because without the header the next hop would not know of whom, or what, the request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfitHeaderValue {
    /// What a credential says of its owner.
    Identity,
    Param,
}

/// A new path, made for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite(Template);

pub const UNFIT_PARAM: &str = "a path parameter has characters that a header value must not have";
/// What no value of a header begins or ends with (RFC 9110 section 5.5).
const BLANKS: [char; 2] = [' ', '\t'];

/// Names header values may use besides the path's parameters.
pub(super) const HEADER_NAMES: &[(&str, Placeholder)] = &[
    ("ip", Placeholder::Ip),
    ("host", Placeholder::Host),
    ("method", Placeholder::Method),
    ("path", Placeholder::Path),
    ("query", Placeholder::Query),
    ("route", Placeholder::Route),
    ("consumer", Placeholder::Consumer),
    ("tenant", Placeholder::Tenant),
    ("tier", Placeholder::Tier),
    ("request_id", Placeholder::RequestId),
];

impl HeaderTemplate {
    /// Reads a header value of a route with this path.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, pattern: &Pattern) -> Result<HeaderTemplate, Error> {
        let template = Template::parse(text, pattern, HEADER_NAMES)?;
        let literals = template.parts.iter().filter_map(|part| match part {
            TemplatePart::Literal(text) => Some(&**text),
            TemplatePart::Value(_) | TemplatePart::Claim(_) => None,
        });
        if literals.clone().any(|text| HeaderValue::from_bytes(text.as_bytes()).is_err()) {
            return Err(Error::HeaderText);
        }
        if template.parts.iter().any(|part| !matches!(part, TemplatePart::Literal(_))) {
            return if template.has_blank_end() {
                Err(Error::HeaderText)
            } else {
                Ok(HeaderTemplate::Made(template))
            };
        }
        HeaderTemplate::of_literal(&literals.collect::<String>())
    }

    /// Reads a header value that is the same for all requests.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn fixed(text: &str) -> Result<HeaderTemplate, Error> {
        let pieces = braces::split(text)?.into_iter().map(|piece| match piece {
            BracePiece::Literal(text) => Ok(text),
            BracePiece::Name { name, .. } => Err(Error::NotFixed { name: name.to_owned() }),
        });
        HeaderTemplate::of_literal(&pieces.collect::<Result<String, _>>()?)
    }

    fn of_literal(text: &str) -> Result<HeaderTemplate, Error> {
        if text.trim_matches(BLANKS) != text {
            return Err(Error::HeaderText);
        }
        HeaderValue::from_bytes(text.as_bytes()).map(HeaderTemplate::Fixed).map_err(|_| Error::HeaderText)
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = &str> {
        let template = match self {
            HeaderTemplate::Fixed(_) => None,
            HeaderTemplate::Made(template) => Some(template),
        };
        template.into_iter().flat_map(Template::claims)
    }

    /// Whether the value for one request can be sent. Nothing is wrong with one that is empty.
    pub(super) fn fits(&self, values: &TemplateValues<'_, '_>) -> Result<(), UnfitHeaderValue> {
        let HeaderTemplate::Made(template) = self else { return Ok(()) };
        if template.parts.iter().all(|part| part.source().is_none()) {
            return Ok(());
        }
        let (mut is_begun, mut blank_end) = (false, None);
        for part in &template.parts {
            let (source, mut is_unfit) = (part.source(), false);
            part.write(values, |text| {
                for byte in text {
                    let is_blank = BLANKS.contains(&char::from(*byte));
                    is_unfit |= if is_blank { !is_begun } else { byte.is_ascii_control() };
                    is_begun = true;
                    blank_end = source.filter(|_| is_blank);
                }
            });
            if let Some(source) = source.filter(|_| is_unfit) {
                return Err(source);
            }
        }
        blank_end.map_or(Ok(()), Err)
    }

    /// The value for one request. `None` where a header is not to be sent: what came out is empty, or does not fit.
    pub fn render(&self, values: &TemplateValues<'_, '_>) -> Option<HeaderValue> {
        let template = match self {
            HeaderTemplate::Fixed(value) => return Some(value.clone()),
            HeaderTemplate::Made(template) => template,
        };
        let mut out = Vec::new();
        for part in &template.parts {
            part.write(values, |text| out.extend_from_slice(text));
        }
        let is_blank = |byte: Option<&u8>| byte.is_some_and(|byte| BLANKS.contains(&char::from(*byte)));
        if out.is_empty() || is_blank(out.first()) || is_blank(out.last()) {
            return None;
        }
        HeaderValue::from_maybe_shared(bytes::Bytes::from(out)).ok()
    }
}

impl TemplatePart {
    /// Where a value comes from that may not fit into a header.
    fn source(&self) -> Option<UnfitHeaderValue> {
        match self {
            TemplatePart::Claim(_)
            | TemplatePart::Value(Placeholder::Consumer | Placeholder::Tenant | Placeholder::Tier) => {
                Some(UnfitHeaderValue::Identity)
            }
            TemplatePart::Value(Placeholder::Param(_)) => Some(UnfitHeaderValue::Param),
            TemplatePart::Literal(_) | TemplatePart::Value(_) => None,
        }
    }

    /// Writes it as it stands in a header.
    fn write(&self, values: &TemplateValues<'_, '_>, mut write: impl FnMut(&[u8])) {
        match self {
            TemplatePart::Literal(text) => write(text.as_bytes()),
            TemplatePart::Value(Placeholder::Param(index)) => {
                percent::decode(values.params.at(*index), Plus::Itself).for_each(|byte| write(&[byte]));
            }
            TemplatePart::Value(name) => write(name.text(values).as_bytes()),
            TemplatePart::Claim(name) => write(claim(name, values).as_bytes()),
        }
    }
}

impl Rewrite {
    /// Reads a rewritten path of a route with this path.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, pattern: &Pattern) -> Result<Rewrite, Error> {
        // Not the query, which is not rewritten, and not the id, which would make each path another.
        let is_of_paths = |name: &Placeholder| !matches!(name, Placeholder::Query | Placeholder::RequestId);
        let names = HEADER_NAMES.iter().filter(|(_, name)| is_of_paths(name)).copied();
        let mut template = Template::parse(text, pattern, &names.collect::<Vec<_>>())?;
        match template.parts.first() {
            Some(TemplatePart::Literal(first)) if first.starts_with('/') => {}
            Some(TemplatePart::Value(Placeholder::Path)) => {}
            _ => return Err(Error::NoSlash),
        }
        for part in &mut template.parts {
            if let TemplatePart::Literal(text) = part {
                if let Some(found) = text.chars().find(|char| matches!(char, '?' | '#')) {
                    return Err(Error::NotPath { found });
                }
                if let Some(error) = foreign(text, pattern) {
                    return Err(error);
                }
                *text = percent::normalise(text).map_err(|_| Error::Percent)?.into();
            }
        }
        let shortest = template.shortest(pattern);
        if shortest.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(Error::DotSegment);
        }
        Ok(Rewrite(template))
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = &str> {
        self.0.claims()
    }

    /// The path for one request: starts with exactly one `/`, and is as well formed as the request's was.
    /// Parameters and `{path}` go in as they came, encoded. Anything else stays within its segment: what a
    /// segment must not hold is encoded, and where nothing is left of it, or only dots, `-` stands for it. It stands for
    /// a segment of dots, too, that a part of a segment (`/files{*rest}`, `/files../x`) would become.
    pub fn render(&self, values: &TemplateValues<'_, '_>) -> String {
        let mut out = String::with_capacity(values.path.len() + 16);
        for part in &self.0.parts {
            match part {
                TemplatePart::Literal(text) => out.push_str(text),
                TemplatePart::Value(Placeholder::Param(index)) => {
                    push_path(values.params.at(*index), &mut out)
                }
                TemplatePart::Value(Placeholder::Path) => out.push_str(values.path),
                TemplatePart::Value(name) => push_segment(&name.text(values), &mut out),
                TemplatePart::Claim(name) => push_segment(&claim(name, values), &mut out),
            }
        }
        // One slash is left, because a server that builds a URL from `//host/…` would read `host` as the authority.
        let doubled = out.bytes().take_while(|&byte| byte == b'/').count();
        out.drain(..doubled.saturating_sub(1));
        if out.contains("/.") {
            let segments = out.split('/').map(|it| if matches!(it, "." | "..") { "-" } else { it });
            return segments.collect::<Vec<_>>().join("/");
        }
        out
    }
}

impl Template {
    pub(super) fn parse(
        text: &str,
        pattern: &Pattern,
        fixed: &[(&str, Placeholder)],
    ) -> Result<Template, Error> {
        let parts = braces::split(text)?.into_iter().map(|piece| match piece {
            BracePiece::Literal(text) => Ok(TemplatePart::Literal(text.into())),
            BracePiece::Name { offset, name } => resolve(name, offset, pattern, fixed),
        });
        Ok(Template { parts: parts.collect::<Result<_, _>>()? })
    }

    /// Whether a literal at one of its ends begins or ends it with a blank.
    fn has_blank_end(&self) -> bool {
        let begins =
            matches!(self.parts.first(), Some(TemplatePart::Literal(text)) if text.starts_with(BLANKS));
        begins || matches!(self.parts.last(), Some(TemplatePart::Literal(text)) if text.ends_with(BLANKS))
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Claim(name) => Some(&**name),
            TemplatePart::Literal(_) | TemplatePart::Value(_) => None,
        })
    }

    /// The text with each placeholder at its shortest: only a rest may be empty, a path is at least `/`.
    fn shortest(&self, pattern: &Pattern) -> String {
        let parts = self.parts.iter().map(|part| match part {
            TemplatePart::Literal(text) => text,
            TemplatePart::Value(Placeholder::Param(index))
                if matches!(pattern.segments()[*index], PatternSegment::Rest { .. }) =>
            {
                ""
            }
            TemplatePart::Value(Placeholder::Path) => "/",
            TemplatePart::Value(_) | TemplatePart::Claim(_) => "x",
        });
        parts.collect()
    }
}

/// What others would replace in a path that is made: `$1`, `:id` where the path has that parameter, and `*`.
pub(super) fn foreign(text: &str, pattern: &Pattern) -> Option<Error> {
    let meant = |text: &str| text.to_owned();
    let first = || pattern.params().next().unwrap_or("path").to_owned();
    text.split('/').find_map(|segment| {
        if segment == "*" {
            let instead = pattern.params().last().unwrap_or("path").to_owned();
            return Some(Error::Foreign { found: meant("*"), instead, encoded: "%2A" });
        }
        if let Some(name) = segment.strip_prefix(':').filter(|name| pattern.param(name).is_some()) {
            return Some(Error::Foreign { found: meant(segment), instead: meant(name), encoded: "%3A" });
        }
        let digits =
            segment.split('$').skip(1).find(|behind| behind.starts_with(|it: char| it.is_ascii_digit()))?;
        let number: String = digits.chars().take_while(char::is_ascii_digit).collect();
        Some(Error::Foreign { found: format!("${number}"), instead: first(), encoded: "%24" })
    })
}

pub(super) fn resolve(
    name: &str,
    offset: usize,
    pattern: &Pattern,
    fixed: &[(&str, Placeholder)],
) -> Result<TemplatePart, Error> {
    if let Some(claim) = name.strip_prefix("claim:").filter(|claim| !claim.is_empty()) {
        return Ok(TemplatePart::Claim(claim.into()));
    }
    let own = fixed.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    match (pattern.param(name), own) {
        (Some(index), None) => Ok(TemplatePart::Value(Placeholder::Param(index))),
        (None, Some(value)) => Ok(TemplatePart::Value(value)),
        (Some(_), Some(_)) => Err(Error::Ambiguous { offset, name: name.to_owned() }),
        (None, None) => {
            let known =
                pattern.params().chain(fixed.iter().map(|(known, _)| *known)).map(str::to_owned).collect();
            Err(Error::UnknownName { offset, name: name.to_owned(), known })
        }
    }
}

/// A claim of the client's identity; the texts of a list with commas between them.
pub(super) fn claim<'r>(name: &str, values: &TemplateValues<'_, 'r>) -> Cow<'r, str> {
    match values.identity.claims.find(name) {
        Some(Claim::One(text)) => Cow::Borrowed(text),
        Some(Claim::Many(texts)) => Cow::Owned(texts.join(",")),
        None => Cow::Borrowed(""),
    }
}

/// Appends a part of the request's path. One of a segment may begin with the slash behind the segment.
pub(super) fn push_path(raw: &str, out: &mut String) {
    let is_doubled = out.ends_with('/') && raw.starts_with('/');
    out.push_str(&raw[usize::from(is_doubled)..]);
}

/// Appends a text that stays within its segment of a path.
pub(super) fn push_segment(text: &str, out: &mut String) {
    let harmless = if text.bytes().all(|byte| byte == b'.') { "-" } else { text };
    percent::encode_segment(harmless, out);
}

impl Placeholder {
    /// The value as text, as it came; empty where there is none.
    pub(super) fn text<'r>(self, values: &TemplateValues<'_, 'r>) -> Cow<'r, str> {
        let identity = values.identity;
        Cow::Borrowed(match self {
            Placeholder::Param(index) => values.params.at(index),
            // Nothing, because who came over a Unix socket has no address.
            Placeholder::Ip if values.client_ip == NO_ADDRESS => "",
            Placeholder::Ip => {
                let mut text = String::new();
                write!(text, "{}", values.client_ip.to_canonical()).expect("a string takes any text");
                return Cow::Owned(text);
            }
            Placeholder::Host => values.host,
            Placeholder::Method => values.method.as_str(),
            Placeholder::Path => values.path,
            Placeholder::Query => values.query.unwrap_or(""),
            Placeholder::Route => return Cow::Owned(values.route.to_owned()),
            Placeholder::Consumer => identity.consumer.as_deref().unwrap_or(""),
            Placeholder::Tenant => identity.tenant.as_deref().unwrap_or(""),
            Placeholder::Tier => identity.tier.as_deref().unwrap_or(""),
            Placeholder::RequestId => values.request_id,
        })
    }
}
