//! The language of nginx.conf: words, quotes, blocks, and `include`.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use super::super::file::{self, Error};
use super::super::notes::{Notes, ReadLine, SourceLine};

/// A directive, its arguments and what stands between its braces.
#[derive(Debug)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
    pub(super) place: SourceLine,
    /// Whether somebody has read it. What nobody reads is listed as left out.
    used: Cell<bool>,
}

impl ReadLine for Directive {
    fn listed(&self) -> (&SourceLine, String) {
        (&self.place, self.shown())
    }
}

impl Directive {
    /// Marks it, and not what is in it, as read.
    pub(super) fn taken(&self) -> &Directive {
        self.used.set(true);
        self
    }

    /// Marks it and everything in it as read.
    pub(super) fn taken_whole(&self) {
        self.within().iter().for_each(|inside| inside.used.set(true));
    }

    pub(super) fn is_taken(&self) -> bool {
        self.used.get()
    }

    pub(super) fn block(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// It and all that is in it, the outer before the inner.
    pub(super) fn within(&self) -> Vec<&Directive> {
        std::iter::once(self).chain(self.block().iter().flat_map(Directive::within)).collect()
    }

    /// One argument; an absent one is empty.
    pub(super) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }

    /// All of it with its block, to compare it with another.
    pub(super) fn whole(&self) -> String {
        let block: String = self.block().iter().map(Directive::whole).collect();
        format!("{} {:?} {{{block}}};", self.name, self.args)
    }

    /// As it stands in the file.
    pub(super) fn shown(&self) -> String {
        let words = std::iter::once(self.name.as_str()).chain(self.args.iter().map(String::as_str));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Reads a file and those it includes.
pub(super) struct Reader<'r> {
    /// Where relative paths start from.
    pub(super) directory: &'r Path,
    pub(super) notes: &'r mut Notes,
    /// Whether files that are included may be read.
    includes: bool,
    files: usize,
}

/// Where a reader stands in one file.
struct Cursor<'t> {
    file: String,
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    line: usize,
}

enum Token {
    Word(String),
    End,
    Open,
    Close,
}

