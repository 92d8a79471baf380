//! `sticky` of `[upstream.*]`.

use std::time::Duration;

use super::{config, each_says, load, reads_the_same};
use base::secret::Secret;
use upstream::config::{SameSite, StickyConfig};

const UPSTREAM: &str = "[upstream.u]\nservers = \"http://a\"\nsticky = ";

fn sticky(table: &str) -> StickyConfig {
    let config = config(&format!("{UPSTREAM}{table}"));
    config.upstreams[0].sticky.clone().expect("it is there")
}

#[test]
fn a_sticky_cookie_is_read_and_its_secret_is_never_shown() {
    let least = StickyConfig { secret: Secret("hunter2".to_owned()), ..StickyConfig::new("at".to_owned()) };
    assert_eq!(sticky("{ cookie = \"at\", secret = \"${SECRET}\" }"), least);
    assert_eq!(
        sticky(
            "{ cookie = \"__Secure-at\", secret = \"${SECRET}\", max-age = \"1h\", path = \"/app\", \
             same-site = \"strict\", secure = true }"
        ),
        StickyConfig {
            cookie: "__Secure-at".to_owned(),
            max_age: Some(Duration::from_secs(3_600)),
            path: "/app".to_owned(),
            same_site: SameSite::Strict,
            is_secure: true,
            ..least.clone()
        }
    );
    let everywhere = sticky("{ cookie = \"at\", secret = \"${SECRET}\", same-site = \"none\" }");
    assert!(everywhere.is_secure, "browsers would drop it otherwise");
    let first =
        config(&format!("{UPSTREAM}{{ cookie = \"at\", secret = \"${{SECRET}}\", max-age = \"9s\" }}"));
    assert!(reads_the_same(&first), "{}", first.page());
    assert!(!first.effective().contains("hunter2") && !format!("{first:?}").contains("hunter2"));
}

#[test]
fn a_secret_that_can_be_guessed_draws_a_warning() {
    let warned = |secret: &str| {
        let text = format!("{UPSTREAM}{{ cookie = \"at\", secret = \"{secret}\" }}");
        load(&[&text]).expect("it is valid").report.to_string()
    };
    assert!(warned("${SECRET}").contains("`secret` has fewer than 32 bytes"));
    let plain = warned("a secret of thirty-two bytes or more");
    assert!(plain.contains("`secret` is written in plain text") && !plain.contains("thirty-two"), "{plain}");
}

#[test]
fn sticky_cookies_are_checked() {
    let table = |keys: &str| format!("{UPSTREAM}{{ secret = \"${{LONG_SECRET}}\", {keys} }}");
    let cases = [
        (table("path = \"/\""), "`sticky` needs the name of a cookie", "3:1", "write `cookie = "),
        (table("cookie = \"a b\""), "`a b` is not the name of a cookie", "3:48", "`server`"),
        (table("cookie = \"a\", path = \"app\""), "`app` is not the path of a cookie", "3:67", "`/app`"),
        (table("cookie = \"a\", path = \"/;x\""), "`/;x` is not the path of a cookie", "3:67", "`/app`"),
        (table("cookie = \"a\", same-site = \"no\""), "`no` is not a value of `same-site`", "3:72", "`none`"),
        (
            table("cookie = \"__Host-a\""),
            "browsers drop a cookie of this name that is not secure",
            "3:48",
            "secure = true",
        ),
        (
            table("cookie = \"__Host-a\", secure = true, path = \"/app\""),
            "browsers drop a cookie of this name that has a path",
            "3:48",
            "leave `path` out",
        ),
        (
            format!("{UPSTREAM}{{ cookie = \"a\" }}"),
            "`sticky` needs `secret`, which signs the cookie",
            "3:1",
            "${file:/path}",
        ),
        (format!("{UPSTREAM}{{ cookie = \"a\", secret = \"\" }}"), "`secret` is empty", "3:42", "${NAME}"),
        (format!("{UPSTREAM}\"ip\""), "`sticky` must be a table, not a string", "3:10", ""),
    ];
    let cases: Vec<_> =
        cases.iter().map(|(text, message, at, hint)| (&**text, *message, *at, *hint)).collect();
    each_says(&cases);
}
