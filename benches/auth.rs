//! What authenticating a client costs a worker: by an API key, a token it has seen, and tokens it has not, beside the
//! `jsonwebtoken` crate on its own.

use std::hint::black_box;
use std::time::Duration;

use auth::cache::Cache;
use auth::credential_source::CredentialSource;
use auth::jwt::{self, ClaimNaming, ClaimRules, KeySetSource};
use auth::{AuthRequest, Config, Method, MethodAnswer, MethodKind, keys};
use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderMap, HeaderName, HeaderValue};
use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode, get_current_timestamp,
};
use serde_json::{Value, json};

fn api_key(criterion: &mut Criterion) {
    let mut entries = String::new();
    for number in 0..100_000 {
        let sha256 = keys::digest_text(format!("key-{number}").as_bytes());
        entries.push_str(&format!("[[key]]\nsha256 = \"{sha256}\"\nconsumer = \"c{number}\"\n"));
    }
    let file = write("keys.toml", &entries);
    let name = HeaderName::from_static("x-api-key");
    let config = keys::Config {
        places: vec![CredentialSource::Header(name.clone()), CredentialSource::Bearer],
        source: keys::ApiKeySource::File(file),
    };
    let method = method(MethodKind::ApiKey(config));
    let cache = Cache::new(0);
    let headers = |key| HeaderMap::from_iter([(name.clone(), HeaderValue::from_static(key))]);
    let (right, wrong) = (headers("key-4711"), headers("key-x"));
    let mut group = criterion.benchmark_group("api_key");
    group.bench_function("right", |bencher| bencher.iter(|| known(&method, black_box(&right), &cache)));
    group.bench_function("wrong", |bencher| bencher.iter(|| !known(&method, black_box(&wrong), &cache)));
    group.finish();
}

fn token(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("token");
    let pair = rcgen::KeyPair::generate().expect("a pair");
    let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).expect("a private key");
    let public = pair.public_key_pem();
    let own = DecodingKey::from_ec_pem(public.as_bytes()).expect("a public key");
    measure(&mut group, "es256", Algorithm::ES256, &key, &public, &own);
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).expect("a pair");
    let key = EncodingKey::from_rsa_pem(pair.serialize_pem().as_bytes()).expect("a private key");
    let public = pair.public_key_pem();
    let own = DecodingKey::from_rsa_pem(public.as_bytes()).expect("a public key");
    measure(&mut group, "rs256", Algorithm::RS256, &key, &public, &own);
    group.finish();
}

fn measure(
    group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>,
    name: &str,
    algorithm: Algorithm,
    key: &EncodingKey,
    public: &str,
    own: &DecodingKey,
) {
    let claims = json!({
        "iss": "https://id.example.com/", "aud": ["api"], "sub": "4a7c1b2e-7d0f-4f5e-9d57-1c2f9f6f8a11",
        "org": "acme", "plan": "pro", "scope": "orders:read orders:write invoices:read", "jti": "0123456789abcdef",
        "iat": get_current_timestamp() - 60, "exp": get_current_timestamp() + 3_600,
    });
    let token = encode(&Header::new(algorithm), &claims, key).expect("the key fits");
    let rules = ClaimRules {
        issuers: vec!["https://id.example.com/".to_owned()],
        audiences: vec!["api".to_owned()],
        typ: None,
        leeway: Duration::from_secs(5),
        required: vec!["exp".to_owned()],
    };
    let claim = |name: &str| Some(name.to_owned());
    let naming = ClaimNaming { consumer: claim("sub"), tenant: claim("org"), tier: claim("plan") };
    let source = KeySetSource::File(write(&format!("{name}.pem"), public));
    let places = vec![CredentialSource::Bearer];
    let config = jwt::Config { places, source, algorithms: vec![algorithm], rules, naming };
    let method = method(MethodKind::Jwt(Box::new(config)));
    let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("a field's value");
    let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]);
    let cache = Cache::new(0);
    group.bench_function(format!("{name}_seen"), |bencher| {
        bencher.iter(|| known(&method, black_box(&headers), &cache));
    });
    group.bench_function(format!("{name}_new"), |bencher| {
        bencher.iter(|| known(&method, black_box(&headers), &Cache::new(0)));
    });
    let mut validation = Validation::new(algorithm);
    validation.set_audience(&["api"]);
    validation.set_issuer(&["https://id.example.com/"]);
    group.bench_function(format!("{name}_jsonwebtoken"), |bencher| {
        bencher.iter(|| decode::<Value>(black_box(&token), own, &validation).is_ok());
    });
}

fn method(kind: MethodKind) -> Method {
    Method::new(Config { name: "bench".to_owned(), kind, pass: true }, &[]).expect("its files are there")
}

fn known(method: &Method, headers: &HeaderMap, cache: &Cache) -> bool {
    let now = Duration::from_secs(get_current_timestamp());
    let asked = AuthRequest { headers, query: None, certificate: None, now };
    let checked = match method.check(&asked, cache) {
        MethodAnswer::Wait(_) => method.verify(&asked, cache),
        checked => checked,
    };
    matches!(checked, MethodAnswer::Known(_))
}

fn write(name: &str, text: &str) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{name}"));
    std::fs::write(&path, text).expect("the target directory is writable");
    path
}

criterion_group!(benches, api_key, token);
criterion_main!(benches);
