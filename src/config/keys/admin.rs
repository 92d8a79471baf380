//! The keys of `[admin]`.

use control::admin::AdminRole;

use super::KeyDefault::{Needs, Value, ValueBeside};
use super::Kind::{Any, List, Path, Secret, Table, Text, Texts, Words};
use super::listener::{DEMANDS, PAIR};
use super::{sections, words};

pub const ROLES: [(&str, AdminRole); 3] =
    [("read", AdminRole::Read), ("operate", AdminRole::Operate), ("admin", AdminRole::Admin)];

sections! {
    ADMIN = "[admin]" {
        /// an address, or `"unix:/run/sluicegate/admin.sock"`, which only its owner may use
        "bind": Text, Value("127.0.0.1:9900");
        /// the admin's bearer token. With `token` or `tokens`, requests need one, except for `/healthz`, `/readyz` and the page
        "token": Secret;
        /// more tokens, each with `name`, `role`, and either `token` or `digest`
        "tokens": List(&Table(&TOKEN));
        /// TLS: pairs of files, as for a [listener](listener.md), read again within a second of a change
        "certs": List(&Table(&PAIR));
        /// with `certs`: a PEM file with the CAs of client certificates and, optionally, their revocation lists
        "client-ca": Path;
        /// whether clients must present a certificate. With `"ask"`, probes and tokens work without one
        "client-cert": Words(|| words(&DEMANDS)), ValueBeside(&["client-ca"], "ask");
        /// with `client-ca`: a PEM file with the revocation lists of its CAs
        "client-crl": Path;
        /// accepted client certificates, each with `name`, `role` and `shows`
        "certificates": List(&Table(&CERTIFICATE));
        /// a listener for [Envoy's rate limit service](../../envoy.md): an address as in `bind`, or a table
        "grpc": Any(&[Text, Table(&GRPC)]);
        /// if neither tokens nor certificates are configured: more hosts for which requests are accepted, as names or
        /// addresses without a port. `localhost`, names under it, loopback addresses and the address of `bind` are
        /// always accepted
        "hosts": Texts;
    }
    TOKEN = "a token" {
        /// the name that the audit log shows
        "name": Text, Needs("a token needs `name`, which the audit shows", "write `name = \"alice\"`");
        /// the token itself
        "token": Secret;
        /// instead of `token`: `sha256:` and 64 hex digits, as `sluicegate hash-key` prints them
        "digest": Secret;
        /// the permissions of its bearer: see [roles](#tokens-and-roles)
        "role": Words(|| words(&ROLES)),
            Needs("a token needs `role`, what its bearer may do", "write `role = \"operate\"`");
        /// a date, or date and time with offset: `"2027-01-01T00:00:00Z"`
        "expires": Text;
    }
    CERTIFICATE = "a certificate" {
        /// the name that the audit log shows
        "name": Text, Needs("a certificate needs `name`, which the audit shows", "write `name = \"alice\"`");
        /// a field of the certificate and its value: `"san:email=alice@example.com"`, `"subject:cn=alice"`
        "shows": Text, Needs(
            "a certificate needs `shows`, the name to find in it",
            "write the kind of name and the name, for example `shows = \"san:email=alice@example.com\"` or \
             `\"subject:cn=alice\"`",
        );
        /// the permissions of its bearer: see [roles](#tokens-and-roles)
        "role": Words(|| words(&ROLES)),
            Needs("a certificate needs `role`, what its bearer may do", "write `role = \"operate\"`");
    }
    GRPC = "`grpc`" {
        /// an address, or `"unix:/run/sluicegate/rls.sock"`, which only its owner may use
        "bind": Text, Needs("`grpc` needs `bind`", "write `bind = \"127.0.0.1:9901\"`");
        /// TLS: pairs of files, read again within a second of a change
        "certs": List(&Table(&PAIR));
        /// with `certs`: a PEM file with the CAs of client certificates and, optionally, their revocation lists
        "client-ca": Path;
        /// whether clients must present a certificate
        "client-cert": Words(|| words(&DEMANDS)), ValueBeside(&["client-ca"], "require");
        /// with `client-ca`: a PEM file with the revocation lists of its CAs
        "client-crl": Path;
        /// the clients that are accepted, by a field of their certificate, as in `shows`; without the key, every client
        /// with a certificate from a CA in `client-ca`
        "clients": Texts;
    }
}
