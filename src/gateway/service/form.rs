//! In which form an error is told: problem+json, HTML or plain text, as the client's `Accept` prefers.

use http::HeaderMap;
use http::header::ACCEPT;

use policy::response::weight::weighted;

/// The form of an error's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorForm {
    /// `application/problem+json` (RFC 9457): for programs, and for whoever has no preference.
    #[default]
    Json,
    Text,
    /// `text/html`: for browsers.
    Html,
}

impl ErrorForm {
    /// The form that these fields prefer (RFC 9110 section 12.5.1): the one with the greatest weight; of equal ones the one
    /// that is named, and not only matched by a wildcard; then in the order of this type.
    pub fn of(headers: &HeaderMap) -> ErrorForm {
        let mut lines = headers.get_all(ACCEPT).iter().peekable();
        if lines.peek().is_none_or(|line| line.as_bytes() == b"*/*") {
            return ErrorForm::Json;
        }
        let ranges: Vec<AcceptRange<'_>> =
            lines.filter_map(|line| line.to_str().ok()).flat_map(weighted).map(AcceptRange::of).collect();
        let mut best = (ErrorForm::Json, (0, 0));
        for form in [ErrorForm::Json, ErrorForm::Text, ErrorForm::Html] {
            let rank = form.rank(&ranges);
            if rank.0 > 0 && rank > best.1 {
                best = (form, rank);
            }
        }
        best.0
    }

    /// The weight of the form in thousandths, and how exactly it is named.
    fn rank(self, ranges: &[AcceptRange<'_>]) -> (u16, u8) {
        let names: &[&str] = match self {
            ErrorForm::Json => &["application/problem+json", "application/json", "application/*", "*/*"],
            ErrorForm::Text => &["text/plain", "text/*", "*/*"],
            ErrorForm::Html => &["text/html", "text/*", "*/*"],
        };
        let most_exact = names.iter().find_map(|name| {
            let range = ranges.iter().find(|range| range.kind.eq_ignore_ascii_case(name))?;
            let exactness = if *name == "*/*" { 0 } else { 1 + u8::from(!name.ends_with('*')) };
            Some((range.weight, exactness))
        });
        most_exact.unwrap_or((0, 0))
    }
}

/// One media range of an `Accept`.
struct AcceptRange<'h> {
    kind: &'h str,
    weight: u16,
}

impl AcceptRange<'_> {
    fn of((kind, weight): (&str, u16)) -> AcceptRange<'_> {
        AcceptRange { kind, weight }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_preferred_form_is_taken() {
        let of = |lines: &[&'static str]| {
            ErrorForm::of(&lines.iter().map(|line| (ACCEPT, HeaderValue::from_static(line))).collect())
        };
        for (lines, expected) in [
            (&[][..], ErrorForm::Json),
            (&["*/*"], ErrorForm::Json),
            (&[""], ErrorForm::Json),
            (&["image/png"], ErrorForm::Json),
            // Firefox, Chrome, jQuery, axios, fetch of a picture.
            (&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], ErrorForm::Html),
            (
                &[
                    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
                ],
                ErrorForm::Html,
            ),
            (&["text/html, */*; q=0.01"], ErrorForm::Html),
            (&["application/json, text/plain, */*"], ErrorForm::Json),
            (&["image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"], ErrorForm::Json),
            (&["text/html", "*/*"], ErrorForm::Html),
            (&["text/plain"], ErrorForm::Text),
            (&["text/*"], ErrorForm::Text),
            (&["TEXT/HTML"], ErrorForm::Html),
            (&["text/html;q=0.5, application/json;q=0.4"], ErrorForm::Html),
            (&["text/html;q=0.4", "application/problem+json;q=0.5"], ErrorForm::Json),
            (&["text/html;q=0, text/plain;q=0.1"], ErrorForm::Text),
            (&["text/html;q=NaN, text/plain;q=-1, */*;q=0"], ErrorForm::Json),
        ] {
            assert_eq!(of(lines), expected, "{lines:?}");
        }
    }
}
