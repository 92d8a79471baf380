//! What keeps clients out in HAProxy keeps them out here.

use super::super::{From, MigrationOutput, migrate_text};

/// A frontend with these lines, a backend for what they let in, and those that they name.
fn migrated(lines: &str) -> MigrationOutput {
    let mut text = format!(
        "defaults\n mode http\nfrontend www\n bind 127.0.0.1:80\n{lines}\n default_backend web\n\
         backend web\n server a 127.0.0.1:1\n"
    );
    for (name, line) in [("api", "server b 127.0.0.1:2"), ("deny", "http-request deny")] {
        if lines.contains(&format!("use_backend {name} ")) {
            text.push_str(&format!("backend {name}\n {line}\n"));
        }
    }
    let migrated = migrate_text(From::Haproxy, "haproxy.cfg", &text).expect("it can be parsed");
    assert!(migrated.errors.is_none(), "{:?}\n{}", migrated.errors, migrated.text);
    migrated
}

/// The routes, without their headings and names.
fn routes(migrated: &MigrationOutput) -> Vec<&str> {
    let sections = migrated.text.trim_end().split("\n\n").filter_map(|it| it.strip_prefix("[[route]]\n"));
    sections.filter_map(|section| section.split_once('\n')).map(|(_, rest)| rest).collect()
}

const CLOSED: &str = "respond = { status = 501, body = \"left out by the migration\\n\" }";

#[test]
fn values_that_are_refused_close_every_value_of_their_field() {
    for rule in [
        "http-request deny if { hdr(x-bad) evil }",
        "http-request return status 403 if { hdr(x-bad) evil }",
        "use_backend deny if { hdr(x-bad) evil }",
    ] {
        let migrated = migrated(rule);
        let closed = format!("path = \"/{{*rest}}\"\nmatch = {{ header = {{ x-bad = true }} }}\n{CLOSED}");
        assert_eq!(routes(&migrated)[0], closed, "{}", migrated.text);
        assert!(
            migrated.text.contains("commas: requests it may refuse are closed (501)"),
            "{}",
            migrated.text
        );
    }
    // Taken over, because whether a field is there at all is the same here.
    let migrated = migrated("http-request deny if { hdr(x-bad) -m found }");
    assert!(routes(&migrated)[0].ends_with("respond = { status = 403 }"), "{}", migrated.text);
}

#[test]
fn a_condition_on_a_field_that_a_rule_before_it_changes_is_not_asked_of_the_client() {
    let deny = "http-request deny if { hdr(x-a) -m found }";
    for change in [
        "http-request set-header X-A v",
        "http-request add-header X-A v if { path /x }",
        "http-request del-header x-a",
        "http-request del-header x- -m beg",
        "http-request replace-header X-A a b",
        "http-request replace-value x-a a b",
    ] {
        let migrated = migrated(&format!("{change}\n{deny}"));
        assert_eq!(routes(&migrated), [format!("path = \"/{{*rest}}\"\n{CLOSED}")], "{}", migrated.text);
        assert!(
            !migrated.is_whole_but_paths() && migrated.text.contains("an earlier rule changes"),
            "{}",
            migrated.text
        );
    }
    // One that comes after it, or is for another field, changes nothing.
    for lines in
        [format!("{deny}\nhttp-request set-header X-A v"), format!("http-request set-header X-B v\n{deny}")]
    {
        let migrated = migrated(&lines);
        assert!(routes(&migrated)[0].ends_with("respond = { status = 403 }"), "{}", migrated.text);
    }
    // Closed, because backends see what a frontend has changed, and so does the choice of a backend.
    let host = "http-request set-header Host a.test\nuse_backend api if { hdr(host) a.test }";
    let chosen = migrated(host);
    assert!(!chosen.is_whole_but_paths() && !chosen.text.contains("to = \"api\""), "{}", chosen.text);
    let denied = migrated(&host.replace("api", "deny"));
    assert_eq!(routes(&denied), [format!("path = \"/{{*rest}}\"\n{CLOSED}")], "{}", denied.text);
    let limited = "stick-table type string size 1k expire 30s store http_req_rate(10s)\n\
                   http-request set-header X-A %[src]\nhttp-request track-sc0 hdr(x-a)\n\
                   http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }";
    assert_eq!(routes(&migrated(limited)), [format!("path = \"/{{*rest}}\"\n{CLOSED}")]);
}

