//! Lines of access logs: any bytes are a line of a format or of none, and what is read of a line of the gateway's own is
//! what another reader finds in it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate::replay::format::Format;
use sluicegate::replay::request::Line;

fuzz_target!(|bytes: &[u8]| {
    for line in bytes.split(|byte| *byte == b'\n') {
        for format in [Format::Common, Format::Envoy] {
            let Ok(Line::Request(request)) = format.read(line) else { continue };
            assert!(request.target.starts_with('/') || &*request.target == "*");
        }
        let Ok(Line::Request(request)) = Format::Own.read(line) else { continue };
        let value: serde_json::Value = serde_json::from_slice(line).expect("the line was read");
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(request.method.as_str(), text("method"));
        assert_eq!((&*request.target, &*request.host), (text("path").as_str(), text("host").as_str()));
        assert_eq!(request.identity.consumer.as_deref().unwrap_or_default(), text("consumer"));
        assert_eq!(u64::from(request.status), value["status"].as_u64().expect("it was read"));
    }
});
