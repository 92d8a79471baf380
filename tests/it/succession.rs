//! Upgrades that meet something else: a successor that hangs, another upgrade, a drain; and whose the files of Unix sockets
//! are then.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use crate::support::redis::free_port;
use crate::support::upgraded::{Upgraded, is_running};
use crate::support::upstream::receive;
use crate::support::{Client, Directory, Gateway, Upstream, eventually, get, run, signal, stdout_of, text};

const OK: &str = "[[route]]\npath = \"/{*rest}\"\nrespond = { status = 200, body = \"ok\" }\n";

/// The process id that a script has written to this file.
fn written(path: &Path) -> u32 {
    eventually("the script runs", || fs::read_to_string(path).ok()?.trim().parse().ok())
}

#[test]
fn a_successor_that_hangs_is_ended_and_the_next_upgrade_works() {
    let shutdown = "[shutdown]\nready-delay = \"0s\"\ndrain = \"5s\"\nupgrade = \"1s\"\n";
    let mut upgraded = Upgraded::start(&format!("{shutdown}{OK}"));
    let plain = upgraded.gateway.plain();
    let good = fs::read(upgraded.binary()).expect("it is there");
    let mark = upgraded.gateway.file("hung");
    // It starts, says something, and neither reads what it is given nor ends, not even when it is asked to.
    let script = format!(
        "#!/bin/sh\ntrap '' TERM HUP INT\necho waiting for a disk >&2\necho $$ > {0}.half && mv {0}.half {0}\nexec sleep 600\n",
        mark.display()
    );
    upgraded.replace_binary(script.as_bytes());
    signal(upgraded.pid, "USR2");
    let hung = written(&mark);
    assert_eq!(get(plain, "/").status, 200, "it is served meanwhile");
    let line = upgraded.says("not upgraded, this process continues to serve");
    assert!(
        line.ends_with("gateway was stopped, because it was not ready within 1s: waiting for a disk"),
        "{line}"
    );
    assert!(!is_running(hung));
    assert_eq!(get(plain, "/").status, 200);
    upgraded.replace_binary(&good);
    upgraded.upgrade();
    assert_eq!(get(plain, "/").status, 200);
}

#[test]
fn what_a_failed_successor_has_started_ends_with_it() {
    let shutdown = "[shutdown]\nready-delay = \"0s\"\ndrain = \"5s\"\nupgrade = \"2s\"\n";
    let upgraded = Upgraded::start(&format!("{shutdown}{OK}"));
    for (count, end) in ["wait", "exit 3"].into_iter().enumerate() {
        let mark = upgraded.gateway.file(&format!("child{count}"));
        let script =
            format!("#!/bin/sh\nsleep 600 &\necho $! > {0}.half && mv {0}.half {0}\n{end}\n", mark.display());
        upgraded.replace_binary(script.as_bytes());
        signal(upgraded.pid, "USR2");
        let child = written(&mark);
        eventually("it serves on", || {
            (upgraded.count("not upgraded, this process continues to serve") > count).then_some(())
        });
        eventually("its child has ended, too", || (!is_running(child)).then_some(()));
    }
    assert_eq!(upgraded.count("gateway ended with exit status: 3"), 1, "{:?}", upgraded.gateway.stderr());
}

#[test]
fn a_successor_that_serves_is_in_the_group_of_its_predecessor() {
    let group = |pid: u32| stdout_of("ps", &["-o", "pgid=", "-p", &pid.to_string()]).trim().to_owned();
    let mut upgraded = Upgraded::start(OK);
    let before = group(upgraded.pid);
    let successor = upgraded.upgrade();
    // A terminal sends its Ctrl-C to the group.
    eventually("it has come back", || (group(successor) == before).then_some(()));
}

#[test]
fn a_stop_ends_a_successor_that_does_not_serve_yet() {
    let mut upgraded = Upgraded::start(OK);
    let mark = upgraded.gateway.file("hung");
    let script =
        format!("#!/bin/sh\necho $$ > {0}.half && mv {0}.half {0}\nexec sleep 600\n", mark.display());
    upgraded.replace_binary(script.as_bytes());
    signal(upgraded.pid, "USR2");
    let hung = written(&mark);
    signal(upgraded.pid, "TERM");
    assert_eq!(upgraded.gateway.wait().code(), Some(0));
    eventually("the successor has ended too", || (!is_running(hung)).then_some(()));
}

