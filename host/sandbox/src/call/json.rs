//! Bounds of JSON: its depth and its size.

use serde_json::{Map, Value};
use std::string::FromUtf8Error;

/// Refuses JSON that is nested deeper than `limit`: later readers recurse.
pub(crate) fn shallow(value: &Value, limit: u64) -> Result<(), String> {
    if fits(value, limit) {
        Ok(())
    } else {
        Err(too_deep(limit))
    }
}

/// The same for the members of an object.
pub(crate) fn shallow_members(members: &Map<String, Value>, limit: u64) -> Result<(), String> {
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

/// JSON text that is written up to a limit: serialising stops where it would be longer.
pub(crate) struct LimitedText {
    text: Vec<u8>,
    limit: u64,
}

impl LimitedText {
    /// Of at most `limit` bytes.
    pub fn new(limit: u64) -> Self {
        let text = Vec::with_capacity(128);
        Self { text, limit }
    }

    /// How many bytes more there may be.
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.text.len() as u64)
    }

    /// # Errors
    /// What was written is no UTF-8.
    pub fn into_text(self) -> Result<String, FromUtf8Error> {
        String::from_utf8(self.text)
    }
}

impl std::io::Write for LimitedText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() as u64 > self.room() {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
