//! Loading: files, variables and secrets, sections over all files, and the errors of one load.

pub(super) mod context;
pub(super) mod definition;
pub(super) mod expand;
pub(super) mod files;
pub(super) mod mask;
pub(super) mod report;
pub(super) mod sections;
pub(super) mod source;
pub(super) mod text;
