//! `cost` of `[policy.*]` that is known later, and dimensions of a body.

use std::num::NonZeroU64;
use std::time::Duration;

use super::{config, each_says, filled};
use policy::definition::{Actual, CostDefinition, Dimension, MeasuredUnits};
use policy::json::JsonPath;

const POLICY: &str = "[policy.a]\nby = [\"body:model\", \"body:meta.team\"]\nlimit = \"1_000/h\"\ncost = ";

fn cost(written: &str) -> CostDefinition {
    let first = config(&format!("{POLICY}{written}"));
    let again = config(&filled(&first.effective()));
    assert_eq!(again.policies[0].cost, first.policies[0].cost, "{}", first.effective());
    assert_eq!(again.policies[0].by, first.policies[0].by);
    first.policies[0].cost.clone()
}

fn path(text: &str) -> JsonPath {
    JsonPath::parse(text).expect("a path")
}

#[test]
fn costs_that_are_known_later_are_read_and_written() {
    let by = config(&format!("{POLICY}1")).policies[0].by.clone();
    assert_eq!(by, [Dimension::Body(path("model")), Dimension::Body(path("meta.team"))]);
    let number = |number| NonZeroU64::new(number).expect("not 0");
    let tokens = Actual::ResponseJson(vec![path("usage.total_tokens")]);
    assert_eq!(
        cost("{ response-json = \"usage.total_tokens\", estimate = 500 }"),
        CostDefinition { default: number(500), actual: Some(tokens), ..CostDefinition::default() }
    );
    assert_eq!(
        cost(
            "{ response-json = [\"a\", \"b.c\"], estimate = [\"body:x\", \"body:y.z\"], default = 7, max = 9 }"
        ),
        CostDefinition {
            default: number(7),
            estimate: vec![path("x"), path("y.z")],
            actual: Some(Actual::ResponseJson(vec![path("a"), path("b.c")])),
            max: Some(number(9)),
            ..CostDefinition::default()
        }
    );
    let measured = MeasuredUnits {
        request_bytes: Some(number(1_024)),
        response_bytes: Some(number(1)),
        response_time: Some(Duration::from_millis(10)),
    };
    assert_eq!(
        cost("{ request-bytes = \"1KiB\", response-bytes = 1, response-time = \"10ms\" }").actual,
        Some(Actual::Measured(measured))
    );
}

#[test]
fn costs_are_checked() {
    let table = |keys: &str| format!("{POLICY}{{ {keys} }}");
    let cases = [
        (
            table("response-json = \"a..b\""),
            "`a..b` is not a path in JSON: a name is empty",
            "4:26",
            "usage.total",
        ),
        (
            table("response-json = []"),
            "`response-json` takes from 1 to 8 paths",
            "4:26",
            "usage.total_tokens",
        ),
        (
            table("estimate = \"max_tokens\""),
            "`max_tokens` is not a valid `estimate`",
            "4:21",
            "\"body:FIELD\"",
        ),
        (
            table("estimate = 5, default = 5"),
            "`estimate` as a number and `default` say the same",
            "4:10",
            "remove one",
        ),
        (table("request-bytes = 0"), "`request-bytes` is out of range", "4:26", "from 1"),
        (table("response-time = 5"), "`response-time` needs a unit", "4:26", "5ms"),
        (
            table("response-json = \"a\", response-bytes = 1"),
            "a cost has one source: a response header, JSON of the response, or measurements",
            "4:1",
            "write a policy for each",
        ),
        (
            "[policy.a]\nby = \"body:\"\nlimit = \"1/s\"".to_owned(),
            "`body:` is not a dimension",
            "2:6",
            "write `body:NAME`",
        ),
        (
            "[upstream.u]\nservers = \"http://a\"\nbalance = \"hash:body:x\"".to_owned(),
            "a field of the body is not known when an upstream or a server is chosen",
            "3:11",
            "`header:x-user`",
        ),
    ];
    let cases: Vec<_> =
        cases.iter().map(|(text, message, at, hint)| (&**text, *message, *at, *hint)).collect();
    each_says(&cases);
}
