//! A run's record as an exported file: one JSON object a line.

use super::Lines;
use crate::error::RecordError;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;
use toolhold_protocol::event::Event;

/// Bytes of a line: bounds memory, and is several times what a module may return, so that no exported event is
/// refused.
const MAX_LINE_BYTES: u64 = 512 << 20;

/// Reads a record event by event, in bounded memory but for the digests of lines from which texts were taken. A last line
/// without a line break is ignored: its process ended while writing it.
///
/// # Errors
/// It cannot be read, or one of its lines is no event.
pub fn scan(path: &Path, mut each: impl FnMut(Event)) -> Result<Lines, RecordError> {
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
        let mut bounded = reader.by_ref().take(MAX_LINE_BYTES);
        let length = bounded.read_until(b'\n', &mut line).map_err(failed)? as u64;
        if length == MAX_LINE_BYTES {
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
    Ok(lines)
}