#[test]
fn an_upgrade_follows_another_while_the_first_process_drains() {
    let (release, released) = mpsc::channel();
    let released = Mutex::new(released);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            counted.fetch_add(1, Ordering::Relaxed);
            released.lock().expect("nobody panics with it").recv().ok();
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
            peer.rest();
        }
    });
    let mut upgraded = Upgraded::start(&format!(
        "[shutdown]\nready-delay = \"0s\"\ndrain = \"60s\"\n[[route]]\npath = \"/held\"\nto = \"http://{}\"\n{OK}",
        upstream.addr()
    ));
    let plain = upgraded.gateway.plain();
    let mut held = Vec::new();
    let mut draining = Vec::new();
    for count in 1..=2 {
        let mut client = Client::connect(plain);
        client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the request is at the upstream", || {
            (asked.load(Ordering::Relaxed) == count).then_some(())
        });
        held.push(client);
        draining.push(upgraded.pid);
        upgraded.upgrade();
        assert_eq!(get(plain, "/").status, 200);
    }
    assert!(draining.iter().all(|pid| is_running(*pid)), "each finishes what it has begun");
    // One that drains has a successor already.
    signal(draining[0], "USR2");
    upgraded.says("SIGUSR2 is ignored: this process is already draining");
    // As a service manager stops all processes of a service at once: the first such signal cuts nothing.
    signal(draining[0], "TERM");
    upgraded.says("already draining: a second signal stops the process at once");
    for client in &mut held {
        release.send(()).expect("the upstream waits for it");
        assert_eq!(client.response().text(), "done");
    }
    drop(held);
    eventually("both end", || draining.iter().all(|pid| !is_running(*pid)).then_some(()));
    assert_eq!(get(plain, "/").status, 200);
}

/// What `sluicegate upgrade` does with this configuration: its exit code and all that it says.
fn asked(directory: &Directory, config: &str, more: &[&str]) -> (Option<i32>, String) {
    let file = directory.write("asked.toml", config).display().to_string();
    let output = run(env!("CARGO_BIN_EXE_sluicegate"), &[&["upgrade", "--config", &file], more].concat());
    (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

#[test]
fn what_is_not_a_gateway_is_not_signalled() {
    let directory = Directory::new();
    let mut foreign = Command::new("python3")
        .args(["-u", "-c", LISTEN])
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    let mut port = String::new();
    BufReader::new(foreign.stdout.take().expect("it is piped"))
        .read_line(&mut port)
        .expect("it says its port");
    let (pid, at) = (foreign.id().to_string(), format!("bind = \"127.0.0.1:{}\"\n", port.trim()));
    for listeners in [
        format!("admin = false\n[listener.a]\n{at}"),
        format!("[admin]\n{at}[listener.a]\nbind = \"127.0.0.1:0\"\n"),
    ] {
        let (code, said) = asked(&directory, &format!("{listeners}{OK}"), &[]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&format!("process {pid} (python3) is not a gateway: it runs ")), "{said}");
    }
    let (code, said) = asked(&directory, OK, &["--pid", &pid]);
    assert!(code == Some(1) && said.contains(&format!("process {pid} is not a gateway: it runs ")), "{said}");
    for (pid, why) in [("1", "process 1 "), ("4194304", "does not exist"), ("0", "does not exist")] {
        let (code, said) = asked(&directory, OK, &["--pid", pid]);
        assert!(code == Some(1) && said.contains(why), "{said}");
    }
    assert!(foreign.try_wait().expect("it is a child of ours").is_none(), "it lives on");
    foreign.kill().expect("it is a child of ours");
    foreign.wait().expect("it is a child of ours");
}

/// A program that listens and does not expect SIGUSR2.
const LISTEN: &str = "\
import socket, time
opened = socket.create_server(('127.0.0.1', 0))
print(opened.getsockname()[1])
time.sleep(600)
";

/// What an activator does that keeps the sockets it has opened, as systemd does.
const KEEP: &str = r#"
import os, socket, subprocess, sys
opened = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
os.dup2(opened.fileno(), 3)
start = 'LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=plain exec "$@"'
print(subprocess.Popen(["sh", "-c", start, "sh"] + sys.argv[2:], pass_fds=[3]).wait(), file=sys.stderr)
"#;

#[test]
fn of_those_that_hold_a_socket_the_gateway_is_asked() {
    let directory = Directory::new();
    let port = free_port();
    let mut command = Command::new("python3");
    command.args(["-c", KEEP, &port.to_string(), env!("CARGO_BIN_EXE_sluicegate")]);
    let config = format!("admin = false\n[listener.plain]\nbind = \"127.0.0.1:{port}\"\n{OK}");
    let mut gateway = Gateway::start_by(command, Directory::new(), &config);
    let (code, said) = asked(&directory, &config, &[]);
    assert_eq!(code, Some(0), "{said}");
    let pids: Vec<u32> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(gateway.is_running(), "the activator lives on");
    for pid in pids.into_iter().filter(|pid| is_running(*pid)) {
        signal(pid, "KILL");
    }
}

#[test]
fn the_command_finds_who_serves_while_another_drains_also_on_unix_sockets_alone() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            peer.rest();
        }
    });
    let directory = Directory::new();
    let path = |name: &str| directory.join(name);
    let (edge, admin) = (path("edge.sock"), path("admin.sock"));
    let config = format!(
        "[shutdown]\nready-delay = \"0s\"\ndrain = \"60s\"\n[listener.plain]\nbind = \"127.0.0.1:0\"\n[listener.edge]\n\
         bind = \"unix:{}\"\n[admin]\nbind = \"unix:{}\"\n[[route]]\npath = \"/held\"\nto = \"http://{}\"\n{OK}",
        edge.display(),
        admin.display(),
        upstream.addr()
    );
    let asking = Directory::new();
    let mut upgraded = Upgraded::start_in(directory, &config);
    let mut held = Client::over(UnixStream::connect(&edge).expect("somebody listens there"));
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request is at the upstream", || (upstream.connections() > 0).then_some(()));
    let first = upgraded.pid;
    for _ in 0..3 {
        let (code, said) = asked(&asking, &config, &[]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.ends_with(&format!(" serves, process {} drains\n", upgraded.pid)), "{said}");
        upgraded.pid =
            said.split(' ').nth(1).and_then(|pid| pid.parse().ok()).expect("it names the successor");
        upgraded.successors.push(upgraded.pid);
        assert!(is_running(first), "it drains");
        assert_eq!((asks(&edge, "/"), asks(&admin, "/readyz")), (200, 200));
    }
}

