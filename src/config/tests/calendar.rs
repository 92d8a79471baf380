//! Limits by the calendar: which windows they are, and what is said of those that cannot be.

use limit::{Algorithm, Quota};

use super::{config, load};

#[test]
fn a_claim_that_no_client_can_have_is_warned_of() {
    let file = |by: &str, auth: &str| {
        format!(
            "[auth.keys]\nkind = \"api-key\"\nkeys = {{ file = \"keys.toml\" }}\n[auth.open]\nkind = \"anonymous\"\n\
             [policy.a]\nby = {by}\nlimit = \"9/month\"\nanchor-claim = \"day\"\n\
             [[route]]\npath = \"/\"\nlimit = \"a\"\nrespond = {{}}\n{auth}"
        )
    };
    let warned = |by: &str, auth: &str| {
        let loaded = load(&[&file(by, auth)]).unwrap_or_else(|errors| panic!("{errors}"));
        loaded.report.to_string().contains("has clients with claims")
    };
    assert!(warned("[\"ip\"]", "") && warned("[]", "") && warned("[\"ip\"]", "auth = \"open\""));
    assert!(!warned("[\"ip\"]", "auth = \"keys\"") && !warned("[]", "auth = [\"keys\", \"open\"]"));
}

#[test]
fn months_begin_on_the_anchor_of_the_tier_or_the_policy() {
    let read = config(
        r#"
[tier.free]
limit = ["10/month", "9/day"]
[tier.pro]
limit = "100/month"
anchor = 31
algorithm = "fixed-window"
[policy.a]
by = ["consumer"]
limit = "tier"
anchor = 15
[policy.b]
by = []
limit = { default = "5/month", own = { limit = "6/month", anchor = 2 } }
[[route]]
path = "/"
limit = ["a", "b"]
respond = {}
"#,
    );
    let anchors = |nth: usize| -> Vec<u8> {
        let windows = read.policies[nth].windows.iter();
        windows.map(|window| window.calendar().expect("it is of the calendar").anchor()).collect()
    };
    assert_eq!((anchors(0), anchors(1)), (vec![15, 1, 31], vec![1, 2]));
    // With the anchors of tiers, because the policy's would stand for those that are missing.
    assert!(super::reads_the_same(&read));
}

fn shown(windows: &[Quota]) -> Vec<(u64, &'static str, &'static str)> {
    let of = |window: &Quota| {
        let calendar = window.calendar().expect("it is of the calendar");
        assert_eq!(window.algorithm(), Algorithm::FixedWindow);
        (window.limit().get(), calendar.unit().word(), calendar.zone().name())
    };
    windows.iter().map(of).collect()
}

#[test]
fn a_policy_and_its_tiers_have_the_calendar_of_their_zone() {
    let read = config(
        r#"
[tier.free]
limit = "10/day"
[tier.pro]
limit = ["100/day", "1_000/month"]
time-zone = "asia/tokyo"
[tier.strict]
limit = "7/week"
algorithm = "fixed-window"
[policy.a]
by = ["consumer"]
limit = "tier"
time-zone = "Europe/Berlin"
[policy.b]
by = []
limit = { default = "5/year", own = { limit = "6/week", time-zone = "America/New_York" } }
time-zone = "UTC"
[policy.c]
by = []
limit = ["8/month", "9/d"]
[[route]]
path = "/"
limit = ["a", "b", "c", "3/day by ip"]
respond = {}
"#,
    );
    let tiers = [
        (10, "day", "Europe/Berlin"),
        (100, "day", "Asia/Tokyo"),
        (1_000, "month", "Asia/Tokyo"),
        (7, "week", "Europe/Berlin"),
    ];
    assert_eq!(shown(&read.policies[0].windows), tiers);
    assert_eq!(shown(&read.policies[1].windows), [(5, "year", "UTC"), (6, "week", "America/New_York")]);
    assert_eq!(shown(&read.policies[2].windows[..1]), [(8, "month", "UTC")]);
    assert_eq!(read.policies[2].windows[1].algorithm(), Algorithm::TokenBucket);
    assert_eq!(shown(&read.policies[3].windows), [(3, "day", "UTC")]);
    assert!(super::reads_the_same(&read));
}

