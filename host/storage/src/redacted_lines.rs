//! Whether the log tells of texts that were taken out of records of runs.

use crate::audit_rows::{line_digest, link, redacted_lines};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use serde_json::Value;
use std::collections::BTreeMap;
use toolhold_protocol::event::Event;
use uuid::Uuid;

/// An event's line that says of itself that texts were taken out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedLine {
    /// Its run.
    run: Uuid,
    /// Its number.
    pub seq: u64,
    /// Number of the row that tells of it, as it says.
    entry: i64,
    digest: String,
}

impl RedactedLine {
    /// The line of `event`, if texts were taken out of it.
    pub fn of(event: &Event, line: &str) -> Option<Self> {
        Some(Self {
            run: event.run,
            seq: event.seq,
            entry: event.removed.as_ref()?.entry,
            digest: line_digest(line),
        })
    }
}

impl Store {
    /// Returns the numbers of events that no genuine row of the log names, ascending. Such an event was edited.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) async fn untold(&self, lines: &[RedactedLine]) -> Result<Vec<u64>, StoreError> {
        let mut by_entry: BTreeMap<i64, Vec<&RedactedLine>> = BTreeMap::new();
        for line in lines {
            by_entry.entry(line.entry).or_default().push(line);
        }
        let mut untold = Vec::new();
        for (number, lines) in by_entry {
            let entry = self.genuine_entry(number).await?;
            let is_told = |line: &RedactedLine| {
                let told = entry.as_ref().map(|it| redacted_lines(it, line.run));
                told.is_some_and(|mut told| told.any(|it| it == (line.seq, line.digest.as_str())))
            };
            untold.extend(lines.iter().filter(|it| !is_told(it)).map(|it| it.seq));
        }
        untold.sort_unstable();
        Ok(untold)
    }

    /// A row of the log, if it is what its hash was made of.
    async fn genuine_entry(&self, number: i64) -> Result<Option<Value>, sqlx::Error> {
        let row: Option<(String, String, String)> = sqlx::query_as(
            "SELECT entry, hash, COALESCE((SELECT older.hash FROM audit AS older \
             WHERE older.number = audit.number - 1), '') AS older_hash FROM audit WHERE number = $1",
        )
        .bind(number)
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        let genuine = row.filter(|(entry, hash, before)| link(before, entry) == *hash);
        Ok(genuine.and_then(|(entry, ..)| serde_json::from_str(&entry).ok()))
    }
}
