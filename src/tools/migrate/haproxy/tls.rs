//! What TLS asks of a listener and of servers: versions, suites, authorities, lists of revoked certificates.
//!
//! A word that keeps clients or servers out and has no counterpart closes what it stands at. All others that are not
//! known are listed.

use config::printer::{table, text};

use super::super::draft::{Section as Listener, texts};
use super::super::file;
use super::super::values::is_among;
use super::Reading;
use super::lines::Line;

impl<'d> Reading<'d> {
    /// The words of `bind` that its listener needs besides its address. `false` if a guard is lost: the listener is
    /// left out then, which is listed.
    pub(super) fn bind_words(
        &mut self,
        bind: &'d Line,
        frontend_most: Option<&str>,
        listener: &mut Listener,
    ) -> bool {
        let is_tls = bind.has("ssl");
        let defaults = if is_tls { self.global("ssl-default-bind-options") } else { Vec::new() };
        let guards = Guards { words: BIND_GUARDS, what: "it refuses clients", left_out: "the listener" };
        if !self.only_known(bind, 2, BIND_WORDS, &guards, "bind …") {
            return false;
        }
        if let Some(most) = bind.after("maxconn").or(frontend_most) {
            listener.key("max-connections", most);
        }
        if !is_tls {
            return true;
        }
        self.client_certificates(bind, listener);
        if let Some(version) = self.least_version(bind, &defaults) {
            listener.key("min-version", text(version));
        }
        if let Some(suites) = self.suites(bind) {
            listener.key("ciphers", texts(&suites));
        }
        true
    }

    /// `ca-file`, `verify`, `crl-file`.
    fn client_certificates(&mut self, bind: &'d Line, listener: &mut Listener) {
        let path = |word: &str| bind.after(word).map(|path| text(&file::absolute(self.directory, path)));
        let Some(ca) = path("ca-file") else { return };
        listener.key("client-ca", ca);
        let demand = if bind.after("verify") == Some("optional") { "ask" } else { "require" };
        listener.key("client-cert", text(demand));
        listener.keys.extend(path("crl-file").map(|crl| ("client-crl", crl)));
        if !matches!(bind.after("verify"), Some("optional" | "required")) {
            let why = "HAProxy does not ask for a certificate without `verify required`; here clients must show one";
            self.draft.notes.line_differs(bind, why);
        }
    }

