//! Operators' own bodies for the errors that the gateway answers itself, from files (`[errors]`). A file takes the place of
//! the gateway's own body of the same kind, so that a program which asks for problem+json still gets it beside a page for
//! browsers. Answers of upstreams pass as they are.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use crate::proxy::config::ErrorPage;
use crate::service::form::ErrorForm;
use base::whole_file;
use policy::matching::pattern;
use policy::matching::pattern::Pattern;
use policy::request::TemplateValues;
use policy::response::body::CompiledBody;
use policy::template;

/// The bodies of a configuration, the ones for the fewest statuses first.
#[derive(Debug)]
pub struct ErrorPages {
    pages: Vec<ErrorPageBody>,
    /// No path parameter can be written in a page that all routes share.
    pattern: Pattern,
}

#[derive(Debug)]
pub struct ErrorPageBody {
    wanted: ErrorPage,
    form: ErrorForm,
    body: CompiledBody,
}

/// What is wrong with one of the files. All are for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", .file.display())]
    Read { file: PathBuf, source: io::Error },
    /// It is larger than any error should be.
    #[error("{}: an error page has at most {} KiB", .file.display(), BYTES_MAX / 1024)]
    TooLarge { file: PathBuf },
    /// It is not text in UTF-8.
    #[error("{}: an error page is text in UTF-8", .file.display())]
    NotText { file: PathBuf },
    /// A placeholder `{...}` in it is wrong.
    #[error("{}: {source}", .file.display())]
    Template { file: PathBuf, source: template::Error },
    /// The path that stands for all paths.
    #[error(transparent)]
    Pattern(#[from] pattern::Error),
}

impl ErrorPages {
    /// Reads all files.
    ///
    /// # Errors
    /// Each that cannot be used, with the index of its entry.
    pub fn read(wanted: &[ErrorPage]) -> Result<ErrorPages, Vec<(usize, Error)>> {
        let pattern = Pattern::parse("/").map_err(|error| vec![(0, error.into())])?;
        let (mut pages, mut wrong) = (Vec::new(), Vec::new());
        for (index, wanted) in wanted.iter().enumerate() {
            match ErrorPageBody::read(wanted, &pattern) {
                Ok(page) => pages.push(page),
                Err(error) => wrong.push((index, error)),
            }
        }
        // Sorted, so that one status goes before a class, as the exact name does everywhere.
        pages.sort_by_key(|page| page.wanted.statuses.end() - page.wanted.statuses.start());
        if wrong.is_empty() { Ok(ErrorPages { pages, pattern }) } else { Err(wrong) }
    }

    /// The body for answers with this status in this form; `None`: the gateway's own.
    pub fn find(&self, status: StatusCode, form: ErrorForm) -> Option<&ErrorPageBody> {
        let is_for =
            |page: &&ErrorPageBody| page.form == form && page.wanted.statuses.contains(&status.as_u16());
        self.pages.iter().find(is_for)
    }

    /// What its values are to say that the parameters of a path are: none.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }
}

impl ErrorPageBody {
    fn read(wanted: &ErrorPage, pattern: &Pattern) -> Result<ErrorPageBody, Error> {
        let file = || wanted.file.clone();
        let bytes = whole_file::read(&wanted.file, BYTES_MAX).map_err(|source| match source.kind() {
            io::ErrorKind::FileTooLarge => Error::TooLarge { file: file() },
            _ => Error::Read { file: file(), source },
        })?;
        let text = String::from_utf8(bytes).map_err(|_| Error::NotText { file: file() })?;
        let form = form(&wanted.file).unwrap_or_default();
        let body = CompiledBody::parse(&text, media_type(form).to_str().ok(), pattern)
            .map_err(|source| Error::Template { file: file(), source })?;
        Ok(ErrorPageBody { wanted: wanted.clone(), form, body })
    }

    /// The bytes for one request, and their type.
    pub fn render(&self, values: &TemplateValues<'_, '_>) -> (Bytes, HeaderValue) {
        (self.body.render(values), media_type(self.form))
    }
}

/// The kind of body that a file has, by its name; `None`: of no kind that an error is told in.
pub fn form(file: &Path) -> Option<ErrorForm> {
    let extension = file.extension()?.to_str()?.to_ascii_lowercase();
    Some(match &*extension {
        "html" | "htm" => ErrorForm::Html,
        "json" => ErrorForm::Json,
        "txt" => ErrorForm::Text,
        _ => return None,
    })
}

fn media_type(form: ErrorForm) -> HeaderValue {
    HeaderValue::from_static(match form {
        ErrorForm::Html => "text/html; charset=utf-8",
        ErrorForm::Json => "application/json",
        ErrorForm::Text => "text/plain; charset=utf-8",
    })
}

/// A page of an error is read whole and sent from memory.
const BYTES_MAX: u64 = 256 * 1024;
