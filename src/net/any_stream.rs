//! A connection of any kind, in a box: what speaks HTTP rarely is compiled once, and not for TCP, TLS and Unix sockets each.
//! Requests of clients never go this way.

use tokio::io::{AsyncRead, AsyncWrite};

/// What [`AnyStream`] holds.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

pub type AnyStream = Box<dyn ByteStream>;
