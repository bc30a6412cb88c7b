//! Statements of an open transaction, on SQLite's own library or through sqlx.
//!
//! Writes of a SQLite file run on a [`NativeConnection`] in the thread of the writer. sqlx would hand each statement over
//! to a thread of its own and wait for it, which costs more than the statement. PostgreSQL is reached through sqlx.

mod failure;
mod native;
mod value;

pub use failure::{copied, undone};
pub use native::NativeConnection;
pub use value::{Columns, SqlValue};

use sqlx::any::AnyArguments;
use sqlx::{Any, AnyConnection, Arguments as _, Database as _, Sqlite, Transaction};

/// A transaction that has begun, for statements.
pub enum OpenTransaction<'c> {
    /// SQLite, in the thread of the writer.
    Native(&'c mut NativeConnection),
    /// A connection of sqlx: to PostgreSQL, and to SQLite in tests.
    Driver(&'c mut AnyConnection),
}

impl<'c> From<&'c mut AnyConnection> for OpenTransaction<'c> {
    fn from(connection: &'c mut AnyConnection) -> Self {
        Self::Driver(connection)
    }
}

impl<'c> From<&'c mut Transaction<'_, Any>> for OpenTransaction<'c> {
    fn from(transaction: &'c mut Transaction<'_, Any>) -> Self {
        Self::Driver(transaction)
    }
}

impl<'c> From<&'c mut OpenTransaction<'_>> for OpenTransaction<'c> {
    fn from(transaction: &'c mut OpenTransaction<'_>) -> Self {
        match transaction {
            OpenTransaction::Native(connection) => Self::Native(connection),
            OpenTransaction::Driver(connection) => Self::Driver(connection),
        }
    }
}

impl OpenTransaction<'_> {
    /// True if the database is SQLite.
    pub fn is_file(&self) -> bool {
        match self {
            Self::Native(_) => true,
            Self::Driver(connection) => connection.backend_name() == Sqlite::NAME,
        }
    }

    /// Chooses between the texts of a statement for PostgreSQL and for SQLite.
    pub fn choose(&self, [on_server, in_file]: [&'static str; 2]) -> &'static str {
        if self.is_file() { in_file } else { on_server }
    }

    /// Runs a statement, and returns the number of rows that it changed. Value number N stands for `$N`.
    pub async fn execute(
        &mut self,
        statement: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<u64, sqlx::Error> {
        match self {
            Self::Native(connection) => connection.execute(statement, values),
            Self::Driver(connection) => {
                let query = sqlx::query_with::<Any, _>(statement, arguments(values)?);
                Ok(query.execute(&mut **connection).await?.rows_affected())
            }
        }
    }

    /// Runs a query, and returns its rows.
    pub async fn rows<R: Columns>(
        &mut self,
        statement: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<R>, sqlx::Error> {
        match self {
            Self::Native(connection) => connection.rows(statement, values),
            Self::Driver(connection) => {
                let query = sqlx::query_as_with::<Any, R, _>(statement, arguments(values)?);
                query.fetch_all(&mut **connection).await
            }
        }
    }

    /// Runs a query, and returns its first row if there is one.
    pub async fn row<R: Columns>(
        &mut self,
        statement: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Option<R>, sqlx::Error> {
        Ok(self.rows(statement, values).await?.into_iter().next())
    }
}

fn arguments(values: &[SqlValue<'_>]) -> Result<AnyArguments, sqlx::Error> {
    let mut arguments = AnyArguments::default();
    for value in values {
        let added = match value {
            SqlValue::Number(number) => arguments.add(*number),
            SqlValue::Text(text) => arguments.add(text.as_deref()),
            SqlValue::Bytes(bytes) => arguments.add(bytes.clone()),
        };
        added.map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}
