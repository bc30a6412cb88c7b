//! Sessions: conversations of several turns, each of which is a run.

use crate::audit_rows::{self, Draft};
use crate::blobs;
use crate::column::{id, signed, unsigned};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::prune::{NamedByRecords, delete_turns};
use crate::runs::{LISTED, RunRow};
use crate::shared_texts;
use crate::statements::SqlValue;
use crate::store::Store;
use crate::time::now_ms;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::ops::Range;
use toolhold_protocol::settings::CarriedTexts;
use uuid::Uuid;

/// A conversation of several turns with one agent.
#[derive(Debug, Clone)]
pub struct Session {
    /// A UUIDv7.
    pub id: Uuid,
    /// Name of the agent.
    pub agent: String,
    /// Shown in lists; may be empty.
    pub title: String,
    /// Milliseconds since 1970 (UTC).
    pub created_ms: u64,
}

impl Store {
    /// Creates a session without turns.
    pub async fn create_session(
        &self,
        owner: &str,
        agent: &str,
        title: &str,
    ) -> Result<Session, StoreError> {
        let session = Session {
            id: Uuid::now_v7(),
            agent: agent.to_owned(),
            title: title.replace('\0', ""),
            created_ms: now_ms(),
        };
        let values = vec![
            session.id.into(),
            owner.to_owned().into(),
            session.agent.clone().into(),
            session.title.clone().into(),
            signed(session.created_ms).into(),
        ];
        self.execute(
            "INSERT INTO sessions (id, owner, agent, title, created_ms) VALUES ($1, $2, $3, $4, $5)",
            values,
        )
        .await?;
        Ok(session)
    }

    /// A session, if it belongs to `owner`.
    pub async fn session(&self, owner: &str, id: Uuid) -> Result<Option<Session>, StoreError> {
        let row = sqlx::query(
            "SELECT id, agent, title, created_ms FROM sessions WHERE owner = $1 AND id = $2",
        )
        .bind(owner)
        .bind(id.to_string())
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(row.as_ref().map(session).transpose()?)
    }

    /// The owner's sessions that are older than `before`, newest first.
    pub async fn sessions(
        &self,
        owner: &str,
        before: Option<Uuid>,
        most: u32,
    ) -> Result<Vec<Session>, StoreError> {
        let rows = sqlx::query(
            "SELECT id, agent, title, created_ms FROM sessions WHERE owner = $1 AND id < $2 \
             ORDER BY id DESC LIMIT $3",
        )
        .bind(owner)
        .bind(before.unwrap_or(Uuid::max()).to_string())
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let sessions: Result<_, sqlx::Error> = rows.iter().map(session).collect();
        Ok(sessions?)
    }

    /// Deletes a session with all of its turns, if all of them have ended. Returns whether it was deleted.
    pub async fn delete_session(&self, owner: &str, id: Uuid) -> Result<bool, StoreError> {
        let owner = owner.to_owned();
        let work = self.transact_long(move |mut transaction| {
            Box::pin(async move {
                let values = [SqlValue::from(&owner), id.into()];
                transaction.execute(LOCK_SESSION, &values).await?;
                let is_gone = transaction.execute(DELETE_SESSION, &values).await? > 0;
                let mut locked = (Vec::new(), Vec::new());
                if is_gone {
                    let texts = shared_texts::of_session(&mut transaction, id).await?;
                    let blobs = blobs::of_session(&mut transaction, id).await?;
                    let turns = delete_turns(&mut transaction, id).await?;
                    locked.0 = shared_texts::delete_unnamed(&mut transaction, &texts).await?;
                    locked.1 = blobs::delete_unnamed(&mut transaction, &blobs).await?;
                    let draft = Draft::session_deleted(&owner, id, &turns);
                    audit_rows::append(transaction, &[&draft]).await?;
                }
                Ok::<_, StoreError>((is_gone, locked))
            })
        });
        let (is_gone, locked) = work.await?;
        self.delete_locked(NamedByRecords::Texts, locked.0).await;
        self.delete_locked(NamedByRecords::Blobs, locked.1).await;
        Ok(is_gone)
    }

    /// The number of the session's next turn; `None` if there is no such session.
    pub async fn next_turn(&self, session: Uuid) -> Result<Option<u32>, StoreError> {
        let next: Option<i64> = sqlx::query_scalar(
            "SELECT CAST(COALESCE((SELECT MAX(turn) + 1 FROM runs WHERE session = $1), 0) AS BIGINT) \
             FROM sessions WHERE id = $1",
        )
        .bind(session.to_string())
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(next.map(|next| u32::try_from(next).unwrap_or(u32::MAX)))
    }

    /// Whether a turn of the session has not ended.
    pub async fn has_open_turn(&self, session: Uuid) -> Result<bool, StoreError> {
        let open: Option<i64> = sqlx::query_scalar(
            "SELECT CAST(1 AS BIGINT) FROM runs WHERE session = $1 AND ended_ms IS NULL LIMIT 1",
        )
        .bind(session.to_string())
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(open.is_some())
    }

    /// Returns the ids of passages and facts whose texts the record of `run` has, without messages. A caller that begins a
    /// later run asks before it reads the record: texts that are taken out in between are named all the same.
    pub async fn carried_texts(&self, run: Uuid) -> Result<CarriedTexts, StoreError> {
        let rows: Vec<(String, i64)> =
            sqlx::query_as("SELECT source, passage FROM shown_texts WHERE run = $1")
                .bind(run.to_string())
                .fetch_all(&self.pool)
                .in_time(&self.database)
                .await?;
        let mut carried = CarriedTexts {
            from: run,
            ..CarriedTexts::default()
        };
        for (source, passage) in rows {
            // A fact is its own source, and has no number.
            if passage == 0 {
                carried.facts.extend(source.parse::<Uuid>().ok());
            } else {
                carried.passages.insert(passage);
            }
        }
        Ok(carried)
    }

    /// The turns of a session whose numbers are in `numbers`, in order.
    pub async fn turns(
        &self,
        session: Uuid,
        numbers: Range<u32>,
    ) -> Result<Vec<RunRow>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(turns_statement()))
            .bind(session.to_string())
            .bind(i64::from(numbers.start))
            .bind(i64::from(numbers.end))
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        self.listed(&rows).await
    }
}

/// An update that changes nothing locks the row, so that the next statement sees a turn that begins now.
const LOCK_SESSION: &str = "UPDATE sessions SET title = title WHERE owner = $1 AND id = $2";
const DELETE_SESSION: &str = "DELETE FROM sessions WHERE owner = $1 AND id = $2 AND NOT EXISTS \
     (SELECT 1 FROM runs WHERE session = $2 AND ended_ms IS NULL)";

/// The statement of [`Store::turns`].
pub(crate) fn turns_statement() -> String {
    format!("{LISTED} WHERE session = $1 AND turn >= $2 AND turn < $3 ORDER BY turn")
}

fn session(row: &AnyRow) -> Result<Session, sqlx::Error> {
    Ok(Session {
        id: id(row, "id")?,
        agent: row.try_get("agent")?,
        title: row.try_get("title")?,
        created_ms: unsigned(row, "created_ms")?,
    })
}
