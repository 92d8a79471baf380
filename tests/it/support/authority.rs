//! An authority that speaks ACME (RFC 8555, RFC 9773) as far as a client notices, and fails where a test says. It believes
//! every proof: whether challenges are answered is for Pebble to find out.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::{CertificateParams, Issuer, KeyPair, PublicKeyData, SignatureAlgorithm};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509CertificationRequest};

/// Where an order goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not there: it closes every connection.
    Silent,
    /// It says that too much was ordered, and when to come again, in seconds.
    RateLimited(u64),
    /// It does not find the proof.
    NotProved,
    /// It closes the connection when the certificate is asked for.
    BreaksAtTheEnd,
    /// It sends something that is no certificate.
    Nonsense,
    /// It has no directory, and says why.
    NoDirectory,
    /// It says this of an account that is to be made, with 500.
    NoAccount(&'static str),
    /// It has a page of HTML where its directory should be.
    Page,
}

/// What a test sets and sees.
pub struct Book {
    /// Where orders go wrong now.
    pub fault: Option<Fault>,
    /// From when to when certificates are valid, seconds from now.
    pub validity: (i64, i64),
    /// The window to renew in that the first certificate gets, seconds from now; others have one far off.
    pub window: Option<(i64, i64)>,
    /// Orders that were begun.
    pub orders: usize,
    /// Accounts that were made.
    pub accounts: usize,
    /// What the last order says it replaces.
    pub replaces: Option<String>,
    /// Certificates of which it was asked when to renew.
    pub asked: Vec<String>,
    chains: Vec<String>,
    names: Vec<Vec<String>>,
}

/// A running authority, on plain HTTP on this machine. It ends with the test's process.
pub struct Authority {
    book: Arc<Mutex<Book>>,
    port: u16,
    issuer: Arc<Issuer<'static, KeyPair>>,
}

impl Authority {
    /// One that issues for 90 days and has no wishes.
    pub fn start() -> Authority {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "Test Authority");
        let issuer = Arc::new(Issuer::new(params, KeyPair::generate().expect("a pair")));
        let book = Arc::new(Mutex::new(Book {
            fault: None,
            validity: (-3_600, 90 * DAY),
            window: None,
            orders: 0,
            accounts: 0,
            replaces: None,
            asked: Vec::new(),
            chains: Vec::new(),
            names: Vec::new(),
        }));
        let (shared, signer) = (Arc::clone(&book), Arc::clone(&issuer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // One after another: it is asked little, and an order of requests is easier to follow.
                let _ = answer(stream, port, &shared, &signer);
            }
        });
        Authority { book, port, issuer }
    }

    /// What a test sets and sees. One at a time: a second one in the same statement would wait for ever.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The orders that were begun and the accounts that were made.
    pub fn counts(&self) -> (usize, usize) {
        let book = self.book();
        (book.orders, book.accounts)
    }

    /// The URL of its directory.
    pub fn directory(&self) -> String {
        format!("http://127.0.0.1:{}/directory", self.port)
    }

    /// `certs` of a listener whose certificate for these names is ordered here and kept in `state`.
    pub fn certs(&self, names: &[&str], state: &Path) -> String {
        let directory = self.directory();
        format!("certs = {{ acme = {directory:?}, names = {names:?}, agree = true, state = {state:?} }}\n")
    }

    /// A key and a certificate of this authority that nobody ordered, PEM.
    pub fn pem(&self, names: &[&str], validity: (i64, i64)) -> String {
        let key = KeyPair::generate().expect("a pair");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        format!("{}{}", key.serialize_pem(), issue(&names, validity, &key, &self.issuer))
    }
}

