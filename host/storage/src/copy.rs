//! Copies of a SQLite database: made while others write to it, and looked at before one is used.

use crate::database::{Database, Location};
use crate::error::StoreError;
use crate::pages;
use crate::schema;
use sqlx::Connection as _;
use std::path::Path;

/// Writes the SQLite database at `from` into the file `to`, which is empty: as the database is at one moment, without free
/// pages, and so that the copy gives space back. Other processes read and write meanwhile. It migrates nothing.
///
/// # Errors
/// The database cannot be opened or read, or the copy cannot be written.
pub async fn copy_database(from: &Path, to: &Path) -> Result<(), StoreError> {
    let location = Location::File(from.to_owned());
    let failed = |source| StoreError::Open {
        what: location.to_string(),
        source,
    };
    let database = Database::of(&location).map_err(failed)?;
    // Not a name that SQLite would take for an URI.
    let to = std::path::absolute(to).map_err(sqlx::Error::from)?;
    let to = to
        .to_str()
        .ok_or_else(|| sqlx::Error::Configuration("the path of the copy is not UTF-8".into()))?;
    let mut connection = database.connect().await.map_err(failed)?;
    let copied = async {
        pages::prepare_copy(&mut connection).await?;
        let copying = sqlx::query("VACUUM INTO $1").bind(to);
        copying.execute(&mut connection).await
    };
    let copied = copied.await;
    connection.close().await?;
    copied?;
    Ok(())
}

/// Looks whether the SQLite file at `path` is a whole database that this version can open. `what` names it in errors.
///
/// # Errors
/// It is no database or a damaged one, or a newer version wrote it.
pub async fn check_database(path: &Path, what: &str) -> Result<(), StoreError> {
    let failed = |source| StoreError::Open {
        what: what.to_owned(),
        source,
    };
    let database = Database::of(&Location::File(path.to_owned())).map_err(failed)?;
    let mut connection = database.connect().await.map_err(failed)?;
    let looked = async {
        let fault: String = sqlx::query_scalar("PRAGMA quick_check(1)")
            .fetch_one(&mut connection)
            .await?;
        let last: Option<i64> = sqlx::query_scalar("SELECT MAX(version) FROM _sqlx_migrations")
            .fetch_one(&mut connection)
            .await?;
        Ok::<_, sqlx::Error>((fault, last))
    };
    let looked = looked.await;
    connection.close().await?;
    let (fault, last) = looked.map_err(failed)?;
    if fault != "ok" {
        return Err(StoreError::Damaged {
            what: what.to_owned(),
            fault,
        });
    }
    schema::refuse_newer(what, last.unwrap_or_default())
}
