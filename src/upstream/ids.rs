//! Ids of an upstream's servers by their position in a list. What a server is over all sets and reloads, is an object
//! ([`SharedServer`](crate::SharedServer)).

base::id! {
    /// A server of one set: its position in [`Upstream::servers`](crate::Upstream::servers), and in every list that follows
    /// their order. It holds for that set only; [`Upstream::index_of`](crate::Upstream::index_of) finds the same server in
    /// another one.
    ServerIndex
}

base::id! {
    /// A server as it is configured, which is a name with all of its addresses: its position in the configuration of a
    /// [`LiveUpstream`](crate::LiveUpstream). It holds as long as that object, for each set of its servers.
    ConfiguredIndex
}
