//! A limit as written: errors lie within it, and what is read is what another spelling of it says.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limit::Algorithm;
use policy::counting::shorthand;

fuzz_target!(|text: &str| {
    let limit = match shorthand::parse(text) {
        Ok(limit) => limit,
        Err(error) => {
            assert!(text.get(error.span.clone()).is_some(), "{:?} of {text:?}", error.span);
            assert!(!error.problem.to_string().is_empty() && !error.problem.hint().is_empty());
            return;
        }
    };
    let window = &limit.window;
    let mut again = if window.algorithm() == Algorithm::Concurrency {
        assert!(!limit.has_burst);
        format!("{} in  flight", window.limit())
    } else if let Some(calendar) = window.calendar() {
        format!("{} per {}", window.limit(), calendar.unit().word())
    } else {
        assert_eq!(window.period_ns().get() % 1_000_000_000, 0, "periods are whole seconds");
        format!("{} per {} s", window.limit(), window.period_ns().get() / 1_000_000_000)
    };
    if limit.has_burst {
        again += &format!(" burst {}", window.burst());
    } else if window.algorithm() != Algorithm::Concurrency {
        assert_eq!(window.burst(), window.limit());
    }
    for (index, dimension) in limit.by.iter().enumerate() {
        again += if index == 0 { " by " } else { ", " };
        again += &dimension.to_string();
        assert!(!limit.by[..index].contains(dimension), "{dimension} twice in {text:?}");
    }
    // Written in whole units.
    let whole = shorthand::Shorthand { counted_as: None, ..limit };
    assert_eq!(shorthand::parse(&again).as_ref(), Ok(&whole), "{text:?} written as {again:?}");
});
