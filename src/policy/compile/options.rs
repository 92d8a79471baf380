//! What a table is compiled with beside its definitions, and how much it may hold.

#[derive(Clone, Copy, Debug)]
pub struct CompileOptions<'o> {
    /// Keys of limits are hashed under it. It stays the same after a reload, so that keys do.
    pub salt: [u8; 16],
    /// Bits of an IPv6 address that make one client, at most 128.
    pub ipv6_prefix: u8,
    /// Names of the upstreams; [`crate::UpstreamId`] is a position in them.
    pub upstreams: &'o [String],
    /// Names of the methods to authenticate; [`crate::AuthMethodId`] is a position in them.
    pub auth: &'o [String],
}

pub const ROUTES_MAX: usize = 1_000_000;

/// Policies a table may have: a few of its own for each route.
pub const POLICIES_MAX: usize = 4_000_000;

pub const DIMENSIONS_MAX: usize = 16;

pub const TIERS_MAX: usize = 256;

/// Windows a policy may have, for one tier.
pub const WINDOWS_MAX: usize = 16;