#[test]
fn addresses_that_may_come_to_some_paths_alone_are_lists_of_their_routes() {
    let office = "acl office src 10.0.0.0/8\n";
    let admin = migrated(&format!("{office}http-request deny if {{ path_beg /admin/ }} !office"));
    let wanted = [
        "path = \"/admin/{*rest}\"\nto = \"web\"\nallow = \"10.0.0.0/8\"",
        "path = \"/{*rest}\"\nto = \"web\"",
    ];
    assert_eq!(routes(&admin), wanted, "{}", admin.text);
    assert!(admin.is_whole_but_paths(), "{}", admin.text);
    // The backends of its paths, of wider ones and of hosts have the list, others have none.
    let migrated = migrated(&format!(
        "{office}http-request return status 204 if {{ path /admin/open }}\n\
         http-request deny if {{ path_beg /admin/ }} !office || {{ method DELETE }} {{ src 192.0.2.0/24 }}\n\
         use_backend api if {{ path_beg /admin/api/ }}\nuse_backend api if {{ hdr(host) a.test }}"
    ));
    let found = routes(&migrated);
    let has = |wanted: &str| assert!(found.contains(&wanted), "{wanted}\nis not in\n{}", migrated.text);
    has("path = \"/admin/open\"\nrespond = { status = 204 }");
    has("path = \"/admin/api/{*rest}\"\nto = \"api\"\nallow = \"10.0.0.0/8\"");
    has(
        "path = \"/admin/api/{*rest}\"\nmethods = \"DELETE\"\nto = \"api\"\nallow = \"10.0.0.0/8\"\ndeny = \"192.0.2.0/24\"",
    );
    has("host = \"a.test\"\npath = \"/admin/{*rest}\"\nto = \"api\"\nallow = \"10.0.0.0/8\"");
    has("host = \"a.test\"\npath = \"/{*rest}\"\nto = \"api\"");
    has("path = \"/{*rest}\"\nmethods = \"DELETE\"\nto = \"web\"\ndeny = \"192.0.2.0/24\"");
    has("path = \"/{*rest}\"\nto = \"web\"");
    assert!(migrated.is_whole_but_paths(), "{}", migrated.text);
}

#[test]
fn addresses_that_lists_of_routes_cannot_say_close_the_section() {
    for lines in [
        // All but the office, and everybody for other paths.
        "http-request deny unless { src 10.0.0.0/8 } { path_beg /admin/ }",
        "http-request set-src hdr(x-real)\nhttp-request deny if { path_beg /admin/ } !{ src 10.0.0.0/8 }",
        "http-request deny if { hdr(x-a) -m found } { src 10.0.0.0/8 }",
        "http-request deny if { path_beg -i /admin/ } { src 10.0.0.0/8 }",
        "http-request set-src hdr(x-real)\nuse_backend guarded if { path_beg / }\nbackend guarded\n server a 127.0.0.1:3\n \
         http-request deny if { src 10.0.0.0/8 }\nfrontend other\n mode tcp\n bind 127.0.0.1:81",
    ] {
        let migrated = migrated(lines);
        assert!(!migrated.text.contains("\nto = "), "{lines}\n{}", migrated.text);
        assert!(!migrated.is_whole_but_paths());
    }
    // Two lists of which only those in both may come in.
    let both = migrated(
        "http-request deny if !{ src 10.0.0.0/8 }\nhttp-request deny if { path_beg /admin/ } !{ src 10.1.0.0/16 }",
    );
    assert_eq!(routes(&both)[0], format!("path = \"/admin/{{*rest}}\"\n{CLOSED}"), "{}", both.text);
    assert!(routes(&both)[1].ends_with("allow = \"10.0.0.0/8\""), "{}", both.text);
    assert!(!both.is_whole_but_paths());
}

#[test]
fn what_is_added_to_a_field_that_the_gateway_writes_is_set() {
    for name in crate::fields::TO_SERVERS {
        let migrated =
            migrated(&format!("http-request add-header {name} a\nhttp-request add-header X-Own b"));
        let changes = format!("headers = {{ set = {{ {name} = \"a\" }}, add = {{ x-own = \"b\" }} }}");
        assert!(migrated.text.contains(&changes), "{}", migrated.text);
    }
    let twice = "http-request set-header X-Forwarded-Proto a\nhttp-request add-header X-Forwarded-Proto b";
    let changes = "headers = { set = { x-forwarded-proto = \"a\" }, add = { x-forwarded-proto = \"b\" } }";
    assert!(migrated(twice).text.contains(changes));
    let migrated = migrated("http-response add-header X-Request-Id a\nhttp-response add-header Via b");
    let changes = "response-headers = { set = { x-request-id = \"a\" }, add = { via = \"b\" } }";
    assert!(migrated.text.contains(changes), "{}", migrated.text);
}

