//! Unix sockets as texts: `unix:` and an absolute path. Nothing is opened.

use std::path::PathBuf;

use crate::load::text::Text;

/// Whether a text means a Unix socket.
pub(crate) fn is_meant(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// The path of a Unix socket; `example` shows how one is written.
pub(crate) fn path(text: &Text<'_>, example: &str) -> Option<PathBuf> {
    let path = text.text.strip_prefix(PREFIX)?;
    if !path.starts_with('/') {
        let hint = format!("write it like `{example}`");
        text.wrong(format!("{} needs an absolute path", text.shown()), hint);
        return None;
    }
    if path.len() > PATH_BYTES_MAX {
        let hint = format!("a socket's path has at most {PATH_BYTES_MAX} bytes");
        text.wrong(format!("`{}` is too long", text.key), hint);
    }
    // Refused, because the path is a part of log lines and of metrics' labels.
    if path.bytes().any(|byte| byte.is_ascii_control() || matches!(byte, b'"' | b'\\')) {
        let hint = "write a path without control characters, `\"` and `\\`";
        text.wrong(format!("{} is not a socket's path", text.shown()), hint);
    }
    Some(PathBuf::from(path))
}

/// What such a text begins with.
const PREFIX: &str = "unix:";
/// `sun_path` of Linux has 108 bytes including the final 0 (unix(7)).
const PATH_BYTES_MAX: usize = 107;
