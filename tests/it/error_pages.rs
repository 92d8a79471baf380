//! Own bodies for the errors that the gateway answers itself, from files.

use std::fs;

use crate::support::gateway::{binary, complete};
use crate::support::h2::{self, END_HEADERS, END_STREAM, HEADERS};
use crate::support::{Directory, Gateway, Upstream, eventually, stdout_of, text};

const HTML: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8";
const JSON: &str = "Accept: application/json";

/// Pages as an operator writes them, in this directory.
fn pages(directory: &Directory) {
    directory.write(
        "404.html",
        "<style>h1 { color: red }</style><h1>Nothing at {path}</h1><p>{host}, {request_id}, {{path}}</p>",
    );
    directory.write("sorry.html", "<h1>Back soon</h1>");
    directory.write("sorry.json", "{\"sorry\": true, \"path\": \"{path}\"}");
    directory.write("429.txt", "slow down, {ip}");
}

const ERRORS: &str =
    "[errors]\n404 = \"404.html\"\n\"5xx\" = [\"sorry.html\", \"sorry.json\"]\n429 = \"429.txt\"\n";

fn start(routes: &str) -> Gateway {
    let directory = Directory::new();
    pages(&directory);
    Gateway::start_in(directory, &format!("{ERRORS}{routes}"))
}

#[test]
fn a_file_takes_the_place_of_the_body_of_its_kind() {
    let upstream = Upstream::answering("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nmine");
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let gone_at = gone.local_addr().expect("it is bound");
    drop(gone);
    let gateway = start(&format!(
        "[[route]]\npath = \"/up\"\nto = \"http://{}\"\n[[route]]\npath = \"/gone\"\nto = \"http://{gone_at}\"\n\
         [[route]]\npath = \"/limited\"\nlimit = \"1/h by ip\"\nrespond = {{ status = 200 }}\n",
        upstream.addr()
    ));
    let ask = |method: &str, path: &str, accept: &str| {
        gateway.client().request(method, path, &[accept, "Host: shop.example"], "")
    };
    let page = ask("GET", "/a&b'c", HTML);
    assert_eq!((page.status, page.header("content-type")), (404, Some("text/html; charset=utf-8")));
    let id = page.header("x-request-id").expect("every answer has one").to_owned();
    let expected = format!(
        "<style>h1 {{ color: red }}</style><h1>Nothing at /a&amp;b&#39;c</h1><p>shop.example, {id}, {{path}}</p>"
    );
    assert_eq!(page.text(), expected);
    assert_eq!(page.header("cache-control"), Some("no-store"));
    // A program is told as before, and so is who wants text: there is no file of that kind.
    let problem = ask("GET", "/x", JSON);
    assert_eq!(
        (problem.json()["reason"].as_str(), problem.json()["status"].as_u64()),
        (Some("no-route"), Some(404))
    );
    assert!(ask("GET", "/x", "Accept: text/plain").text().starts_with("404 Not Found"));
    // A class, in both kinds.
    assert_eq!(ask("GET", "/gone", HTML).text(), "<h1>Back soon</h1>");
    let json = ask("GET", "/gone", JSON);
    assert_eq!((json.status, json.header("content-type")), (502, Some("application/json")));
    assert_eq!(json.text(), "{\"sorry\": true, \"path\": \"/gone\"}");
    // What belongs to the answer stays beside it.
    assert_eq!(ask("GET", "/limited", HTML).status, 200);
    let limited = ask("GET", "/limited", "Accept: text/plain");
    assert_eq!((limited.status, limited.text().as_str()), (429, "slow down, 127.0.0.1"));
    assert!(limited.header("retry-after").is_some() && limited.header("x-ratelimit-limit").is_some());
    assert_eq!(ask("GET", "/up", HTML).text(), "mine", "an upstream's own answer passes");
}

#[test]
fn head_http_2_and_grpc_have_their_own_ways() {
    let gateway = start("");
    let url = format!("http://{}/x", gateway.plain());
    let head = stdout_of("curl", &["-sI", "-H", HTML, &url]);
    let page = stdout_of("curl", &["-s", "--http2-prior-knowledge", "-H", HTML, &url]);
    assert!(page.starts_with("<style>") && page.contains("Nothing at /x"), "{page}");
    let length = head
        .to_lowercase()
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    // The id of a request is as long in each.
    assert_eq!(length, Some(page.len()), "{head}");
    let mut connection = h2::Connection::open(gateway.plain());
    let call = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/a.B/C"),
        ("content-type", "application/grpc"),
        ("accept", "text/html"),
    ];
    connection.send(HEADERS, END_HEADERS | END_STREAM, 1, &h2::fields(&call));
    assert_eq!(connection.until(HEADERS).flags & END_STREAM, END_STREAM, "a call's answer has no body");
}

#[test]
fn a_page_is_read_again_when_its_file_changes_and_stays_while_it_is_broken() {
    let gateway = start("");
    let ask = || gateway.client().request("GET", "/x", &[HTML], "").text();
    assert!(ask().contains("Nothing"));
    gateway.write("404.html", "<h1>Moved</h1>");
    eventually("the new page", || (ask() == "<h1>Moved</h1>").then_some(()));
    gateway.write("404.html", "x".repeat(300 * 1024));
    eventually("it is said", || {
        let is_said =
            |line: &String| line.contains("changed error pages cannot be used") && line.contains("256 KiB");
        gateway.stderr().iter().any(is_said).then_some(())
    });
    assert_eq!(ask(), "<h1>Moved</h1>");
    // Who opens a pipe waits for its writer, and nothing else would be read again until then.
    let file = gateway.file("404.html");
    fs::remove_file(&file).expect("it is there");
    stdout_of("mkfifo", &[&file.display().to_string()]);
    eventually("it is said of a pipe, too", || {
        let is_said = |line: &String| {
            line.contains("error pages cannot be used") && line.contains("not a regular file")
        };
        gateway.stderr().iter().any(is_said).then_some(())
    });
    assert_eq!(ask(), "<h1>Moved</h1>");
    fs::remove_file(&file).expect("it is there");
    gateway.write("404.html", "<h1>Again</h1>");
    eventually("it is mended", || (ask() == "<h1>Again</h1>").then_some(()));
    gateway.reload("");
    assert!(!ask().contains("Again"));
}

#[test]
fn check_says_what_is_wrong_with_them() {
    for (errors, said) in [
        ("404 = \"none.html\"", "none.html: No such file"),
        ("404 = \"page.pdf\"", "`page.pdf` does not end in `.html`, `.json` or `.txt`"),
        ("200 = \"404.html\"", "`200` is not an error status"),
        ("nine = \"404.html\"", "`nine` is not an error status"),
        ("404 = [\"404.html\", \"sorry.html\"]", "`sorry.html` is the second file of its type for `404`"),
        ("404 = \"wrong.html\"", "`id` does not exist here; write one of ip, host"),
        ("404 = \"binary.txt\"", "an error page is text in UTF-8"),
    ] {
        let directory = Directory::new();
        pages(&directory);
        directory.write("wrong.html", "<p>{id}</p>");
        directory.write("binary.txt", [0xff, 0xfe]);
        let file = directory.write("gateway.toml", complete(&format!("[errors]\n{errors}\n"), &directory));
        let output = binary().args(["check", "--config"]).arg(file).output().expect("it can be started");
        let shown = text(&output.stderr) + &text(&output.stdout);
        assert!(!output.status.success() && shown.contains(said), "{errors}: {shown}");
    }
}