#[test]
fn what_a_backend_answers_itself_is_closed_and_the_rest_of_it_is_open() {
    let answered = |lines: &str| {
        let text = format!(
            "defaults\n mode http\nfrontend www\n bind 127.0.0.1:80\n use_backend web if {{ path_beg /w/ }}\n\
             backend web\n {lines}\n server a 127.0.0.1:1\n"
        );
        migrate_text(From::Haproxy, "haproxy.cfg", &text).expect("it can be parsed")
    };
    let open = "path = \"/w/{*rest}\"\nto = \"web\"";
    for action in ["return status 200", "return status 403", "redirect location /x", "deny"] {
        let migrated = answered(&format!("http-request {action} if {{ path /w/a }}"));
        let closed = format!("path = \"/w/a\"\n{CLOSED}");
        assert!(
            migrated.text.contains(&closed) && migrated.text.contains(open),
            "{action}\n{}",
            migrated.text
        );
        assert!(!migrated.is_whole_but_paths());
        // What the backend is not asked for is not closed.
        let elsewhere = answered(&format!("http-request {action} if {{ path /other }}"));
        assert!(!elsewhere.text.contains("501"), "{action}\n{}", elsewhere.text);
        // Without a condition it is all that leads there.
        let whole = answered(&format!("http-request {action}"));
        assert!(!whole.text.contains("to = ") && whole.text.contains("501"), "{action}\n{}", whole.text);
    }
}

#[test]
fn of_two_ports_that_may_both_be_for_everybody_the_second_is_not_opened() {
    let fronts = |first: &str, second: &str, rules: &str| {
        let text = format!(
            "defaults\n mode http\nfrontend one\n bind {first}\n default_backend web\n\
             frontend two\n bind {second}\n {rules}default_backend web\nbackend web\n server a 127.0.0.1:1\n"
        );
        migrate_text(From::Haproxy, "haproxy.cfg", &text).expect("it can be parsed")
    };
    let own = "use_backend web if { path /own }\n ";
    for (first, second, rules, is_open) in [
        ("*:8080", "*:8081", own, false),
        ("192.0.2.1:80", "192.0.2.2:80", own, false),
        ("127.0.0.1:8080", "10.0.0.1:8081", own, false),
        ("*:80", "*:8081", own, true),
        ("*:8081", "*:443 ssl crt a.pem", own, true),
        ("*:8080", "127.0.0.1:8081", own, true),
        ("*:8080", "*:8081", "", true),
    ] {
        let migrated = fronts(first, second, rules);
        let said = "`frontend two`: all listeners serve all routes here, and `migrate` cannot tell";
        assert_eq!(!migrated.text.contains(said), is_open, "{first} {second}\n{}", migrated.text);
        assert_eq!(migrated.text.matches("\nbind = ").count(), 1 + usize::from(is_open), "{}", migrated.text);
        assert!(rules.is_empty() || !migrated.is_whole_but_paths(), "{}", migrated.text);
        assert!(migrated.text.contains("path = \"/{*rest}\"\nto = \"web\""), "{}", migrated.text);
    }
}

#[test]
fn of_a_condition_with_an_unknown_part_that_part_alone_is_closed() {
    let rule = |rule: &str| migrated(&format!("http-request set-header x-y 1\n{rule}"));
    for (line, path, open) in [
        ("http-request deny if { path_beg /a/ } || { path_beg /b/ } { ssl_fc_sni x }", "/b/{*rest}", true),
        ("http-request deny if { path_beg /b/ } !{ hdr(x-b) 1 }", "/b/{*rest}", true),
        ("http-request return status 403 if { path_beg /b/ } { rand(100) lt 5 }", "/b/{*rest}", true),
        ("http-request deny if { path_beg /b/ } || { rand(100) lt 5 }", "/{*rest}", false),
        ("http-request deny if { ssl_fc_sni x }", "/{*rest}", false),
    ] {
        let migrated = rule(line);
        let closed = format!("path = \"{path}\"\n{CLOSED}");
        assert!(migrated.text.contains(&closed), "{line}\n{}", migrated.text);
        assert_eq!(migrated.text.contains("\nto = "), open, "{line}\n{}", migrated.text);
        assert!(!migrated.is_whole_but_paths(), "{line}\n{}", migrated.text);
    }
    let chosen = rule("use_backend api if { path_beg /a/ } || { rand(100) lt 5 }");
    assert!(chosen.text.contains("path = \"/a/{*rest}\"\nto = \"api\""), "{}", chosen.text);
    assert!(
        chosen.text.contains("an alternative of its condition") && !chosen.is_whole_but_paths(),
        "{}",
        chosen.text
    );
}

