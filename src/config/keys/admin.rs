//! The keys of `[admin]`.

use control::admin::AdminRole;

use super::Kind::{Any, List, Path, Secret, Table, Text, Texts, Words};
use super::Unwritten::{Needs, Value};
use super::listener::{DEMANDS, PAIR};
use super::{sections, words};

/// The values of `role`.
pub const ROLES: [(&str, AdminRole); 3] =
    [("read", AdminRole::Read), ("operate", AdminRole::Operate), ("admin", AdminRole::Admin)];

sections! {
    ADMIN = "[admin]" {
        /// an address, or `"unix:/run/sluicegate/admin.sock"`, which only its owner may use
        "bind": Text, Value("127.0.0.1:9900");
        /// the admin's bearer token; with one, or with `tokens`, a token is asked for everywhere but at `/healthz`
        /// and `/readyz`
        "token": Secret;
        /// tokens of others, each with its `name`, its `role` and its `token` or `digest`
        "tokens": List(&Table(&TOKEN));
        /// TLS: pairs of files, as of a [listener](#listenername). They are read again within a second of a change
        "certs": List(&Table(&PAIR));
        /// with `certs`: the authorities that clients' certificates come from, and lists of what they have revoked
        "client-ca": Path;
        /// whether a client without a certificate gets a connection; with `"ask"` probes do, and tokens go on
        "client-cert": Words(|| words(&DEMANDS)), Value("ask");
        /// with `client-ca`: lists of the certificates that its authorities have revoked
        "client-crl": Path;
        /// whom certificates stand for, each with its `name`, its `role`, and what it `shows`
        "certificates": List(&Table(&CERTIFICATE));
        /// where [Envoys ask](envoy.md) by gRPC: an address as `bind` has it, or a table
        "grpc": Any(&[Text, Table(&GRPC)]);
        /// without a token: names and addresses, without a port, that requests may come for beside `localhost`,
        /// names under it, loopback addresses and the address of `bind`
        "hosts": Texts;
    }
    TOKEN = "a token" {
        /// whom the audit names
        "name": Text, Needs("a token needs `name`, which the audit shows", "write `name = \"alice\"`");
        /// the token itself
        "token": Secret;
        /// in the place of `token`: `sha256:` and 64 hex digits, as `sluicegate hash-key` prints them
        "digest": Secret;
        /// what its bearer may do
        "role": Words(|| words(&ROLES)),
            Needs("a token needs `role`, what its bearer may do", "write `role = \"operate\"`");
        /// a date, or date and time with its offset: `"2027-01-01T00:00:00Z"`
        "expires": Text;
    }
    CERTIFICATE = "a certificate" {
        /// whom the audit names
        "name": Text, Needs("a certificate needs `name`, which the audit shows", "write `name = \"alice\"`");
        /// a place and the name there: `"san:email=alice@example.com"`, `"subject:cn=alice"`
        "shows": Text, Needs(
            "a certificate needs `shows`, the name in it",
            "write a place and the name there, as in `shows = \"san:email=alice@example.com\"` or `\"subject:cn=alice\"`",
        );
        /// what its bearer may do
        "role": Words(|| words(&ROLES)),
            Needs("a certificate needs `role`, what its bearer may do", "write `role = \"operate\"`");
    }
    GRPC = "`grpc`" {
        /// an address, or `"unix:/run/sluicegate/rls.sock"`, which only its owner may use
        "bind": Text, Needs("`grpc` needs `bind`", "write `bind = \"127.0.0.1:9901\"`");
        /// TLS: pairs of files, read again within a second of a change
        "certs": List(&Table(&PAIR));
        /// with `certs`: the authorities that clients' certificates come from, and lists of what they have revoked
        "client-ca": Path;
        /// whether a client without a certificate is refused
        "client-cert": Words(|| words(&DEMANDS)), Value("require");
        /// with `client-ca`: lists of the certificates that its authorities have revoked
        "client-crl": Path;
        /// the names in certificates of those who may ask, as `shows` has them; none: whoever `client-ca` has
        /// certified
        "clients": Texts;
    }
}
