//! Collections of the documents that came with a session's turns, or with a run that belongs to no session. They are
//! deleted with the session, or after the run's end.

use super::collections::{COLUMNS, Collection, collection};
use crate::column::signed;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use uuid::Uuid;

/// How their names begin. A collection that somebody creates cannot have a `:` in its name.
pub(super) const PREFIX: &str = "attached:";
/// Collections of one query.
const ROUND: i64 = 100;

/// The name of the collection of a session, or of a run.
pub fn attached_name(of: Uuid) -> String {
    format!("{PREFIX}{of}")
}

/// Attached collections without their session or run. The id is taken from the name, so that each is looked up by its key.
pub(crate) fn left_statement() -> String {
    let id = format!("SUBSTR(collections.name, {})", PREFIX.len() + 1);
    format!(
        "SELECT {COLUMNS} FROM collections WHERE deleted_ms IS NULL AND name LIKE '{PREFIX}%' AND created_ms < $1 \
         AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = {id}) \
         AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = {id} AND runs.ended_ms IS NULL) ORDER BY id LIMIT $2"
    )
}

impl Store {
    /// Deletes the collections whose session is gone, or whose run has ended or never began, if they were created before
    /// `created_before_ms`. Returns their number.
    pub async fn delete_left_attached(&self, created_before_ms: u64) -> Result<u64, StoreError> {
        let mut deleted = 0;
        loop {
            let rows = sqlx::query(sqlx::AssertSqlSafe(left_statement()))
                .bind(signed(created_before_ms))
                .bind(ROUND)
                .fetch_all(&self.pool)
                .in_time(&self.database)
                .await?;
            let found: Result<Vec<Collection>, sqlx::Error> = rows.iter().map(collection).collect();
            let found = found?;
            if found.is_empty() {
                return Ok(deleted);
            }
            for collection in &found {
                let is_gone = self.delete_collection(&collection.owner, collection);
                deleted += u64::from(is_gone.await?);
            }
        }
    }
}
