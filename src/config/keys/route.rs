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
    ROUTE = "a route" {
        /// its name in logs, metrics and `by = ["route"]`
        "name": Text, Means("made from methods, host, path");
        /// `"api.example.com"`, or `"*.example.com"` for one or more labels in front. Without a port
        "host": Texts, Means("any");
        /// `{id}` is one segment; `{*rest}`, at the end, is everything that follows, or nothing. `/api/{*rest}`
        /// matches whole segments (`/api`, `/api/x`), `/api{*rest}` any path with that prefix (`/apix`, too). At most
        /// 64 segments
        "path": Text, Value("/{*rest}");
        /// methods in upper case. A route for GET also gets HEAD, unless a route lists HEAD
        "methods": Texts, Means("any");
        /// further conditions
        "match": Table(&MATCH);
        /// the name of an upstream, or a URL (`"http://127.0.0.1:3000"`, `"unix:/run/app.sock"`), which stands for an
        /// upstream with default settings. Or `"echo"`, the built-in upstream, or [several
        /// upstreams](traffic-splitting.md)
        "to": Any(&[Text, Table(&PART), List(&Any(&[Text, Table(&PART)]))]);
        /// a fixed response
        "respond": Table(&RESPOND);
        /// `"https"`, `"https:8443"`: the same URL over https. Or a path or URL with `{...}`: `"/new/{id}"`, `{ to =
        /// "https://new.example.com:8443{path}", status = 301 }`
        "redirect": Any(&[Text, Table(&REDIRECT)]);
        /// names of policies, or [limits as text](limit-text.md). All must admit; if one refuses, none is charged
        "limit": Texts;
        "by": Elsewhere("a route has no `by`", "write it in the limit: `limit = \"300/m by ip\"`");
        "burst": Elsewhere("a route has no `burst`", "write it in the limit: `limit = \"300/m burst 20\"`");
        /// on a route to several upstreams: the value that [keeps a client at one
        /// upstream](traffic-splitting.md#sticky-canaries)
        "sticky": Text;
        /// an upstream that gets [copies of requests](mirrors.md)
        "mirror": Any(&[Text, Table(&MIRROR)]);
        /// the path sent upstream: `"/orders/{id}"`. The query stays
        "rewrite": Text, Means("unchanged");
        /// changes to request headers
        "headers": Table(&CHANGES);
        /// changes to the headers of a response from the upstream or the route, or of a 502, 503 or 504 in its place.
        /// Earlier refusals (401, 403, 413, 429) are changed only with `always = true`
        "response-headers": Table(&CHANGES);
        /// bytes of a request body; beyond: 413
        "max-body": Size(0, BODY_BYTES_MAX), Means("the listener's `max.body`");
        /// how long the upstream may take
        "timeouts": Table(&TIMEOUTS), Means("the upstream's");
        /// when a request is retried. It replaces the [upstream's `retry`](retry.md) as a whole, so an absent key has
        /// its default; only `budget` still comes from the upstream
        "retry": Table(&RETRY), Means("the upstream's");
        /// whether `Connection: upgrade` is passed on, as WebSocket needs; otherwise the request is forwarded without
        /// it. An upgrade works only over HTTP/1.1 on both sides, to one protocol (never h2c), and without a body
        "upgrade": Bool, Value("false");
        /// whether and how responses are [compressed](compression.md)
        "compress": Any(&[Bool, Table(&COMPRESS)]), Means("as in `[compress]`, otherwise off");
        /// encoded slashes and backslashes, `;`, `%3B`, and double encoding: `"refuse"` answers 400, `"keep"` forwards
        /// them, for an upstream that reads them as the gateway does
        "path-escapes": Words(|| words(&PATH_ESCAPES)), Value("refuse");
        /// names of authentication methods. The first method that recognises the client decides; if none recognises it,
        /// the response is 401
        "auth": Texts;
        /// conditions on the identity, which must have one of the values of each key; otherwise the response is 403
        "require": Table(&REQUIRE);
        /// client addresses and ranges that are admitted; `deny` wins
        "allow": Texts, Means("all");
        /// client addresses and ranges that are refused
        "deny": Texts;
        /// the origins whose scripts may use the route
        "cors": Table(&CORS);
    }
    MATCH = "`match`" {
        /// headers that a request must carry: `{ x-beta = "1", x-debug = true }`; `true` is any value
        "header": Map(&Any(&[Only("true"), Field(&Text)]));
        "path": Elsewhere("`path` is a key of the route itself", "write it beside `match`: `path = …`");
        "host": Elsewhere("`host` is a key of the route itself", "write it beside `match`: `host = …`");
        "methods": Elsewhere("`methods` is a key of the route itself", "write it beside `match`: `methods = …`");
    }
    PART = "an upstream" {
        /// its name or URL
        "upstream": Text, Needs("an entry of `to` needs `upstream`", "write `{ upstream = \"orders\", weight = 95 }`");
        /// its share of the requests
        "weight": Number(0, WEIGHT_MAX), Value("1");
    }
    RESPOND = "`respond`" {
        /// the status
        "status": Number(200, 599), Value("200");
        /// the body, which may hold [values](values.md)
        "body": Text, Value("\"\"");
        /// headers, which may hold [values](values.md)
        "headers": Map(&Field(&Texts));
    }
    CHANGES = "`<key>`" {
        /// headers to remove; applied first
        "remove": Texts;
        /// headers that replace those of the same name; an array is several headers of one name
        "set": Map(&Field(&Texts));
        /// headers to add to those of the same name; an array is several headers of one name
        "add": Map(&Field(&Texts));
        /// only in `response-headers` of a route: whether refusals by the gateway get the changes, too
        "always": Bool, ValueBeside(&[], "false");
    }
    TIMEOUTS = "`timeouts`" {
        /// how long the response may take to begin. This and the next three keys override those of the upstream
        "response": Time(MS);
        /// how long a first attempt may take if it may be retried
        "try": Time(MS);
        /// how long the whole exchange may take
        "total": Time(MS);
        /// how long a response body may make no progress. `"off"` lets an event stream or a gRPC call be silent for any
        /// length of time
        "stall": TimeOrOff(MS);
        /// how long a WebSocket or other tunnel may be idle; enforced up to a quarter late
        "tunnel-idle": TimeOrOff(MS), Means("1 hour");
    }
    RETRY = "`retry`" {
        /// retries per request
        "times": Number(0, 1), Value("1");
        /// which failures are retried, as for an upstream
        "on": Texts, Value("[\"connect\", \"reset-before-bytes\"]");
        /// the time after which another server gets the request, too
        "hedge-after": Time(MS);
        "budget": Elsewhere("`budget` is a key of the upstream's `retry`", "move it into `retry` of the upstream");
    }
    MIRROR = "`mirror`" {
        /// the name or URL of an upstream to which the route does not send its requests
        "to": Text, Needs("`mirror` needs `to`", "write `{ to = \"orders-next\", share = \"10%\" }`");
        /// share of the route's requests, exact like the weights of [traffic splitting](traffic-splitting.md)
        "share": Share, Value("100%");
        /// requests with a larger body are not copied
        "max-body": Size(0, MIRROR_BYTES_MAX), Value("64KiB");
    }
    COMPRESS = "`compress`" {
        /// media types: `"text/html"`, `"text/*"`, `"application/*+json"`. A response without a type is not compressed
        "types": Texts, Means("text, JSON, XML, JavaScript, WebAssembly, SVG, fonts");
        /// shorter responses are not compressed; a response of unknown length counts as long
        "min": Size(0, COMPRESS_MIN_MAX), Value("1KiB");
        /// the codings offered, the preferred first
        "encodings": Texts, Value("[\"zstd\", \"br\", \"gzip\"]");
        /// compression levels
        "level": Table(&LEVELS), Means("its defaults");
        /// whether responses that set a cookie are compressed, too
        "set-cookie": Bool, Value("false");
    }
    LEVELS = "`level`" {
        /// higher is smaller and slower
        "zstd": Number(1, Coding::Zstd.level_max() as u64), ValueBeside(&[], "3");
        /// higher is smaller and slower
        "br": Number(1, Coding::Brotli.level_max() as u64), ValueBeside(&[], "4");
        /// higher is smaller and slower
        "gzip": Number(1, Coding::Gzip.level_max() as u64), ValueBeside(&[], "5");
    }
    REQUIRE = "`require`" {
        /// consumers that are admitted
        "consumers": Texts, Means("any");
        /// tenants that are admitted
        "tenants": Texts, Means("any");
        /// tiers that are admitted
        "tiers": Texts, Means("any");
        /// claims and their values: `{ role = ["admin", "ops"] }`
        "claims": Map(&Texts), Means("any");
    }
    CORS = "`cors`" {
        /// `"https://app.example.com"`, `"https://*.example.com"` for one more label, or `"*"` for any
        "origins": Texts, Needs("`cors` needs `origins`", "write `origins = [\"https://app.example.com\"]`");
        /// methods that scripts may use
        "methods": Texts, Means("the route's `methods`, otherwise GET, HEAD, POST, PUT, PATCH and DELETE");
        /// headers that scripts may send; `"*"`: any that they request
        "headers": Texts, Value("*");
        /// response headers that scripts may read
        "expose": Texts;
        /// whether browsers may send cookies and other credentials. Not with the origin `"*"`
        "credentials": Bool, Value("false");
        /// how long browsers may cache the preflight
        "max-age": Time(ZERO), Value("10m");
    }
}
