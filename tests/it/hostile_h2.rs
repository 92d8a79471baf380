//! Hostile HTTP/2: floods, bombs and stalls, from clients and from upstreams.