    /// The oldest version of TLS that a line allows, if that is not the default here. Its own words go before those of
    /// `global`.
    pub(super) fn least_version(&mut self, line: &Line, defaults: &[&'d Line]) -> Option<&'static str> {
        let own = |line: &Line| -> Option<&'static str> {
            match line.after("ssl-min-ver") {
                Some("TLSv1.3") => return Some("1.3"),
                Some("TLSv1.2") => return Some("1.2"),
                _ => {}
            }
            let only_latest = line.has("force-tlsv13") || line.has("no-tlsv12");
            only_latest.then_some("1.3").or_else(|| line.has("force-tlsv12").then_some("1.2"))
        };
        for line in std::iter::once(line).chain(defaults.iter().copied()) {
            let is_narrower = line.has("no-tlsv13")
                || line.has("force-tlsv12")
                || line.after("ssl-max-ver").is_some_and(|most| most != "TLSv1.3");
            let is_older = matches!(line.after("ssl-min-ver"), Some("SSLv3" | "TLSv1.0" | "TLSv1.1"))
                || ["force-sslv3", "force-tlsv10", "force-tlsv11"].iter().any(|word| line.has(word));
            if is_narrower || is_older {
                let why = "TLS 1.2 and 1.3 are supported, nothing older; TLS 1.3 is always on";
                self.draft.notes.line_differs(line, why);
            }
        }
        let found = own(line).or_else(|| defaults.iter().find_map(|line| own(line)));
        found.filter(|version| *version != "1.2")
    }

    /// `ciphers` of TLS 1.2 and `ciphersuites` of TLS 1.3 as one list; `None` if neither is written.
    fn suites(&mut self, bind: &'d Line) -> Option<Vec<String>> {
        let of = |reading: &Self, word: &str, default: &str| {
            let lines = reading.global(default);
            let line = lines.last().copied();
            let own = bind.after(word).map(|names| (bind, names.to_owned()));
            own.or_else(|| line.map(|line| (line, line.word(1).to_owned())))
        };
        let older = of(self, "ciphers", "ssl-default-bind-ciphers");
        let latest = of(self, "ciphersuites", "ssl-default-bind-ciphersuites");
        if older.is_none() && latest.is_none() {
            return None;
        }
        let mut suites: Vec<String> = Vec::new();
        for (written, known) in [(latest, LATEST), (older, OLDER)] {
            let Some((line, names)) = written else {
                suites.extend(known.iter().map(|(_, suite)| (*suite).to_owned()));
                continue;
            };
            let mut is_whole = true;
            for name in names.split(':') {
                match known.iter().find(|(other, _)| *other == name) {
                    Some((_, suite)) => suites.push((*suite).to_owned()),
                    None => is_whole &= name.starts_with('!'),
                }
            }
            if !is_whole {
                let why = "suites without forward secrecy or without an AEAD cipher are not supported";
                self.draft.notes.line_differs(line, why);
            }
        }
        (!suites.is_empty()).then_some(suites)
    }

    /// The words of `server` that are not known are listed. `false` if a guard is lost: the server is left out then.
    pub(super) fn server_words(&mut self, server: &Line) -> bool {
        let guards = Guards {
            words: SERVER_GUARDS,
            what: "it decides which certificates are accepted",
            left_out: "the server",
        };
        self.only_known(server, 3, SERVER_WORDS, &guards, &format!("server {}", server.word(1)))
    }

    /// Lists the words of a line, from `from` on, that are not known. `false` if one of them is a guard.
    fn only_known(
        &mut self,
        line: &Line,
        from: usize,
        known: &[(&str, usize)],
        guards: &Guards,
        shown: &str,
    ) -> bool {
        for index in unknown(line, from, known) {
            let word = line.word(index);
            let is_guard = guards.words.contains(&word);
            let why = if is_guard {
                let Guards { what, left_out, .. } = guards;
                format!("{what} and has no counterpart; {left_out} is left out until you rewrite it")
            } else {
                let why = WHY.iter().find(|(known, _)| *known == word);
                why.map_or("it has no counterpart", |(_, why)| why).to_owned()
            };
            self.draft.notes.left_out(&line.place, &format!("{shown} {word}"), &why);
            if is_guard {
                return false;
            }
        }
        true
    }

    /// The `tls` of a server that speaks it, as an upstream has it.
    pub(super) fn server_tls(&mut self, server: &Line) -> String {
        let path = |word: &str| server.after(word).map(|path| text(&file::absolute(self.directory, path)));
        let mut keys = Vec::new();
        keys.extend(
            path("ca-file")
                .filter(|_| server.after("ca-file") != Some("@system-ca"))
                .map(|path| ("ca", path)),
        );
        // The same path for both, because HAProxy keeps certificate and key in one file.
        keys.extend(path("crt").into_iter().flat_map(|path| [("cert", path.clone()), ("key", path)]));
        let sni =
            server.after("sni").and_then(|sni| sni.strip_prefix("str(")).map(|sni| sni.trim_end_matches(')'));
        let name = server.after("verifyhost").or(sni);
        keys.extend(name.map(|name| ("sni", text(name))));
        if let (Some(asked), Some(sni)) = (server.after("verifyhost"), sni)
            && asked != sni
        {
            let why = "the certificate must be for the name sent as SNI";
            self.draft.notes.line_differs(server, why);
        }
        if server.after("sni").is_some() && sni.is_none() {
            let why = "SNI is one name for all requests: write `sni` in `tls`";
            self.draft.notes.left_out_line(server, why);
        }
        let defaults = self.global("ssl-default-server-options");
        if let Some(version) = self.least_version(server, &defaults) {
            keys.push(("min-version", text(version)));
        }
        if server.after("verify") == Some("none") {
            let why = "the server's certificate is verified here, with `tls.ca` or the system's authorities, unless \
                `tls = { verify = false }` is set";
            self.draft.notes.line_differs(server, why);
        } else if name.is_none() {
            let why = "HAProxy does not check the name without `verifyhost` or `sni`; here the certificate must be \
                for the server's own name, or for `sni` of `tls`";
            self.draft.notes.line_differs(server, why);
        }
        if keys.is_empty() { String::new() } else { table(keys) }
    }

    /// Lines of `global` that begin so, marked as read.
    fn global(&self, begin: &str) -> Vec<&'d Line> {
        let global = self.sections.iter().filter(|section| section.kind == "global");
        global.flat_map(|section| &section.lines).filter(|line| line.begins(begin)).map(Line::taken).collect()
    }
}

