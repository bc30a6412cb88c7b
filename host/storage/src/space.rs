//! Space that deleted records leave in a SQLite file, and how it goes back to the file system.
//!
//! SQLite keeps the pages of deleted records for later ones, and the file stays as large as it was. A file that is made by
//! this version has an index of its pages (`auto_vacuum = INCREMENTAL`), by which pages from its end take the place of free
//! ones, a few at a time. PostgreSQL does the like by itself (autovacuum).

use crate::error::StoreError;
use crate::store::Store;
use sqlx::{AnyConnection, Connection as _};
use std::time::Duration;

/// Pages of 4 KiB that one transaction gives back: milliseconds, in which other writers wait.
const STEP: &str = "PRAGMA incremental_vacuum(512)";
/// Wait between two transactions, in which other writers can write.
const STEP_DELAY: Duration = Duration::from_millis(20);
/// `PRAGMA auto_vacuum` of a file with the index.
const INCREMENTAL: i64 = 2;
/// Has the next `VACUUM` of the connection, and `VACUUM INTO`, write a file with the index.
const MAKE_INCREMENTAL: &str = "PRAGMA auto_vacuum = INCREMENTAL";

/// Gives a database without tables the index of its pages.
pub async fn prepare_new(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    if number(connection, "SELECT COUNT(*) FROM sqlite_schema").await? == 0 {
        sqlx::raw_sql(MAKE_INCREMENTAL)
            .execute(&mut *connection)
            .await?;
        sqlx::raw_sql("VACUUM").execute(connection).await?;
    }
    Ok(())
}

/// Has a copy of a database get the index that the database lacks. Where it has one, this would write to it.
pub async fn prepare_copy(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    if number(connection, "PRAGMA auto_vacuum").await? != INCREMENTAL {
        sqlx::raw_sql(MAKE_INCREMENTAL).execute(connection).await?;
    }
    Ok(())
}

impl Store {
    /// Gives the space of deleted records in a SQLite file back to the file system, in small transactions. Returns how many
    /// bytes that is: 0 for a file that an older version made, whose copy alone can do it, and for PostgreSQL. The file is
    /// smaller at once unless another process reads it for long.
    ///
    /// # Errors
    /// The database fails. What was given back by then is.
    pub async fn give_back_space(&self) -> Result<u64, StoreError> {
        if !self.database.is_file() {
            return Ok(0);
        }
        let mut connection = self.database.connect().await?;
        let given = give_back(&mut connection).await;
        connection.close().await?;
        let given = given?;
        if given > 0 && !self.empty_log().await? {
            tracing::info!("the file of the database is smaller when no other process reads it");
        }
        Ok(given)
    }
}

async fn give_back(connection: &mut AnyConnection) -> Result<u64, sqlx::Error> {
    if number(connection, "PRAGMA auto_vacuum").await? != INCREMENTAL {
        return Ok(0);
    }
    let page = number(connection, "PRAGMA page_size").await?;
    let mut free = number(connection, "PRAGMA freelist_count").await?;
    let mut given = 0_u64;
    while free > 0 {
        sqlx::raw_sql(STEP).execute(&mut *connection).await?;
        let left = number(connection, "PRAGMA freelist_count").await?;
        if left >= free {
            // Others delete as fast: a later call goes on.
            break;
        }
        given += free.abs_diff(left) * page.unsigned_abs();
        free = left;
        tokio::time::sleep(STEP_DELAY).await;
    }
    Ok(given)
}

async fn number(
    connection: &mut AnyConnection,
    statement: &'static str,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(statement).fetch_one(connection).await
}
