//! Requests of OpenAI's Responses API, as far as the run's events do not hold them.

use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use uuid::Uuid;

impl Store {
    /// The stored part of the request, as JSON; `None` for a run that was not requested through that API.
    pub async fn response(&self, run: Uuid) -> Result<Option<String>, StoreError> {
        let asked = sqlx::query_scalar("SELECT asked FROM responses WHERE run = $1")
            .bind(run.to_string())
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(asked)
    }
}
