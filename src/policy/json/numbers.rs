//! The last numbers that an answer had at some paths.

use std::sync::Arc;

use smallvec::SmallVec;

use super::events::EventScanner;
use super::number::units;
use super::path::JsonPath;
use super::scanner::{JsonValue, Scanner};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    /// JSON, or several documents one behind the other.
    Documents,
    /// An event stream whose data is JSON.
    Events,
}

/// Reads an answer as it passes.
#[derive(Clone, Debug)]
pub struct Numbers {
    reader: NumberReader,
    found: SmallVec<[PathNumber; 4]>,
}

/// What there is at a path.
#[derive(Clone, Debug)]
struct PathNumber {
    last: Option<u64>,
    /// Of a path whose numbers are added up, the sum of the list that is open. It counts when the list has ended, because a part
    /// is no sum.
    sum: Option<u64>,
    /// For each name of such a path the sum before that member of the object that is open there, from which on a second one of
    /// the name counts.
    before: Box<[Option<u64>]>,
    /// The place of the name that has come a second time, until a number comes, of which the first time counts for nothing.
    again: Option<usize>,
}

#[derive(Clone, Debug)]
enum NumberReader {
    Documents(Scanner),
    Events(Box<EventScanner>),
}

impl PathNumber {
    fn new(path: &JsonPath) -> PathNumber {
        let names = path.adds_up_at().map_or(0, |_| path.names().len());
        PathNumber { last: None, sum: None, before: vec![None; names].into(), again: None }
    }

    fn add(&mut self, value: JsonValue<'_>) {
        let number = match value {
            JsonValue::List => {
                (self.sum, self.again) = (None, None);
                return;
            }
            JsonValue::ListEnd => {
                self.last = self.sum.or(self.last);
                return;
            }
            JsonValue::Member { place, is_again } => return self.begin_member(place, is_again),
            JsonValue::Number(text) => units(text),
            JsonValue::Text(text) => units(text.as_bytes()),
            // The most there is, because whoever writes a longer number must not be charged less than for a large one.
            JsonValue::LongNumber { is_negative: false } => Some(u64::MAX),
            _ => None,
        };
        let Some(number) = number else { return };
        if self.before.is_empty() {
            self.last = Some(number);
            return;
        }
        let before = self.again.take().map_or(self.sum, |again| self.before[again]);
        self.sum = Some(before.unwrap_or(0).saturating_add(number));
    }

    fn begin_member(&mut self, place: usize, is_again: bool) {
        self.again = self.again.filter(|again| *again < place);
        if !is_again {
            self.before[place] = self.again.map_or(self.sum, |again| self.before[again]);
        } else if self.again.is_none() {
            self.again = Some(place);
        }
    }
}

impl Numbers {
    /// Before an answer of this form.
    pub fn new(paths: Arc<[JsonPath]>, form: AnswerForm) -> Numbers {
        let found = paths.iter().map(PathNumber::new).collect();
        let reader = match form {
            AnswerForm::Documents => NumberReader::Documents(Scanner::new(paths)),
            AnswerForm::Events => NumberReader::Events(Box::new(EventScanner::new(&paths))),
        };
        Numbers { reader, found }
    }

    /// Reads the next piece. A later number takes the place of an earlier one at its path, or is added to those of other elements
    /// of the same list, whose sum counts when it ends; what is no number, or a negative one, does not, nor does a list without
    /// a number.
    pub fn push(&mut self, bytes: &[u8]) {
        let paths = &mut self.found;
        let found = |index: usize, value: JsonValue<'_>| paths[index].add(value);
        match &mut self.reader {
            NumberReader::Documents(scanner) => scanner.push(bytes, found),
            NumberReader::Events(events) => events.push(bytes, found),
        }
    }

