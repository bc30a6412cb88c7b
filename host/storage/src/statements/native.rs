//! A connection to a SQLite file through SQLite's own library. Its methods block, so it lives in a thread of its own.

use super::failure::converted;
use super::value::{Columns, SqlValue};
use rusqlite::{Connection, OpenFlags, Statement};
use std::path::Path;

/// Prepared statements that are kept: more than the writer has.
const CACHED_STATEMENTS: usize = 128;

/// A connection for writes. The one of the writer is used by nothing else.
pub struct NativeConnection {
    connection: Connection,
    /// Whether commits survive a crash of the machine, as set last.
    durable: Option<bool>,
    /// Number and hash of the last row of the audit log after the last commit of this connection. Another process may
    /// have added rows since.
    pub last_head: Option<(i64, String)>,
}

impl NativeConnection {
    /// Opens the existing file at an absolute path, and runs the statements `settings`.
    pub fn open(path: &Path, settings: &str) -> Result<Self, sqlx::Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(converted)?;
        connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
        connection.execute_batch(settings).map_err(converted)?;
        Ok(Self {
            connection,
            durable: None,
            last_head: None,
        })
    }

    /// Begins a transaction, and takes the lock for writes at once. `durable`: its commit survives a crash of the
    /// machine; a killed process loses nothing either way.
    ///
    /// The level is set on the one connection, which nothing else uses: a second connection for the other level would
    /// read the pages again that this one has changed, which costs more than the setting.
    pub fn begin(&mut self, durable: bool) -> Result<(), sqlx::Error> {
        if self.durable != Some(durable) {
            self.run(if durable {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            })?;
            self.durable = Some(durable);
        }
        self.execute("BEGIN IMMEDIATE", &[])?;
        Ok(())
    }

    /// Commits the transaction.
    pub fn commit(&mut self) -> Result<(), sqlx::Error> {
        self.execute("COMMIT", &[])?;
        Ok(())
    }

    /// Undoes the transaction, unless SQLite has ended it already because of an error.
    pub fn roll_back(&mut self) {
        self.last_head = None;
        if self.has_no_transaction() {
            return;
        }
        if let Err(error) = self.execute("ROLLBACK", &[]) {
            tracing::warn!(%error, "a transaction could not be undone");
        }
    }

    /// True if no transaction has begun, or SQLite has undone it because of an error.
    pub fn has_no_transaction(&self) -> bool {
        self.connection.is_autocommit()
    }

    /// Runs statements without values, whose rows are dropped.
    pub fn run(&self, statements: &str) -> Result<(), sqlx::Error> {
        self.connection.execute_batch(statements).map_err(converted)
    }

    /// Runs a statement, and returns the number of rows that it changed.
    pub fn execute(&self, statement: &str, values: &[SqlValue<'_>]) -> Result<u64, sqlx::Error> {
        let mut prepared = self
            .connection
            .prepare_cached(statement)
            .map_err(converted)?;
        bind(&mut prepared, values)?;
        Ok(prepared.raw_execute().map_err(converted)? as u64)
    }

    /// Runs a query, and returns its rows.
    pub fn rows<R: Columns>(
        &self,
        statement: &str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<R>, sqlx::Error> {
        let mut prepared = self
            .connection
            .prepare_cached(statement)
            .map_err(converted)?;
        bind(&mut prepared, values)?;
        let mut rows = prepared.raw_query();
        let mut read = Vec::new();
        while let Some(row) = rows.next().map_err(converted)? {
            read.push(R::try_from(row).map_err(converted)?);
        }
        Ok(read)
    }
}

/// Gives `$1` the first value, and so on. To SQLite these are names, which it numbers in the order of their first use.
fn bind(statement: &mut Statement<'_>, values: &[SqlValue<'_>]) -> Result<(), sqlx::Error> {
    for index in 1..=statement.parameter_count() {
        let name = statement.parameter_name(index).unwrap_or_default();
        let number: Option<usize> = name.strip_prefix('$').and_then(|it| it.parse().ok());
        let value = number.and_then(|number| values.get(number.checked_sub(1)?));
        let Some(value) = value else {
            let reason = format!("no value is given for the parameter {name:?}");
            return Err(sqlx::Error::Encode(reason.into()));
        };
        statement
            .raw_bind_parameter(index, value)
            .map_err(converted)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Outage;
    use crate::writer::is_transient;
    use sqlx::error::DatabaseError;

    fn file() -> (tempfile::TempDir, NativeConnection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::write(&path, "").unwrap();
        let connection = NativeConnection::open(&path, "PRAGMA journal_mode = WAL").unwrap();
        connection
            .run("CREATE TABLE kept (number INTEGER PRIMARY KEY, text TEXT NOT NULL)")
            .unwrap();
        (folder, connection)
    }

    #[test]
    fn values_go_to_the_parameters_of_their_numbers() {
        let (_folder, connection) = file();
        let values = [SqlValue::from("a"), 7_i64.into()];
        let added = connection.execute(
            "INSERT INTO kept (number, text) SELECT $2, $1 WHERE $2 > 0",
            &values,
        );
        assert_eq!(added.unwrap(), 1);
        let rows = connection.rows::<(i64, String)>("SELECT number, text FROM kept", &[]);
        assert_eq!(rows.unwrap(), [(7, "a".to_owned())]);
        let lacking = connection.execute("DELETE FROM kept WHERE number = $3", &values);
        assert!(matches!(lacking, Err(sqlx::Error::Encode(_))));
        assert!(
            connection
                .execute("DELETE FROM kept WHERE number = ?", &values)
                .is_err()
        );
    }

    #[test]
    fn errors_have_the_codes_and_kinds_that_sqlx_gives_them() {
        let (folder, mut connection) = file();
        let insert = "INSERT INTO kept (number, text) VALUES (1, $1)";
        connection.execute(insert, &["a".into()]).unwrap();
        let again = connection.execute(insert, &["a".into()]).unwrap_err();
        let unique = again
            .as_database_error()
            .map(DatabaseError::is_unique_violation);
        assert_eq!(unique, Some(true), "{again}");
        assert_eq!((Outage::of(&again), is_transient(&again)), (None, false));
        let wrong = connection.run("SELECT nothing FROM nowhere").unwrap_err();
        let code = wrong.as_database_error().and_then(DatabaseError::code);
        assert_eq!(code.as_deref(), Some("1"), "{wrong}");

        let path = folder.path().join("a.db");
        let mut other = NativeConnection::open(&path, "").unwrap();
        other.begin(true).unwrap();
        connection.run("PRAGMA busy_timeout = 0").unwrap();
        let busy = connection.begin(true).unwrap_err();
        assert_eq!(
            (Outage::of(&busy), is_transient(&busy)),
            (None, true),
            "{busy}"
        );
        other.roll_back();

        connection.run("PRAGMA max_page_count = 1").unwrap();
        let large = "x".repeat(1 << 20);
        connection.begin(false).unwrap();
        let full = connection.execute("INSERT INTO kept (text) VALUES ($1)", &[large.into()]);
        let full = full.unwrap_err();
        assert_eq!(Outage::of(&full), Some(Outage::ReadOnly), "{full}");
        connection.roll_back();
        connection.run("PRAGMA query_only = ON").unwrap();
        let refused = connection.execute(insert, &["b".into()]).unwrap_err();
        assert_eq!(Outage::of(&refused), Some(Outage::ReadOnly), "{refused}");
        let gone = NativeConnection::open(&folder.path().join("b.db"), "").err();
        let outage = gone.as_ref().and_then(Outage::of);
        assert_eq!(outage, Some(Outage::ReadOnly), "{gone:?}");
    }

    #[test]
    fn a_transaction_that_is_undone_leaves_nothing() {
        let (_folder, mut connection) = file();
        connection.begin(false).unwrap();
        connection
            .execute("INSERT INTO kept (text) VALUES ('a')", &[])
            .unwrap();
        connection.last_head = Some((1, String::new()));
        connection.roll_back();
        assert_eq!(connection.last_head, None);
        connection.begin(true).unwrap();
        connection.commit().unwrap();
        let rows = connection.rows::<(i64,)>("SELECT number FROM kept", &[]);
        assert_eq!(rows.unwrap(), []);
    }
}
