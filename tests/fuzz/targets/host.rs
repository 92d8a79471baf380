//! Whom a request is for: one host whatever its spelling, and never one that another reader takes for another.

#![no_main]

use gateway::proxy::headers;
use gateway::proxy::request::validate;
use gateway::service::config::{Sizes, Underscores};
use http::header::HOST;
use http::{HeaderValue, Uri, Version, request};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'i> {
    /// The authority in the target, as HTTP/2 and absolute forms have it.
    target: Option<&'i str>,
    hosts: Vec<&'i [u8]>,
    http2: bool,
}

fuzz_target!(|input: Input<'_>| {
    let Some(head) = head(&input) else { return };
    if validate::head(
        &head,
        headers::HeadersPresent::of(&head.headers),
        &Sizes::default(),
        Underscores::Refuse,
    )
    .is_err()
    {
        return;
    }
    let authority = headers::authority(&head.uri, &head.headers);
    let host = validate::host(&authority);
    assert!(!host.bytes().any(|byte| byte.is_ascii_uppercase() || byte <= b' ' || byte >= 0x7f), "{host:?}");
    assert!(!host.contains(['/', '?', '#', '@', '\\', '"']), "{host:?}");

    // Who reads the target and who reads Host read one thing.
    for line in head.headers.get_all(HOST) {
        assert_eq!(validate::host(line), host, "{head:?}");
    }
    assert!(head.headers.get_all(HOST).iter().count() <= 1);

    // Neither case nor a port nor one dot at the end makes another host of it.
    let text = authority.to_str().expect("what was accepted is text");
    let mut variants = vec![text.to_ascii_uppercase(), text.to_ascii_lowercase()];
    if !text.contains(':') && !text.is_empty() {
        variants.extend([format!("{text}:8443"), format!("{text}:")]);
        if !text.ends_with('.') {
            variants.extend([format!("{text}."), format!("{text}.:8443")]);
        }
    }
    for variant in variants {
        let line = HeaderValue::from_str(&variant).expect("it differs by what a host may hold");
        assert_eq!(validate::host(&line), host, "{text:?} and {variant:?}");
    }
});

fn head(input: &Input<'_>) -> Option<request::Parts> {
    let uri = match input.target {
        Some(authority) => {
            Uri::builder().scheme("https").authority(authority).path_and_query("/").build().ok()?
        }
        None => Uri::from_static("/"),
    };
    let version = if input.http2 { Version::HTTP_2 } else { Version::HTTP_11 };
    let mut builder = http::Request::builder().uri(uri).version(version);
    for host in &input.hosts {
        builder = builder.header(HOST, HeaderValue::from_bytes(host).ok()?);
    }
    Some(builder.body(()).ok()?.into_parts().0)
}