/// The routes of a frontend with these rules, whose backend for paths below `/x` has these lines.
fn behind(rules: &str, lines: &str) -> MigrationOutput {
    let text = format!(
        "defaults\n mode http\nfrontend www\n bind 127.0.0.1:80\n {rules}\n default_backend web\n\
         backend web\n server a 127.0.0.1:1\nbackend x\n {lines}\n server x 127.0.0.1:2\n"
    );
    let migrated = migrate_text(From::Haproxy, "haproxy.cfg", &text).expect("it can be parsed");
    assert!(migrated.errors.is_none(), "{:?}\n{}", migrated.errors, migrated.text);
    migrated
}

#[test]
fn a_beginning_of_paths_that_a_backend_strips_is_rewritten() {
    let below = "path = \"/x/{*rest}\"\nto = \"x\"\nrewrite = \"/{rest}\"";
    let beyond = "path = \"/x{*rest}\"\nto = \"x\"\nrewrite = \"/{rest}\"";
    let kept = "path = \"/x{*rest}\"\nto = \"x\"";
    let closed = "path = \"/x{*rest}\"\nrespond";
    for (rule, second) in [
        ("set-path %[path,regsub(^/x/?,/)]", beyond),
        ("set-path \"%[path,regsub('^/x(/)?','/')]\"", beyond),
        ("set-pathq %[pathq,regsub(^/x/?,/)]", beyond),
        ("replace-path ^/x/?(.*) /\\1", beyond),
        ("replace-path ^/x/(.*)$ /\\1 if { path_beg /x/ }", kept),
        ("replace-path ^/x(/.*)?$ \\1", kept),
        ("replace-path ^/x(/|$)(.*) /\\2", kept),
        ("set-path %[path,regsub(^/x/,/)]", kept),
        ("set-path %[path,regsub(^/x/?,/)] if { path_beg /x/ }", kept),
        ("set-path %[path,regsub(^/x,)]", closed),
        ("replace-path /x/(.*) /\\1", closed),
    ] {
        let migrated = behind("use_backend x if { path_beg /x }", &format!("http-request {rule}"));
        let found = routes(&migrated);
        assert_eq!(found[0], below, "{rule}\n{}", migrated.text);
        assert!(found[1].starts_with(second), "{rule}\n{}", migrated.text);
        assert_eq!(found[1].contains("rewrite = "), second == beyond, "{rule}\n{}", migrated.text);
        assert_eq!(migrated.is_whole_but_paths(), second != closed, "{rule}\n{}", migrated.text);
    }
    // What stands instead may be more than a slash, and what is chosen narrower than what is stripped.
    let longer = behind(
        "use_backend x if { path_beg /x/v1/ } || { path /x/a }",
        "http-request set-path %[path,regsub(^/x/,/new/)]",
    );
    for wanted in [
        "path = \"/x/v1/{*rest}\"\nto = \"x\"\nrewrite = \"/new/v1/{rest}\"",
        "path = \"/x/a\"\nto = \"x\"\nrewrite = \"/new/a\"",
    ] {
        assert!(routes(&longer).contains(&wanted), "{}", longer.text);
    }
    // A backend of all paths strips those that begin so.
    let all = behind("use_backend x if { hdr(host) a.test }", "http-request replace-path ^/x/(.*) /\\1");
    let host = "host = \"a.test\"\n";
    assert_eq!(routes(&all)[0], format!("{host}{below}"), "{}", all.text);
    assert_eq!(routes(&all)[1], format!("{host}path = \"/{{*rest}}\"\nto = \"x\""), "{}", all.text);
    assert!(all.is_whole_but_paths(), "{}", all.text);
}

