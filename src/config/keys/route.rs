//! The keys of `[[route]]` and `[compress]`.

use ::policy::definition::PathEscapes;
use ::policy::response::compress::Coding;

use super::Kind::{
    Any, Bool, Elsewhere, Field, List, Map, Number, Only, Share, Size, Table, Text, Texts, Time, TimeOrOff,
    Words,
};
use super::Unwritten::{Means, Needs, Value};
use super::listener::{BODY_BYTES_MAX, REDIRECT};
use super::upstream::WEIGHT_MAX;
use super::{MS, ZERO, sections, words};

/// The values of `path-escapes`.
pub const PATH_ESCAPES: [(&str, PathEscapes); 2] =
    [("refuse", PathEscapes::Refuse), ("keep", PathEscapes::Keep)];
const COMPRESS_MIN_MAX: u64 = 1 << 30;
const MIRROR_BYTES_MAX: u64 = 16 << 20;

sections! {
    ROUTE = "a route" {
        /// in logs, metrics and `by = ["route"]`
        "name": Text, Means("made from methods, host, path");
        /// `"api.example.com"`, or `"*.example.com"` for one or more labels in front. No port
        "host": Texts, Means("any");
        /// `{id}` is one segment, `{*rest}` at the end all that follows, also nothing. `/api/{*rest}` takes whole
        /// segments (`/api`, `/api/x`), `/api{*rest}` whatever begins so (`/apix`, too). At most 64 segments. What
        /// others write for those (`/api/*`, `/u/:id`, `/r/[0-9]+`) is an error; `{=*}`, `{=:id}` is a segment of just
        /// that text
        "path": Text, Value("/{*rest}");
        /// upper case. HEAD goes where GET goes unless it is listed itself
        "methods": Texts, Means("any");
        /// which requests of these it takes
        "match": Table(&MATCH);
        /// an upstream's name, a URL (`"http://127.0.0.1:3000"` or `"unix:/run/app.sock"`, with everything else of
        /// an upstream as by default), or `"echo"`, which is built in; or [several upstreams](#several-upstreams)
        "to": Any(&[Text, Table(&PART), List(&Any(&[Text, Table(&PART)]))]);
        /// a fixed answer
        "respond": Table(&RESPOND);
        /// `"https"`, `"https:8443"`: the same URL over https. Or a path or URL with `{...}`: `"/new/{id}"`, `{ to
        /// = "https://new.example.com:8443{path}", status = 301 }`
        "redirect": Any(&[Text, Table(&REDIRECT)]);
        /// names of policies, or [limits as text](#limits-as-text). All must admit; what one refuses, no other has
        /// charged
        "limit": Texts;
        /// of a route to several upstreams: a client keeps its upstream by this
        "sticky": Text;
        /// copies of requests [go to another upstream](#mirrors), too
        "mirror": Any(&[Text, Table(&MIRROR)]);
        /// the path sent upstream: `"/orders/{id}"`. The query stays
        "rewrite": Text, Means("as it came");
        /// changes on the way upstream
        "headers": Table(&CHANGES);
        /// the same on the way to the client: of what the upstream or the route answers, and of 502 to 504 in its
        /// place; not of a refusal before that (401, 403, 413, 429)
        "response-headers": Table(&CHANGES);
        /// 413 over it
        "max-body": Size(0, BODY_BYTES_MAX), Means("the listener's `max.body`");
        /// how long its upstream may take
        "timeouts": Table(&TIMEOUTS), Means("the upstream's");
        /// when a request is sent a second time: in the place of the [upstream's `retry`](#upstreamname), so a key
        /// that is left out has the default and not what the upstream says. `budget` stays the upstream's
        "retry": Table(&RETRY), Means("the upstream's");
        /// whether `Connection: upgrade` may pass, as WebSocket needs it; where it may not, the request is
        /// forwarded without it. HTTP/1.1 both ways, one protocol, never h2c, and without a body
        "upgrade": Bool, Value("false");
        /// whether and how answers are [compressed](#compression)
        "compress": Any(&[Bool, Table(&COMPRESS)]), Means("as in `[compress]`; without one off");
        /// encoded slashes and backslashes, `;`, `%3B` and what is encoded twice: `"refuse"` answers 400, `"keep"`
        /// passes them on for an upstream that reads them as the gateway does
        "path-escapes": Words(|| words(&PATH_ESCAPES)), Value("refuse");
        /// names of authentication methods. The first that recognises the client decides; if none does: 401
        "auth": Texts;
        /// what a recognised identity must have. Every key that is written must hold, by any value of its list;
        /// otherwise 403
        "require": Table(&REQUIRE);
        /// clients that may use it: addresses and ranges; `deny` wins
        "allow": Texts, Means("all");
        /// clients that may not: addresses and ranges
        "deny": Texts;
        /// which other origins' scripts may use it
        "cors": Table(&CORS);
    }
    MATCH = "`match`" {
        /// headers a request must carry: `match = { header = { x-beta = "1", x-debug = true } }`; a string is the
        /// exact value, `true` any
        "header": Map(&Any(&[Only("true"), Field(&Text)]));
        "path": Elsewhere("`path` is a key of the route itself", "write it beside `match`: `path = …`");
        "host": Elsewhere("`host` is a key of the route itself", "write it beside `match`: `host = …`");
        "methods": Elsewhere("`methods` is a key of the route itself", "write it beside `match`: `methods = …`");
    }
    PART = "an upstream" {
        /// its name or URL
        "upstream": Text, Needs("a share needs `upstream`", "write `{ upstream = \"orders\", weight = 95 }`");
        /// its share of the requests
        "weight": Number(0, WEIGHT_MAX), Value("1");
    }
    RESPOND = "`respond`" {
        /// its status
        "status": Number(200, 599), Value("200");
        /// its body, which may hold [values](#values)
        "body": Text, Value("\"\"");
        /// its fields, which may hold [values](#values)
        "headers": Map(&Field(&Texts));
    }
    CHANGES = "`<key>`" {
        /// fields that are taken out first
        "remove": Texts;
        /// fields in the place of those of their name; an array is several of one name
        "set": Map(&Field(&Texts));
        /// fields beside those of their name; an array is several of one name
        "add": Map(&Field(&Texts));
        /// of `response-headers`: in the gateway's own refusals, too
        "always": Bool, Value("false");
    }
    TIMEOUTS = "`timeouts`" {
        /// until the head of the answer; like the next three it goes before that of the upstream
        "response": Time(MS);
        /// a first try that may be sent again
        "try": Time(MS);
        /// the whole exchange
        "total": Time(MS);
        /// `"off"` lets an event stream or a call of gRPC be silent for as long as it likes
        "stall": TimeOrOff(MS);
        /// how long a switched connection (WebSocket) may carry nothing, noticed within a quarter more
        "tunnel-idle": TimeOrOff(MS), Means("an hour");
    }
    RETRY = "`retry`" {
        /// second tries
        "times": Number(0, 1), Value("1");
        /// after what, as of an upstream
        "on": Texts, Value("[\"connect\", \"reset-before-bytes\"]");
        /// when another server is asked as well
        "hedge-after": Time(MS);
        "budget": Elsewhere("`budget` is the upstream's", "write it in `retry` of the upstream");
    }
    MIRROR = "`mirror`" {
        /// the name or URL of an upstream that the route does not send its requests to
        "to": Text, Needs("`mirror` needs `to`", "write `{ to = \"orders-next\", share = \"10%\" }`");
        /// of the route's requests: exact for one client and for sixty, as the weights of [several
        /// upstreams](#several-upstreams) are
        "share": Share, Value("100%");
        /// requests with a larger body are not copied
        "max-body": Size(0, MIRROR_BYTES_MAX), Value("64KiB");
    }
    COMPRESS = "`compress`" {
        /// media types: `"text/html"`, `"text/*"`, `"application/*+json"`. An answer without `Content-Type` is not
        /// compressed
        "types": Texts, Means("text, JSON, XML, JavaScript, WebAssembly, SVG, fonts");
        /// shorter answers stay as they are; one whose length is not known in advance counts as long
        "min": Size(0, COMPRESS_MIN_MAX), Value("1KiB");
        /// those offered, the preferred first
        "encodings": Texts, Value("[\"zstd\", \"br\", \"gzip\"]");
        /// how hard it is tried
        "level": Table(&LEVELS);
        /// whether answers that set a cookie are compressed, too
        "set-cookie": Bool, Value("false");
    }
    LEVELS = "`level`" {
        /// higher is smaller and slower
        "zstd": Number(1, Coding::Zstd.level_max() as u64), Value("3");
        /// higher is smaller and slower
        "br": Number(1, Coding::Brotli.level_max() as u64), Value("4");
        /// higher is smaller and slower
        "gzip": Number(1, Coding::Gzip.level_max() as u64), Value("5");
    }
    REQUIRE = "`require`" {
        /// who may
        "consumers": Texts, Means("any");
        /// whose clients may
        "tenants": Texts, Means("any");
        /// of which tiers
        "tiers": Texts, Means("any");
        /// claims and their values: `{ role = ["admin", "ops"] }`
        "claims": Map(&Texts), Means("any");
    }
    CORS = "`cors`" {
        /// `"https://app.example.com"`, `"https://*.example.com"` for one label more, or `"*"` for any
        "origins": Texts, Needs("`cors` needs `origins`", "write `origins = [\"https://app.example.com\"]`");
        /// what scripts may send
        "methods": Texts, Means("the route's `methods`, or the usual six");
        /// headers scripts may send; `"*"`: those they ask for
        "headers": Texts, Value("*");
        /// headers of answers that scripts may read
        "expose": Texts;
        /// whether browsers may send cookies and the like. Not with the origin `"*"`
        "credentials": Bool, Value("false");
        /// how long browsers may remember it
        "max-age": Time(ZERO), Value("10m");
    }
}
