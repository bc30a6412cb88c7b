//! Rows that tell of records of runs from which texts were taken.
//!
//! An event's seal is of what it was before. So the log has a digest of what it is now, as it has for its own rows whose
//! texts were redacted.

use super::digest;
use serde_json::{Value, json};
use toolhold_protocol::event::RemovedSource;
use uuid::Uuid;

/// The action of such a row.
pub(crate) const RECORD_REDACTED: &str = "record_redacted";

/// Its members: the run, what was deleted, and the events, each as its number and the digest of its line.
pub(super) fn redacted_record(run: Uuid, of: &[RemovedSource], lines: &[(u64, String)]) -> Value {
    json!({"run": run, "of": of, "events": lines})
}

/// The digest of an event's line from which texts were taken. The line has the seal of what it was.
pub fn line_digest(line: &str) -> String {
    digest(line.as_bytes())
}

/// The events of `run` that this entry tells of: the number of each, and the digest of its line.
pub fn redacted_lines(entry: &Value, run: Uuid) -> impl Iterator<Item = (u64, &str)> {
    let is_told = redacted_run(entry) == Some(run);
    let events = entry.get("events").filter(|_| is_told);
    let events = events.and_then(Value::as_array).into_iter().flatten();
    events.filter_map(|one| Some((one.get(0)?.as_u64()?, one.get(1)?.as_str()?)))
}

/// The run of whose record an entry tells, if it is such an entry.
pub fn redacted_run(entry: &Value) -> Option<Uuid> {
    let member = |name: &str| entry.get(name).and_then(Value::as_str);
    let run = member("run").filter(|_| member("action") == Some(RECORD_REDACTED));
    run.and_then(|run| run.parse().ok())
}
