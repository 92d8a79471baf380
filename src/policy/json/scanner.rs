//! The scanner: JSON in, piece by piece, and the values at some paths out.
//!
//! It keeps one bit for each open bracket, how far along each path it is, and the name or value that it is reading if that
//! may be one it looks for. All other strings are skipped by a search for their end.

use std::sync::Arc;

use memchr::memchr2;
use smallvec::SmallVec;

use super::path::JsonPath;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonValue<'b> {
    /// The text of a number, which may be a wrong one: [`units`](super::units) tells.
    Number(&'b [u8]),
    /// A number of more than [`TOKEN_BYTES_MAX`] bytes.
    LongNumber {
        /// It begins with a minus sign.
        is_negative: bool,
    },
    Text(&'b str),
    Word(&'static str),
    /// The list that the first `*` of the path stands for begins,
    List,
    /// and ends.
    ListEnd,
    /// Of a path with `*`, the member of its name at this place begins in an object; again, if it had one already.
    Member {
        place: usize,
        is_again: bool,
    },
    /// Nothing that is read: an object, an array, a string that is too long or no text, or an object on the way that does
    /// not lead to the path's end.
    Nothing,
}

/// Reads documents that stand one behind the other, with white space between them or none (JSON, and JSON lines), or
/// one alone.
#[derive(Clone, Debug)]
pub struct Scanner {
    paths: Arc<[JsonPath]>,
    /// Whether anything behind the first document is broken, and paths lead through objects only.
    is_of_one: bool,
    state: ScannerState,
    depth: u8,
    /// One bit for each open bracket, the innermost lowest: whether it is an array's.
    arrays: u128,
    /// For each path how far along it is.
    followed: SmallVec<[PathProgress; 4]>,
    /// Whether a path leads through all open brackets, so that names are worth reading.
    is_followed: bool,
    /// The paths that lead to the next value.
    hits: SmallVec<[u16; 4]>,
    /// The name or value that is being read, if it is kept.
    token: SmallVec<[u8; 64]>,
    keeps_token: bool,
    /// The token is too long, or no text.
    is_token_void: bool,
    /// The first half of a character that is written as two escapes.
    high: Option<u16>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PathProgress {
    /// How many of the open brackets it leads through, from the outermost.
    depth: u8,
    /// Whether something was handed on since it last led into an object.
    is_told: bool,
    /// One bit for each place of its names: whether the object that is open there had it.
    had: u16,
}

#[derive(Clone, Copy, Debug)]
enum ScannerState {
    Value,
    ValueOrEnd,
    Name,
    NameOrEnd,
    Colon,
    CommaOrEnd,
    Text {
        is_name: bool,
    },
    Escape {
        is_name: bool,
    },
    /// Inside the digits of a `\u` escape.
    Hex {
        is_name: bool,
        digits: u8,
        unit: u16,
    },
    Number,
    /// Inside `true`, `false` or `null`, of which so many bytes have come.
    Word {
        word: &'static str,
        at: u8,
    },
    /// Behind the only document.
    End,
    Broken,
}

impl Scanner {
    /// A scanner that looks for these paths, before the first of any number of documents. Each element of a list on the way, and of
    /// one around a document, is looked at as if it stood there alone, and nothing is found where a path has `*` and no list is.
    pub fn new(paths: Arc<[JsonPath]>) -> Scanner {
        Scanner::before(paths, false)
    }

    /// A scanner of a single document: it is broken by what stands behind it, but for white space. Nothing is found
    /// in lists, because which of several values is meant would be a guess.
    pub fn of_one(paths: Arc<[JsonPath]>) -> Scanner {
        Scanner::before(paths, true)
    }

    fn before(paths: Arc<[JsonPath]>, is_of_one: bool) -> Scanner {
        let followed = SmallVec::from_elem(PathProgress::default(), paths.len());
        let mut scanner = Scanner {
            paths,
            is_of_one,
            state: ScannerState::Value,
            depth: 0,
            arrays: 0,
            followed,
            is_followed: false,
            hits: SmallVec::new(),
            token: SmallVec::new(),
            keeps_token: false,
            is_token_void: false,
            high: None,
        };
        scanner.restart();
        scanner
    }

    /// Begins a new document, wherever it is.
    pub fn restart(&mut self) {
        self.state = ScannerState::Value;
        (self.depth, self.arrays, self.is_followed) = (0, 0, false);
        self.followed.fill(PathProgress::default());
        self.hits.clear();
        let paths = u16::try_from(self.paths.len()).unwrap_or(u16::MAX);
        self.hits.extend(0..paths);
    }

    /// Whether it is before a document.
    pub fn is_fresh(&self) -> bool {
        self.depth == 0 && matches!(self.state, ScannerState::Value)
    }

    /// Whether what has come is not JSON. It reads nothing more then, until it is restarted.
    pub fn is_broken(&self) -> bool {
        matches!(self.state, ScannerState::Broken)
    }

    /// Reads the next piece, and hands on each value at a path with the path's index. A number at the end of a piece is
    /// handed on with the byte behind it.
    pub fn push(&mut self, bytes: &[u8], mut found: impl FnMut(usize, JsonValue<'_>)) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            at += match self.state {
                ScannerState::Broken => return,
                ScannerState::Text { is_name } => self.read_text(rest, is_name, &mut found),
                ScannerState::Number => self.read_number(rest, &mut found),
                ScannerState::Escape { is_name } => self.read_escape(rest[0], is_name),
                ScannerState::Hex { is_name, digits, unit } => self.read_hex(rest[0], is_name, digits, unit),
                ScannerState::Word { word, at } => self.read_word(rest[0], word, at, &mut found),
                _ => self.read_structure(rest[0], &mut found),
            };
        }
    }

    /// Reads a byte outside of strings, numbers and words. Returns how many bytes are read.
    fn read_structure(&mut self, byte: u8, found: &mut impl FnMut(usize, JsonValue<'_>)) -> usize {
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            return 1;
        }
        match (self.state, byte) {
            (ScannerState::CommaOrEnd, b',') if self.is_in_array() => {
                self.begin_element();
                self.state = ScannerState::Value;
            }
            (ScannerState::CommaOrEnd, b',') => self.state = ScannerState::Name,
            (ScannerState::CommaOrEnd | ScannerState::ValueOrEnd, b']') if self.is_in_array() => {
                self.leave(found)
            }
            (ScannerState::CommaOrEnd | ScannerState::NameOrEnd, b'}') if !self.is_in_array() => {
                self.leave(found)
            }
            (ScannerState::Name | ScannerState::NameOrEnd, b'"') => self.begin_text(true),
            (ScannerState::Colon, b':') => self.state = ScannerState::Value,
            (ScannerState::Value | ScannerState::ValueOrEnd, _) => return self.begin_value(byte, found),
            _ => self.state = ScannerState::Broken,
        }
        1
    }

    fn begin_value(&mut self, byte: u8, found: &mut impl FnMut(usize, JsonValue<'_>)) -> usize {
        match byte {
            b'{' => self.enter(false, found),
            b'[' => self.enter(true, found),
            b'"' => self.begin_text(false),
            b't' => self.state = ScannerState::Word { word: "true", at: 1 },
            b'f' => self.state = ScannerState::Word { word: "false", at: 1 },
            b'n' => self.state = ScannerState::Word { word: "null", at: 1 },
            b'-' | b'0'..=b'9' => {
                self.begin_token(self.is_wanted());
                self.state = ScannerState::Number;
                // Not read yet, because the byte is the number's first.
                return 0;
            }
            _ => self.state = ScannerState::Broken,
        }
        1
    }

    /// Paths that lead to this array lead to each of its elements.
    fn begin_element(&mut self) {
        self.hits.clear();
        let here = (0..).zip(&self.followed).filter(|(_, followed)| followed.depth == self.depth);
        self.hits.extend(here.map(|(index, _)| index));
    }

    /// How many of the open brackets are objects': so many names lead here.
    fn objects(&self) -> usize {
        usize::from(self.depth) - self.arrays.count_ones() as usize
    }

    /// Whether the open bracket behind so many objects is an array's.
    fn is_in_list(&self, mut objects: usize) -> bool {
        for bracket in (0..self.depth).rev() {
            let is_array = self.arrays >> bracket & 1 == 1;
            if objects == 0 {
                return is_array;
            }
            objects -= usize::from(!is_array);
        }
        false
    }

    fn is_in_array(&self) -> bool {
        self.arrays & 1 == 1
    }

    fn enter(&mut self, is_array: bool, found: &mut impl FnMut(usize, JsonValue<'_>)) {
        if self.depth == DEPTH_MAX {
            self.state = ScannerState::Broken;
            return;
        }
        self.depth += 1;
        self.arrays = self.arrays << 1 | u128::from(is_array);
        self.is_followed = false;
        let objects = self.objects();
        for index in std::mem::take(&mut self.hits) {
            let index = usize::from(index);
            let leads_on =
                if is_array { !self.is_of_one } else { self.paths[index].names().len() >= objects };
            if leads_on {
                if self.is_list_of(index) {
                    found(index, JsonValue::List);
                }
                let known = if is_array { u16::MAX } else { !(u16::MAX << (objects - 1)) };
                let had = self.followed[index].had & known;
                self.followed[index] = PathProgress { depth: self.depth, is_told: false, had };
                self.is_followed = true;
            } else {
                self.followed[index].is_told = true;
                found(index, JsonValue::Nothing);
            }
        }
        if is_array {
            self.begin_element();
        }
        self.state = if is_array { ScannerState::ValueOrEnd } else { ScannerState::NameOrEnd };
    }

    /// Whether the innermost bracket is that of the list which the first `*` of a path stands for. A list in a list is part of it.
    fn is_list_of(&self, index: usize) -> bool {
        self.is_outer_list() && self.paths[index].adds_up_at() == Some(self.objects())
    }

    fn is_outer_list(&self) -> bool {
        self.arrays & 3 == 1
    }

    fn leave(&mut self, found: &mut impl FnMut(usize, JsonValue<'_>)) {
        let left = self.depth;
        if self.is_outer_list() {
            for index in 0..self.paths.len() {
                if self.followed[index].depth == left && self.is_list_of(index) {
                    found(index, JsonValue::ListEnd);
                }
            }
        }
        self.depth -= 1;
        self.arrays >>= 1;
        self.is_followed = false;
        for (index, followed) in self.followed.iter_mut().enumerate() {
            if followed.depth == left && !std::mem::replace(&mut followed.is_told, true) {
                found(index, JsonValue::Nothing);
            }
            followed.depth = followed.depth.min(self.depth);
            self.is_followed |= followed.depth == self.depth;
        }
        self.end_value();
    }

    fn end_value(&mut self) {
        match self.depth {
            0 if self.is_of_one => self.state = ScannerState::End,
            0 => self.restart(),
            _ => self.state = ScannerState::CommaOrEnd,
        }
    }

    /// Whether the next value is at the end of a path.
    fn is_wanted(&self) -> bool {
        self.hits.iter().any(|index| self.paths[usize::from(*index)].names().len() == self.objects())
    }

    fn begin_token(&mut self, keeps_token: bool) {
        self.token.clear();
        (self.keeps_token, self.is_token_void, self.high) = (keeps_token, false, None);
    }

    fn keep(&mut self, bytes: &[u8]) {
        if !self.keeps_token || bytes.is_empty() {
            return;
        }
        // No text any more, because the second half of a character did not come, or because the token is too long.
        self.is_token_void |= self.high.take().is_some() || self.token.len() + bytes.len() > TOKEN_BYTES_MAX;
        if !self.is_token_void {
            self.token.extend_from_slice(bytes);
        } else if self.token.is_empty() {
            // One byte is kept, so that the sign of a long number can be asked for.
            self.token.push(bytes[0]);
        }
    }

    fn begin_text(&mut self, is_name: bool) {
        self.begin_token(if is_name { self.is_followed } else { self.is_wanted() });
        self.state = ScannerState::Text { is_name };
    }

    fn read_text(
        &mut self,
        rest: &[u8],
        is_name: bool,
        found: &mut impl FnMut(usize, JsonValue<'_>),
    ) -> usize {
        let Some(end) = memchr2(b'"', b'\\', rest) else {
            self.keep(rest);
            return rest.len();
        };
        self.keep(&rest[..end]);
        if rest[end] == b'\\' {
            self.state = ScannerState::Escape { is_name };
        } else if is_name {
            self.end_name(found);
        } else {
            self.end_text(found);
        }
        end + 1
    }

    fn read_escape(&mut self, byte: u8, is_name: bool) -> usize {
        self.state = ScannerState::Text { is_name };
        let plain: &[u8] = match byte {
            // Only for a token that is kept, because digits are no end of a string, and no other needs to know what
            // they mean.
            b'u' if self.keeps_token => {
                self.state = ScannerState::Hex { is_name, digits: 0, unit: 0 };
                return 1;
            }
            b'u' => b"",
            b'"' => b"\"",
            b'\\' => b"\\",
            b'/' => b"/",
            b'b' => b"\x08",
            b'f' => b"\x0c",
            b'n' => b"\n",
            b'r' => b"\r",
            b't' => b"\t",
            _ => {
                self.state = ScannerState::Broken;
                return 1;
            }
        };
        self.keep(plain);
        1
    }

    fn read_hex(&mut self, byte: u8, is_name: bool, digits: u8, unit: u16) -> usize {
        let Some(digit) = char::from(byte).to_digit(16) else {
            self.state = ScannerState::Broken;
            return 1;
        };
        let unit = unit << 4 | digit as u16;
        if digits < 3 {
            self.state = ScannerState::Hex { is_name, digits: digits + 1, unit };
            return 1;
        }
        self.state = ScannerState::Text { is_name };
        match (self.high.take(), unit) {
            (None, 0xd800..=0xdbff) => self.high = Some(unit),
            (high, _) => {
                let mut units = char::decode_utf16(high.into_iter().chain([unit]));
                match units.next() {
                    Some(Ok(char)) => self.keep(char.encode_utf8(&mut [0; 4]).as_bytes()),
                    _ => self.is_token_void = true,
                }
            }
        }
        1
    }

    fn end_name(&mut self, found: &mut impl FnMut(usize, JsonValue<'_>)) {
        self.hits.clear();
        let is_text = self.keeps_token && !self.is_token_void && self.high.is_none();
        if is_text {
            let place = self.objects() - 1;
            for (index, followed) in (0..).zip(&mut self.followed) {
                let (is_here, path) = (followed.depth == self.depth, &self.paths[usize::from(index)]);
                // This cannot be out of bounds, because a path that is followed to here has a name for here.
                if is_here && *path.names()[place].as_bytes() == *self.token {
                    self.hits.push(index);
                    if path.adds_up_at().is_some() {
                        let is_again = followed.had >> place & 1 == 1;
                        followed.had |= 1 << place;
                        found(usize::from(index), JsonValue::Member { place, is_again });
                    }
                }
            }
        }
        self.state = ScannerState::Colon;
    }

    fn end_text(&mut self, found: &mut impl FnMut(usize, JsonValue<'_>)) {
        let is_whole = self.keeps_token && !self.is_token_void && self.high.is_none();
        let token = std::mem::take(&mut self.token);
        let text = std::str::from_utf8(&token).ok().filter(|_| is_whole);
        self.hand_on(text.map_or(JsonValue::Nothing, JsonValue::Text), found);
        self.token = token;
        self.end_value();
    }

    fn read_number(&mut self, rest: &[u8], found: &mut impl FnMut(usize, JsonValue<'_>)) -> usize {
        let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let end = rest.iter().take_while(|byte| is_of_number(byte)).count();
        self.keep(&rest[..end]);
        if end < rest.len() {
            let token = std::mem::take(&mut self.token);
            let value = match token.first() {
                Some(sign) if self.is_token_void => JsonValue::LongNumber { is_negative: *sign == b'-' },
                _ => JsonValue::Number(&token),
            };
            self.hand_on(value, found);
            self.token = token;
            self.end_value();
        }
        end
    }

    fn read_word(
        &mut self,
        byte: u8,
        word: &'static str,
        at: u8,
        found: &mut impl FnMut(usize, JsonValue<'_>),
    ) -> usize {
        let (expected, at) = (word.as_bytes()[usize::from(at)], at + 1);
        if byte != expected {
            self.state = ScannerState::Broken;
        } else if usize::from(at) < word.len() {
            self.state = ScannerState::Word { word, at };
        } else {
            self.hand_on(JsonValue::Word(word), found);
            self.end_value();
        }
        1
    }

    /// Hands on a value that is no object and no array. A path that goes beyond it has nothing here.
    fn hand_on(&mut self, value: JsonValue<'_>, found: &mut impl FnMut(usize, JsonValue<'_>)) {
        for index in self.hits.iter().map(|index| usize::from(*index)) {
            let path = &self.paths[index];
            let is_end = path.names().len() == self.objects()
                && path.adds_up_at().is_none_or(|names| self.is_in_list(names));
            self.followed[index].is_told = true;
            found(index, if is_end { value } else { JsonValue::Nothing });
        }
    }
}

/// The most open brackets; deeper JSON counts as broken, because serde_json, whose users read the rest, takes no
/// more.
pub const DEPTH_MAX: u8 = 128;
/// The longest name or value that is read; longer ones count as others than those that are looked for.
pub const TOKEN_BYTES_MAX: usize = 256;
