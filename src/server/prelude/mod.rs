//! What a client says before its first head is whole.
//!
//! hyper's side of a connection is tens of KiB, half a head a few bytes, and whoever sends halves of heads opens many
//! connections. So hyper is not built before a head is whole; until then nothing is kept but what the client said, and
//! a piece of a head costs no more than looking at it. Nothing is refused here: what is not plainly the
//! begin of a request goes on to where it is.

pub mod http1;
pub mod http2;
