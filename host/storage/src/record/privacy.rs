//! The privacy settings of many runs at a time, by which lists of runs mask secrets. Apart from other reads of records,
//! because it reads the first event alone.

use super::event;
use crate::column::{parsed_id, signed};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::shared_texts;
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::privacy::Privacy;
use uuid::Uuid;

/// Maximum bytes of the first events that one query returns; a longer event is read alone. The events of a page of a list
/// are rarely more, so one query reads them all.
const QUERY_BYTES: u64 = 4 << 20;

impl Store {
    /// Returns the privacy settings of these runs, from their first events. A run without a first event that can be read is
    /// left out.
    ///
    /// # Errors
    /// The database failed.
    pub async fn privacy_of(&self, runs: &[Uuid]) -> Result<BTreeMap<Uuid, Privacy>, StoreError> {
        self.privacy_within(runs, QUERY_BYTES).await
    }

    /// [`Store::privacy_of`], where one query returns at most `bytes` of events, or one event.
    pub(crate) async fn privacy_within(
        &self,
        runs: &[Uuid],
        bytes: u64,
    ) -> Result<BTreeMap<Uuid, Privacy>, StoreError> {
        let statement = begins_statement(self.database.is_file());
        let mut unread: BTreeSet<Uuid> = runs.iter().copied().collect();
        let mut found = BTreeMap::new();
        while !unread.is_empty() {
            let listed = serde_json::to_string(&unread)
                .map_err(|error| sqlx::Error::Encode(error.into()))?;
            let rows: Vec<(String, String, Option<String>, Option<String>)> =
                sqlx::query_as(statement)
                    .bind(listed)
                    .bind(signed(bytes))
                    .fetch_all(&self.pool)
                    .in_time(&self.database)
                    .await?;
            // The others have no first event.
            if rows.is_empty() {
                break;
            }
            for (run, line, digest, text) in rows {
                let run = parsed_id(&run)?;
                unread.remove(&run);
                let line = shared_texts::whole(run, 0, (line, digest, text));
                if let Ok(begin) = event(run, (0, &line))
                    && let EventKind::Run { request, .. } = begin.kind
                {
                    found.insert(run, request.settings.privacy);
                }
            }
        }
        Ok(found)
    }
}

/// The statement of [`Store::privacy_of`].
pub fn begins_statement(is_file: bool) -> &'static str {
    let [on_server, in_file] = &*BEGINS;
    if is_file { in_file } else { on_server }
}

/// The runs in a JSON array, on PostgreSQL and on SQLite.
const AMONG_RUNS: [&str; 2] = [
    "SELECT json_array_elements_text($1::json)",
    "SELECT value FROM json_each($1)",
];

/// The first lines of the runs in the array $1: of at most $2 bytes together, or one. The inner query reads only lengths,
/// which the databases know without reading the lines. For PostgreSQL and for SQLite.
static BEGINS: LazyLock<[String; 2]> = LazyLock::new(|| {
    let (bytes, events) = (shared_texts::BYTES, shared_texts::EVENTS);
    AMONG_RUNS.map(|runs| {
        format!(
            "SELECT events.run, line, digest, content FROM {events} WHERE events.seq = 0 AND events.run IN \
             (SELECT run FROM (SELECT run, bytes, CAST(SUM(bytes) OVER (ORDER BY run) AS BIGINT) - bytes AS sooner FROM \
             (SELECT events.run AS run, {bytes} AS bytes FROM events LEFT JOIN event_texts \
             ON event_texts.run = events.run AND event_texts.seq = events.seq \
             WHERE events.seq = 0 AND events.run IN ({runs})) AS sized) \
             AS summed WHERE sooner = 0 OR sooner + bytes <= $2)"
        )
    })
});
