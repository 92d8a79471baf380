//! Whether the time of a refusal tells anything of the keys there are: Welch's t-test over two classes of wrong keys,
//! as dudect does it (Reparaz, Balasch, Verbauwhede, "Dude, is my code constant time?", 2017).
//!
//! A machine's noise decides whether it passes, so it runs only when asked for:
//! `cargo test --release -p sluicegate-auth --lib keys::timing -- --ignored --nocapture --test-threads=1`.

use std::hint::black_box;

use http::{HeaderMap, HeaderValue};

use super::*;
use base::clock;
use base::random::Random;

/// A key as `hash-key` makes them: 32 letters here.
fn random_key(random: &Random) -> String {
    (0..32).map(|_| char::from(b'a' + (random.next() % 26) as u8)).collect()
}

/// Runs inputs of both classes in an order that nobody can foresee and returns what each run took, nanoseconds. Every
/// input is a new one: of few, chance would make one class slower, by how its digests happen to lie in a table.
fn measure<I>(make: impl Fn(Class, &Random) -> I, run: impl Fn(&I)) -> [Vec<f64>; 2] {
    let random = Random::seeded();
    let mut took = [Vec::with_capacity(SAMPLES), Vec::with_capacity(SAMPLES)];
    for number in 0..2 * SAMPLES {
        let class = if random.next() >> 63 == 0 { Class::One } else { Class::Other };
        let input = make(class, &random);
        let begun = clock::now_ns();
        run(black_box(&input));
        let ns = clock::now_ns() - begun;
        // The first runs find cold caches.
        if number >= SAMPLES / 50 {
            took[class as usize].push(ns as f64);
        }
    }
    took
}

/// Which of two kinds of input.
#[derive(Clone, Copy)]
enum Class {
    One,
    Other,
}

fn any(random: &Random, count: usize) -> usize {
    (random.next() >> 40) as usize % count
}

/// Welch's t (1947) of two samples without what is above `most`: there the kernel speaks, not the code.
fn welch([left, right]: &[Vec<f64>; 2], most: f64) -> f64 {
    let moments = |sample: &Vec<f64>| {
        let kept = || sample.iter().filter(|ns| **ns <= most);
        let count = kept().count() as f64;
        let mean = kept().sum::<f64>() / count;
        let variance = kept().map(|ns| (ns - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    };
    let ((left, left_error), (right, right_error)) = (moments(left), moments(right));
    (left - right) / (left_error + right_error).sqrt()
}

/// The t of the runs below several percentiles; the worst of them must be below what dudect calls a leak.
fn judge(what: &str, took: &[Vec<f64>; 2]) {
    let mut pooled: Vec<f64> = took.iter().flatten().copied().collect();
    pooled.sort_by(f64::total_cmp);
    let percentile = |share: f64| pooled[((pooled.len() - 1) as f64 * share) as usize];
    let shares = [0.5, 0.75, 0.9, 0.95, 0.99];
    let found = shares.map(|share| welch(took, percentile(share)));
    println!(
        "{what}: {} runs, median {} ns, t below percentiles {shares:?}: {found:.2?}",
        pooled.len(),
        percentile(0.5)
    );
    let worst = found.into_iter().map(f64::abs).fold(0.0, f64::max);
    assert!(worst < T_MAX, "{what}: |t| = {worst:.2}");
}

/// A table of keys, and the keys.
fn table(random: &Random) -> (ApiKeyTable, Vec<String>) {
    let (mut table, mut texts) = (ApiKeyTable::default(), Vec::new());
    for index in 0..KEYS {
        let text = random_key(random);
        let own: [u8; SHA256_OUTPUT_LEN] =
            digest(&SHA256, text.as_bytes()).as_ref().try_into().expect("that is its length");
        table.by_prefix.entry(prefix(&own)).or_default().push(index as u32);
        table.keys.push(ApiKeyRecord { digest: own, expires: None, identity: Arc::default() });
        texts.push(text);
    }
    (table, texts)
}

#[test]
#[ignore = "what it finds is the machine's noise too; run it by itself"]
fn where_a_digest_differs_takes_no_time() {
    let (table, _) = table(&Random::seeded());
    // Both are compared, because both lie behind the prefix by which they are found.
    let flipped = [8, 31].map(|at| {
        let digests = table.keys.iter().map(|key| {
            let mut digest = key.digest;
            digest[at] ^= 1;
            digest
        });
        digests.collect::<Vec<_>>()
    });
    let wrong = |class: Class, random: &Random| flipped[class as usize][any(random, KEYS)];
    let find = |digest: &[u8; SHA256_OUTPUT_LEN]| {
        (0..16).for_each(|_| drop(black_box(table.find(black_box(digest), 0))));
    };
    judge("16 digests that differ early, or late", &measure(wrong, find));
}

#[test]
#[ignore = "what it finds is the machine's noise too; run it by itself"]
fn a_near_miss_takes_as_long_as_any_other_wrong_key() {
    let random = Random::seeded();
    let (table, texts) = table(&random);
    let places = vec![CredentialSource::Bearer];
    let config = Config { places, source: ApiKeySource::File(PathBuf::new()) };
    let keys = ApiKeySet { config, table: ArcSwap::from_pointee(table), issued: None, summary: None };
    let value = |key: String| HeaderValue::from_str(&format!("Bearer {key}")).expect("a field's value");
    // Both are made in one way, from texts there are and from texts there are not.
    let begins = [texts, (0..KEYS).map(|_| random_key(&random)).collect()];
    let wrong = |class: Class, random: &Random| {
        let mut key = random_key(random);
        key.replace_range(..29, &begins[class as usize][any(random, KEYS)][..29]);
        // No key ends so: neither class ever hits one.
        key.replace_range(31.., "A");
        HeaderMap::from_iter([(http::header::AUTHORIZATION, value(key))])
    };
    let refuse = |headers: &HeaderMap| {
        let now = std::time::Duration::ZERO;
        let checked = keys.check(&AuthRequest { headers, query: None, certificate: None, now });
        assert!(matches!(black_box(checked), MethodAnswer::Refused(_)));
    };
    judge("a near miss, or any wrong key", &measure(wrong, refuse));
}

const SAMPLES: usize = 1_000_000;
const KEYS: usize = 256;
/// Where dudect begins to speak of a leak.
const T_MAX: f64 = 4.5;
