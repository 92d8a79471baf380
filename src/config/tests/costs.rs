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
fn counted_statuses_are_read_and_written() {
    let shown = |count: &str| {
        let first = config(&format!("[policy.a]\nby = []\nlimit = \"9/h\"\ncount = {count}"));
        let again = config(&filled(&first.effective()));
        assert_eq!(again.policies[0].cost, first.policies[0].cost, "{}", first.effective());
        match &first.policies[0].cost.actual {
            Some(Actual::Status(counted)) => counted.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(shown("{ status = [401, 403] }"), "401, 403");
    assert_eq!(shown("{ status = \"5xx\" }"), "500-599");
    assert_eq!(shown("{ not-status = [\"2xx\", 304] }"), "not 200-299, 304");
    assert_eq!(shown("{ status = [\"400-499\", 503], not-status = 404 }"), "400-499, 503, but not 404");
    assert_eq!(
        shown("{ status = 401, grpc-status = [7, \"unauthenticated\"] }"),
        "401, permission-denied, unauthenticated"
    );
    assert_eq!(shown("{ not-grpc-status = 0 }"), "not ok");
    let as_grpc =
        "{ status = \"401\", grpc-status = [\"7\", \"UNAVAILABLE\"], not-grpc-status = \"DATA_LOSS\" }";
    assert_eq!(shown(as_grpc), "401, permission-denied, unavailable, but not data-loss");
}

#[test]
fn counted_statuses_are_checked() {
    let policy = |lines: &str| format!("[policy.a]\nby = [\"consumer\"]\nlimit = \"9/h\"\n{lines}");
    let cases = [
        (policy("count = {}"), "`count` names no status", "4:1", "status = [401, 403]"),
        (policy("count = { status = [] }"), "the list of statuses is empty", "4:20", "\"2xx\""),
        (policy("count = { grpc-status = 17 }"), "`grpc-status` is out of range", "4:25", "from 0 to 16"),
        (
            policy("count = { grpc-status = \"denied\" }"),
            "`denied` is not a gRPC status",
            "4:25",
            "permission-denied",
        ),
        (policy("count = { status = 600 }"), "`status` is out of range", "4:20", "from 100 to 599"),
        (policy("count = { status = \"6xx\" }"), "`6xx` is not a status", "4:20", "\"2xx\""),
        (policy("count = { status = \"500-400\" }"), "`500-400` is not a status", "4:20", "\"2xx\""),
        (
            policy("count = { not-status = \"100-599\" }"),
            "`count` leaves no status to count",
            "4:1",
            "not-status = \"2xx\"",
        ),
        (
            policy("count = { status = 401 }\ncost = { response-header = \"x-cost\" }"),
            "`count` cannot be combined with a cost that is known only after the response",
            "4:1",
            "write one policy for `count` and one for the cost",
        ),
        (
            policy("count = { status = 401 }\nidempotency-key = \"header:x-key\""),
            "`count` cannot be combined with `idempotency-key`: a retry costs nothing, whatever its status",
            "4:1",
            "write one policy for each",
        ),
        (
            policy("count = { status = 401 }").replace("\"9/h\"", "[\"9/h\", \"2 in flight\"]"),
            "`count` cannot be combined with a limit of requests in flight, which counts each request until it ends",
            "4:1",
            "to a policy of its own, without `count`",
        ),
    ];
    let cases: Vec<_> =
        cases.iter().map(|(text, message, at, hint)| (&**text, *message, *at, *hint)).collect();
    each_says(&cases);
}

#[test]
fn what_clients_read_of_a_policy_is_read_and_written() {
    let text = "[policy.a]\nby = []\nlimit = \"9/h\"\nheaders = \"none\"\nshown-as = \"per hour\"";
    let first = config(text);
    let again = config(&filled(&first.effective()));
    for policy in [&first.policies[0], &again.policies[0]] {
        assert_eq!((policy.is_hidden, policy.shown_as.as_deref()), (true, Some("per hour")));
    }
    let policy = |lines: &str| format!("[policy.a]\nby = []\nlimit = \"9/h\"\n{lines}");
    let (empty, quoted, both) =
        (policy("shown-as = \"\""), policy("shown-as = 'a\"b'"), policy("headers = \"both\""));
    each_says(&[
        (&empty, "an empty text is not valid in a header", "4:12", "letters, digits"),
        (&quoted, "`a\"b` is not valid in a header", "4:12", "without quotation marks"),
        (&both, "`both` is not a value of `headers`", "4:11", "none"),
    ]);
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
            table("response-json = \"$.usage.total\""),
            "`$.usage.total` is not a path in JSON: a path has no brackets, and does not begin with `$.` or `/`",
            "4:26",
            "write `usage.total`",
        ),
        (
            table("response-json = \"/usage/total\""),
            "`/usage/total` is not a path in JSON: a path has no brackets, and does not begin with `$.` or `/`",
            "4:26",
            "write `usage.total`",
        ),
        (
            table("response-json = \"usage[0].total\""),
            "`usage[0].total` is not a path in JSON: a path has no brackets, and does not begin with `$.` or `/`",
            "4:26",
            "write `usage.*.total`, where `*` adds up all elements of a list",
        ),
        (
            table("estimate = \"body:$.max_tokens\""),
            "`body:$.max_tokens` is not a path in JSON: a path has no brackets, and does not begin with `$.` or `/`",
            "4:21",
            "write `body:max_tokens`",
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
            "`body:FIELD`",
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