    /// The last number at the path of this index, or the sum of the last list there.
    pub fn last(&self, index: usize) -> Option<u64> {
        self.found.get(index)?.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Arc<[JsonPath]> {
        paths.iter().map(|path| JsonPath::parse_with_lists(path).expect("a path")).collect()
    }

    /// What is found in it whole, which must be what is found in any two pieces, and byte by byte.
    fn read(wanted: &[&str], form: AnswerForm, text: &str) -> Vec<Option<u64>> {
        let fresh = Numbers::new(paths(wanted), form);
        let found = |pieces: &[&[u8]]| {
            let mut numbers = fresh.clone();
            pieces.iter().for_each(|piece| numbers.push(piece));
            (0..wanted.len()).map(|index| numbers.last(index)).collect::<Vec<_>>()
        };
        let whole = found(&[text.as_bytes()]);
        for cut in 0..text.len() {
            let (before, behind) = text.as_bytes().split_at(cut);
            assert_eq!(found(&[before, behind]), whole, "{text:?} cut at {cut}");
        }
        assert_eq!(found(&text.as_bytes().chunks(1).collect::<Vec<_>>()), whole, "{text:?} byte by byte");
        whole
    }

    fn tokens(text: &str) -> Option<u64> {
        read(&["usage.total_tokens"], AnswerForm::Documents, text)[0]
    }

    fn of_events(text: &str) -> Option<u64> {
        read(&["usage.total_tokens"], AnswerForm::Events, text)[0]
    }

    #[test]
    fn numbers_of_a_list_are_added_up_and_the_last_list_counts() {
        let of = |path: &str, text: &str| read(&[path], AnswerForm::Documents, text)[0];
        let parts = r#"{"usage":[{"tokens":3},{"tokens":4},{"other":9},{"tokens":null}]}"#;
        assert_eq!([of("usage.*.tokens", parts), of("usage.tokens", parts)], [Some(7), Some(4)]);
        // Each document, or element of the list that is a stream, has a list of its own.
        for stream in [
            format!("{parts}\n{{\"usage\":[{{\"tokens\":5}}]}}"),
            format!("[{parts},{{\"usage\":[{{\"tokens\":5}}]}}]"),
        ] {
            assert_eq!(of("usage.*.tokens", &stream), Some(5), "{stream}");
        }
        assert_eq!(
            of("usage.*.tokens", &format!("{parts}{{\"usage\":[]}}")),
            Some(7),
            "an empty list says nothing"
        );
        // What breaks off in a list gives none of its numbers.
        for (cut, sum) in [
            (format!("{parts}{{\"usage\":[{{\"tokens\":5}}"), Some(7)),
            ("{\"usage\":[{\"tokens\":5},{\"tokens\":6},".to_owned(), None),
            ("{\"usage\":[{\"tokens\":5}]".to_owned(), Some(5)),
            ("{\"usage\":[{\"tokens\":5},[1],{\"tokens\":nul}]}".to_owned(), None),
        ] {
            assert_eq!(of("usage.*.tokens", &cut), sum, "{cut}");
        }
        // Of members of one name the last counts, as everywhere.
        for (path, text, sum) in [
            ("u.*.t", r#"{"u":[{"t":3,"t":4},{"t":5}]}"#, Some(9)),
            ("u.*.t", r#"{"u":[{"t":[3,7],"t":4},{"t":5,"x":{"t":1},"t":6}]}"#, Some(10)),
            ("u.*.a.t", r#"{"u":[{"a":{"t":3},"a":{"t":4}},{"a":{"t":1,"t":2}}]}"#, Some(6)),
            ("a.*.b.*.c", r#"{"a":[{"b":[{"c":1},{"c":2}],"b":[{"c":4,"c":3}]},{"b":[{"c":5}]}]}"#, Some(8)),
            ("u.*.t", r#"{"u":[{"t":3},{"t":4}],"u":[{"t":5}]}"#, Some(5)),
            ("*.t", r#"[{"t":1,"t":2},{"t":3}]"#, Some(5)),
            // What is no number leaves that of before, as at a path without `*`.
            ("u.t", r#"{"u":[{"t":3,"t":null}]}"#, Some(3)),
            ("u.*.t", r#"{"u":[{"t":3,"t":null}]}"#, Some(3)),
            ("u.*.a.t", r#"{"u":[{"a":{"t":3},"a":1},{"a":{"t":4}}]}"#, Some(7)),
        ] {
            assert_eq!(of(path, text), sum, "{path} {text}");
        }
        assert_eq!(of("*.n", r#"[{"n":1},{"n":2},{"n":[3,4]}]"#), Some(10));
        assert_eq!(of("usage.*", r#"{"usage":[1,[2,3],4]}"#), Some(10));
        assert_eq!(of("a.*.b.*.c", r#"{"a":[{"b":[{"c":1},{"c":2}]},{"b":[{"c":3}]}]}"#), Some(6));
        let large = format!("{{\"usage\":[{}]}}", ["18446744073709551615", "7"].join(","));
        assert_eq!(of("usage.*", &large), Some(u64::MAX));
        // No list is where the path has one.
        for text in
            [r#"{"usage":{"tokens":3}}"#, r#"[{"usage":{"tokens":3}}]"#, r#"{"usage":{"tokens":[3]}}"#]
        {
            assert_eq!(of("usage.*.tokens", text), None, "{text}");
        }
        let events = format!("data: {parts}\n\ndata: {{\"usage\":[{{\"tokens\":1}},{{\"tokens\":1}}]}}\n\n");
        assert_eq!(read(&["usage.*.tokens"], AnswerForm::Events, &events), [Some(2)]);
    }

    #[test]
    fn a_number_is_found_at_its_path_and_nowhere_else() {
        assert_eq!(tokens(r#"{"usage":{"total_tokens":42}}"#), Some(42));
        assert_eq!(tokens(" {\n \"id\" : 1,\t\"usage\" : { \"total_tokens\" : 42 , \"a\":1 } }"), Some(42));
        assert_eq!(
            tokens(r#"{"usage":{"total_tokens":4.2e1},"x":[{"usage":{"total_tokens":9}}]}"#),
            Some(42)
        );
        for elsewhere in [
            r#"{"total_tokens":42}"#,
            r#"{"a":{"usage":{"total_tokens":42}}}"#,
            r#"{"usage":{"a":{"total_tokens":42}}}"#,
            r#"{"usage":{"total_tokens":{"total_tokens":42}}}"#,
            r#"[42,[["total_tokens",42]]]"#,
            r#"[{"total_tokens":42},{"usage":{"a":[{"total_tokens":42}]}}]"#,
            r#"{"usage":42,"total_tokens":42}"#,
            r#"{"text":"{\"usage\":{\"total_tokens\":42}}"}"#,
            r#"{"usage":{"total_tokens ":42}}"#,
            "42",
            "",
        ] {
            assert_eq!(tokens(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn names_are_compared_without_their_escapes() {
        assert_eq!(tokens(r#"{"us\u0061ge":{"total\u005Ftokens":42}}"#), Some(42));
        assert_eq!(tokens(r#"{"usage\\":{"total_tokens":42}}"#), None);
        let poo = r#"{"\uD83D\uDCA9":1,"\ud83d":2,"\ud83dx":3}"#;
        assert_eq!(read(&["💩"], AnswerForm::Documents, poo), [Some(1)]);
        assert_eq!(read(&["a\"b"], AnswerForm::Documents, r#"{"a\"b":7}"#), [Some(7)]);
        assert_eq!(read(&["ü"], AnswerForm::Documents, r#"{"ü":1,"u":2}"#), [Some(1)]);
    }

    #[test]
    fn the_last_number_counts_and_what_is_none_changes_nothing() {
        assert_eq!(tokens(r#"{"usage":{"total_tokens":1,"total_tokens":2}}"#), Some(2));
        assert_eq!(tokens(r#"{"usage":{"total_tokens":1},"usage":{"total_tokens":2}}"#), Some(2));
        for two in ["2", "\"2\"", "[\"2\"]", "02"] {
            let text = format!(r#"{{"usage":{{"total_tokens":1,"total_tokens":{two}}}}}"#);
            assert_eq!(tokens(&text), Some(2), "{two}");
        }
        for other in ["\"-2\"", "-2", "null", "true", "{}", "[]", "[\"two\"]", "\"\""] {
            let text = format!(r#"{{"usage":{{"total_tokens":1,"total_tokens":{other}}}}}"#);
            assert_eq!(tokens(&text), Some(1), "{other}");
            let text = format!(r#"{{"usage":{{"total_tokens":{other}}}}}"#);
            assert_eq!(tokens(&text), None, "{other}");
        }
        let big = |digits: &str| tokens(&format!(r#"{{"usage":{{"total_tokens":{digits}}}}}"#));
        assert_eq!([big("1e30"), big(&"9".repeat(31))], [Some(u64::MAX); 2]);
        for long in [257, 300, 10_000] {
            assert_eq!(big(&"9".repeat(long)), Some(u64::MAX), "{long} digits are beyond any bound");
            assert_eq!(big(&format!("-{}", "9".repeat(long))), None);
        }
        assert_eq!(tokens("{\"usage\":{\"total_tokens\":1}}\n{\"usage\":{\"total_tokens\":2}}\n"), Some(2));
    }

    #[test]
    fn each_element_of_a_list_on_the_way_counts_as_if_it_stood_there_alone() {
        for list in [
            r#"[{"usage":{"total_tokens":40}},{"id":7},{"usage":{"total_tokens":42},"x":[1]}]"#,
            "[{\"usage\":{\"total_tokens\":40}}\r\n,\r\n{\"usage\":{\"total_tokens\":42}}\n,{}]\n",
            r#"[[],[{"usage":[{"total_tokens":1},{"total_tokens":42}]}],{"usage":[]}]"#,
            r#"{"usage":[{"a":{"total_tokens":1}},[{"total_tokens":[41,42]}],{"total_tokens":[]}]}"#,
            r#"{"usage":{"total_tokens":[42,"x",null]}}"#,
        ] {
            assert_eq!(tokens(list), Some(42), "{list}");
        }
        assert_eq!(of_events("data: [{\"usage\":{\"total_tokens\":42}}]\n\n"), Some(42));
        let wanted = ["a", "a.b"];
        assert_eq!(
            read(&wanted, AnswerForm::Documents, r#"[{"a":[1,{"b":2}]},{"a":{"b":[3]}}]"#),
            [Some(1), Some(3)]
        );
        let deep =
            |depth: usize| tokens(&format!("{}{{\"usage\":{{\"total_tokens\":7}}}}", "[".repeat(depth)));
        assert_eq!([deep(126), deep(127)], [Some(7), None]);
    }

    #[test]
    fn what_is_broken_or_deep_gives_what_came_before() {
        let usage = r#""usage":{"total_tokens":7}"#;
        for broken in
            ["{,", "{\"a\"}", "{\"a\" 1}", "{1:", "[1 2", "[}", "{]", "nul ", "{\"a\":tru,", "]", "{\"\\x"]
        {
            assert_eq!(tokens(&format!("{{{usage},\"b\":{broken}")), Some(7), "{broken}");
            assert_eq!(tokens(&format!("{{\"b\":{broken},{usage}}}")), None, "{broken}");
        }
        let deep = |depth: usize| format!("{{\"a\":{}{},{usage}}}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!([tokens(&deep(127)), tokens(&deep(128))], [Some(7), None]);
        let mut numbers = Numbers::new(paths(&["a"]), AnswerForm::Documents);
        for _ in 0..100_000 {
            numbers.push(b"{\"b\":[");
        }
        assert_eq!(tokens(r#"{"usage":{"total_tokens":12"#), None, "more digits may follow");
    }

    #[test]
    fn several_paths_are_found_at_once() {
        let wanted = ["a.b", "a", "a.b.c", "d"];
        let text = r#"{"a":1,"a":{"b":2},"a":{"b":{"c":3,"d":8}},"d":4,"e":{"d":9}}"#;
        assert_eq!(read(&wanted, AnswerForm::Documents, text), [Some(2), Some(1), Some(3), Some(4)]);
    }

    #[test]
    fn events_end_in_any_way_lines_do() {
        let event = |end: &str, tokens: u64| {
            format!(
                "event: x{end}data: {{\"usage\":{end}data:{{\"total_tokens\":{tokens}}}}}{end}id: 7{end}{end}"
            )
        };
        for end in ["\n", "\r\n", "\r"] {
            let text = format!(": hello{end}{}{}data: [DONE]{end}{end}", event(end, 3), event(end, 5));
            assert_eq!(of_events(&text), Some(5), "{end:?}");
            assert_eq!(of_events(&format!("\u{feff}{text}")), Some(5), "{end:?}");
        }
    }

    #[test]
    fn an_event_without_the_name_is_passed_over_and_one_with_it_never() {
        let other = "data: {\"choices\":[{\"delta\":\"a \\n b\"}],\"usage\":null}";
        for end in ["\n\n", "\r\n\r\n", "\r\r", "\n\r\n", "\n", ""] {
            for name in ["total_tokens", "total\\u005ftokens", "\\u0074otal_tokens"] {
                let said = format!("data: {{\"usage\":{{\"{name}\":5}}}}");
                let text = format!("{other}\n\n{said}{end}{other}{end}");
                let is_cut_short = end.is_empty() || end == "\n";
                // Without a blank line behind it the next line belongs to the same event.
                assert!(is_cut_short || of_events(&text) == Some(5), "{text:?}");
                of_events(&format!("{other}{end}{other}\n\n{said}\n\n{other}"));
            }
        }
        let slash = "data: {\"a\\/b\":3}\n\ndata: {\"c\":1}\n\n";
        assert_eq!(read(&["a/b", "c"], AnswerForm::Events, slash), [Some(3), Some(1)]);
    }

    #[test]
    fn only_data_of_events_is_read() {
        let usage = |tokens: u64| format!(r#"{{"usage":{{"total_tokens":{tokens}}}}}"#);
        let one = format!("data: {}\n\n", usage(1));
        for other in ["event", "dat", "datax", "id", "", " data", "Data"] {
            assert_eq!(of_events(&format!("{one}{other}: {}\n\n", usage(9))), Some(1), "{other:?}");
        }
        assert_eq!(of_events(&format!("{one}data\n{}\n\n", usage(9))), Some(1));
        assert_eq!(of_events(&format!("{one}data: null\n\ndata: {{\"usage\":null}}\n\n")), Some(1));
        let broken = format!("data: {{\"a\":\n\ndata: {}\n\n", usage(2));
        assert_eq!(of_events(&broken), Some(2), "one broken event is no other");
        assert_eq!(of_events(&format!("{one}data: {}", usage(2))), Some(2), "cut behind the number");
        assert_eq!(of_events(&format!("{one}data: {{\"usage\":{{\"total_tokens\":2")), Some(1), "cut in it");
    }
}
