//! How much of each value a line keeps, and how long a line can become.

use super::target::PATH_BYTES_MAX;
use crate::record::field::FIELD_BYTES_MAX;
use crate::record::syslog::HEADER_BYTES_MAX;
use crate::record::{FIELD_NAME_BYTES_MAX, FIELDS_MAX};

/// Bytes kept of a host or of any name.
pub(super) const NAME_BYTES_MAX: usize = 256;
/// Bytes kept of a request id.
pub(super) const ID_BYTES_MAX: usize = 128;
pub(super) const METHOD_BYTES_MAX: usize = 32;
/// The longest possible line: a header, six times the bytes kept of each text, and room for everything else.
pub(in crate::record) const LINE_BYTES_MAX: usize = HEADER_BYTES_MAX
    + 6 * (PATH_BYTES_MAX
        + ID_BYTES_MAX
        + METHOD_BYTES_MAX
        + 15 * NAME_BYTES_MAX
        + FIELDS_MAX * (FIELD_BYTES_MAX + FIELD_NAME_BYTES_MAX))
    + 2560;
