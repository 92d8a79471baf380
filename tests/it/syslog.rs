//! The access log as messages of syslog: over Unix sockets and UDP, to a real rsyslog, and to who takes none.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{Directory, Gateway, PATIENCE, end, eventually, text};

fn logging(to: &str, format: &str) -> Gateway {
    let config = format!(
        "[log]\naccess = {{ to = {to}, format = \"{format}\" }}\n[[route]]\npath = \"/{{*rest}}\"\nrespond = {{}}\n"
    );
    Gateway::start(&config)
}

/// Whether a message is one of RFC 5424 with this priority, from this process, and ends so.
fn is_message(message: &str, priority: &str, pid: u32, end: &str) -> bool {
    is_message_of(message, "access", priority, pid, end)
}

fn is_message_of(message: &str, kind: &str, priority: &str, pid: u32, end: &str) -> bool {
    let fields: Vec<&str> = message.splitn(8, ' ').collect();
    matches!(&fields[..], [head, time, _, "sluicegate", process, id, "-", line]
        if *id == kind && *head == format!("<{priority}>1") && time.ends_with('Z') && *process == pid.to_string() && line.ends_with(end))
}

#[test]
fn lines_are_messages_over_udp_and_unix_sockets() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    udp.set_read_timeout(Some(PATIENCE)).expect("a bound");
    let address = udp.local_addr().expect("an address");
    let gateway = logging(&format!("\"udp://{address}\""), "{method} {path} {status}");
    gateway.get("/over-udp");
    let mut room = [0; 9_000];
    let length = udp.recv(&mut room).expect("a message");
    let message = text(&room[..length]);
    assert!(is_message(&message, "134", gateway.pid(), "GET /over-udp 200"), "{message}");

    let directory = Directory::new();
    let path = directory.join("log");
    let unix = UnixDatagram::bind(&path).expect("a socket");
    unix.set_read_timeout(Some(PATIENCE)).expect("a bound");
    let to =
        format!("{{ syslog = \"unix:{}\", facility = \"local7\", severity = \"notice\" }}", path.display());
    let gateway = logging(&to, "combined");
    gateway.get("/over-unix");
    let length = unix.recv(&mut room).expect("a message");
    let message = text(&room[..length]);
    assert!(
        is_message(&message, "189", gateway.pid(), "\"GET /over-unix HTTP/1.1\" 200 0 \"-\" \"-\""),
        "{message}"
    );
}

#[test]
fn decisions_are_messages_too() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    udp.set_read_timeout(Some(PATIENCE)).expect("a bound");
    let address = udp.local_addr().expect("an address");
    let config = format!(
        "[log]\ndecisions = {{ to = {{ syslog = \"udp://{address}\", facility = \"auth\" }} }}\n\
         [policy.p]\nby = [\"ip\"]\nlimit = \"1/h\"\n\
         [[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nrespond = {{}}\n"
    );
    let gateway = Gateway::start(&config);
    assert_eq!([gateway.get("/").status, gateway.get("/").status], [200, 429]);
    let mut room = [0; 9_000];
    let length = udp.recv(&mut room).expect("a message");
    let message = text(&room[..length]);
    assert!(is_message_of(&message, "decision", "38", gateway.pid(), "}"), "{message}");
}

#[test]
fn who_takes_no_messages_costs_lines_and_no_request() {
    let directory = Directory::new();
    let path = directory.join("log");
    let gateway = logging(&format!("\"unix:{}\"", path.display()), "common");
    let counted = |result: &str| {
        gateway.metric("sluicegate_access_log_lines_total", &[&format!("result=\"{result}\"")])
    };
    gateway.get("/nobody");
    eventually("the line is lost", || (counted("dropped") == 1.0).then_some(()));
    // Who is there and reads nothing takes some, and then none.
    let hanging = UnixDatagram::bind(&path).expect("a socket");
    let mut client = gateway.client();
    eventually("lines are lost", || {
        for _ in 0..1_000 {
            assert_eq!(client.get("/hanging").status, 200);
        }
        (counted("dropped") > 100.0).then_some(())
    });
    drop(hanging);
    fs::remove_file(&path).expect("it was there");
    let reader = UnixDatagram::bind(&path).expect("a socket");
    reader.set_read_timeout(Some(Duration::from_millis(200))).expect("a bound");
    let mut room = [0; 9_000];
    eventually("it goes on", || {
        // A line may still find the queue full of those before it.
        gateway.get("/back");
        while let Ok(length) = reader.recv(&mut room) {
            if text(&room[..length]).contains("/back") {
                return Some(());
            }
        }
        None
    });
    eventually("it says so", || {
        gateway.stderr().iter().any(|line| line.contains("access log can be written again")).then_some(())
    });
}

/// A real rsyslog that writes what it understands of each message into a file. It is stopped when the test ends.
struct Rsyslog {
    child: Child,
    directory: Directory,
}

impl Rsyslog {
    fn start() -> Rsyslog {
        let directory = Directory::new();
        let root = directory.join("").display().to_string();
        let config = format!(
            "global(workDirectory=\"{root}\")\n\
             module(load=\"imuxsock\" SysSock.Name=\"{root}log\" SysSock.UseSpecialParser=\"off\" SysSock.RateLimit.Interval=\"0\")\n\
             template(name=\"seen\" type=\"string\" string=\"%syslogfacility-text%.%syslogseverity-text% %protocol-version% %hostname% %app-name% %msgid% %msg%\\n\")\n\
             action(type=\"omfile\" file=\"{root}seen\" template=\"seen\")\n"
        );
        let file = directory.write("rsyslog.conf", config);
        let child = Command::new("rsyslogd")
            .args(["-n", "-f"])
            .arg(&file)
            .arg("-i")
            .arg(directory.join("pid"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("rsyslogd is installed (tests/all does it)");
        let rsyslog = Rsyslog { child, directory };
        eventually("rsyslog listens", || rsyslog.directory.join("log").exists().then_some(()));
        rsyslog
    }
}

impl Drop for Rsyslog {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

#[test]
fn a_real_rsyslog_understands_every_part() {
    let rsyslog = Rsyslog::start();
    let to = format!("\"unix:{}\"", rsyslog.directory.join("log").display());
    let gateway = logging(&to, "{client} {path} {status}");
    gateway.get("/seen?a=b");
    let seen = eventually("rsyslog writes the message", || {
        let seen = fs::read_to_string(rsyslog.directory.join("seen")).unwrap_or_default();
        seen.lines().find(|line| line.contains("/seen")).map(str::to_owned)
    });
    let fields: Vec<&str> = seen.split(' ').collect();
    assert!(
        matches!(
            fields[..],
            ["local0.info", "1", _, "sluicegate", "access", "127.0.0.1", "/seen?a=*", "200"]
        ),
        "{seen}"
    );
}
