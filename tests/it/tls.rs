//! TLS at a listener: which certificate, which versions, resumption, and files that change.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::HandshakeKind;

use crate::support::{Client, Directory, Gateway, eventually, run, tls};

/// A listener `tls` with these pairs, in order; every route answers `ok`.
fn config(directory: &Directory, pairs: &[&str]) -> String {
    let pairs: Vec<String> = pairs
        .iter()
        .map(|name| {
            let file = directory.join(name).display().to_string();
            format!("{{ cert = \"{file}.pem\", key = \"{file}.key\" }}")
        })
        .collect();
    format!(
        "[listener.tls]\nbind = \"127.0.0.1:0\"\ncerts = [{}]\n\
         [[route]]\npath = \"/{{*rest}}\"\nrespond = {{ status = 200, body = \"ok\" }}\n",
        pairs.join(", ")
    )
}

/// A gateway with one certificate, for localhost.
fn localhost() -> Gateway {
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let text = config(&directory, &["a"]);
    Gateway::start_in(directory, &text)
}

#[test]
fn the_certificate_is_chosen_by_the_name_the_client_asks_for() {
    let directory = Directory::new();
    let first = tls::certify(&directory, "first", &["first.example.com"]);
    let exact = tls::certify(&directory, "exact", &["api.example.com"]);
    let wild = tls::certify(&directory, "wild", &["*.example.com"]);
    let text = config(&directory, &["first", "wild", "exact"]);
    let gateway = Gateway::start_in(directory, &text);
    for (host, expected) in [
        ("first.example.com", &first),
        ("api.example.com", &exact),
        ("API.example.com", &exact),
        ("www.example.com", &wild),
        ("deep.www.example.com", &first),
        ("example.com", &first),
        ("elsewhere.org", &first),
        ("127.0.0.1", &first),
    ] {
        assert!(tls::presented(gateway.listener("tls"), host) == *expected, "{host}");
    }
}

#[test]
fn of_two_types_of_keys_for_one_name_a_client_gets_the_one_that_it_can_check() {
    let directory = Directory::new();
    let rsa = tls::certify_by(&directory, "rsa", &rcgen::PKCS_RSA_SHA256, &["a.test"]);
    let ecdsa = tls::certify_by(&directory, "ecdsa", &rcgen::PKCS_ECDSA_P256_SHA256, &["a.test"]);
    let text = config(&directory, &["rsa", "ecdsa"]);
    let gateway = Gateway::start_in(directory, &text);
    let addr = gateway.listener("tls").to_string();
    let subject = |offered: &[&str]| {
        let always = ["s_client", "-connect", &addr, "-servername", "a.test"];
        let output = run("openssl", &[&always, offered].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let pem = said.split_once("-----BEGIN CERTIFICATE-----\n")?.1;
        Some(pem.split_once("\n-----END")?.0.replace('\n', ""))
    };
    let text_of = |der: &[u8]| Some(STANDARD.encode(der));
    for (offered, expected) in [
        (&[][..], text_of(&ecdsa)),
        (&["-tls1_2"], text_of(&ecdsa)),
        (&["-sigalgs", "RSA-PSS+SHA256"], text_of(&rsa)),
        (&["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"], text_of(&rsa)),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], text_of(&ecdsa)),
        (&["-sigalgs", "ed448"], None),
    ] {
        assert_eq!(subject(offered), expected, "{offered:?}");
    }
}

#[test]
fn the_access_log_tells_the_name_in_the_hello() {
    let gateway = localhost();
    for (host, logged) in [("api.example.com", Some("api.example.com")), ("127.0.0.1", None)] {
        let stream = tls::connect(gateway.listener("tls"), host, &[]).expect("it is spoken");
        let field = format!("Host: {host}");
        assert_eq!(Client::over(stream).request("GET", &format!("/{host}"), &[&field], "").status, 200);
        assert_eq!(gateway.logged(&format!("/{host}"))["sni"].as_str(), logged);
    }
}

#[test]
fn only_tls_1_2_and_1_3_are_spoken() {
    let gateway = localhost();
    let addr = gateway.listener("tls");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut client = Client::over(
            tls::resume(addr, "localhost", &tls::session(&[], &[version])).expect("it is spoken"),
        );
        assert_eq!(client.get("/").text(), "ok");
    }
    let url = format!("https://{addr}/");
    for (version, works) in [("1.0", false), ("1.1", false), ("1.2", true), ("1.3", true)] {
        let least = format!("--tlsv{version}");
        // Security level 0 lets curl itself offer the old versions.
        let arguments = ["-sSk", &least, "--tls-max", version, "--ciphers", "DEFAULT@SECLEVEL=0", &url];
        assert_eq!(run("curl", &arguments).status.success(), works, "{version}");
    }
}

