//! Migrations beside servers that write.

use super::audit::{ended, faults, started};
use super::{EventScript, OUTAGE_TIMEOUT, begin_with, databases, offering, opened};
use crate::audit_rows::{self, RunAudit};
use crate::database::Database;
use crate::schema::migrator_until;
use crate::*;
use serde_json::json;
use sqlx::Connection as _;
use std::fs::File;
use std::time::Duration;
use toolhold_protocol::event::{Journal as _, ToolOutcome};

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

/// Lists of tools that version 19 of the schema has are among the texts of version 20, with all records that name them.
#[tokio::test]
async fn lists_of_tools_of_a_full_database_become_shared_texts() {
    const RUNS: usize = 200;
    for database in databases().await {
        if let Location::File(path) = &database.location {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            File::create_new(path).unwrap();
        }
        let connected = Database::of(&database.location).unwrap();
        let mut connection = connected.connect().await.unwrap();
        let older = migrator_until(connected.is_file(), 19);
        older.run(&mut connection).await.unwrap();
        let lists = [offering("one", 40), offering("other", 60)];
        let mut records = Vec::new();
        let mut transaction = connection.begin().await.unwrap();
        for tools in &lists {
            sqlx::query("INSERT INTO tool_catalogues (digest, tools) VALUES ($1, $2)")
                .bind(tools.digest().unwrap())
                .bind(tools.json().unwrap())
                .execute(&mut *transaction)
                .await
                .unwrap();
        }
        for number in 0..RUNS {
            let tools = &lists[number % 2];
            let (list, digest) = (tools.json().unwrap(), tools.digest().unwrap());
            let mut script = EventScript::new();
            let run = script.run.to_string();
            sqlx::query(
                "INSERT INTO runs (id, owner, agent, origin, task, model, began_ms, ended_ms, reason, steps, calls, \
                 tokens) VALUES ($1, 'ann', '', 'cli', 't', 'm', 1, 2, 'output', 1, 1, 1)",
            )
            .bind(run.as_str())
            .execute(&mut *transaction)
            .await
            .unwrap();
            let events = [
                script.event(begin_with(tools)),
                script.notice(),
                script.done(),
            ];
            for event in &events {
                let whole = serde_json::to_string(event).unwrap();
                let name = format!(r#"{{"catalogue":"{digest}"}}"#);
                sqlx::query("INSERT INTO events (run, seq, line) VALUES ($1, $2, $3)")
                    .bind(run.as_str())
                    .bind(event.seq.cast_signed())
                    .bind(whole.replace(list, &name))
                    .execute(&mut *transaction)
                    .await
                    .unwrap();
            }
            sqlx::query(
                "INSERT INTO event_catalogues (run, seq, digest, added) VALUES ($1, 0, $2, $3)",
            )
            .bind(run.as_str())
            .bind(digest)
            .bind(i64::try_from(list.len() - digest.len() - 16).unwrap())
            .execute(&mut *transaction)
            .await
            .unwrap();
            records.push(events);
        }
        transaction.commit().await.unwrap();
        connection.close().await.unwrap();

        let store = opened(&database).await;
        let count = async |statement: &'static str| -> Result<i64, sqlx::Error> {
            sqlx::query_scalar(statement).fetch_one(&store.pool).await
        };
        assert_eq!(count("SELECT COUNT(*) FROM shared_texts").await.unwrap(), 2);
        let named = count("SELECT COUNT(*) FROM event_texts").await.unwrap();
        assert_eq!(usize::try_from(named), Ok(RUNS));
        assert!(
            count("SELECT COUNT(*) FROM event_catalogues")
                .await
                .is_err()
        );
        for events in records.iter().step_by(9) {
            let read = store.read(&Source::Run(events[0].run)).await.unwrap();
            assert_eq!(json!(read), json!(events));
        }
        // The next run names the list that is there, and the lists go with their records.
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        let events = [script.event(begin_with(&lists[0])), script.done()];
        journal.append(&events).await.unwrap();
        assert_eq!(count("SELECT COUNT(*) FROM shared_texts").await.unwrap(), 2);
        store.prune(now_ms(), PrunedBy::Person).await.unwrap();
        assert_eq!(count("SELECT COUNT(*) FROM shared_texts").await.unwrap(), 0);
    }
}

/// All rows are in the table of today's version, with what finds them, and no event gets a second row.
#[tokio::test]
async fn an_audit_log_with_an_index_of_its_numbers_is_taken_over() {
    const OTHER_ROWS: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toolhold.db");
    File::create_new(&path).unwrap();
    let location = Location::File(path.clone());
    let mut connection = Database::of(&location).unwrap().connect().await.unwrap();
    migrator_until(true, 22).run(&mut connection).await.unwrap();
    let mut script = EventScript::new();
    let mut of_run = RunAudit::new(script.run, "ann", AuditContent::default());
    let mut drafts: Vec<Draft> = Vec::new();
    for kind in [
        started("c1", json!({"a": 1})),
        ended("c1", ToolOutcome::Output(json!(1))),
    ] {
        drafts.extend(of_run.take(&script.event(kind)));
    }
    assert_eq!(drafts.len(), 1);
    let others = (0..OTHER_ROWS).map(|row| Draft::module_approved("bob", "m", &row.to_string()));
    drafts.extend(others);
    let drafts: Vec<&Draft> = drafts.iter().collect();
    let mut transaction = connection.begin().await.unwrap();
    audit_rows::append(&mut transaction, &drafts).await.unwrap();
    transaction.commit().await.unwrap();
    let head = audit_rows::last_row((&mut connection).into())
        .await
        .unwrap();
    connection.close().await.unwrap();

    let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
    assert_eq!(faults(&store).await, Vec::<String>::new());
    let verified = store.verify_audit(Some(&head.1)).await.unwrap();
    assert_eq!(verified.entries, OTHER_ROWS as u64 + 1);
    let filter = AuditFilter {
        run: Some(script.run),
        ..AuditFilter::default()
    };
    let found = store.audited(&filter, AuditOrder::After(0), 9).await;
    assert_eq!(found.unwrap().len(), 1);
    // Known by its event, and refused where it is not asked about.
    let of_event = drafts[0];
    let mut transaction = store.pool.begin().await.unwrap();
    audit_rows::append(&mut transaction, &[of_event, drafts[1]])
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    let rows = store.verify_audit(None).await.unwrap().entries;
    assert_eq!(rows, OTHER_ROWS as u64 + 2);
    let again = "INSERT INTO audit (number, at_ms, owner, action, run, seq, entry, hash) \
                 SELECT 9999, at_ms, owner, action, run, seq, entry, hash FROM audit WHERE run IS NOT NULL";
    let refused = sqlx::query(again).execute(&store.pool).await.unwrap_err();
    assert!(refused.to_string().contains("UNIQUE"), "{refused}");
    let older: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM sqlite_schema WHERE tbl_name = 'older_audit' OR name LIKE 'audit_by%'",
    )
    .fetch_one(&store.pool)
    .await
    .unwrap();
    assert_eq!(older, 0);
    check_database(&path, "it").await.unwrap();
}
