//! Lines of access logs: any bytes are a line of a format or of none, and what is read of a line of the gateway's own is
//! what another reader finds in it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use replay::format::Format;
use replay::request::Line;

fuzz_target!(|bytes: &[u8]| {
    for line in bytes.split(|byte| *byte == b'\n') {
        for format in [Format::Common, Format::Envoy] {
            let Ok(Line::Request(request)) = format.read(line) else { continue };
            assert!(request.target.starts_with('/') || &*request.target == "*");
        }
        let Ok(Line::Request(request)) = Format::Own.read(line) else { continue };
        // What stands in a field that is not looked at need not be text.
        let Ok(value) = serde_json::from_slice::<serde_json::Value>(line) else { continue };
        let of = |names: [&str; 2]| names.into_iter().map(|name| &value[name]).find(|value| !value.is_null());
        let text = |names| of(names).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let host = match value["url.port"].as_u64() {
            Some(port) => format!("{}:{port}", text(["host", "url.domain"])),
            None => text(["host", "url.domain"]),
        };
        assert_eq!(request.method.as_str(), text(["method", "http.request.method"]));
        assert_eq!((&*request.target, &*request.host), (&*text(["path", "url.original"]), &*host));
        let consumer = request.identity.consumer.as_deref().unwrap_or_default();
        assert_eq!(consumer, text(["consumer", "user.name"]));
        let status = of(["status", "http.response.status_code"]).and_then(|value| value.as_u64());
        assert_eq!(Some(u64::from(request.status)), status);
    }
});
