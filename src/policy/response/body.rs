//! The body of a fixed answer, with `{...}` for what a request brings.
//!
//! Unlike in a header, a brace means something only in front of a name: JSON and style sheets keep theirs. Values are
//! written so that they stay text in the body's type and a client cannot put markup into a page.

use bytes::Bytes;

use crate::matching::pattern::Pattern;
use crate::percent;
use crate::percent::Plus;
use crate::request::TemplateValues;
use crate::template::{Error, HEADER_NAMES, Placeholder, Template, TemplatePart, claim, resolve};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompiledBody {
    Fixed(Bytes),
    Made(Template, ValueForm),
}

/// How a value is written into a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    Text,
    /// As a part of a JSON string.
    Json,
    /// With the characters of markup replaced.
    Html,
}

impl CompiledBody {
    /// Reads the body of a route with this path, which is sent with this `Content-Type`.
    ///
    /// # Errors
    /// A name that does not exist.
    pub fn parse(text: &str, content_type: Option<&str>, pattern: &Pattern) -> Result<CompiledBody, Error> {
        let (mut parts, mut literal, mut at) = (Vec::new(), String::new(), 0);
        while let Some(found) = text[at..].find('{') {
            literal.push_str(&text[at..at + found]);
            at += found;
            let rest = &text[at + 1..];
            if let Some(name) = rest.strip_prefix('{').and_then(name_before_brace)
                && rest[name.len() + 2..].starts_with('}')
            {
                literal.push_str(&text[at + 1..=at + name.len() + 2]);
                at += name.len() + 4;
            } else if let Some(name) = name_before_brace(rest) {
                if !literal.is_empty() {
                    parts.push(TemplatePart::Literal(std::mem::take(&mut literal).into()));
                }
                parts.push(resolve(name, at, pattern, HEADER_NAMES)?);
                at += name.len() + 2;
            } else {
                literal.push('{');
                at += 1;
            }
        }
        literal.push_str(&text[at..]);
        if parts.is_empty() {
            return Ok(CompiledBody::Fixed(literal.into()));
        }
        parts.push(TemplatePart::Literal(literal.into()));
        Ok(CompiledBody::Made(Template { parts: parts.into() }, ValueForm::of(content_type)))
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = &str> {
        let template = match self {
            CompiledBody::Fixed(_) => None,
            CompiledBody::Made(template, _) => Some(template),
        };
        template.into_iter().flat_map(Template::claims)
    }

    pub fn render(&self, values: &TemplateValues<'_, '_>) -> Bytes {
        let (template, form) = match self {
            CompiledBody::Fixed(body) => return body.clone(),
            CompiledBody::Made(template, form) => (template, form),
        };
        let mut out = String::new();
        for part in &template.parts {
            match part {
                TemplatePart::Literal(text) => out.push_str(text),
                TemplatePart::Value(Placeholder::Param(index)) => {
                    let decoded: Vec<u8> = percent::decode(values.params.at(*index), Plus::Itself).collect();
                    form.push(&String::from_utf8_lossy(&decoded), &mut out);
                }
                TemplatePart::Value(name) => form.push(&name.text(values), &mut out),
                TemplatePart::Claim(name) => form.push(&claim(name, values), &mut out),
            }
        }
        out.into()
    }
}

impl ValueForm {
    /// The form of this type. One that is made for each request is taken for the one that replaces most, because it
    /// may be any.
    fn of(content_type: Option<&str>) -> ValueForm {
        let kind = content_type.unwrap_or_default().to_ascii_lowercase();
        match &*kind {
            kind if kind.contains("json") || kind.contains("javascript") => ValueForm::Json,
            kind if kind.contains("html") || kind.contains("xml") || kind.contains('{') => ValueForm::Html,
            _ => ValueForm::Text,
        }
    }

    fn push(self, text: &str, out: &mut String) {
        match self {
            ValueForm::Text => out.push_str(text),
            ValueForm::Json => {
                let quoted = serde_json::Value::from(text).to_string();
                // Without the quotes, because the body has its own around the value.
                out.push_str(&quoted[1..quoted.len() - 1]);
            }
            ValueForm::Html => push_html(text, out),
        }
    }
}

/// Appends a text so that no markup begins or ends in it, neither between elements nor in a quoted attribute.
pub fn push_html(text: &str, out: &mut String) {
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            char => out.push(char),
        }
    }
}

/// The name that the text begins with, if a closing brace follows it.
fn name_before_brace(text: &str) -> Option<&str> {
    let name = &text[..text.find('}')?];
    let is_claim = name.starts_with("claim:") && !name.contains([' ', '{', '"']);
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    (is_plain || is_claim).then_some(name)
}
