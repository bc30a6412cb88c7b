//! Short transactions of the store: in the thread of the writer for a SQLite file, on a connection of the pool for
//! PostgreSQL.

use crate::error::StoreError;
use crate::statements::{Columns, OpenTransaction, SqlValue};
use crate::store::Store;
use crate::writer::JobSize;
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
        let work = self.transaction(JobSize::Short, work);
        self.database.within(work).await
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
        let work = self.transaction(JobSize::Long, work);
        self.database.within_minutes(work).await
    }

    /// Runs one statement, which is a transaction of its own, and returns the number of rows that it changed.
    pub(crate) async fn execute(
        &self,
        statement: &'static str,
        values: Vec<SqlValue<'static>>,
    ) -> Result<u64, StoreError> {
        let work = self.single(move |mut transaction| {
            Box::pin(async move { transaction.execute(statement, &values).await })
        });
        work.await
    }

    /// Runs one statement, which is a transaction of its own, and returns the first row of its answer.
    pub(crate) async fn row<R: Columns + 'static>(
        &self,
        statement: &'static str,
        values: Vec<SqlValue<'static>>,
    ) -> Result<Option<R>, StoreError> {
        let work = self.single(move |mut transaction| {
            Box::pin(async move { transaction.row(statement, &values).await })
        });
        work.await
    }

    /// Runs `work`, which is one statement. PostgreSQL makes a transaction of it without further replies, during which its
    /// locks would be held.
    async fn single<T: Send + 'static>(
        &self,
        work: impl for<'t> FnOnce(OpenTransaction<'t>) -> BoxFuture<'t, Result<T, sqlx::Error>>
        + Send
        + 'static,
    ) -> Result<T, StoreError> {
        if self.database.is_file() {
            return Ok(self.writer.transact(JobSize::Short, work).await?);
        }
        let work = async {
            let mut connection = self.pool.acquire().await?;
            let value = work(OpenTransaction::from(&mut *connection)).await?;
            Ok::<_, sqlx::Error>(value)
        };
        Ok(self.database.within(work).await?)
    }

    async fn transaction<T, E>(
        &self,
        size: JobSize,
        work: impl for<'t> FnOnce(OpenTransaction<'t>) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<sqlx::Error> + Send + 'static,
    {
        if self.database.is_file() {
            return self.writer.transact(size, work).await;
        }
        let mut transaction = self.pool.begin().await?;
        let value = work(OpenTransaction::from(&mut transaction)).await?;
        transaction.commit().await?;
        Ok(value)
    }
}