#[test]
fn what_is_more_than_a_stripped_beginning_closes_its_section() {
    let strip = "http-request replace-path ^/x/(.*) /\\1";
    for rule in [
        "set-path /a%[path]",
        "set-path %[path,regsub(^/x/?,/,i)]",
        "set-path %[path,regsub(^/x/?,)]",
        "set-path %[path,regsub(^/x,/)]",
        "set-path %[path,regsub(/x/.*,/)]",
        "replace-path (.*) /a\\1",
        "replace-path ^/(x|y)/(.*) /\\2",
        "replace-path ^/x/(.*) /\\1/\\1",
        "replace-uri ^/x/(.*) /\\1",
        "set-uri %[url,regsub(^/x/?,/)]",
        "replace-path ^/x/(.*) /\\1 if { hdr(x-a) 1 }",
        "replace-path ^/x/(.*) /\\1 if { path_beg -i /x/ }",
        "replace-path ^/x/(.*) /\\1 unless { path_beg /y/ }",
    ] {
        let migrated = behind("use_backend x if { path_beg /x }", &format!("http-request {rule}"));
        assert!(!migrated.text.contains("to = \"x\""), "{rule}\n{}", migrated.text);
        assert!(
            routes(&migrated)[0].contains("501") && !migrated.is_whole_but_paths(),
            "{rule}\n{}",
            migrated.text
        );
    }
    let twice = behind("use_backend x if { path_beg /x }", &format!("{strip}\n {strip}"));
    assert!(!twice.text.contains("to = \"x\""), "{}", twice.text);
    // Behind it a path is the new one.
    for rule in [
        "deny if { path_beg /adm }",
        "return status 403 if { path /adm }",
        "deny if { path_beg /x/ } { src 1.2.3.4 }",
    ] {
        let migrated = behind("use_backend x if { path_beg /x }", &format!("{strip}\n http-request {rule}"));
        assert!(!migrated.text.contains("to = \"x\""), "{rule}\n{}", migrated.text);
        let first = behind("use_backend x if { path_beg /x }", &format!("http-request {rule}\n {strip}"));
        assert!(first.text.contains("to = \"x\""), "{rule}\n{}", first.text);
    }
}

#[test]
fn a_beginning_that_a_frontend_strips_is_rewritten_if_nothing_of_it_looks_at_paths() {
    let strip = "http-request set-path %[path,regsub(^/x/?,/)]";
    let migrated = behind(&format!("{strip}\n use_backend x if {{ hdr(host) a.test }}"), "");
    for (host, to) in [("host = \"a.test\"\n", "x"), ("", "web")] {
        for (path, rewrite) in
            [("/x/", "\nrewrite = \"/{rest}\""), ("/x", "\nrewrite = \"/{rest}\""), ("/", "")]
        {
            let wanted = format!("{host}path = \"{path}{{*rest}}\"\nto = \"{to}\"{rewrite}");
            assert!(routes(&migrated).contains(&wanted.as_str()), "{wanted}\n{}", migrated.text);
        }
    }
    assert!(migrated.is_whole_but_paths(), "{}", migrated.text);
    for rules in [
        format!("{strip}\n use_backend x if {{ path_beg /adm }}"),
        format!("acl adm path_beg /adm\n {strip}\n http-request deny if adm"),
    ] {
        let migrated = behind(&rules, "");
        assert!(!migrated.text.contains("\nto = "), "{rules}\n{}", migrated.text);
    }
    // What the backend looks at and strips is the new path, too.
    for lines in ["http-request deny if { path_beg /adm }", strip] {
        let migrated = behind(&format!("{strip}\n use_backend x if {{ hdr(host) a.test }}"), lines);
        assert!(!migrated.text.contains("to = \"x\""), "{lines}\n{}", migrated.text);
    }
    let moved = behind(&format!("{strip}\n redirect prefix https://b.test if {{ hdr(host) a.test }}"), "");
    assert!(!moved.text.contains("redirect = "), "{}", moved.text);
}

