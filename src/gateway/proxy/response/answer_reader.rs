//! Reads what a request cost from the body of its answer, while that passes on its way to the client. The body's source
//! hands it each piece; the request's reservation asks it when the request is over.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use policy::json::{AnswerForm, JsonPath, Numbers};

/// The reader of one answer. The body and the reservation share it.
#[derive(Debug)]
pub struct AnswerReader {
    paths: Arc<[JsonPath]>,
    numbers: RefCell<Numbers>,
    is_whole: Cell<bool>,
}

impl AnswerReader {
    /// A reader of an answer of this form.
    pub fn new(paths: &Arc<[JsonPath]>, form: AnswerForm) -> AnswerReader {
        let numbers = RefCell::new(Numbers::new(Arc::clone(paths), form));
        AnswerReader { paths: Arc::clone(paths), numbers, is_whole: Cell::new(false) }
    }

    pub fn push(&self, data: Option<&Bytes>) {
        if let Some(data) = data {
            self.numbers.borrow_mut().push(data);
        }
    }

    /// The last piece has come from the server.
    pub fn end(&self) {
        self.is_whole.set(true);
    }

    /// Whether the answer has come to its end.
    pub fn is_whole(&self) -> bool {
        self.is_whole.get()
    }

    /// The sum of the last numbers at these paths. `None` if there is none, or one is missing in an answer that was
    /// cut, because it might have come.
    pub fn sum(&self, paths: &[JsonPath]) -> Option<u64> {
        let numbers = self.numbers.borrow();
        let of = |path: &JsonPath| {
            let index = self.paths.binary_search(path).ok()?;
            *numbers.last().get(index)?
        };
        let (mut sum, mut found) = (0u64, 0);
        for units in paths.iter().filter_map(of) {
            sum = sum.saturating_add(units);
            found += 1;
        }
        let is_enough = if self.is_whole() { found > 0 } else { found == paths.len() };
        is_enough.then_some(sum)
    }
}

/// What the fields of an answer say of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// It is JSON, or a stream of it.
    Yes(AnswerForm),
    /// It is in a coding, although none was asked for.
    Encoded,
    /// It is something else, which is not read.
    No,
}

impl Readable {
    /// What an answer with these fields is.
    pub fn of(headers: &HeaderMap) -> Readable {
        let is_plain = |coding: &http::HeaderValue| {
            let coding = coding.as_bytes().trim_ascii();
            coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
        };
        if !headers.get_all(CONTENT_ENCODING).iter().all(is_plain) {
            return Readable::Encoded;
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "text/event-stream" => Readable::Yes(AnswerForm::Events),
            "application/json" | "application/jsonl" | "application/x-ndjson" | "application/ndjson" => {
                Readable::Yes(AnswerForm::Documents)
            }
            kind if kind.ends_with("+json") => Readable::Yes(AnswerForm::Documents),
            _ => Readable::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn fields_say_whether_a_body_is_read() {
        let of = |kind: &'static str, codings: &[&'static str]| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            for coding in codings {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(coding));
            }
            Readable::of(&headers)
        };
        let documents = Readable::Yes(AnswerForm::Documents);
        assert_eq!(of("application/json", &[]), documents);
        assert_eq!(of("Application/Problem+JSON ; charset=utf-8", &["identity"]), documents);
        assert_eq!(of("application/x-ndjson", &[""]), documents);
        assert_eq!(of("text/event-stream; charset=utf-8", &[]), Readable::Yes(AnswerForm::Events));
        assert_eq!([of("text/html", &[]), of("", &[])], [Readable::No; 2]);
        assert_eq!(of("application/json", &["gzip"]), Readable::Encoded);
        assert_eq!(of("application/json", &["identity", "br"]), Readable::Encoded);
    }

    #[test]
    fn a_sum_waits_for_all_its_numbers_until_the_answer_is_whole() {
        let paths: Arc<[JsonPath]> =
            ["a", "b", "c"].map(|path| JsonPath::parse(path).expect("a path")).into();
        let reader = AnswerReader::new(&paths, AnswerForm::Documents);
        assert_eq!(reader.sum(&paths[..2]), None);
        reader.push(Some(&Bytes::from_static(b"{\"a\":3,")));
        assert_eq!([reader.sum(&paths[..2]), reader.sum(&paths[..1])], [None, Some(3)]);
        reader.push(Some(&Bytes::from_static(b"\"b\":4,")));
        assert_eq!([reader.sum(&paths[..2]), reader.sum(&paths)], [Some(7), None]);
        reader.end();
        assert_eq!([reader.sum(&paths), reader.sum(&paths[2..])], [Some(7), None]);
    }
}
