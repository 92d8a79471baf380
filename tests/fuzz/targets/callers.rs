//! Files of keys and users: any text is read or refused as a whole, with a place, and errors never quote a value.

#![no_main]

use std::fs::File;
use std::os::fd::IntoRawFd;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use auth::cache::Cache;
use auth::credential_source::CredentialSource;
use auth::jwt::{self, Algorithm, ClaimNaming, ClaimRules, KeySetSource};
use auth::{self, AuthRequest, MethodAnswer, MethodKind, basic, entries, keys};
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &str)| {
    let (kind, text) = input;
    std::fs::write(&*FILE, text).expect("a file for the text");
    let config = auth::Config { name: "callers".to_owned(), kind: kind_of(kind), pass: false };
    let method = match auth::Method::new(config, &[]) {
        Ok(method) => method,
        Err(error) => {
            let said = error.to_string();
            assert!(said.starts_with(&*FILE.to_string_lossy()) && said.len() < 1_000, "{said}");
            if let auth::Error::File(entries::Error::Wrong { line, .. }) = error {
                assert!((1..=text.split('\n').count()).contains(&line), "{said}");
            }
            assert!(!(CANARIES.iter().any(|canary| said.contains(canary)) && is_value(text)), "{said}");
            return;
        }
    };
    method.adopt(method.reread().expect("it has been read before"));
    if kind % 3 != 0 {
        return;
    }
    // A caller is known by a digest that stands in the file, under a name.
    for key in ["first", "second", ""] {
        let headers = HeaderMap::from_iter([(NAME, HeaderValue::from_static(key))]);
        let asked =
            AuthRequest { headers: &headers, query: None, certificate: None, now: Duration::from_secs(NOW) };
        match method.check(&asked, &Cache::new(0)) {
            MethodAnswer::Known(identity) => {
                assert!(text.to_ascii_lowercase().contains(&keys::digest_text(key.as_bytes())));
                assert!(identity.consumer.as_ref().is_some_and(|consumer| !consumer.is_empty()));
            }
            MethodAnswer::Absent => assert!(key.is_empty()),
            MethodAnswer::Refused(_) => {}
            other => panic!("{other:?}"),
        }
    }
});

/// What the first inputs have for secrets: a text and a number.
const CANARIES: [&str; 2] = ["zqzqzqzq", "7357735773"];
const NAME: HeaderName = HeaderName::from_static("x-api-key");
const NOW: u64 = 1_700_000_000;

/// A file that nobody else finds and that goes with the process; in memory where there is such a place.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let shared = PathBuf::from("/dev/shm");
    let folder = if shared.is_dir() { shared } else { std::env::temp_dir() };
    let path = folder.join(format!("sluicegate-fuzz-{}", std::process::id()));
    let file = File::create_new(&path).expect("a new file");
    std::fs::remove_file(&path).expect("it is there");
    PathBuf::from(format!("/proc/self/fd/{}", file.into_raw_fd()))
});

fn kind_of(kind: u8) -> MethodKind {
    let file = FILE.clone();
    match kind % 3 {
        0 => MethodKind::ApiKey(keys::Config {
            places: vec![CredentialSource::Header(NAME)],
            source: keys::ApiKeySource::File(file),
        }),
        1 => MethodKind::Basic(basic::Config { file, keep: Duration::from_secs(1) }),
        _ => MethodKind::Jwt(Box::new(jwt::Config {
            places: vec![CredentialSource::Bearer],
            source: KeySetSource::File(file),
            algorithms: vec![Algorithm::ES256, Algorithm::RS256, Algorithm::EdDSA, Algorithm::HS256],
            rules: ClaimRules::default(),
            naming: ClaimNaming { consumer: None, tenant: None, tier: None },
        })),
    }
}

/// Whether the secrets stand as values of a plain file, each on a line of its own behind `=`: elsewhere they may be
/// names, which may be quoted.
fn is_value(text: &str) -> bool {
    let is_plain = |line: &str| {
        let value = line.split_once(" = ").map_or("", |(_, value)| value.trim_matches('"'));
        CANARIES.contains(&value) || !CANARIES.iter().any(|canary| line.contains(canary))
    };
    !text.contains(['{', '\'', '\\']) && !text.contains("\"\"\"") && text.lines().all(is_plain)
}
