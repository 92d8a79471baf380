//! Reads what a request cost from the body of its answer, while that passes on its way to the client. The body's source
//! hands it each piece; the request's reservation asks it when the request is over.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use crate::proxy::response::body_decoder::BodyDecoder;
use policy::json::{AnswerForm, JsonPath, Numbers};
use policy::response::compress::Coding;

/// The reader of one answer. The body and the reservation share it.
#[derive(Debug)]
pub struct AnswerReader {
    paths: Arc<[JsonPath]>,
    numbers: RefCell<Numbers>,
    decoder: Option<RefCell<BodyDecoder>>,
    is_whole: Cell<bool>,
    /// The rest cannot be decoded.
    is_lost: Cell<bool>,
}

impl AnswerReader {
    /// A reader of an answer of this form, and of this coding with one of the worker's `slots`; `None` if none is free.
    pub fn new(
        paths: &Arc<[JsonPath]>,
        (form, coding): (AnswerForm, Option<Coding>),
        slots: &Rc<()>,
    ) -> Option<AnswerReader> {
        let decoder = match coding {
            None => None,
            Some(coding) => Some(RefCell::new(BodyDecoder::new(coding, slots)?)),
        };
        Some(AnswerReader {
            paths: Arc::clone(paths),
            numbers: RefCell::new(Numbers::new(Arc::clone(paths), form)),
            decoder,
            is_whole: Cell::new(false),
            is_lost: Cell::new(false),
        })
    }

    pub fn push(&self, data: Option<&Bytes>) {
        let Some(data) = data.filter(|_| !self.is_lost()) else { return };
        let mut numbers = self.numbers.borrow_mut();
        match &self.decoder {
            None => numbers.push(data),
            Some(decoder) => {
                let decoded = decoder.borrow_mut().push(data, |text| numbers.push(text));
                self.is_lost.set(decoded.is_err());
            }
        }
    }

    /// Whether a part of the answer could not be decoded.
    pub fn is_lost(&self) -> bool {
        self.is_lost.get()
    }

    /// The last piece has come from the server.
    pub fn end(&self) {
        self.is_whole.set(true);
        if self.decoder.as_ref().is_some_and(|decoder| decoder.borrow().is_within()) {
            self.is_lost.set(true);
        }
    }

    /// Whether the answer has come to its end.
    pub fn is_whole(&self) -> bool {
        self.is_whole.get()
    }

    /// The sum of the last numbers at these paths. `None` if there is none, or one is missing in an answer that was
    /// cut or cannot be decoded, because it might have come.
    pub fn sum(&self, paths: &[JsonPath]) -> Option<u64> {
        let numbers = self.numbers.borrow();
        let of = |path: &JsonPath| {
            let index = self.paths.binary_search(path).ok()?;
            numbers.last(index)
        };
        let (mut sum, mut found) = (0u64, 0);
        for units in paths.iter().filter_map(of) {
            sum = sum.saturating_add(units);
            found += 1;
        }
        let is_enough = if self.is_whole() && !self.is_lost() { found > 0 } else { found == paths.len() };
        is_enough.then_some(sum)
    }
}

/// What the fields of an answer say of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// It is JSON, or a stream of it, perhaps in a coding, although none was asked for.
    Yes(AnswerForm, Option<Coding>),
    /// It is in a coding that is not read, or in several.
    Encoded,
    /// It is something else, which is not read.
    No,
}

impl Readable {
    /// What an answer with these fields is.
    pub fn of(headers: &HeaderMap) -> Readable {
        let lines = headers.get_all(CONTENT_ENCODING).iter().map(|line| line.to_str().unwrap_or("?"));
        let names = lines.flat_map(|line| line.split(',')).map(str::trim);
        let mut codings = names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"));
        let coding = match (codings.next().map(Coding::named), codings.next()) {
            (None, _) => None,
            (Some(Some(coding)), None) => Some(coding),
            _ => return Readable::Encoded,
        };
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "text/event-stream" => Readable::Yes(AnswerForm::Events, coding),
            "application/json" | "application/jsonl" | "application/x-ndjson" | "application/ndjson" => {
                Readable::Yes(AnswerForm::Documents, coding)
            }
            kind if kind.ends_with("+json") => Readable::Yes(AnswerForm::Documents, coding),
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
        let documents = Readable::Yes(AnswerForm::Documents, None);
        assert_eq!(of("application/json", &[]), documents);
        assert_eq!(of("Application/Problem+JSON ; charset=utf-8", &["identity"]), documents);
        assert_eq!(of("application/x-ndjson", &[""]), documents);
        assert_eq!(of("text/event-stream; charset=utf-8", &[]), Readable::Yes(AnswerForm::Events, None));
        assert_eq!([of("text/html", &[]), of("", &[])], [Readable::No; 2]);
        for (codings, coding) in [
            (&["X-Gzip"][..], Coding::Gzip),
            (&["identity", "br"], Coding::Brotli),
            (&["zstd, "], Coding::Zstd),
        ] {
            assert_eq!(of("application/json", codings), Readable::Yes(AnswerForm::Documents, Some(coding)));
        }
        for codings in [&["deflate"][..], &["gzip", "br"], &["gzip, gzip"]] {
            assert_eq!(of("application/json", codings), Readable::Encoded);
        }
    }

    #[test]
    fn a_sum_waits_for_all_its_numbers_until_the_answer_is_whole() {
        let paths: Arc<[JsonPath]> =
            ["a", "b", "c"].map(|path| JsonPath::parse(path).expect("a path")).into();
        let form = (AnswerForm::Documents, None);
        let reader = AnswerReader::new(&paths, form, &Rc::default()).expect("a reader");
        assert_eq!(reader.sum(&paths[..2]), None);
        reader.push(Some(&Bytes::from_static(b"{\"a\":3,")));
        assert_eq!([reader.sum(&paths[..2]), reader.sum(&paths[..1])], [None, Some(3)]);
        reader.push(Some(&Bytes::from_static(b"\"b\":4,")));
        assert_eq!([reader.sum(&paths[..2]), reader.sum(&paths)], [Some(7), None]);
        reader.end();
        assert_eq!([reader.sum(&paths), reader.sum(&paths[2..])], [Some(7), None]);
    }
}