/// Where the words of a line stand, from `from` on, that are not in a list of known ones with the number of their values.
fn unknown(line: &Line, from: usize, known: &[(&str, usize)]) -> Vec<usize> {
    let mut unknown = Vec::new();
    let mut index = from;
    while index < line.words.len() {
        match known.iter().chain(VERSIONS).find(|(word, _)| *word == line.word(index)) {
            Some((_, values)) => index += values,
            None => {
                unknown.push(index);
                // Passed over, because its value is no word of its own.
                index += usize::from(is_among(line.word(index), VALUED));
            }
        }
        index += 1;
    }
    unknown
}

/// Words that keep a line from working in the way it stands there, if they are not known.
struct Guards {
    words: &'static [&'static str],
    what: &'static str,
    /// What is left out where one of them stands.
    left_out: &'static str,
}

/// What `bind` and `server` say of versions, with the number of values.
const VERSIONS: &[(&str, usize)] = &[
    ("ssl-min-ver", 1),
    ("ssl-max-ver", 1),
    ("force-tlsv13", 0),
    ("force-tlsv12", 0),
    ("force-tlsv11", 0),
    ("force-tlsv10", 0),
    ("force-sslv3", 0),
    ("no-tlsv13", 0),
    ("no-tlsv12", 0),
    ("no-tlsv11", 0),
    ("no-tlsv10", 0),
    ("no-sslv3", 0),
    ("no-tls-tickets", 0),
];

/// Other words of `bind` that are read, or change no answer, with the number of their values.
const BIND_WORDS: &[(&str, usize)] = &[
    ("ssl", 0),
    ("crt", 1),
    ("alpn", 1),
    ("ca-file", 1),
    ("crl-file", 1),
    ("verify", 1),
    ("ciphers", 1),
    ("ciphersuites", 1),
    ("maxconn", 1),
    ("accept-proxy", 0),
    ("mode", 1),
    ("user", 1),
    ("group", 1),
    ("name", 1),
    ("id", 1),
    ("process", 1),
    ("thread", 1),
    ("shards", 1),
    ("nice", 1),
    ("backlog", 1),
    ("tfo", 0),
    ("defer-accept", 0),
    ("prefer-client-ciphers", 0),
    ("no-ca-names", 0),
    ("v4v6", 0),
];

const BIND_GUARDS: &[&str] = &["ca-verify-file", "crt-list", "interface", "gid", "uid"];

/// Those of `server`. Those of `unlisted` have their line from the reader of backends.
const SERVER_WORDS: &[(&str, usize)] = &[
    ("ssl", 0),
    ("no-ssl", 0),
    ("crt", 1),
    ("ca-file", 1),
    ("verify", 1),
    ("verifyhost", 1),
    ("sni", 1),
    ("alpn", 1),
    ("no-ssl-reuse", 0),
    ("weight", 1),
    ("check", 0),
    ("no-check", 0),
    ("inter", 1),
    ("fall", 1),
    ("rise", 1),
    ("port", 1),
    ("id", 1),
    ("tfo", 0),
    ("cookie", 1),
    ("maxconn", 1),
    ("slowstart", 1),
    ("on-marked-down", 1),
    ("observe", 1),
    ("maxqueue", 1),
    ("track", 1),
];

const SERVER_GUARDS: &[&str] = &["crl-file"];

/// Words that are not read and have a value.
const VALUED: &str = "\
    crl-file ca-verify-file crt-list interface gid uid ca-sign-file ca-sign-pass curves ecdhe crt-ignore-err \
    ca-ignore-err tls-ticket-keys npn proto mss tcp-ut namespace level severity-output ciphers ciphersuites \
    fastinter downinter addr init-addr resolvers resolve-prefer resolve-net resolve-opts source check-sni check-alpn \
    check-proto minconn pool-max-conn pool-purge-delay pool-low-conn max-reuse agent-addr agent-port agent-inter \
    agent-send error-limit on-error on-marked-up redir usesrc ocsp-update client-sigalgs sigalgs ws log-proto \
    hash-key guid guid-prefix default-crt quic-cc-algo socks4 max-conn";

const WHY: &[(&str, &str)] = &[
    (
        "strict-sni",
        "a client whose SNI matches no certificate gets the first one of `certs`; a request for another host than \
         the SNI is answered 421 (`sni`)",
    ),
    ("ciphers", "the cipher suites to servers are fixed"),
    ("ciphersuites", "the cipher suites to servers are fixed"),
    ("generate-certificates", "certificates are not generated: write `certs`"),
    ("allow-0rtt", "early data is not accepted"),
];

/// Suites of TLS 1.3, by their names at OpenSSL and at IANA.
const LATEST: &[(&str, &str)] = &[
    ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
];

/// Those of TLS 1.2 that are spoken here.
const OLDER: &[(&str, &str)] = &[
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];
