//! The row that tells of entries that were deleted from the begin of the log, because they were old.
//!
//! It has the number and the hash of the last one of them. So the first entry that is left still follows from a hash, and
//! a begin that is missing without such a row is a fault.

use serde_json::{Value, json};

/// The action of the row.
pub const EXPIRED: &str = "audit_expired";
/// The members with the number and the hash of the last entry that was deleted.
const UNTIL: &str = "until";
const HASH: &str = "until_hash";

/// Entries at the begin of the log that were deleted.
#[derive(Debug, Clone, Copy)]
pub struct ExpiredRange<'h> {
    /// The first one that there was.
    pub from: i64,
    /// The last one.
    pub until: i64,
    /// Hash of the last one.
    pub hash: &'h str,
    /// Time before which they were written, in milliseconds since 1970.
    pub before_ms: u64,
}

impl ExpiredRange<'_> {
    /// The members of the row.
    pub fn members(&self) -> Value {
        json!({"from": self.from, UNTIL: self.until, HASH: self.hash, "before_ms": self.before_ms})
    }
}

/// The number and the hash of the last entry that was deleted, if `entry` tells of that.
pub fn expired_until(entry: &Value) -> Option<(i64, &str)> {
    let action = entry.get("action").and_then(Value::as_str);
    action.filter(|action| *action == EXPIRED)?;
    Some((entry.get(UNTIL)?.as_i64()?, entry.get(HASH)?.as_str()?))
}