impl<'r> Reader<'r> {
    pub(super) fn new(directory: &'r Path, includes: bool, notes: &'r mut Notes) -> Reader<'r> {
        Reader { directory, notes, includes, files: 1 }
    }

    /// All directives of a text, and of what it includes.
    pub(super) fn text(&mut self, path: &Path, text: &str) -> Result<Vec<Directive>, Error> {
        let file = path.display().to_string();
        // Without the mark that some editors put in front, because it is no part of the first word.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut cursor = Cursor { file, rest: text.chars().peekable(), line: 1 };
        self.block(&mut cursor, 0)
    }

    /// Directives up to the end of a block, or of the file if `depth` is 0.
    fn block(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Result<Vec<Directive>, Error> {
        let mut directives = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let mut begin = cursor.line;
        loop {
            let token = cursor.token()?;
            if words.is_empty() {
                begin = cursor.line;
            }
            let place = SourceLine { file: cursor.file.clone(), line: begin };
            match token {
                Some(Token::Word(word)) => words.push(word),
                Some(Token::End) if words.first().is_some_and(|name| name == "include") => {
                    directives.extend(self.included(&words, &place)?);
                    words.clear();
                }
                Some(Token::End) if !words.is_empty() => directives.push(directive(&mut words, place, None)),
                Some(Token::Open) if words.first().is_some_and(|name| name.ends_with("_by_lua_block")) => {
                    cursor.skip_lua()?;
                    directives.push(directive(&mut words, place, Some(Vec::new())));
                }
                Some(Token::Open) if !words.is_empty() && depth < DEPTH_MAX => {
                    let block = self.block(cursor, depth + 1)?;
                    directives.push(directive(&mut words, place, Some(block)));
                }
                Some(Token::Close) if words.is_empty() && depth > 0 => return Ok(directives),
                None if words.is_empty() && depth == 0 => return Ok(directives),
                None => return Err(cursor.error("the file ends within a directive or a block")),
                Some(Token::End) => {}
                Some(Token::Open | Token::Close) => return Err(cursor.error("a brace is not expected here")),
            }
        }
    }

    /// The directives of the files that a pattern names.
    fn included(&mut self, words: &[String], place: &SourceLine) -> Result<Vec<Directive>, Error> {
        let pattern = self.directory.join(words.get(1).map_or("", String::as_str));
        let mut directives = Vec::new();
        if !self.includes {
            self.notes.left_out(place, &words.join(" "), "includes of a text without a file are not read");
            return Ok(directives);
        }
        for path in self.matching(&pattern, place) {
            // Not read, because types of files matter to what nginx serves from a disk alone.
            if path.file_name().is_some_and(|name| name == "mime.types") {
                self.notes.needless(place, "include mime.types");
                continue;
            }
            if self.files >= FILES_MAX {
                self.notes.left_out(
                    place,
                    &words.join(" "),
                    format!("more than {FILES_MAX} files are included"),
                );
                break;
            }
            if !path.exists() {
                self.notes.left_out(place, &words.join(" "), "there is no such file");
                continue;
            }
            // Nothing else is read, because a pipe could be waited for without end; a directory is an error of its own.
            if !path.is_file() && !path.is_dir() {
                self.notes.left_out(place, &words.join(" "), "it is a pipe or a device, which is not read");
                continue;
            }
            self.files += 1;
            directives.extend(self.text(&path, &file::read(&path)?)?);
        }
        Ok(directives)
    }

    /// The files that fit a pattern, sorted; stars and question marks are known in the name alone.
    fn matching(&mut self, pattern: &Path, place: &SourceLine) -> Vec<PathBuf> {
        let name = pattern.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let directory = pattern.parent().unwrap_or(Path::new("/")).to_owned();
        if directory.to_string_lossy().contains(['*', '?', '[']) || name.contains('[') {
            let why = "only `*` and `?` in the file's name are read";
            self.notes.left_out(place, &format!("include {}", pattern.display()), why);
            return Vec::new();
        }
        if !name.contains(['*', '?']) {
            return vec![pattern.to_owned()];
        }
        let entries = std::fs::read_dir(&directory).into_iter().flatten().filter_map(Result::ok);
        let fits = |entry: &std::fs::DirEntry| {
            let entry = entry.file_name().to_string_lossy().into_owned();
            (!entry.starts_with('.') || name.starts_with('.')) && is_match(name.as_bytes(), entry.as_bytes())
        };
        let mut files: Vec<PathBuf> = entries.filter(fits).map(|entry| entry.path()).collect();
        files.sort();
        files
    }
}

/// Whether a name fits a pattern of `*` and `?`. Each `*` is tried once, so that this takes no more than their product.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut with, mut star) = (0, 0, None);
    while at < name.len() {
        match pattern.get(with) {
            Some(b'*') => {
                star = Some((with, at));
                with += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[at] => {
                at += 1;
                with += 1;
            }
            _ => match star {
                Some((before, taken)) => {
                    star = Some((before, taken + 1));
                    at = taken + 1;
                    with = before + 1;
                }
                None => return false,
            },
        }
    }
    pattern[with..].iter().all(|byte| *byte == b'*')
}

fn directive(words: &mut Vec<String>, place: SourceLine, block: Option<Vec<Directive>>) -> Directive {
    let mut words = std::mem::take(words).into_iter();
    let name = words.next().unwrap_or_default();
    Directive { name, args: words.collect(), block, place, used: Cell::new(false) }
}

