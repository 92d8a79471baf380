//! Reads request methods, for every section that names some.

use http::Method;

use crate::keys::foreign::foreign_value;
use crate::load::text::Text;
use crate::reader::Value;
use base::words::did_you_mean;

/// Reads a list of methods, and reports those that the gateway itself refuses, because no request would ever match.
pub(crate) fn list(value: &Value<'_>) -> Vec<Method> {
    let texts = value.some_texts("leave it out for any method");
    let one = |text: &Text<'_>| {
        if foreign_value("methods", &text.text, &[]).is_some() {
            let message = format!("{} is not a method", text.shown());
            text.wrong(message, format!("leave `{}` out for any method", value.key));
            return None;
        }
        let method = read(text)?;
        if matches!(method, Method::CONNECT | Method::TRACE) {
            text.wrong(format!("{} never matches: the gateway answers 501", text.shown()), "leave it out");
        }
        Some(method)
    };
    texts.iter().filter_map(one).collect()
}

/// Reads a method, or reports that the text is not one.
pub(crate) fn read(text: &Text<'_>) -> Option<Method> {
    match parse(&text.text) {
        Ok(method) => Some(method),
        Err(hint) => {
            text.wrong(format!("{} is not a method", text.shown()), text.each().unwrap_or(hint));
            None
        }
    }
}

/// Reads a method; the error says what to write instead. Any upper-case token is a method, but one that is a single letter
/// away from a common method is taken for a typing error.
pub(crate) fn parse(text: &str) -> Result<Method, String> {
    if COMMON.contains(&text) {
        return Method::from_bytes(text.as_bytes()).map_err(|error| error.to_string());
    }
    let upper = text.to_ascii_uppercase();
    if COMMON.contains(&upper.as_str()) {
        return Err(format!("methods are upper case: write `{upper}`"));
    }
    let is_short = text.len() <= METHOD_BYTES_MAX;
    let near = COMMON.iter().any(|method| is_short && strsim::damerau_levenshtein(text, method) == 1);
    if let Some(hint) = did_you_mean(text, &COMMON).filter(|_| near) {
        return Err(hint);
    }
    let is_upper = !text.is_empty() && is_short && text == upper;
    match Method::from_bytes(text.as_bytes()) {
        Ok(method) if is_upper => Ok(method),
        _ => Err("write it like `GET`".to_owned()),
    }
}

const COMMON: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

const METHOD_BYTES_MAX: usize = 64;
