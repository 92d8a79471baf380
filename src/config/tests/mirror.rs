//! `mirror` of `[[route]]`.

use super::{config, each_says, reads_the_same};
use policy::definition::{ActionDefinition, MirrorDefinition};

#[test]
fn a_mirror_is_an_upstream_or_a_table_with_a_share_and_a_bound() {
    for (written, share_ppm, body_bytes_max) in [
        ("\"http://b\"", 1_000_000, 64 << 10),
        ("{ to = \"http://b\" }", 1_000_000, 64 << 10),
        ("{ to = \"http://b/\", share = \"0.5%\", max-body = 0 }", 5_000, 0),
        ("{ to = \"http://b/\", max-body = \"1MiB\" }", 1_000_000, 1 << 20),
    ] {
        let first = config(&format!("[[route]]\nto = \"http://a\"\nmirror = {written}"));
        let ActionDefinition::Forward { to, .. } = &first.routes[0].action else { panic!("it forwards") };
        let upstream = "http://b".to_owned();
        assert_eq!(to.mirror, Some(MirrorDefinition { upstream, share_ppm, body_bytes_max }));
        assert!(reads_the_same(&first), "{}", first.page());
    }
}

#[test]
fn mirrors_are_checked() {
    let own = "`http://a` is an upstream of this route";
    let several = "[[route]]\nto = [\"http://b\", \"http://a\"]\nmirror = \"http://a:80\"";
    each_says(&[
        (
            "[[route]]\nrespond = {}\nmirror = \"http://a\"",
            "`mirror` needs an upstream",
            "3:1",
            "leave it out",
        ),
        ("[[route]]\nto = \"http://a\"\nmirror = {}", "`mirror` needs `to`", "3:1", "share = "),
        ("[[route]]\nto = \"http://a\"\nmirror = \"b\"", "there is no upstream `b`", "3:10", "write a URL"),
        (
            "[[route]]\nto = \"http://a\"\nmirror = \"echo\"",
            "`echo` can be neither one of several upstreams nor a mirror",
            "3:10",
            "upstreams only",
        ),
        (
            "[[route]]\nto = \"http://a\"\nmirror = { to = \"http://b\", share = \"120%\" }",
            "`120%` is not a share",
            "3:37",
            "%",
        ),
        (
            "[[route]]\nto = \"http://a\"\nmirror = { to = \"http://b\", max-body = \"1GiB\" }",
            "`max-body` is out of range",
            "3:40",
            "`\"16MiB\"`",
        ),
        ("[[route]]\nto = \"http://a\"\nmirror = \"http://a:80\"", own, "3:10", "mirror to another upstream"),
        (several, own, "3:10", "mirror to another upstream"),
    ]);
}
