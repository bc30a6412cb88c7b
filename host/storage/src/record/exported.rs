//! A run's record as a file: one JSON object a line.

use crate::storage::error::RecordError;
use crate::storage::record::Lines;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;
use toolhold_agent::Event;

/// Bytes of a line: several times what a module may return, so that memory is bounded and nothing that
/// was written is refused.
const MAX_LINE: u64 = 512 << 20;

/// Reads a record event by event, and keeps none of them. A line without an end was being written when
/// its process ended, and is none. Returns the first line that is not as it was written.
///
/// # Errors
/// It cannot be read, or one of its lines is no event.
pub fn scan(path: &Path, mut each: impl FnMut(Event)) -> Result<Option<usize>, RecordError> {
    let failed = |source| RecordError::Read {
        what: path.display().to_string(),
        source,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut reader = BufReader::new(file);
    let mut lines = Lines::new(path.display().to_string());
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut bounded = reader.by_ref().take(MAX_LINE);
        let length = bounded.read_until(b'\n', &mut line).map_err(failed)? as u64;
        if length == MAX_LINE {
            return Err(failed(io::Error::other(format!(
                "line {number} has no end"
            ))));
        }
        let Some(text) = line.strip_suffix(b"\n") else {
            break;
        };
        let text = std::str::from_utf8(text)
            .map_err(|error| failed(io::Error::other(format!("line {number}: {error}"))))?;
        each(lines.event(text)?);
    }
    Ok(lines.changed)
}