#[test]
fn fields_whose_value_cannot_be_said_are_removed() {
    for rule in [
        "http-request set-header X-User %[ssl_c_s_dn(cn)]",
        "http-request set-header X-User v if { src 10.0.0.0/8 }",
        "http-request del-header X-User unless { src 10.0.0.0/8 }",
        "http-request replace-header X-User .* no",
        "http-request set-header X-User admin\nhttp-request set-header X-User user unless { src 10.0.0.0/8 }",
    ] {
        let migrated = migrated(rule);
        let wanted = "path = \"/{*rest}\"\nto = \"web\"\nheaders = { remove = \"x-user\" }";
        assert_eq!(routes(&migrated), [wanted], "{rule}\n{}", migrated.text);
        assert!(
            migrated.text.contains("no client can choose it") && !migrated.is_whole_but_paths(),
            "{}",
            migrated.text
        );
    }
    let named_by_part = migrated("http-request del-header X-S- -m beg");
    assert_eq!(routes(&named_by_part), [format!("path = \"/{{*rest}}\"\n{CLOSED}")]);
    // The gateway's own, because it does not pass what clients say there.
    let own = migrated("http-request set-header X-Forwarded-Proto https if { ssl_fc }");
    assert_eq!(routes(&own), ["path = \"/{*rest}\"\nto = \"web\""], "{}", own.text);
    assert!(!own.is_whole_but_paths());
}

#[test]
fn what_a_rule_may_lead_to_a_backend_that_refuses_is_closed() {
    let acls = "acl is_a path_beg /a/\nacl weird req.cook(beta) -m found\n";
    for or in ["is_a or weird", "weird or is_a", "{ path_beg /admin } || { hdr_sub(user-agent) -i bot }"] {
        let migrated = migrated(&format!("{acls}use_backend deny if {or}"));
        assert!(!migrated.text.contains("never reached"), "{}", migrated.text);
        assert!(!migrated.text.contains("to = \"web\""), "{or}\n{}", migrated.text);
        assert!(
            !migrated.text.contains("go to other rules") && !migrated.is_whole_but_paths(),
            "{}",
            migrated.text
        );
    }
    // What is known of the other half bounds what is closed.
    let bounded = migrated(&format!("{acls}use_backend deny if is_a or {{ path_beg /b/ }} weird"));
    let found = routes(&bounded);
    assert!(found.contains(&format!("path = \"/b/{{*rest}}\"\n{CLOSED}").as_str()), "{}", bounded.text);
    assert!(found.contains(&"path = \"/{*rest}\"\nto = \"web\""), "{}", bounded.text);
    // One whose name depends on the request may be any.
    let chosen = "use_backend %[req.hdr(host),map(hosts.map)]";
    let refusing = migrated(&format!("use_backend deny if {{ path /d }}\n{chosen}"));
    assert!(!refusing.text.contains("to = \"web\""), "{}", refusing.text);
    let open = migrated(chosen);
    assert!(open.text.contains("its backend depends on the request") && open.text.contains("to = \"web\""));
}

#[test]
fn the_address_of_the_client_is_sent_behind_rules_that_remove_it() {
    let forwarded = migrated("option forwardfor\nhttp-request del-header X-Forwarded-For");
    assert_eq!(routes(&forwarded), ["path = \"/{*rest}\"\nto = \"web\""], "{}", forwarded.text);
    let named = migrated("option forwardfor header X-Client\nhttp-request del-header X-Client");
    assert!(named.text.contains("set = { x-client = \"{ip}\" }"), "{}", named.text);
    let removed = migrated("http-request del-header X-Forwarded-For");
    assert!(removed.text.contains("headers = { remove = \"x-forwarded-for\" }"), "{}", removed.text);
}

#[test]
fn alternatives_of_a_rule_are_not_said_to_be_unreached_behind_each_other() {
    let migrated = migrated("http-request deny if { path_beg /a } or { path_beg /a/b }");
    assert!(migrated.is_whole_but_paths() && !migrated.text.contains("never reached"), "{}", migrated.text);
}

#[test]
fn the_date_of_responses_is_listed_as_not_removed() {
    let migrated = migrated("http-response del-header Date");
    assert!(
        !migrated.is_whole_but_paths() && migrated.text.contains("always sends its own `Date`"),
        "{}",
        migrated.text
    );
}

#[test]
fn paths_that_are_read_otherwise_are_listed() {
    let migrated = migrated("");
    assert!(!migrated.is_whole && migrated.text.contains("#   `haproxy.cfg`: paths with an encoded slash, "));
    assert!(migrated.text.contains("`/%41` to `/A`"), "{}", migrated.text);
}
