//! The index of a SQLite file's pages (`auto_vacuum = INCREMENTAL`), by which pages from its end take the place of free ones,
//! a few at a time.

use sqlx::AnyConnection;
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

/// Gives the free pages of a file with the index back to the file system, in small transactions. Returns how many bytes that
/// is; 0 for a file without the index.
pub async fn give_back(connection: &mut AnyConnection) -> Result<u64, sqlx::Error> {
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
