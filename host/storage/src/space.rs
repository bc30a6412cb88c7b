//! Space that deleted records leave in a SQLite file, and how it goes back to the file system.
//!
//! SQLite keeps the pages of deleted records for later ones, and the file stays as large as it was. A file that is made by
//! this version has an index of its pages (`auto_vacuum = INCREMENTAL`), by which pages from its end take the place of free
//! ones, a few at a time. PostgreSQL does the like by itself (autovacuum).

use crate::error::StoreError;
use crate::pages;
use crate::store::Store;
use sqlx::Connection as _;

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
        let given = pages::give_back(&mut connection).await;
        connection.close().await?;
        let given = given?;
        if given > 0 && !self.empty_log().await? {
            tracing::info!("the file of the database is smaller when no other process reads it");
        }
        Ok(given)
    }
}