/// A listener and an admin listener on sockets of this directory.
fn on_sockets(directory: &Directory) -> String {
    let path = |name: &str| directory.join(name).display().to_string();
    format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\n[listener.edge]\nbind = \"unix:{}\"\n[admin]\nbind = \"unix:{}\"\n{OK}",
        path("edge.sock"),
        path("admin.sock")
    )
}

fn asks(path: &Path, target: &str) -> u16 {
    Client::over(UnixStream::connect(path).expect("somebody listens there")).get(target).status
}

#[test]
fn the_files_of_unix_sockets_go_with_the_last_process_that_has_them() {
    let directory = Directory::new();
    let (edge, admin) = (directory.join("edge.sock"), directory.join("admin.sock"));
    let config = on_sockets(&directory);
    let mut upgraded = Upgraded::start_in(directory, &config);
    for _ in 0..2 {
        let before = upgraded.pid;
        upgraded.upgrade();
        eventually("the old process ends", || (!is_running(before)).then_some(()));
        assert_eq!((asks(&edge, "/"), asks(&admin, "/readyz")), (200, 200));
    }
    signal(upgraded.pid, "TERM");
    eventually("the last one ends", || (!is_running(upgraded.pid)).then_some(()));
    assert!(!edge.exists() && !admin.exists(), "nobody listens there");
}

#[test]
fn an_upgrade_without_a_listener_takes_the_file_of_its_unix_socket_away() {
    let directory = Directory::new();
    let (edge, admin) = (directory.join("edge.sock"), directory.join("admin.sock"));
    let config = on_sockets(&directory);
    let mut upgraded = Upgraded::start_in(directory, &config);
    assert_eq!((asks(&edge, "/"), asks(&admin, "/readyz")), (200, 200));
    let old = upgraded.pid;
    let without = format!("admin = false\n[listener.plain]\nbind = \"127.0.0.1:0\"\n{OK}");
    upgraded.gateway.write("gateway.toml", without);
    upgraded.upgrade();
    eventually("the old process ends", || (!is_running(old)).then_some(()));
    assert!(!edge.exists() && !admin.exists(), "nobody listens there");
}

#[test]
fn a_successor_that_fails_leaves_the_files_of_unix_sockets() {
    let directory = Directory::new();
    let (edge, admin) = (directory.join("edge.sock"), directory.join("admin.sock"));
    let config = on_sockets(&directory);
    let mut upgraded = Upgraded::start_in(directory, &config);
    // It has taken the sockets over by the time it finds that it cannot listen here.
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let taken_at = taken.local_addr().expect("it is bound");
    let good = fs::read(upgraded.gateway.file("gateway.toml")).expect("it is there");
    let new = format!("[listener.new]\nbind = \"{taken_at}\"\n");
    for (count, bad) in
        [format!("{new}{config}"), format!("admin = false\n{new}{OK}")].into_iter().enumerate()
    {
        upgraded.gateway.write("gateway.toml", bad);
        signal(upgraded.pid, "USR2");
        eventually("it serves on", || {
            (upgraded.count("not upgraded, this process continues to serve") > count).then_some(())
        });
        assert_eq!((asks(&edge, "/"), asks(&admin, "/readyz")), (200, 200));
    }
    upgraded.gateway.write("gateway.toml", good);
    upgraded.upgrade();
    assert_eq!((asks(&edge, "/"), asks(&admin, "/readyz")), (200, 200));
}

/// What systemd does for a service whose admin listener is a Unix socket.
const ACTIVATE: &str = r#"
import fcntl, os, socket, sys
opened = socket.socket(socket.AF_UNIX)
opened.bind(sys.argv[1])
opened.listen(64)
high = fcntl.fcntl(opened.fileno(), fcntl.F_DUPFD_CLOEXEC, 100)
os.dup2(high, 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="admin")
os.execv(sys.argv[2], sys.argv[2:])
"#;

#[test]
fn the_file_of_an_admin_socket_of_systemd_stays() {
    let directory = Directory::new();
    let admin = directory.join("admin.sock");
    let mut command = Command::new("python3");
    command.args(["-c", ACTIVATE]).arg(&admin).arg(env!("CARGO_BIN_EXE_sluicegate"));
    let config = on_sockets(&directory);
    let mut gateway = Gateway::start_by(command, directory, &config);
    assert_eq!(asks(&admin, "/readyz"), 200);
    gateway.signal("TERM");
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(admin.exists(), "systemd listens there");
}
