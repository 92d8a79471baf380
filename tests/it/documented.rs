//! Every block of code in a document is run, checked or compared with what there is, or says why it is not.
//!
//! The word behind a fence says what is done with the block; one that nobody knows fails here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::documents::{ADMIN_TOKEN, Block, blocks, check, completed, documents};
use crate::support::gateway::binary;
use crate::support::tls::certify;
use crate::support::{Directory, Gateway, eventually, text};

/// What stands behind a fence, and what is done with such a block.
const KINDS: &[(&str, &str)] = &[
    ("toml", "passes `check`, also by the schema"),
    ("toml files", "the same, beside a file of keys"),
    ("toml key-file", "the same, as a file of keys"),
    ("toml user-file", "the same, as a file of users"),
    ("toml wrong", "gives the errors that are shown"),
    ("text errors", "are those errors"),
    ("sh", "runs beside the configuration that was shown last"),
    ("sh gateway", "runs against a gateway of that configuration"),
    ("sh gateway own", "runs against a gateway of the checked-in gateway.toml"),
    ("text said", "is what the commands before it printed"),
    ("http said", "is the answer that the commands before it printed, but for times and numbers of its own"),
    ("text log", "is the access log that the commands read"),
    ("text started", "is what a start of the checked-in gateway.toml prints"),
    ("text suites", "are cipher suites that a listener takes"),
    ("nginx", "becomes the configuration below it"),
    ("haproxy", "becomes the configuration below it"),
    ("yaml rls", "is what the Envoys of tests/it/envoy_proxies.rs run"),
    ("yaml envoy", "becomes the configuration below it"),
    ("yaml kong", "becomes the configuration below it"),
    ("yaml ratelimit", "becomes the configuration below it"),
    ("yaml traefik", "does what the configuration below it does"),
];

