//! Panics of the workers' threads, counted wherever they are caught.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

use crate::metrics;

/// Counts every panic of this thread from now on, wherever it is caught: by a request, by a connection, or by a task
/// that an HTTP/2 stream runs in.
pub fn count(counter: metrics::Counter) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            PANICS.with_borrow(|counter| counter.iter().for_each(|counter| counter.add(1)));
            before(panic);
        }));
    });
    PANICS.set(Some(counter));
}

thread_local! {
    /// Where this thread's panics are counted; nowhere unless it is a worker's.
    static PANICS: RefCell<Option<metrics::Counter>> = const { RefCell::new(None) };
}
