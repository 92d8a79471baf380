//! What operators are shown of the running process, on the admin listener and its page.

pub(super) mod admin_state;
pub(super) mod first_try;
pub(super) mod keys;
pub(super) mod last_reload;
pub(super) mod override_view;
pub(super) mod redis_view;
pub(super) mod upstreams;
