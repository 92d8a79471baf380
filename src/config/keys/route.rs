//! The keys of `[[route]]` and `[compress]`.

use ::policy::definition::PathEscapes;
use ::policy::response::compress::Coding;

use super::KeyDefault::{Means, Needs, Value, ValueBeside};
use super::Kind::{
    Any, Bool, Elsewhere, Field, List, Map, Number, Only, Share, Size, Table, Text, Texts, Time, TimeOrOff,
    Words,
};
use super::listener::{BODY_BYTES_MAX, REDIRECT};
use super::upstream::WEIGHT_MAX;
use super::{MS, ZERO, sections, words};

pub const PATH_ESCAPES: [(&str, PathEscapes); 2] =
    [("refuse", PathEscapes::Refuse), ("keep", PathEscapes::Keep)];
const COMPRESS_MIN_MAX: u64 = 1 << 30;
const MIRROR_BYTES_MAX: u64 = 16 << 20;

sections! {
    ROUTE = "a route", "route" {
        "name": Text, Means("made from methods, host, path");
        "host": Texts, Means("any");
        "path": Text, Value("/{*rest}");
        "methods": Texts, Means("any");
        "match": Table(&MATCH);
        "to": Any(&[Text, Table(&PART), List(&Any(&[Text, Table(&PART)]))]);
        "respond": Table(&RESPOND);
        "redirect": Any(&[Text, Table(&REDIRECT)]);
        "limit": Texts;
        "by": Elsewhere("a route has no `by`", "write it in the limit: `limit = \"300/m by ip\"`");
        "burst": Elsewhere("a route has no `burst`", "write it in the limit: `limit = \"300/m burst 20\"`");
        "sticky": Text;
        "mirror": Any(&[Text, Table(&MIRROR)]);
        "rewrite": Text, Means("unchanged");
        "headers": Table(&CHANGES);
        "response-headers": Table(&CHANGES);
        "max-body": Size(0, BODY_BYTES_MAX), Means("the listener's `max.body`");
        "timeouts": Table(&TIMEOUTS), Means("the upstream's");
        "retry": Table(&RETRY), Means("the upstream's");
        "upgrade": Bool, Value("false");
        "compress": Any(&[Bool, Table(&COMPRESS)]), Means("as in `[compress]`, otherwise off");
        "path-escapes": Words(|| words(&PATH_ESCAPES)), Value("refuse");
        "auth": Texts;
        "require": Table(&REQUIRE);
        "allow": Texts, Means("all");
        "deny": Texts;
        "cors": Table(&CORS);
    }
    MATCH = "`match`", "route.match" {
        "header": Map(&Any(&[Only("true"), Field(&Text)]));
        "path": Elsewhere("`path` is a key of the route itself", "write it beside `match`: `path = …`");
        "host": Elsewhere("`host` is a key of the route itself", "write it beside `match`: `host = …`");
        "methods": Elsewhere("`methods` is a key of the route itself", "write it beside `match`: `methods = …`");
    }
    PART = "an upstream", "route.to" {
        "upstream": Text, Needs("an entry of `to` needs `upstream`", "write `{ upstream = \"orders\", weight = 95 }`");
        "weight": Number(0, WEIGHT_MAX), Value("1");
    }
    RESPOND = "`respond`", "route.respond" {
        "status": Number(200, 599), Value("200");
        "body": Text, Value("\"\"");
        "headers": Map(&Field(&Texts));
    }
    CHANGES = "`<key>`", "listener.response-headers" {
        "remove": Texts;
        "set": Map(&Field(&Texts));
        "add": Map(&Field(&Texts));
        "always": Bool, ValueBeside(&[], "false");
    }
    TIMEOUTS = "`timeouts`", "route.timeouts" {
        "response": Time(MS);
        "try": Time(MS);
        "total": Time(MS);
        "stall": TimeOrOff(MS);
        "tunnel-idle": TimeOrOff(MS), Means("1 hour");
    }
    RETRY = "`retry`", "route.retry" {
        "times": Number(0, 1), Value("1");
        "on": Texts, Value("[\"connect\", \"reset-before-bytes\"]");
        "hedge-after": Time(MS);
        "budget": Elsewhere("`budget` is a key of the upstream's `retry`", "move it into `retry` of the upstream");
    }
    MIRROR = "`mirror`", "route.mirror" {
        "to": Text, Needs("`mirror` needs `to`", "write `{ to = \"orders-next\", share = \"10%\" }`");
        "share": Share, Value("100%");
        "max-body": Size(0, MIRROR_BYTES_MAX), Value("64KiB");
    }
    COMPRESS = "`compress`", "compress" {
        "types": Texts, Means("text, JSON, XML, JavaScript, WebAssembly, SVG, fonts");
        "min": Size(0, COMPRESS_MIN_MAX), Value("1KiB");
        "encodings": Texts, Value("[\"zstd\", \"br\", \"gzip\"]");
        "level": Table(&LEVELS), Means("its defaults");
        "set-cookie": Bool, Value("false");
    }
    LEVELS = "`level`", "compress.level" {
        "zstd": Number(1, Coding::Zstd.level_max() as u64), ValueBeside(&[], "3");
        "br": Number(1, Coding::Brotli.level_max() as u64), ValueBeside(&[], "4");
        "gzip": Number(1, Coding::Gzip.level_max() as u64), ValueBeside(&[], "5");
    }
    REQUIRE = "`require`", "route.require" {
        "consumers": Texts, Means("any");
        "tenants": Texts, Means("any");
        "tiers": Texts, Means("any");
        "claims": Map(&Texts), Means("any");
    }
    CORS = "`cors`", "route.cors" {
        "origins": Texts, Needs("`cors` needs `origins`", "write `origins = [\"https://app.example.com\"]`");
        "methods": Texts, Means("the route's `methods`, otherwise GET, HEAD, POST, PUT, PATCH and DELETE");
        "headers": Texts, Value("*");
        "expose": Texts;
        "credentials": Bool, Value("false");
        "max-age": Time(ZERO), Value("10m");
    }
}