/// One request and its answer; the connection is closed after it.
fn answer(
    stream: TcpStream,
    port: u16,
    book: &Mutex<Book>,
    issuer: &Issuer<'static, KeyPair>,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line)?;
    let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
    loop {
        let mut field = String::new();
        reader.read_line(&mut field)?;
        if field.trim().is_empty() {
            break;
        }
        if let Some(value) = field.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or_default();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
    let answered = reply(&target, &payload(&body), &mut book, &format!("http://127.0.0.1:{port}"), issuer);
    let Some((status, more, body)) = answered else { return Ok(()) };
    let mut stream = reader.into_inner();
    write!(
        stream,
        "HTTP/1.1 {status} Said\r\nReplay-Nonce: n\r\nConnection: close\r\nContent-Length: {}\r\n{more}\r\n{body}",
        body.len()
    )
}

/// What a JWS says; its signature is not looked at.
fn payload(body: &[u8]) -> Value {
    let jws: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = jws["payload"].as_str().unwrap_or_default();
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

type Reply = Option<(u16, String, String)>;

fn reply(target: &str, said: &Value, book: &mut Book, url: &str, issuer: &Issuer<'static, KeyPair>) -> Reply {
    let ok = |value: Value| Some((200, String::new(), value.to_string()));
    let parts: Vec<&str> = target.trim_matches('/').split('/').collect();
    let number = parts.get(1).and_then(|part| part.parse::<usize>().ok()).unwrap_or_default();
    let order = |book: &Book, status: &str| order(book, status, number, url);
    match (parts[0], book.fault) {
        (_, Some(Fault::Silent)) => None,
        ("directory", Some(Fault::NoDirectory)) => {
            Some((500, String::new(), problem("serverInternal", "down for\nrepairs").to_string()))
        }
        ("directory", Some(Fault::Page)) => Some((200, String::new(), "<html>".to_owned())),
        ("directory", _) => ok(json!({
            "newNonce": format!("{url}/nonce"), "newAccount": format!("{url}/account"),
            "newOrder": format!("{url}/new"), "renewalInfo": format!("{url}/renewal"),
        })),
        ("nonce", _) => Some((200, String::new(), String::new())),
        ("account", Some(Fault::NoAccount(why))) => {
            Some((500, String::new(), problem("serverInternal", why).to_string()))
        }
        ("account", _) => {
            book.accounts += 1;
            let account = json!({ "status": "valid" }).to_string();
            Some((201, format!("Location: {url}/account/1\r\n"), account))
        }
        ("new", Some(Fault::RateLimited(seconds))) => {
            book.orders += 1;
            let text = problem("rateLimited", "too many certificates").to_string();
            Some((429, format!("Retry-After: {seconds}\r\n"), text))
        }
        ("new", _) => {
            let number = book.names.len();
            book.orders += 1;
            book.replaces = said["replaces"].as_str().map(str::to_owned);
            let names = said["identifiers"].as_array().into_iter().flatten();
            book.names.push(names.filter_map(|name| Some(name["value"].as_str()?.to_owned())).collect());
            let mut begun = self::order(book, "pending", number, url);
            begun["replaces"] = said["replaces"].clone();
            Some((201, format!("Location: {url}/order/{number}\r\n"), begun.to_string()))
        }
        ("proof", fault) => ok(proof(book, number, parts[2], fault == Some(Fault::NotProved), url)),
        ("challenge", _) => {
            ok(json!({ "type": "http-01", "url": "u", "token": "t", "status": "processing" }))
        }
        ("order", Some(Fault::NotProved)) => ok(order(book, "invalid")),
        ("order", _) => ok(order(book, if book.chains.len() > number { "valid" } else { "ready" })),
        ("finalize", Some(Fault::BreaksAtTheEnd)) => None,
        ("finalize", fault) => {
            let request = BASE64_URL_SAFE_NO_PAD.decode(said["csr"].as_str()?).ok()?;
            let chain = issue(&book.names[number], book.validity, &Asked::read(&request)?, issuer);
            // Numbers of orders and of chains stay the same, whatever went wrong between.
            book.chains.resize(number, String::new());
            book.chains.push(if fault == Some(Fault::Nonsense) {
                "no certificate".to_owned()
            } else {
                chain
            });
            ok(order(book, "valid"))
        }
        ("certificate", _) => Some((200, String::new(), book.chains[number].clone())),
        ("renewal", _) => {
            book.asked.push(parts[1].to_owned());
            let is_first = book.asked[0] == parts[1];
            let (start, end) = book.window.filter(|_| is_first).unwrap_or((60 * DAY, 61 * DAY));
            let window = json!({ "suggestedWindow": { "start": date(start), "end": date(end) } });
            Some((200, "Retry-After: 3600\r\n".to_owned(), window.to_string()))
        }
        _ => Some((404, String::new(), problem("malformed", target).to_string())),
    }
}

fn problem(kind: &str, detail: &str) -> Value {
    json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail })
}

fn order(book: &Book, status: &str, number: usize, url: &str) -> Value {
    let proofs: Vec<String> =
        (0..book.names[number].len()).map(|name| format!("{url}/proof/{number}/{name}")).collect();
    let (finalize, certificate) = (format!("{url}/finalize/{number}"), format!("{url}/certificate/{number}"));
    json!({ "status": status, "authorizations": proofs, "finalize": finalize, "certificate": certificate })
}

fn proof(book: &Book, number: usize, name: &str, is_missing: bool, url: &str) -> Value {
    let value = &book.names[number][name.parse::<usize>().unwrap_or_default()];
    let challenge = |kind: &str| {
        let mut challenge = json!({
            "type": kind, "url": format!("{url}/challenge"), "token": format!("token-{number}-{name}"),
            "status": "pending",
        });
        if is_missing {
            challenge["error"] = problem("unauthorized", "nothing was found there");
        }
        challenge
    };
    json!({
        "identifier": { "type": "dns", "value": value }, "status": "pending",
        "challenges": [challenge("http-01"), challenge("tls-alpn-01")],
    })
}

/// The public key that a request for a certificate names.
struct Asked(Vec<u8>);

impl Asked {
    fn read(request: &[u8]) -> Option<Asked> {
        let (_, request) = X509CertificationRequest::from_der(request).ok()?;
        Some(Asked(request.certification_request_info.subject_pki.subject_public_key.data.to_vec()))
    }
}

impl PublicKeyData for Asked {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

fn issue(
    names: &[String],
    (from, to): (i64, i64),
    key: &impl PublicKeyData,
    issuer: &Issuer<'static, KeyPair>,
) -> String {
    let mut params = CertificateParams::new(names.to_vec()).expect("these are names");
    params.use_authority_key_identifier_extension = true;
    let at = |seconds: i64| {
        let unix = now().saturating_add_signed(seconds);
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(unix)
    };
    (params.not_before, params.not_after) = (at(from), at(to));
    params.signed_by(key, issuer).expect("a certificate").pem()
}

/// Seconds from now as RFC 3339 writes them.
fn date(seconds: i64) -> String {
    let at = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(now().saturating_add_signed(seconds));
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second) = at.to_hms();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
}

/// Unix seconds.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A day, seconds.
pub const DAY: i64 = 86_400;
