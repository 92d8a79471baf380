//! Counts panics of the workers' threads. A panic hook sees every one of them, also those that tokio or a request
//! catches; it prevents nothing.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

/// Counts every panic of the calling thread from now on.
pub fn count(counter: metrics::SharedCounter) {
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
    /// `None` on threads that are not a worker's: their panics are not counted here.
    static PANICS: RefCell<Option<metrics::SharedCounter>> = const { RefCell::new(None) };
}
