//! Tells by single lines which gateway a text is for, so that a file given to the wrong command is named in one line and
//! not by the first word that the wrong parser trips over. It parses nothing.

use super::From;

/// The gateway that a text looks to be for, unless it also looks to be for the one that was asked for.
pub(super) fn other_than(asked: From, text: &str) -> Option<From> {
    match is_for(asked, text) {
        true => None,
        false => ALL.into_iter().find(|other| is_for(*other, text)),
    }
}

fn is_for(gateway: From, text: &str) -> bool {
    match gateway {
        From::Nginx => text.lines().any(|line| NGINX.contains(&first_word(line)) && line.contains('{')),
        From::Haproxy => text.lines().any(|line| {
            HAPROXY.contains(&first_word(line)) && !line.contains(['{', ';']) && !line.starts_with(' ')
        }),
        From::Envoy => has_key(text, "static_resources"),
        From::Kong => has_key(text, "_format_version"),
        From::Ratelimit => has_key(text, "domain") && has_key(text, "descriptors"),
    }
}

fn first_word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

/// Whether a line of YAML or JSON begins with this key.
fn has_key(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        let rest = line.trim_start_matches(['{', ' ', '"', '\'']).strip_prefix(name);
        rest.is_some_and(|rest| rest.trim_start_matches(['"', '\'', ' ']).starts_with(':'))
    })
}

const ALL: [From; 5] = [From::Nginx, From::Haproxy, From::Envoy, From::Kong, From::Ratelimit];
const NGINX: [&str; 6] = ["events", "http", "location", "server", "stream", "upstream"];
const HAPROXY: [&str; 5] = ["backend", "defaults", "frontend", "global", "listen"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, migrate_text};

    #[test]
    fn a_file_for_another_gateway_is_told_in_one_line() {
        let texts = [
            (From::Nginx, "events {}\nhttp {\n  upstream a { server a:1; }\n}\n"),
            (From::Haproxy, "global\n  daemon\nfrontend web\n  bind :80\n  acl server path /\n"),
            (From::Envoy, "{ \"static_resources\" : { } }\n"),
            (From::Kong, "_format_version: \"3.0\"\nservices: []\n"),
            (From::Ratelimit, "domain: a\ndescriptors: []\n"),
        ];
        for (from, text) in texts {
            for asked in ALL {
                let refused = match migrate_text(asked, "a.conf", text) {
                    Err(Error::OtherGateway { other, .. }) => Some(other),
                    _ => None,
                };
                assert_eq!(refused, (from != asked).then(|| from.word()), "{text}");
            }
        }
        let said =
            migrate_text(From::Haproxy, "a.conf", texts[0].1).expect_err("it is for nginx").to_string();
        let expected =
            "a.conf looks like a file for `nginx`, not for `haproxy`: run `sluicegate migrate nginx a.conf`";
        assert_eq!(said, expected);
        assert_eq!(other_than(From::Nginx, "location_zone on;\n"), None, "it may be a part of any file");
    }
}
