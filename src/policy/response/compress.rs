//! Which answers of a route are compressed, and in which coding: choices from plain values of a request and its answer.
//! The bytes and the fields are `proxy`'s.

use crate::response::weight::weighted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `zstd` (RFC 8878).
    Zstd,
    /// `br` (RFC 7932).
    Brotli,
    /// `gzip` (RFC 1952).
    Gzip,
}

impl Coding {
    /// All of them, in the order they are preferred if a client has no preference: the smaller and cheaper first.
    pub const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

    /// Its name in `Accept-Encoding` and `Content-Encoding`.
    pub const fn name(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }

    /// The default level: about what a core compresses while a fast network takes it.
    pub fn level(self) -> u32 {
        match self {
            Coding::Zstd => 3,
            Coding::Brotli => 4,
            Coding::Gzip => 5,
        }
    }

    /// The highest level. Beyond it an answer takes many times as long, and of brotli more than 4 MiB for its tables.
    pub const fn level_max(self) -> u32 {
        match self {
            Coding::Zstd | Coding::Gzip => 9,
            Coding::Brotli => 6,
        }
    }

    pub fn named(name: &str) -> Option<Coding> {
        Coding::ALL.into_iter().find(|coding| coding.is(name))
    }

    fn is(self, name: &str) -> bool {
        // Both names, because `x-gzip` is an alias (RFC 9110 section 8.4.1.3).
        name.eq_ignore_ascii_case(self.name())
            || (self == Coding::Gzip && name.eq_ignore_ascii_case("x-gzip"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compress {
    pub types: Vec<MediaRange>,
    /// Shorter answers stay as they are. One whose length is not known in advance counts as long.
    pub min_bytes: u64,
    /// The codings and their levels, the preferred first.
    pub codings: Vec<(Coding, u32)>,
    /// Whether answers that set a cookie are compressed, too.
    pub set_cookie: bool,
}

impl Default for Compress {
    fn default() -> Self {
        Compress {
            types: TYPES.into_iter().filter_map(MediaRange::parse).collect(),
            min_bytes: 1024,
            codings: Coding::ALL.map(|coding| (coding, coding.level())).into(),
            set_cookie: false,
        }
    }
}

/// What a client's `Accept-Encoding` says together with the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodingChoice {
    /// The coding and its level. `None`: the client gets the answer as it is.
    pub coding: Option<(Coding, u32)>,
    /// Whether the client refuses an answer without a coding.
    pub insists: bool,
}

impl Compress {
    /// The coding for a client that sent these lines of `Accept-Encoding` (RFC 9110 section 12.5.3): the one with the
    /// greatest weight, of equal ones the first of the rules. A client that sends none gets no coding.
    pub fn choose<'h>(&self, lines: impl Iterator<Item = &'h str>) -> CodingChoice {
        let accepted: Vec<(&str, u16)> = lines.flat_map(weighted).collect();
        let weight =
            |is: &dyn Fn(&str) -> bool| accepted.iter().find(|(name, _)| is(name)).map(|(_, weight)| *weight);
        let any = weight(&|name| name == "*");
        let identity = weight(&|name| name.eq_ignore_ascii_case("identity"));
        let mut best = None;
        for (coding, level) in &self.codings {
            let weight = weight(&|name| coding.is(name)).or(any).unwrap_or(0);
            if weight > best.map_or(0, |(_, best)| best) {
                best = Some(((*coding, *level), weight));
            }
        }
        let coding = best.filter(|(_, weight)| identity.is_none_or(|identity| *weight >= identity));
        CodingChoice { coding: coding.map(|(coding, _)| coding), insists: identity.or(any) == Some(0) }
    }

    /// Whether an answer of this `Content-Type` may be compressed.
    pub fn takes(&self, content_type: &str) -> bool {
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        self.types.iter().any(|range| range.holds(&kind))
    }
}

/// Media types: `text/html`, `text/*`, or `application/*+json`; lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaRange(Box<str>);

impl MediaRange {
    /// Reads one; `None` if it has another form.
    pub fn parse(text: &str) -> Option<MediaRange> {
        let (kind, subtype) = text.split_once('/')?;
        let subtype = match subtype.strip_prefix('*') {
            Some("") => "x",
            Some(suffix) => suffix.strip_prefix('+')?,
            None => subtype,
        };
        let is_token = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
        };
        (is_token(kind) && is_token(subtype)).then(|| MediaRange(text.to_ascii_lowercase().into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a type in lower case is one of these.
    fn holds(&self, kind: &str) -> bool {
        match self.0.split_once('*') {
            None => *self.0 == *kind,
            Some((start, end)) => {
                kind.strip_prefix(start).is_some_and(|rest| rest.len() > end.len() && rest.ends_with(end))
            }
        }
    }
}

/// What is text, or as good as text.
const TYPES: [&str; 13] = [
    "text/*",
    "application/json",
    "application/*+json",
    "application/x-ndjson",
    "application/xml",
    "application/*+xml",
    "application/javascript",
    "application/yaml",
    "application/graphql",
    "application/wasm",
    "image/svg+xml",
    "font/ttf",
    "font/otf",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coding_with_the_greatest_weight_is_taken() {
        let rules = Compress::default();
        let (zstd, br, gzip) = (Some(Coding::Zstd), Some(Coding::Brotli), Some(Coding::Gzip));
        for (lines, coding, insists) in [
            (&[][..], None, false),
            (&[""], None, false),
            (&["gzip"], gzip, false),
            (&["x-gzip"], gzip, false),
            (&["GZIP"], gzip, false),
            (&["deflate"], None, false),
            // Browsers, curl, Go.
            (&["gzip, deflate, br, zstd"], zstd, false),
            (&["gzip, deflate, br"], br, false),
            (&["deflate, gzip"], gzip, false),
            (&["gzip", "br"], br, false),
            (&["br;q=0.5, gzip;q=0.8"], gzip, false),
            (&["br;q=0.8 , gzip ; q=0.8"], br, false),
            (&["zstd;q=0, *"], br, false),
            (&["*"], zstd, false),
            (&["*;q=0.1, gzip"], gzip, false),
            (&["gzip;q=0"], None, false),
            (&["gzip;q=0.5, identity"], None, false),
            (&["gzip;q=0.5, identity;q=0.5"], gzip, false),
            (&["identity"], None, false),
            (&["identity;q=0"], None, true),
            (&["identity;q=0, gzip;q=0.1"], gzip, true),
            (&["*;q=0"], None, true),
            (&["*;q=0, br"], br, true),
            (&["*;q=0, identity;q=0.1"], None, false),
            (&["gzip;q=x, br;q=NaN, zstd;q=-1"], None, false),
            (&["gzip;q=0.0001"], None, false),
        ] {
            let choice = rules.choose(lines.iter().copied());
            assert_eq!(
                (choice.coding.map(|(coding, _)| coding), choice.insists),
                (coding, insists),
                "{lines:?}"
            );
        }
        let only = Compress { codings: vec![(Coding::Gzip, 9)], ..Compress::default() };
        assert_eq!(only.choose(["br, gzip;q=0.1"].into_iter()).coding, Some((Coding::Gzip, 9)));
    }

    #[test]
    fn types_are_named_whole_by_their_first_part_or_by_their_suffix() {
        let rules = Compress::default();
        for kind in [
            "text/html",
            "TEXT/HTML; charset=utf-8",
            "text/event-stream",
            "application/problem+json",
            "image/svg+xml",
        ] {
            assert!(rules.takes(kind), "{kind}");
        }
        for kind in [
            "",
            "text",
            "text/",
            "image/png",
            "application/octet-stream",
            "application/jsonp",
            "application/+json",
        ] {
            assert!(!rules.takes(kind), "{kind}");
        }
        for wrong in
            ["", "html", "*/*", "*", "text/*x", "text/*+", "/html", "text/a b", "text/html; charset=utf-8"]
        {
            assert_eq!(MediaRange::parse(wrong), None, "{wrong}");
        }
    }
}
