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
    /// For each path whether its numbers are added up, whether a list has begun since the last one, and what there is.
    found: SmallVec<[PathNumber; 4]>,
}

#[derive(Clone, Copy, Debug)]
struct PathNumber {
    adds_up: bool,
    begins: bool,
    number: Option<u64>,
}

#[derive(Clone, Debug)]
enum NumberReader {
    Documents(Scanner),
    Events(Box<EventScanner>),
}

impl Numbers {
    /// Before an answer of this form.
    pub fn new(paths: Arc<[JsonPath]>, form: AnswerForm) -> Numbers {
        let none = |path: &JsonPath| PathNumber {
            adds_up: path.adds_up_at().is_some(),
            begins: false,
            number: None,
        };
        let found = paths.iter().map(none).collect();
        let reader = match form {
            AnswerForm::Documents => NumberReader::Documents(Scanner::new(paths)),
            AnswerForm::Events => NumberReader::Events(Box::new(EventScanner::new(&paths))),
        };
        Numbers { reader, found }
    }

    /// Reads the next piece. A later number takes the place of an earlier one at its path, or is added to those of the same
    /// list; what is no number, or a negative one, does not.
    pub fn push(&mut self, bytes: &[u8]) {
        let paths = &mut self.found;
        let found = |index: usize, value: JsonValue<'_>| {
            let path = &mut paths[index];
            let number = match value {
                JsonValue::List => {
                    path.begins = true;
                    None
                }
                JsonValue::Number(text) => units(text),
                // The most there is, because whoever writes a longer number must not be charged less than for a large
                // one.
                JsonValue::LongNumber { is_negative: false } => Some(u64::MAX),
                _ => None,
            };
            let Some(number) = number else { return };
            let before = if path.adds_up && !std::mem::take(&mut path.begins) { path.number } else { None };
            path.number = Some(before.map_or(number, |before| before.saturating_add(number)));
        };
        match &mut self.reader {
            NumberReader::Documents(scanner) => scanner.push(bytes, found),
            NumberReader::Events(events) => events.push(bytes, found),
        }
    }

    /// The last number at the path of this index, or the sum of the last list there.
    pub fn last(&self, index: usize) -> Option<u64> {
        self.found.get(index)?.number
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
        for other in ["\"2\"", "-2", "null", "true", "{}", "[]", "[\"2\"]", "\"\""] {
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
