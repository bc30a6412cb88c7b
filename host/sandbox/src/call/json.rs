//! Bounds of JSON: its depth and its size.

use serde_json::{Map, Value};

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

/// Counts bytes without keeping them, and fails beyond its limit, so that serialising stops there.
pub(crate) struct Counter {
    pub bytes: u64,
    pub limit: u64,
}

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.limit {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