/// What openssl and the listener agree on when it offers this and nothing else: the protocol and cipher, and the group
/// of the key exchange; `None` where they agree on nothing.
fn agreed(addr: std::net::SocketAddr, offered: &[&str]) -> Option<String> {
    let connect = addr.to_string();
    let arguments = [&["s_client", "-connect", &connect], offered].concat();
    let output = run("openssl", &arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |begin: &str| said.lines().find(|line| line.starts_with(begin)).map(str::to_owned);
    // A cipher may be named although the handshake came to nothing later.
    let cipher = line("New, ").filter(|line| output.status.success() && !line.contains("(NONE)"))?;
    Some(format!("{cipher} {}", line("Server Temp Key: ").unwrap_or_default()))
}

#[test]
fn only_ciphers_and_groups_without_a_doubt_are_agreed_on_and_in_our_order() {
    let gateway = localhost();
    let addr = gateway.listener("tls");
    // All there are at level 0, but for those with a fresh key and an authenticated cipher.
    for offered in [
        "ALL:COMPLEMENTOFALL:-kECDHE:@SECLEVEL=0",
        "ALL:COMPLEMENTOFALL:-AESGCM:-CHACHA20:@SECLEVEL=0",
        "AECDH:ADH:@SECLEVEL=0",
    ] {
        assert_eq!(agreed(addr, &["-tls1_2", "-cipher", offered]), None, "{offered}");
    }
    for groups in ["P-521", "secp224r1", "sect283r1", "ffdhe2048", "X448"] {
        for version in ["-tls1_2", "-tls1_3"] {
            assert_eq!(agreed(addr, &[version, "-groups", groups]), None, "{groups} {version}");
        }
    }
    for (offered, expected) in [
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], "ECDHE-ECDSA-AES128-GCM-SHA256"),
        (&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384"], "AES256"),
        (&["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], "TLS_CHACHA20_POLY1305_SHA256"),
        (&["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384"], "AES_256"),
        (&["-tls1_3", "-groups", "P-384"], "secp384r1"),
        (&["-tls1_2", "-groups", "X25519:P-256"], "X25519"),
    ] {
        let said = agreed(addr, offered).unwrap_or_default();
        assert!(said.contains(expected), "{offered:?}: {said}");
    }
    assert_eq!(agreed(addr, &["-alpn", "http/0.9"]), None, "no protocol in common");
}

#[test]
fn a_listener_agrees_only_to_the_versions_and_ciphers_it_names() {
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let plain = config(&directory, &["a"]);
    let with = |lines: &str| plain.replace("\n[[route]]", &format!("\n{lines}\n[[route]]"));
    let gateway = Gateway::start_in(directory, &with("min-version = \"1.3\""));
    let addr = gateway.listener("tls");
    assert_eq!(agreed(addr, &["-tls1_2"]), None);
    assert!(agreed(addr, &["-tls1_3"]).is_some());

    let (aes128, chacha) = ("TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256");
    let old = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    gateway.reload(&with(&format!("ciphers = [\"{chacha}\", \"{aes128}\", \"{old}\"]")));
    let addr = gateway.listener("tls");
    let cipher = |offered: &[&str]| agreed(addr, offered);
    // Our order, not the client's.
    let both = format!("{aes128}:{chacha}");
    let first = cipher(&["-tls1_3", "-ciphersuites", &both]).expect("both are there");
    assert!(first.contains(chacha), "{first}");
    assert!(cipher(&["-tls1_3", "-ciphersuites", aes128]).is_some_and(|it| it.contains(aes128)));
    assert_eq!(cipher(&["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"]), None);
    assert!(cipher(&["-tls1_2"]).is_some_and(|it| it.contains("ECDHE-ECDSA-AES128-GCM-SHA256")));
    assert_eq!(cipher(&["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"]), None);

    // A list of one version's leaves only that version.
    gateway.reload(&with(&format!("ciphers = \"{old}\"")));
    let addr = gateway.listener("tls");
    assert_eq!((agreed(addr, &["-tls1_3"]), agreed(addr, &["-tls1_2"]).is_some()), (None, true));
}

#[test]
fn sessions_are_resumed_at_every_worker() {
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let text = format!("workers = 2\n{}", config(&directory, &["a"]));
    let gateway = Gateway::start_in(directory, &text);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let session = tls::session(&[], &[version]);
        let mut kinds = Vec::new();
        for _ in 0..12 {
            let mut stream =
                tls::resume(gateway.listener("tls"), "localhost", &session).expect("it is spoken");
            kinds.push(stream.conn.handshake_kind());
            // Tickets of TLS 1.3 come behind the handshake: an answer is read so that they are.
            assert_eq!(Client::over(&mut stream).get("/").text(), "ok");
        }
        assert_eq!(kinds[0], Some(HandshakeKind::Full));
        assert!(
            kinds[1..].iter().all(|kind| *kind == Some(HandshakeKind::Resumed)),
            "{version:?}: {kinds:?}"
        );
    }
}

#[test]
fn a_request_in_the_packet_of_the_handshake_is_answered() {
    let gateway = localhost();
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let stream = tls::hasten(gateway.listener("tls"), "localhost", &[], request).expect("it is served");
    let mut client = Client::over(stream);
    assert_eq!(client.response().text(), "ok");
    assert_eq!(client.get("/").text(), "ok");
}

#[test]
fn what_is_no_tls_is_closed_and_counted() {
    let gateway = localhost();
    let mut client = Client::connect(gateway.listener("tls"));
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").rest();
    eventually("the failure is counted", || {
        (gateway.metric("sluicegate_handshake_failures_total", &["listener=\"tls\""]) == 1.0).then_some(())
    });
}

#[test]
fn a_changed_certificate_is_served_without_a_reload() {
    let directory = Directory::new();
    let old = tls::certify(&directory, "a", &["localhost"]);
    let text = config(&directory, &["a"]);
    let gateway = Gateway::start_in(directory, &text);
    let addr = gateway.listener("tls");
    assert!(tls::presented(addr, "localhost") == old);
    let mut kept = Client::over(tls::connect(addr, "localhost", &[]).expect("it is served"));
    let (cert, key, new) = tls::pair(&["localhost"]);
    gateway.write("a.pem", cert);
    gateway.write("a.key", key);
    eventually("the new certificate", || (tls::presented(addr, "localhost") == new).then_some(()));
    assert_eq!(kept.get("/").text(), "ok", "connections go on");
}

#[test]
fn a_broken_pair_keeps_the_old_one() {
    let directory = Directory::new();
    let old = tls::certify(&directory, "a", &["localhost"]);
    let text = config(&directory, &["a"]);
    let gateway = Gateway::start_in(directory, &text);
    let addr = gateway.listener("tls");
    let (_, foreign_key, _) = tls::pair(&["localhost"]);
    gateway.write("a.key", foreign_key);
    gateway.reload_refused(&text);
    assert!(tls::presented(addr, "localhost") == old, "a key of another certificate");
    gateway.write("a.pem", "-----BEGIN CERTIFICATE-----\nhalf");
    gateway.reload_refused(&text);
    assert!(tls::presented(addr, "localhost") == old, "half a file");
    assert!(gateway.stderr().iter().any(|line| line.contains("a.pem")), "{:?}", gateway.stderr());
    let (cert, key, new) = tls::pair(&["localhost"]);
    gateway.write("a.pem", cert);
    gateway.write("a.key", key);
    gateway.reload(&text);
    assert!(tls::presented(addr, "localhost") == new);
}

#[test]
fn a_self_signed_pair_is_made_on_the_first_start() {
    let directory = Directory::new();
    let file = directory.join("made").display().to_string();
    let text = format!(
        "[listener.tls]\nbind = \"127.0.0.1:0\"\n\
         certs = [{{ cert = \"{file}.pem\", key = \"{file}.key\", self-signed = true }}]\n\
         [[route]]\npath = \"/\"\nrespond = {{ status = 200, body = \"ok\" }}\n"
    );
    let gateway = Gateway::start_in(directory, &text);
    let first = tls::presented(gateway.listener("tls"), "localhost");
    let url = format!("https://localhost:{}/", gateway.listener("tls").port());
    let output = run("curl", &["-sS", "--cacert", &format!("{file}.pem"), &url]);
    assert!(output.status.success(), "{}", crate::support::text(&output.stderr));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(gateway.file("made.key")).expect("it was made").permissions(),
    );
    assert_eq!(mode & 0o077, 0, "the key is for its owner alone");
    gateway.reload(&text);
    assert!(tls::presented(gateway.listener("tls"), "localhost") == first, "it is made once");
}

#[test]
fn the_end_of_a_certificate_can_be_watched() {
    let gateway = localhost();
    let end = gateway.metric("sluicegate_certificate_expiry_timestamp_seconds", &["listener=\"tls\""]);
    assert!(end > 1.7e9, "{end}");
}
