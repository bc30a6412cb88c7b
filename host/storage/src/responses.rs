//! What a run was asked for as a response of OpenAI's API, beside its events.

use crate::storage::Store;
use crate::storage::database::InTime as _;
use crate::storage::error::StoreError;
use uuid::Uuid;

impl Store {
    /// None of a run that was not asked for as a response.
    pub async fn response(&self, run: Uuid) -> Result<Option<String>, StoreError> {
        let asked = sqlx::query_scalar("SELECT asked FROM responses WHERE run = $1")
            .bind(run.to_string())
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(asked)
    }
}
