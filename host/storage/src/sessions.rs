//! Sessions: conversations of several turns, each of which is a run.

use crate::storage::audit::{self, Draft};
use crate::storage::database::InTime as _;
use crate::storage::error::StoreError;
use crate::storage::prune::delete_turns;
use crate::storage::{RunRow, Store, runs};
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

#[derive(Debug, Clone)]
pub struct Session {
    pub id: Uuid,
    pub agent: String,
    pub title: String,
    pub created_ms: u64,
}

impl Store {
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
        sqlx::query(
            "INSERT INTO sessions (id, owner, agent, title, created_ms) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(session.id.to_string())
        .bind(owner)
        .bind(&session.agent)
        .bind(&session.title)
        .bind(signed(session.created_ms))
        .execute(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(session)
    }

    /// A session, if it is of that owner.
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

    /// The owner's sessions, the newest first, from the one before `before` on.
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

    /// A session with all of its turns goes away. Returns whether there was one.
    ///
    /// Its runs must be over: what a process still writes would have no place.
    pub async fn delete_session(&self, owner: &str, id: Uuid) -> Result<bool, StoreError> {
        let work = async {
            let mut transaction = self.pool.begin().await?;
            // Changing nothing takes the row: a turn that begins at this moment is seen by what comes after.
            sqlx::query("UPDATE sessions SET title = title WHERE owner = $1 AND id = $2")
                .bind(owner)
                .bind(id.to_string())
                .execute(&mut *transaction)
                .await?;
            let gone = sqlx::query(
                "DELETE FROM sessions WHERE owner = $1 AND id = $2 AND NOT EXISTS \
             (SELECT 1 FROM runs WHERE session = $2 AND ended_ms IS NULL)",
            )
            .bind(owner)
            .bind(id.to_string())
            .execute(&mut *transaction)
            .await?;
            let is_gone = gone.rows_affected() > 0;
            if is_gone {
                let turns = delete_turns(&mut transaction, id).await?;
                let draft = Draft::session_deleted(owner, id, &turns);
                audit::append(&mut transaction, &[&draft]).await?;
            }
            transaction.commit().await?;
            Ok(is_gone)
        };
        self.database.within_minutes(work).await
    }

    /// The number that the session's next turn has; none if there is no such session.
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

    /// Whether a turn of the session is not over.
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

    /// The turns of a session, in their order.
    pub async fn turns(&self, session: Uuid) -> Result<Vec<RunRow>, StoreError> {
        self.rows("session = $1 ORDER BY turn", session.to_string())
            .await
    }
}

fn session(row: &AnyRow) -> Result<Session, sqlx::Error> {
    Ok(Session {
        id: runs::id(row, "id")?,
        agent: row.try_get("agent")?,
        title: row.try_get("title")?,
        created_ms: runs::unsigned(row, "created_ms")?,
    })
}

/// Milliseconds since 1970 (UTC).
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
