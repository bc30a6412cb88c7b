//! Short transactions of the store: in the thread of the writer for a SQLite file, on a connection of the pool for
//! PostgreSQL.

use crate::error::StoreError;
use crate::statements::{OpenTransaction, SqlValue};
use crate::store::Store;
use futures_util::future::BoxFuture;

impl Store {
    /// Runs `work` in a transaction, and commits it if it succeeds. For a SQLite file this happens also if the caller
    /// leaves.
    pub(crate) async fn transact<T, E>(
        &self,
        work: impl for<'t> FnOnce(OpenTransaction<'t>) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<sqlx::Error> + Send + 'static,
    {
        self.database.within(self.transaction(work)).await
    }

    /// Like [`Self::transact`], for transactions whose time depends on the number of rows.
    pub(crate) async fn transact_long<T, E>(
        &self,
        work: impl for<'t> FnOnce(OpenTransaction<'t>) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<sqlx::Error> + Send + 'static,
    {
        self.database.within_minutes(self.transaction(work)).await
    }

    /// Runs one statement, which is a transaction of its own, and returns the number of rows that it changed.
    pub(crate) async fn execute(
        &self,
        statement: &'static str,
        values: Vec<SqlValue<'static>>,
    ) -> Result<u64, StoreError> {
        if self.database.is_file() {
            let work = self.writer.transact(move |mut transaction| {
                Box::pin(async move { transaction.execute(statement, &values).await })
            });
            return Ok(work.await?);
        }
        let work = async {
            let mut connection = self.pool.acquire().await?;
            let mut statements = OpenTransaction::from(&mut *connection);
            statements.execute(statement, &values).await
        };
        Ok(self.database.within(work).await?)
    }

    async fn transaction<T, E>(
        &self,
        work: impl for<'t> FnOnce(OpenTransaction<'t>) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<sqlx::Error> + Send + 'static,
    {
        if self.database.is_file() {
            return self.writer.transact(work).await;
        }
        let mut transaction = self.pool.begin().await?;
        let value = work(OpenTransaction::from(&mut transaction)).await?;
        transaction.commit().await?;
        Ok(value)
    }
}