impl Cursor<'_> {
    fn error(&self, message: &str) -> Error {
        Error::Syntax { file: self.file.clone(), line: self.line, message: message.to_owned() }
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn token(&mut self) -> Result<Option<Token>, Error> {
        loop {
            match self.rest.peek().copied() {
                None => return Ok(None),
                Some('#') => {
                    while self.rest.peek().is_some_and(|sign| *sign != '\n') {
                        self.next();
                    }
                }
                Some(sign) if sign.is_whitespace() => {
                    self.next();
                }
                Some(';') => return Ok(self.next().map(|_| Token::End)),
                Some('{') => return Ok(self.next().map(|_| Token::Open)),
                Some('}') => return Ok(self.next().map(|_| Token::Close)),
                Some(quote @ ('"' | '\'')) => {
                    self.next();
                    return self.quoted(quote).map(|word| Some(Token::Word(word)));
                }
                Some(_) => return Ok(Some(Token::Word(self.word()))),
            }
        }
    }

    /// Passes over a block of Lua: braces in its strings and comments are none of its own.
    fn skip_lua(&mut self) -> Result<(), Error> {
        let mut depth = 1_usize;
        while let Some(sign) = self.next() {
            match sign {
                '{' => depth += 1,
                '}' => depth -= 1,
                '"' | '\'' => self.skip_lua_string(sign),
                '-' if self.rest.peek() == Some(&'-') => {
                    self.next();
                    if !self.skip_lua_brackets() {
                        while self.rest.peek().is_some_and(|sign| *sign != '\n') {
                            self.next();
                        }
                    }
                }
                '[' if matches!(self.rest.peek(), Some('[' | '=')) => {
                    self.skip_lua_level();
                }
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.error("the file ends within a block of Lua"))
    }

    fn skip_lua_string(&mut self, quote: char) {
        while let Some(sign) = self.next() {
            match sign {
                '\\' => drop(self.next()),
                // Here, too, because a string ends with its line at the latest.
                '\n' => return,
                sign if sign == quote => return,
                _ => {}
            }
        }
    }

    /// A comment of several lines, if one begins here.
    fn skip_lua_brackets(&mut self) -> bool {
        if self.rest.peek() != Some(&'[') {
            return false;
        }
        self.next();
        self.skip_lua_level()
    }

    /// What stands between `[[` and `]]`, or between `[=[` and `]=]`, behind the first bracket.
    fn skip_lua_level(&mut self) -> bool {
        let mut end = "]".to_owned();
        while self.rest.peek() == Some(&'=') {
            self.next();
            end.push('=');
        }
        if self.rest.peek() != Some(&'[') {
            return false;
        }
        end.push(']');
        let mut last = String::new();
        while let Some(sign) = self.next() {
            last.push(sign);
            if last.ends_with(&end) {
                break;
            }
            if last.len() > LUA_TAIL_MAX {
                last = last.chars().skip(last.chars().count() - end.len()).collect();
            }
        }
        true
    }

    /// A word without quotes. `${` begins a variable, whose braces are no block.
    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(sign) = self.rest.peek().copied() {
            let in_variable = word.ends_with('$') && sign == '{';
            if !in_variable && (sign.is_whitespace() || matches!(sign, ';' | '{' | '}')) {
                break;
            }
            self.next();
            if in_variable {
                word.push(sign);
                while let Some(inside) = self.rest.peek().copied().filter(|sign| !sign.is_whitespace()) {
                    self.next();
                    word.push(inside);
                    if inside == '}' {
                        break;
                    }
                }
                continue;
            }
            word.push(sign);
            // The next sign, too, because a backslash keeps what follows in the word, as in a regular expression.
            if sign == '\\' {
                word.extend(self.next());
            }
        }
        word
    }

    fn quoted(&mut self, quote: char) -> Result<String, Error> {
        let mut word = String::new();
        while let Some(sign) = self.next() {
            match sign {
                sign if sign == quote => return Ok(word),
                '\\' => match self.next() {
                    Some(escaped @ ('"' | '\'' | '\\')) => word.push(escaped),
                    Some('n') => word.push('\n'),
                    Some('t') => word.push('\t'),
                    Some('r') => word.push('\r'),
                    Some(other) => word.extend(['\\', other]),
                    None => {}
                },
                sign => word.push(sign),
            }
        }
        Err(self.error("a quote is not closed"))
    }
}

const DEPTH_MAX: usize = 32;
/// Bytes that are kept to find the end of a long text of Lua.
const LUA_TAIL_MAX: usize = 1_000;
const FILES_MAX: usize = 1_000;