#[test]
fn every_block_has_somebody_who_checks_it() {
    let mut wrong = Vec::new();
    for (name, document) in documents() {
        for block in blocks(&name, &document) {
            let is_known = KINDS.iter().any(|(kind, _)| *kind == block.kind);
            let has_reason = block.kind.split_once(" unchecked: ").is_some_and(|(_, why)| why.len() > 10);
            if !is_known && !has_reason {
                wrong.push(format!("{}: nobody checks `{}`", block.place, block.kind));
            }
        }
        wrong.extend(
            indented(&document)
                .into_iter()
                .map(|line| format!("{name}:{line}: a block without a fence: nobody checks it")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The lines in which blocks begin that are indented, which Markdown takes for code, too.
fn indented(document: &str) -> Vec<usize> {
    let (mut found, mut is_fenced, mut before) = (Vec::new(), false, "");
    for (index, line) in document.lines().enumerate() {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced && line.starts_with("    ") && before.trim().is_empty() {
            found.push(index + 1);
        }
        before = line;
    }
    found
}

#[test]
fn blocks_without_a_fence_are_found() {
    let document = "a\n\n    code\n    more\n\n- item\n    of the item\n```sh\n\n    fenced\n```\n";
    assert_eq!(indented(document), [3]);
}

/// A directory in which the commands of a document run: the files that it shows of other gateways, a certificate.
fn place_of_commands(name: &str, document: &str) -> Directory {
    let directory = Directory::new();
    fs::create_dir_all(directory.join("certs")).expect("the target directory is writable");
    certify(&directory, "certs/api", &["api.example.com"]);
    for block in blocks(name, document) {
        let file = match block.kind {
            "text log" => "access.log",
            "nginx" => "nginx.conf",
            "haproxy" => "haproxy.cfg",
            "yaml envoy" => "envoy.yaml",
            "yaml kong" => "kong.yml",
            "yaml ratelimit" => "ratelimit.yaml",
            _ => continue,
        };
        directory.write(file, block.text);
    }
    directory
}

/// The configuration that commands are about: the whole one that was shown last, or the next one.
fn around(blocks: &[Block<'_>], at: usize, directory: &Directory) -> String {
    let is_whole =
        |block: &&Block<'_>| matches!(block.kind, "toml" | "toml files") && block.text.contains("[[route]]");
    let around = blocks[..at].iter().rev().find(is_whole).or_else(|| blocks[at..].iter().find(is_whole));
    let none = || "[[route]]\npath = \"/\"\nto = \"echo\"\n".to_owned();
    around.map_or_else(none, |block| completed(block, directory))
}

/// What commands print. They find the binary under test in their path.
fn run(block: &Block<'_>, commands: &str, folder: PathBuf) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_sluicegate")).parent().expect("it is in a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    // `migrate` ends with 3 where it lists what differs, which is no failure.
    let lines = commands.lines().map(|line| match line.starts_with("sluicegate migrate ") {
        true => format!("{line} || [ $? = 3 ]\n"),
        false => format!("{line}\n"),
    });
    let commands = &lines.collect::<String>();
    let mut shell = Command::new("sh");
    let output = shell.args(["-euc", commands]).current_dir(folder).env("PATH", &path).output();
    let output = output.expect("there is a shell");
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {commands}\n{said}", block.place);
    text(&output.stdout)
}

/// What commands print that are for a gateway of this configuration. The addresses that a gateway has without any
/// listener are replaced by those of this one. Commands have the token in their environment if the gateway asks for it.
fn run_against(block: &Block<'_>, config: &str) -> String {
    const VARIABLE: &str = "${SLUICEGATE_TOKEN}";
    let directory = Directory::new();
    let folder = directory.join("");
    let socket = format!("bind = \"unix:{}\"", directory.join("admin.sock").display());
    let export = match config.contains(VARIABLE) {
        true => format!("export SLUICEGATE_TOKEN={ADMIN_TOKEN}\n"),
        false => String::new(),
    };
    let config = config.replace("[admin]\nbind = \"127.0.0.1:0\"", "[admin]").replace(VARIABLE, ADMIN_TOKEN);
    let config = match config.contains("[admin]\n") {
        true => config.replace("[admin]\n", &format!("[admin]\n{socket}\n")),
        false => format!("{config}\n[admin]\n{socket}\n"),
    };
    let gateway = Gateway::start_in(directory, &config);
    let commands = format!("{export}{}", block.text);
    let commands = commands.replace("127.0.0.1:8080", &gateway.plain().to_string());
    let commands = commands.replace("http://127.0.0.1:9900", "--unix-socket admin.sock http://localhost");
    let said = run(block, &commands, folder);
    said.replace(&gateway.plain().to_string(), "127.0.0.1:8080")
}

#[test]
fn every_command_that_is_shown_runs_and_prints_what_is_shown() {
    let (mut ran, mut compared, mut wrong) = (0, 0, Vec::new());
    for (name, document) in documents() {
        let blocks = blocks(&name, &document);
        let directory = place_of_commands(&name, &document);
        let mut said = None;
        for (at, block) in blocks.iter().enumerate() {
            match block.kind {
                "sh" => {
                    directory.write("gateway.toml", around(&blocks, at, &directory));
                    said = Some(run(block, block.text, directory.join("")));
                }
                "sh gateway own" => said = Some(run_against(block, &own_config())),
                "sh gateway" => said = Some(run_against(block, &around(&blocks, at, &directory))),
                "text said" | "http said" => {
                    let said = said.as_deref().expect("commands stand before what they print");
                    let is_http = block.kind == "http said";
                    let (said, shown) = if is_http {
                        (steady(said), steady(block.text))
                    } else {
                        (said.to_owned(), block.text.to_owned())
                    };
                    if !is_shown(&said, &shown) {
                        wrong.push(format!("{} shows\n{shown}\nprinted is\n{said}", block.place));
                    }
                    compared += 1;
                    continue;
                }
                _ => continue,
            }
            ran += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(ran > 5 && compared > 3, "{ran} commands ran, {compared} outputs were compared");
}

/// An answer without what is its own: ids, numbers of seconds, its length and date.
fn steady(answer: &str) -> String {
    let is_own = |line: &&str| !line.starts_with("date: ") && !line.starts_with("content-length: ");
    let mut steady = String::new();
    for line in answer.lines().map(str::trim_end).filter(is_own) {
        let mut rest = line;
        // The status is nobody's own.
        if let Some(behind) = line.strip_prefix("HTTP/") {
            steady.push_str(&format!("HTTP/{behind}\n"));
            continue;
        }
        while let Some(start) = rest.find(|sign: char| sign.is_ascii_hexdigit()) {
            let length =
                rest[start..].find(|sign: char| !sign.is_ascii_hexdigit()).unwrap_or(rest.len() - start);
            let word = &rest[start..start + length];
            steady.push_str(&rest[..start]);
            let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
            steady.push_str(if is_number || length == 32 { "#" } else { word });
            rest = &rest[start + length..];
        }
        steady.push_str(rest);
        steady.push('\n');
    }
    steady
}

/// Whether a text is what is shown, in which `…` stands for anything, on a line of its own for any lines.
fn is_shown(said: &str, shown: &str) -> bool {
    let (said, shown): (Vec<&str>, Vec<&str>) =
        (said.trim_end().lines().collect(), shown.trim_end().lines().collect());
    lines_fit(&said, &shown)
}

fn lines_fit(said: &[&str], shown: &[&str]) -> bool {
    match shown {
        [] => said.is_empty(),
        ["…", shown @ ..] => (0..=said.len()).any(|skipped| lines_fit(&said[skipped..], shown)),
        [first, shown @ ..] => said
            .split_first()
            .is_some_and(|(line, said)| line_fits(line.trim_end(), first) && lines_fit(said, shown)),
    }
}

fn line_fits(said: &str, shown: &str) -> bool {
    let mut pieces = shown.split('…');
    let Some(mut rest) = said.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, between)) = pieces.split_last() else { return rest.is_empty() };
    for piece in between {
        let Some((_, behind)) = rest.split_once(piece) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[test]
fn dots_stand_for_anything_and_numbers_of_an_answer_for_numbers() {
    assert!(is_shown("a\nb 12 c\nd\ne\n", "a\nb … c\n…\ne"));
    assert!(!is_shown("a\nb\n", "a") && !is_shown("a\n", "a\nb") && !is_shown("ab", "a…c"));
    let steadied = "HTTP/1.1 200 OK\nx: #, w=#, face\nid: #\n";
    assert_eq!(
        steady(
            "HTTP/1.1 200 OK\r\nx: 12, w=3, face\r\ndate: now\r\nid: 0123456789abcdef0123456789abcdef\r\n"
        ),
        steadied
    );
}

/// The checked-in gateway.toml, on ports that are free.
fn own_config() -> String {
    let own = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/gateway.toml"));
    ["8080", "8443", "9900"].iter().fold(own.to_owned(), |config, port| {
        config.replace(&format!("bind = \"127.0.0.1:{port}\""), "bind = \"127.0.0.1:0\"")
    })
}

#[test]
fn what_a_start_prints_is_what_is_shown() {
    let mut shown = 0;
    let config = own_config();
    for (name, document) in documents() {
        for block in blocks(&name, &document).iter().filter(|block| block.kind == "text started") {
            let gateway = Gateway::start(&config);
            // It is ready before it has said all of it.
            let said = eventually("the last line is there", || {
                let lines: Vec<String> =
                    gateway.stderr().into_iter().filter(|line| line.starts_with("sluicegate: ")).collect();
                lines.last()?.starts_with("sluicegate: try ").then(|| lines.join("\n"))
            });
            let (said, expected) = (without_ports(&said), without_ports(block.text.trim_end()));
            assert!(is_shown(&said, &expected), "{}: {said}", block.place);
            shown += 1;
        }
    }
    assert!(shown > 0, "no start is shown");
}

#[test]
fn every_request_that_the_table_of_the_readme_shows_is_answered() {
    let readme = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"));
    let gateway = Gateway::start(&own_config());
    let mut asked = 0;
    for row in readme.lines().filter_map(|line| line.strip_prefix("| `curl ")) {
        let mut command = format!("curl -sS {}", row.split('`').next().expect("it has a first piece"));
        for (port, name) in [("8080", "plain"), ("8443", "tls"), ("9900", "admin")] {
            let addr = gateway.listener(name).to_string();
            command = command.replace(&format!("127.0.0.1:{port}"), &addr);
        }
        let output = Command::new("sh").args(["-c", &command]).output().expect("there is a shell");
        let said = text(&output.stdout);
        let is_answer =
            !command.contains(" -i") || said.starts_with("HTTP/1.1 200") || said.starts_with("HTTP/2 200");
        assert!(
            output.status.success() && is_answer && !said.is_empty(),
            "{command}: {said}{}",
            text(&output.stderr)
        );
        asked += 1;
    }
    assert!(asked > 3, "only {asked} requests were found");
}

/// Addresses of this machine without their ports.
fn without_ports(text: &str) -> String {
    let mut pieces = text.split("127.0.0.1:");
    let mut kept = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        kept.push_str("127.0.0.1");
        kept.push_str(piece.trim_start_matches(|sign: char| sign.is_ascii_digit()));
    }
    kept
}

#[test]
fn suites_that_are_shown_are_taken() {
    for (name, document) in documents() {
        for block in blocks(&name, &document).iter().filter(|block| block.kind == "text suites") {
            let suites = block.text.split([',', '\n']).map(str::trim).filter(|suite| !suite.is_empty());
            let suites: Vec<String> = suites.map(|suite| format!("{suite:?}")).collect();
            let directory = Directory::new();
            certify(&directory, "api", &["api.example.com"]);
            let config = format!(
                "[listener.a]\nbind = \"127.0.0.1:0\"\ncerts = [{{ cert = \"api.pem\", key = \"api.key\" }}]\nciphers = [{}]\n\
                 [[route]]\npath = \"/\"\nto = \"echo\"\n",
                suites.join(", ")
            );
            let output = check(&directory, &config);
            assert_eq!(output.status.code(), Some(0), "{}: {}", block.place, text(&output.stderr));
        }
    }
}

#[test]
fn every_command_of_a_table_is_one() {
    let output = binary().arg("--help").output().expect("the binary under test can be started");
    let help = text(&output.stdout);
    let commands = help.split("Commands:").nth(1).expect("it lists commands");
    let lines = || commands.lines().skip(1).take_while(|line| line.starts_with("  "));
    let mut known: Vec<&str> = lines().filter_map(|line| line.split_whitespace().next()).collect();
    known.extend(lines().filter_map(|line| line.split_once("[alias: ")?.1.strip_suffix(']')));
    assert!(known.contains(&"migrate") && known.contains(&"import"), "{known:?}");
    for (name, document) in documents() {
        for piece in document.split("`sluicegate ").skip(1) {
            let word = piece.split([' ', '`', '\n']).next().unwrap_or_default();
            let is_command = known.contains(&word) || word.starts_with('-');
            assert!(is_command, "{name}: `sluicegate {word}` is no command");
        }
    }
}
