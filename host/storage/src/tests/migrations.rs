//! Migrations beside servers that write.

use super::{OUTAGE_TIMEOUT, databases};
use crate::database::Database;
use crate::schema::migrator_until;
use crate::*;
use std::time::Duration;

/// Holds a lock as a transaction of an older server does.
#[tokio::test]
async fn a_migration_is_tried_again_while_a_lock_is_held() {
    for database in databases().await {
        let connected = Database::of(&database.location).unwrap();
        if connected.is_file() {
            continue;
        }
        let mut connection = connected.connect().await.unwrap();
        let older = migrator_until(false, 9);
        older.run(&mut connection).await.unwrap();
        let name: String = sqlx::query_scalar("SELECT CAST(current_database() AS TEXT)")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        let impatient = format!("ALTER DATABASE {name} SET lock_timeout = '200ms'");
        for statement in [
            impatient.as_str(),
            // A machine that is busy may leave the transaction alone for longer.
            "SET idle_in_transaction_session_timeout = 0",
            "BEGIN",
            "LOCK TABLE audit IN ROW EXCLUSIVE MODE",
        ] {
            let statement = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()));
            statement.execute(&mut connection).await.unwrap();
        }
        let released = async {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            let commit = sqlx::raw_sql("COMMIT").execute(&mut connection);
            commit.await.unwrap();
        };
        let opened = Store::open(&database.location, OUTAGE_TIMEOUT);
        let (opened, ()) = tokio::join!(opened, released);
        opened.unwrap();
    }
}
