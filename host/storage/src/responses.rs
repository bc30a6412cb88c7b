//! Requests of OpenAI's Responses API, as far as the run's events do not hold them.

use crate::database::InTime as _;
use crate::error::StoreError;
use crate::statements::OpenTransaction;
use crate::store::Store;
use serde_json::{Map, Value};
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

/// The member of the stored part with the items of all inputs and of all responses before.
const INPUT: &str = "input";

/// Takes the items out of the stored part. Without them, they are listed from the context of the run.
pub async fn forget_input(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
) -> Result<(), sqlx::Error> {
    let asked: Option<(String,)> = transaction
        .row("SELECT asked FROM responses WHERE run = $1", &[run.into()])
        .await?;
    let asked = asked.and_then(|(text,)| serde_json::from_str::<Map<String, Value>>(&text).ok());
    let Some(mut asked) = asked.filter(|asked| asked.contains_key(INPUT)) else {
        return Ok(());
    };
    asked.retain(|name, _| name != INPUT);
    let asked = serde_json::to_string(&asked).map_err(|error| sqlx::Error::Encode(error.into()))?;
    transaction
        .execute(
            "UPDATE responses SET asked = $1 WHERE run = $2",
            &[asked.into(), run.into()],
        )
        .await?;
    Ok(())
}
