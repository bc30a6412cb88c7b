//! What is over for long goes away: in small pieces, so that nobody waits long for the database, each with its
//! row in the audit log.

use crate::storage::audit::{self, Draft};
use crate::storage::database::InTime as _;
use crate::storage::error::StoreError;
use crate::storage::sessions::signed;
use crate::storage::{Store, runs};
use sqlx::AnyConnection;
use std::time::Duration;
use uuid::Uuid;

/// What is deleted, or would be. A session's turns are among the runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Over {
    pub runs: u64,
    pub sessions: u64,
}

/// Who deletes it.
#[derive(Debug, Clone, Copy)]
pub enum By {
    Person,
    /// The server, of what is older than so many days.
    Retention {
        days: u32,
    },
}

/// Runs, sessions and requests each, in one transaction.
const BATCH: i64 = 20;
/// Between two, for those who wait to write.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs that ended before $1 and are turns of no session that is there.
const RUNS: &str = "ended_ms < $1 AND (session IS NULL OR NOT EXISTS \
     (SELECT 1 FROM sessions WHERE sessions.id = runs.session))";
/// Sessions that began before $1 and all of whose turns ended before it.
const SESSIONS: &str = "created_ms < $1 AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.session = sessions.id \
     AND (runs.ended_ms IS NULL OR runs.ended_ms >= $1))";
/// Requests that came before $1 and whose run does not go on: nobody repeats them.
const REQUESTS: &str = "created_ms < $1 AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = idempotency.run \
     AND runs.ended_ms IS NULL)";

impl Store {
    /// What was over before that time, in milliseconds since 1970: runs, and sessions with all of their turns.
    pub async fn over_before(&self, ms: u64) -> Result<Over, StoreError> {
        let count = async |what: String| -> Result<u64, StoreError> {
            // Made of what is in this program only.
            let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(what))
                .bind(signed(ms))
                .fetch_one(&self.pool)
                .in_time(&self.database)
                .await?;
            Ok(count.unsigned_abs())
        };
        let alone = count(format!("SELECT COUNT(*) FROM runs WHERE {RUNS}")).await?;
        let turns = count(format!(
            "SELECT COUNT(*) FROM runs WHERE session IN (SELECT id FROM sessions WHERE {SESSIONS})"
        ));
        Ok(Over {
            runs: alone + turns.await?,
            sessions: count(format!("SELECT COUNT(*) FROM sessions WHERE {SESSIONS}")).await?,
        })
    }

    /// Deletes it.
    pub async fn prune(&self, ms: u64, by: By) -> Result<Over, StoreError> {
        let mut all = Over::default();
        loop {
            let gone = self.prune_some(ms, by).await?;
            all.runs += gone.runs;
            all.sessions += gone.sessions;
            if gone == Over::default() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        while self.forget_some(ms).await? > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(all)
    }

    async fn prune_some(&self, ms: u64, by: By) -> Result<Over, StoreError> {
        let work = async {
            let mut transaction = self.pool.begin().await?;
            let alone = format!(
                "DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE {RUNS} ORDER BY ended_ms LIMIT $2) RETURNING id"
            );
            let mut gone = some(&mut transaction, alone, ms).await?;
            // Changing nothing takes them: whoever begins a turn waits, or we for the turn. Only another statement sees
            // one that began meanwhile.
            let idle = format!(
                "UPDATE sessions SET created_ms = created_ms \
             WHERE id IN (SELECT id FROM sessions WHERE {SESSIONS} ORDER BY id LIMIT $2) RETURNING id"
            );
            let mut sessions = Vec::new();
            for session in some(&mut transaction, idle, ms).await? {
                if delete_idle(&mut transaction, session, ms).await? {
                    gone.extend(delete_turns(&mut transaction, session).await?);
                    sessions.push(session);
                }
            }
            if !(gone.is_empty() && sessions.is_empty()) {
                let draft = Draft::pruned(by, ms, &gone, &sessions);
                audit::append(&mut transaction, &[&draft]).await?;
            }
            transaction.commit().await?;
            Ok(Over {
                runs: gone.len() as u64,
                sessions: sessions.len() as u64,
            })
        };
        self.database.within_minutes(work).await
    }

    async fn forget_some(&self, ms: u64) -> Result<u64, StoreError> {
        let statement = format!(
            "DELETE FROM idempotency WHERE (owner, key) IN (SELECT owner, key FROM idempotency WHERE {REQUESTS} LIMIT $2)"
        );
        let gone = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(signed(ms))
            .bind(BATCH)
            .execute(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(gone.rows_affected())
    }
}

impl Store {
    /// `owner` deletes the record of a run that is over and is no turn of a session. Returns whether there was
    /// one.
    pub async fn delete_run(&self, owner: &str, run: Uuid) -> Result<bool, StoreError> {
        let work = async {
            let mut transaction = self.pool.begin().await?;
            let gone = sqlx::query(
                "DELETE FROM runs WHERE id = $1 AND ended_ms IS NOT NULL AND session IS NULL",
            )
            .bind(run.to_string())
            .execute(&mut *transaction)
            .await?;
            let is_gone = gone.rows_affected() > 0;
            if is_gone {
                audit::append(&mut transaction, &[&Draft::run_deleted(owner, run)]).await?;
            }
            transaction.commit().await?;
            Ok(is_gone)
        };
        self.database.within_minutes(work).await
    }
}

/// Deletes a session that is still over. Returns whether it was.
async fn delete_idle(
    connection: &mut AnyConnection,
    session: Uuid,
    ms: u64,
) -> Result<bool, sqlx::Error> {
    let statement = format!("DELETE FROM sessions WHERE id = $2 AND {SESSIONS}");
    // Made of what is in this program only.
    let gone = sqlx::query(sqlx::AssertSqlSafe(statement))
        .bind(signed(ms))
        .bind(session.to_string())
        .execute(connection)
        .await?;
    Ok(gone.rows_affected() > 0)
}

/// The runs that were a session's.
pub(super) async fn delete_turns(
    connection: &mut AnyConnection,
    session: Uuid,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let rows = sqlx::query("DELETE FROM runs WHERE session = $1 RETURNING id")
        .bind(session.to_string())
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| runs::id(row, "id")).collect()
}

async fn some(
    connection: &mut AnyConnection,
    statement: String,
    ms: u64,
) -> Result<Vec<Uuid>, sqlx::Error> {
    // Made of what is in this program only.
    let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
        .bind(signed(ms))
        .bind(BATCH)
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| runs::id(row, "id")).collect()
}
