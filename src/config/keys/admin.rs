//! The keys of `[admin]`.

use control::admin::AdminRole;

use super::KeyDefault::{Needs, Value, ValueBeside};
use super::Kind::{Any, List, Path, Secret, Table, Text, Texts, Words};
use super::listener::{DEMANDS, PAIR};
use super::{sections, words};

pub const ROLES: [(&str, AdminRole); 3] =
    [("read", AdminRole::Read), ("operate", AdminRole::Operate), ("admin", AdminRole::Admin)];

sections! {
    ADMIN = "[admin]", "admin" {
        "bind": Text, Value("127.0.0.1:9900");
        "token": Secret;
        "tokens": List(&Table(&TOKEN));
        "certs": List(&Table(&PAIR));
        "client-ca": Path;
        "client-cert": Words(|| words(&DEMANDS)), ValueBeside(&["client-ca"], "ask");
        "client-crl": Path;
        "certificates": List(&Table(&CERTIFICATE));
        "grpc": Any(&[Text, Table(&GRPC)]);
        "hosts": Texts;
    }
    TOKEN = "a token", "admin.tokens[]" {
        "name": Text, Needs("a token needs `name`, which the audit shows", "write `name = \"alice\"`");
        "token": Secret;
        "digest": Secret;
        "role": Words(|| words(&ROLES)),
            Needs("a token needs `role`, what its bearer may do", "write `role = \"operate\"`");
        "expires": Text;
    }
    CERTIFICATE = "a certificate", "admin.certificates[]" {
        "name": Text, Needs("a certificate needs `name`, which the audit shows", "write `name = \"alice\"`");
        "shows": Text, Needs(
            "a certificate needs `shows`, the name to find in it",
            "write the kind of name and the name, for example `shows = \"san:email=alice@example.com\"` or \
             `\"subject:cn=alice\"`",
        );
        "role": Words(|| words(&ROLES)),
            Needs("a certificate needs `role`, what its bearer may do", "write `role = \"operate\"`");
    }
    GRPC = "`grpc`", "admin.grpc" {
        "bind": Text, Needs("`grpc` needs `bind`", "write `bind = \"127.0.0.1:9901\"`");
        "certs": List(&Table(&PAIR));
        "client-ca": Path;
        "client-cert": Words(|| words(&DEMANDS)), ValueBeside(&["client-ca"], "require");
        "client-crl": Path;
        "clients": Texts;
    }
}
