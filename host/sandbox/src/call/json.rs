//! Bounds of JSON: its depth and its size.

use serde_json::{Map, Value};
use std::io;
use toolhold_json::depth::MAX_DEPTH;

/// Refuses JSON that is nested deeper than `limit`, or than a record may hold: later readers recurse.
pub(crate) fn shallow(value: &Value, limit: u64) -> Result<(), String> {
    let limit = limit.min(MAX_DEPTH as u64);
    if fits(value, limit) {
        Ok(())
    } else {
        Err(too_deep(limit))
    }
}

/// The same for the members of an object.
pub(crate) fn shallow_members(members: &Map<String, Value>, limit: u64) -> Result<(), String> {
    let limit = limit.min(MAX_DEPTH as u64);
    if limit > 0 && members.values().all(|member| fits(member, limit - 1)) {
        Ok(())
    } else {
        Err(too_deep(limit))
    }
}

/// Recurses at most `levels` deep, so that a value of any depth is safe here.
fn fits(value: &Value, levels: u64) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
        Value::Object(members) => {
            levels > 0 && members.values().all(|member| fits(member, levels - 1))
        }
        _ => true,
    }
}

fn too_deep(limit: u64) -> String {
    format!("the JSON is nested deeper than {limit} levels")
}

/// Longer arguments are written again when the call runs, and so are those of a call that waits for a place: arguments
/// that wait are kept once, by their caller.
const SHORT_BYTES: usize = 4 << 10;

/// Arguments as JSON text, measured before a call has its place.
pub(crate) struct ArgumentText {
    bytes: u64,
    /// Absent if the text is long, or its call waits.
    short: Option<String>,
}

impl ArgumentText {
    /// # Errors
    /// The text has more than `limit` bytes.
    pub fn of(arguments: &Value, limit: u64) -> io::Result<Self> {
        let mut written = Measured::new(limit);
        serde_json::to_writer(&mut written, arguments)?;
        let is_short = written.text.len() as u64 == written.bytes;
        let short = is_short.then(|| String::from_utf8(written.text));
        Ok(Self {
            bytes: written.bytes,
            short: short.transpose().map_err(io::Error::other)?,
        })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back the text, which is written again when it is needed.
    pub fn forget(&mut self) {
        self.short = None;
    }

    /// The text of the same arguments.
    pub fn text(self, arguments: &Value) -> String {
        self.short.unwrap_or_else(|| arguments.to_string())
    }
}

/// Whether the members take no more than `limit` bytes as JSON text.
pub(crate) fn fit(members: &Map<String, Value>, limit: u64) -> bool {
    serde_json::to_writer(Measured::new(limit), members).is_ok()
}

/// JSON text that is counted up to a limit, of which the beginning is kept: serialising stops where it would be longer.
struct Measured {
    text: Vec<u8>,
    bytes: u64,
    limit: u64,
}

impl Measured {
    fn new(limit: u64) -> Self {
        Self {
            text: Vec::with_capacity(128),
            bytes: 0,
            limit,
        }
    }
}

impl io::Write for Measured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        // What is not kept has a length that is not the text's.
        if self.text.len() + bytes.len() <= SHORT_BYTES {
            self.text.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn long_arguments_are_measured_and_not_kept() {
        for length in [0, 100, SHORT_BYTES - 20, SHORT_BYTES, 1 << 20] {
            let arguments = json!({"text": "x".repeat(length), "n": 1});
            let whole = arguments.to_string();
            let bytes = whole.len() as u64;
            let text = ArgumentText::of(&arguments, bytes).unwrap();
            assert_eq!(
                (text.bytes(), text.short.is_some()),
                (bytes, whole.len() <= SHORT_BYTES)
            );
            assert_eq!(text.text(&arguments), whole);
            let mut waiting = ArgumentText::of(&arguments, bytes).unwrap();
            waiting.forget();
            assert_eq!((waiting.bytes(), &waiting.short), (bytes, &None));
            assert_eq!(waiting.text(&arguments), whole);
            assert!(ArgumentText::of(&arguments, bytes - 1).is_err());
            let members = arguments.as_object().unwrap();
            assert!(fit(members, bytes) && !fit(members, bytes - 1));
        }
    }
}