#[test]
fn what_cannot_be_a_window_of_the_calendar_says_what_to_write() {
    let policy = |limit: &str, more: &str| format!("[policy.a]\nby = []\nlimit = {limit}\n{more}\n");
    for (text, message, at, hint) in [
        (
            policy("\"9/month\"", "algorithm = \"token-bucket\""),
            "a limit per calendar month must be a fixed window",
            "3:9",
            "write `algorithm = \"fixed-window\"`, or a period of fixed length: `9/31d`",
        ),
        (
            policy("\"9/week\"", "algorithm = \"sliding-window\""),
            "a limit per calendar week must be a fixed window",
            "3:9",
            "`9/7d`",
        ),
        (
            policy("\"9/day\"", "algorithm = \"leaky-bucket\"\nmax-delay = \"1s\""),
            "a limit per calendar day must be a fixed window",
            "3:9",
            "`9/1d`",
        ),
        (
            format!("[tier.x]\nlimit = \"9/year\"\nalgorithm = \"sliding-log\"\n{}", policy("\"tier\"", "")),
            "a limit per calendar year must be a fixed window",
            "2:9",
            "`9/366d`",
        ),
        (
            format!("[tier.x]\nlimit = \"9/year\"\n{}", policy("\"tier\"", "algorithm = \"sliding-log\"")),
            "a limit per calendar year must be a fixed window",
            "5:9",
            "`9/366d`",
        ),
        (policy("\"9/month burst 3\"", ""), "`burst` needs a token bucket", "3:9", "remove `burst`"),
        (policy("\"1.5/month\"", ""), "a limit per month must be whole", "3:10", "write a whole number"),
        (
            policy("\"9/2months\"", ""),
            "a period of the calendar takes no number",
            "3:13",
            "write `/month`, or a number of days such as `/60d`",
        ),
        (
            policy("\"9/month\"", "time-zone = \"Europe/Berlim\""),
            "`Europe/Berlim` is not a time zone",
            "4:13",
            "did you mean `Europe/Berlin`?",
        ),
        (
            policy("\"9/month\"", "time-zone = \"+02:00\""),
            "`+02:00` is not a time zone",
            "4:13",
            "a name of the IANA database: `time-zone = \"Europe/Berlin\"`",
        ),
        (policy("\"9/month\"", "time-zone = \"\""), "is not a time zone", "4:13", "write `UTC`"),
        (policy("\"9/month\"", "time-zone = \"localtime\""), "is not a time zone", "4:13", "write `UTC`"),
        (
            policy("\"9/month\"", "time-zone = \"../../../etc/passwd\""),
            "is not a time zone",
            "4:13",
            "write `UTC`",
        ),
        (policy("\"9/month\"", "anchor = 32"), "`anchor`", "4:10", "from 1 to 31"),
        (policy("\"9/month\"", "anchor = 0"), "`anchor`", "4:10", "from 1 to 31"),
        (
            policy("\"9/m\"", "hot-keys = { then = \"local-only:9/day\" }"),
            "is not a valid action for hot keys",
            "4:21",
            "a limit for each node",
        ),
    ] {
        let errors = load(&[&text]).map(|_| ()).expect_err(&text);
        assert!(errors.contains(message) && errors.contains(at) && errors.contains(hint), "{text}\n{errors}");
    }
}

#[test]
fn a_zone_that_no_limit_follows_is_warned_of() {
    let warned = |limit: &str, key: &str| {
        let text = format!(
            "[policy.a]\nby = []\nlimit = \"{limit}\"\ntime-zone = \"Europe/Berlin\"\nanchor = 2\n\
             [[route]]\npath = \"/\"\nlimit = \"a\"\nrespond = {{}}\n"
        );
        let loaded = load(&[&text]).unwrap_or_else(|errors| panic!("{errors}"));
        loaded.report.to_string().contains(&format!("`{key}` changes nothing"))
    };
    assert_eq!(["9/d", "9/day", "9/month"].map(|limit| warned(limit, "time-zone")), [true, false, false]);
    assert_eq!(["9/d", "9/day", "9/month"].map(|limit| warned(limit, "anchor")), [true, true, false]);
}
