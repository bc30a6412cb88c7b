//! Migrations beside servers that write.

use super::{OUTAGE_TIMEOUT, databases, opened};
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

/// An older version must not write to it, and says what can be done.
#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_with_the_way_back() {
    for database in databases().await {
        let connected = Database::of(&database.location).unwrap();
        drop(opened(&database).await);
        let mut connection = connected.connect().await.unwrap();
        let later = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                     SELECT 9999, 'later', success, checksum, 1 FROM _sqlx_migrations WHERE version = 1";
        sqlx::query(later).execute(&mut connection).await.unwrap();
        let refused = Store::open(&database.location, OUTAGE_TIMEOUT).await;
        let error = refused.unwrap_err();
        let StoreError::Newer { migration, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*migration, 9_999);
        let said = error.to_string();
        assert!(
            said.contains("Start that version") && said.contains("backup"),
            "{said}"
        );
        if let Location::File(path) = &database.location {
            let checked = check_database(path, "the copy").await.unwrap_err();
            assert!(matches!(checked, StoreError::Newer { .. }), "{checked}");
        }
    }
}
