//! Listeners on Unix sockets.

use super::{config, each_says};
use net::listening::Bind;

#[test]
fn a_unix_socket_is_read_and_written() {
    let first = config(
        "[listener.a]\nbind = \"unix:/run/a.sock\"\nmode = \"0600\"\nowner = \"www-data\"\ngroup = \"33\"\n\
         proxy-protocol = { from = [\"unix\", \"10.0.0.0/8\"] }\n\
         [listener.b]\nbind = \"unix:/run/b.sock\"\n[client-ip]\ntrust = [\"unix\"]",
    );
    let [a, b] = &first.listeners[..] else { panic!("there are two") };
    assert_eq!((&a.bind, a.rights.mode), (&Bind::Unix("/run/a.sock".into()), 0o600));
    assert_eq!((a.rights.owner.as_deref(), a.rights.group.as_deref()), (Some("www-data"), Some("33")));
    assert_eq!(
        (a.has_unix_proxies, a.proxies.len(), b.has_unix_proxies, b.rights.mode),
        (true, 1, false, 0o660)
    );
    assert!(first.client_ip.trusts_unix && first.client_ip.trust.is_empty());
    let again = config(&first.effective());
    assert_eq!(again, first);
}

#[test]
fn every_mistake_is_told() {
    each_says(&[
        (
            "[listener.a]\nbind = \"unix:run/a.sock\"",
            "`unix:run/a.sock` needs an absolute path",
            "2:8",
            "unix:/run/sluicegate/edge.sock",
        ),
        (
            "[listener.a]\nbind = \"/run/a.sock\"",
            "`/run/a.sock` is not an address to listen on",
            "2:8",
            "write `unix:/run/a.sock`",
        ),
        (
            "[listener.a]\nbind = \"unix:/a\"\n[listener.b]\nbind = \"unix:/a\"",
            "unix:/a is taken by the listener `a`",
            "4:8",
            "here",
        ),
        (
            "[listener.a]\nbind = \"unix:/a\"\n[admin]\nbind = \"unix:/a\"",
            "unix:/a is taken by the admin listener",
            "2:8",
            "choose another",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:80\"\nmode = \"0600\"",
            "`mode` needs a Unix socket in `bind`",
            "3:1",
            "leave it out",
        ),
        (
            "[listener.a]\nbind = \"unix:rel.sock\"\nmode = \"0660\"",
            "`unix:rel.sock` needs an absolute path",
            "2:8",
            "",
        ),
        ("[listener.a]\nbind = \"unix:/a\"\nmode = \"rw\"", "`rw` is not a file mode", "3:8", "`0660`"),
        ("[listener.a]\nbind = \"unix:/a\"\nmode = \"4755\"", "`4755` is not a file mode", "3:8", "`0660`"),
    ]);
}
