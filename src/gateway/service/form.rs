//! In which form an error is told: problem+json, HTML or plain text, as the client's `Accept` prefers.

use http::HeaderMap;
use http::header::ACCEPT;

use policy::response::weight::weighted;

/// The form of an error's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// `application/problem+json` (RFC 9457): for programs, and for whoever has no preference.
    #[default]
    Json,
    /// `text/plain`.
    Text,
    /// `text/html`: for browsers.
    Html,
}

impl Form {
    /// The form that these fields prefer (RFC 9110 section 12.5.1): the one with the greatest weight; of equal ones the one
    /// that is named, and not only matched by a wildcard; then in the order of this type.
    pub fn of(headers: &HeaderMap) -> Form {
        let mut lines = headers.get_all(ACCEPT).iter().peekable();
        if lines.peek().is_none_or(|line| line.as_bytes() == b"*/*") {
            return Form::Json;
        }
        let ranges: Vec<Range<'_>> =
            lines.filter_map(|line| line.to_str().ok()).flat_map(weighted).map(Range::of).collect();
        let mut best = (Form::Json, (0, 0));
        for form in [Form::Json, Form::Text, Form::Html] {
            let rank = form.rank(&ranges);
            if rank.0 > 0 && rank > best.1 {
                best = (form, rank);
            }
        }
        best.0
    }

    /// The weight of the form in thousandths, and how exactly it is named.
    fn rank(self, ranges: &[Range<'_>]) -> (u16, u8) {
        let names: &[&str] = match self {
            Form::Json => &["application/problem+json", "application/json", "application/*", "*/*"],
            Form::Text => &["text/plain", "text/*", "*/*"],
            Form::Html => &["text/html", "text/*", "*/*"],
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
struct Range<'h> {
    kind: &'h str,
    /// In thousandths.
    weight: u16,
}

impl Range<'_> {
    fn of((kind, weight): (&str, u16)) -> Range<'_> {
        Range { kind, weight }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_preferred_form_is_taken() {
        let of = |lines: &[&'static str]| {
            Form::of(&lines.iter().map(|line| (ACCEPT, HeaderValue::from_static(line))).collect())
        };
        for (lines, expected) in [
            (&[][..], Form::Json),
            (&["*/*"], Form::Json),
            (&[""], Form::Json),
            (&["image/png"], Form::Json),
            // Firefox, Chrome, jQuery, axios, fetch of a picture.
            (&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], Form::Html),
            (
                &[
                    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
                ],
                Form::Html,
            ),
            (&["text/html, */*; q=0.01"], Form::Html),
            (&["application/json, text/plain, */*"], Form::Json),
            (&["image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"], Form::Json),
            (&["text/html", "*/*"], Form::Html),
            (&["text/plain"], Form::Text),
            (&["text/*"], Form::Text),
            (&["TEXT/HTML"], Form::Html),
            (&["text/html;q=0.5, application/json;q=0.4"], Form::Html),
            (&["text/html;q=0.4", "application/problem+json;q=0.5"], Form::Json),
            (&["text/html;q=0, text/plain;q=0.1"], Form::Text),
            (&["text/html;q=NaN, text/plain;q=-1, */*;q=0"], Form::Json),
        ] {
            assert_eq!(of(lines), expected, "{lines:?}");
        }
    }
}
