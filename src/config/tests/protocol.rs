//! `min-version` and `ciphers` of a listener.

use super::{config, each_says, load};
use net::trust::TlsVersion;

const TLS: &str = "[listener.a]\nbind = \"127.0.0.1:443\"\ncerts = [{ cert = \"a\", key = \"b\" }]\n";
const PLAIN: &str = "[listener.a]\nbind = \"127.0.0.1:80\"\n";

#[test]
fn versions_and_suites_are_read_and_written() {
    let ciphers = "ciphers = [\"TLS_AES_128_GCM_SHA256\", \"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"]";
    let first = config(&format!("{TLS}min-version = \"1.3\"\n{ciphers}"));
    let protocol = &first.listeners[0].protocol;
    assert_eq!(protocol.versions().collect::<Vec<_>>(), [TlsVersion::Tls13]);
    assert_eq!(protocol.suites[1].name(), "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
    let again = config(&first.effective());
    assert_eq!(again, first);
    let usual = config(TLS);
    let usual = usual.listeners[0].protocol.versions();
    assert_eq!(usual.collect::<Vec<_>>(), [TlsVersion::Tls13, TlsVersion::Tls12]);
    let old = load(&[&format!("{TLS}ciphers = \"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"")]);
    let warnings = old.expect("it is only a warning").report.to_string();
    assert!(warnings.contains("so the listener speaks only TLS 1.2"), "{warnings}");
}

#[test]
fn every_mistake_is_told() {
    let with = |begin: &str, line: &str| -> &'static str { format!("{begin}{line}").leak() };
    each_says(&[
        (with(PLAIN, "min-version = \"1.3\""), "`min-version` needs `certs`", "3:1", "no TLS"),
        (with(PLAIN, "ciphers = \"TLS_AES_128_GCM_SHA256\""), "`ciphers` needs `certs`", "3:1", "no TLS"),
        (with(TLS, "min-version = \"1.1\""), "`1.1` is not a value of `min-version`", "4:15", "`1.2`"),
        (with(TLS, "ciphers = []"), "`ciphers` is empty", "4:11", "leave it out"),
        (
            with(TLS, "ciphers = \"AES128-SHA\""),
            "`AES128-SHA` is not a cipher suite of this gateway",
            "4:11",
            "`TLS_AES_256_GCM_SHA384`",
        ),
        (
            with(TLS, "ciphers = \"TLS_AES_128_GCM_SHA265\""),
            "`TLS_AES_128_GCM_SHA265` is not a cipher suite of this gateway",
            "4:11",
            "did you mean `TLS_AES_128_GCM_SHA256`?",
        ),
        (
            with(TLS, "min-version = \"1.3\"\nciphers = \"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\""),
            "no suite of `ciphers` works with `min-version` or a later version",
            "5:11",
            "add one",
        ),
    ]);
}
