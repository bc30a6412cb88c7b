//! Leases of runs whose holder is frozen, and the fence that its later writes meet.

use super::{EventScript, databases, opened, two_stores, until};
use crate::process_lease::ProcessState;
use crate::*;
use std::slice::from_ref;
use std::sync::Arc;
use toolhold_protocol::event::{Event, Journal as _};
use uuid::Uuid;

fn of_server() -> Label {
    Label {
        origin: Origin::Serve,
        ..Label::default()
    }
}

/// The run whose lease a refused write had lost.
async fn refused(journal: &mut RunJournal, event: &Event) -> Option<Uuid> {
    let error = journal.append(from_ref(event)).await.unwrap_err();
    match &**error.get_ref()?.downcast_ref::<Arc<WriteError>>()? {
        WriteError::LeaseLost { run, .. } => Some(*run),
        _ => None,
    }
}

/// Ends the lease of `store`'s process, which a freeze for longer than that does; the process renews the lease within seconds.
async fn ends_lease(store: &Store) {
    sqlx::query("UPDATE process_leases SET deadline_ms = 0 WHERE process = $1")
        .bind(store.process.name())
        .execute(&store.pool)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_write_under_an_older_fence_is_refused() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let run = script.run;
        let mut journal = store.journal(run, of_server());
        journal.append(&[script.begin("t")]).await.unwrap();
        // Another process took the run, died, and left it to the same process again.
        sqlx::query("UPDATE runs SET fence = fence + 2")
            .execute(&store.pool)
            .await
            .unwrap();
        assert_eq!(refused(&mut journal, &script.notice()).await, Some(run));
        let events = store.read(&Source::Run(run)).await.unwrap();
        assert_eq!(events.len(), 1);
    }
}

#[tokio::test]
async fn a_run_of_a_frozen_process_is_taken_over_and_the_process_writes_no_more() {
    for database in databases().await {
        let [frozen, other] = two_stores(&database).await;
        if frozen.process.lease().is_none() {
            // SQLite: a lock of this machine.
            continue;
        }
        let mut script = EventScript::new();
        let run = script.run;
        let mut journal = frozen.journal(run, of_server());
        journal.append(&[script.begin("t")]).await.unwrap();
        let looked = other.orphans().await.unwrap();
        assert_eq!(looked.runs, []);
        assert!(looked.deadlines[frozen.process.name()] > 0, "{looked:?}");
        assert!(frozen.taken_over(&[run]).await.unwrap().is_empty());
        assert!(!frozen.was_taken(run).await.unwrap());

        // Again, because the process may renew its lease between two statements.
        let orphans = until(async || {
            ends_lease(&frozen).await;
            let orphans = other.orphans().await.unwrap();
            (!orphans.runs.is_empty()).then_some(orphans)
        })
        .await;
        let holder = Some(frozen.process.name().to_owned());
        let loss = HolderLoss::Silent;
        assert_eq!(orphans.runs, [Orphan { run, holder, loss }]);
        assert_eq!(orphans.deadlines[frozen.process.name()], 0);
        let lost = frozen.lease_lost();
        let taken = until(async || {
            ends_lease(&frozen).await;
            // It has yet to renew its lease after an outage, as far as a server knows that starts now.
            let resumable = other.resumable().await.unwrap();
            assert_eq!(resumable.len(), 0);
            other.reopen(run).await.ok()
        });
        let ((mut taken, events), ()) = tokio::join!(taken, lost);
        assert_eq!(events.len(), 1);

        let mut later = EventScript::new();
        later.run = run;
        later.event(events[0].kind.clone());
        taken.append(&[later.notice()]).await.unwrap();
        assert_eq!(refused(&mut journal, &script.notice()).await, Some(run));
        assert_eq!(frozen.taken_over(&[run]).await.unwrap(), [run]);
        assert!(frozen.was_taken(run).await.unwrap());
        assert!(!other.was_taken(run).await.unwrap());
        assert_eq!(frozen.lease_state(run).await.unwrap(), LeaseState::Held);
        drop(journal);
        taken.append(&[later.done()]).await.unwrap();
        assert!(!frozen.was_taken(run).await.unwrap(), "it has ended");
        let events = other.read(&Source::Run(run)).await.unwrap();
        assert_eq!(events.len(), 3);
    }
}

/// Between the look at a lease and the act, its process may renew it.
#[tokio::test]
async fn a_run_is_taken_only_while_the_lease_of_its_process_is_over() {
    for database in databases().await {
        let [late, other] = two_stores(&database).await;
        if late.process.lease().is_none() {
            // SQLite: a process whose lock is free has ended, and no other one has its name.
            continue;
        }
        let mut script = EventScript::new();
        let mut journal = late.journal(script.run, of_server());
        journal.append(&[script.begin("t")]).await.unwrap();
        let holder = Some(late.process.name());
        // As if the look had found a lease that had ended.
        let taken = other.take(script.run, holder).await.unwrap();
        assert_eq!(taken, None, "its process renewed the lease since");
        assert_eq!(other.take(script.run, None).await.unwrap(), None);
        journal.append(&[script.notice()]).await.unwrap();
        let taken = until(async || {
            ends_lease(&late).await;
            other.take(script.run, holder).await.unwrap()
        });
        assert_eq!(taken.await, (String::new(), 1));
        assert_eq!(
            refused(&mut journal, &script.notice()).await,
            Some(script.run)
        );
    }
}

#[tokio::test]
async fn a_lease_that_was_not_renewed_in_time_holds_again_once_it_is() {
    for database in databases().await {
        let [late, other] = two_stores(&database).await;
        let state = async || {
            let (name, pool) = (late.process.name(), &other.pool);
            other.process.state(name, pool).await.unwrap()
        };
        assert_eq!(state().await, ProcessState::Alive);
        let Some(lease) = late.process.lease() else {
            continue;
        };
        let mut script = EventScript::new();
        let mut journal = late.journal(script.run, of_server());
        journal.append(&[script.begin("t")]).await.unwrap();
        until(async || {
            ends_lease(&late).await;
            (state().await == ProcessState::Silent).then_some(())
        })
        .await;
        // A write is refused only to a process whose run another one has taken.
        journal.append(&[script.notice()]).await.unwrap();
        until(async || (state().await == ProcessState::Alive).then_some(())).await;
        until(async || lease.was_lost().then_some(())).await;
        assert!(late.taken_over(&[script.run]).await.unwrap().is_empty());
        let held_by = async |name: &str| {
            let update = sqlx::query("UPDATE runs SET holder = $1").bind(name.to_owned());
            update.execute(&other.pool).await.unwrap();
        };
        // A version without fences takes the run.
        held_by("an older version").await;
        assert_eq!(late.taken_over(&[script.run]).await.unwrap(), [script.run]);
        assert!(late.was_taken(script.run).await.unwrap());
        held_by(late.process.name()).await;
        journal.append(&[script.done()]).await.unwrap();
        held_by("an older version").await;
        assert!(late.taken_over(&[script.run]).await.unwrap().is_empty());
    }
}

/// Its connection was cut, and it has yet to find another one.
#[tokio::test]
async fn a_process_that_lost_its_connection_is_not_dead_at_once() {
    for database in databases().await {
        let [cut, other] = two_stores(&database).await;
        if cut.process.lease().is_none() {
            continue;
        }
        let (mut task, mut turn) = (EventScript::new(), EventScript::new());
        let mut journal = cut.journal(task.run, Label::default());
        journal.append(&[task.begin("t")]).await.unwrap();
        let mut served = cut.journal(turn.run, of_server());
        served.append(&[turn.begin("t")]).await.unwrap();

        // Again, because the process may have found another connection before the look.
        until(async || {
            cut_lease(&cut, &other).await;
            let (name, pool) = (cut.process.name(), &other.pool);
            let state = other.process.state(name, pool).await.unwrap();
            (state == ProcessState::Gone).then_some(())
        })
        .await;
        other.audit_interrupted().await.unwrap();
        assert!(other.resumable().await.unwrap().is_empty());
        let holder = other.holder(task.run).await.unwrap();
        assert_eq!(holder.as_deref(), Some(cut.process.name()));
        journal.append(&[task.notice()]).await.unwrap();
        served.append(&[turn.notice()]).await.unwrap();

        // What a server releases can be taken at once.
        drop(served);
        until(async || {
            let resumable = other.resumable().await.unwrap();
            (resumable.len() == 1).then_some(())
        })
        .await;
    }
}

/// Ends the connection that has the lock of `store`'s process.
async fn cut_lease(store: &Store, by: &Store) {
    let _ended: i64 = sqlx::query_scalar(
        "SELECT CAST(COUNT(pg_terminate_backend(pid)) AS BIGINT) FROM pg_locks WHERE locktype = 'advisory' \
         AND objsubid = 1 AND ((CAST(classid AS BIGINT) << 32) | CAST(objid AS BIGINT)) = $1",
    )
    .bind(lock_of(store.process.name()))
    .fetch_one(&by.pool)
    .await
    .unwrap();
}

/// The key of the lock of a process.
fn lock_of(name: &str) -> i64 {
    Uuid::parse_str(name).unwrap().as_u64_pair().1.cast_signed()
}

#[tokio::test]
async fn rows_of_processes_that_ended_long_ago_are_deleted() {
    for database in databases().await {
        let store = opened(&database).await;
        if store.process.lease().is_none() {
            continue;
        }
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, of_server());
        journal.append(&[script.begin("t")]).await.unwrap();
        for statement in [
            "INSERT INTO process_leases (process, deadline_ms) VALUES ('ended', 0), ('has a run', 0)",
            "UPDATE runs SET holder = 'has a run'",
        ] {
            sqlx::query(statement).execute(&store.pool).await.unwrap();
        }
        // Frozen for long, and still connected.
        let frozen = Uuid::now_v7().to_string();
        sqlx::query("INSERT INTO process_leases (process, deadline_ms) VALUES ($1, 1)")
            .bind(frozen.clone())
            .execute(&store.pool)
            .await
            .unwrap();
        let mut connection = store.database.connect().await.unwrap();
        let locked: i64 = sqlx::query_scalar(
            "SELECT CAST(CASE WHEN pg_try_advisory_lock($1) THEN 1 ELSE 0 END AS BIGINT)",
        )
        .bind(lock_of(&frozen))
        .fetch_one(&mut connection)
        .await
        .unwrap();
        assert_eq!(locked, 1);
        let other = opened(&database).await;
        let rows: Vec<String> =
            sqlx::query_scalar("SELECT process FROM process_leases ORDER BY deadline_ms, process")
                .fetch_all(&other.pool)
                .await
                .unwrap();
        assert_eq!(rows.len(), 4, "{rows:?}");
        assert_eq!(rows[..2], ["has a run".to_owned(), frozen.clone()]);
        let state = other.process.state(&frozen, &other.pool).await.unwrap();
        assert_eq!(state, ProcessState::Silent);
    }
}

/// A process that was frozen while its request waited for a place, and whose key was given free meanwhile.
#[tokio::test]
async fn a_run_whose_promise_was_given_free_does_not_begin() {
    for database in databases().await {
        let [frozen, other] = two_stores(&database).await;
        let (mut lost, mut kept) = (EventScript::new(), EventScript::new());
        let asked = async |store: &Store, run| {
            let asked = store.first_or_repeat("ann", "key", "d", run).await;
            asked.unwrap()
        };
        let lost_promise = frozen.promise(lost.run);
        assert_eq!(asked(&frozen, lost.run).await, KeyUse::First);
        if frozen.process.lease().is_some() {
            until(async || {
                ends_lease(&frozen).await;
                let forgotten = other.forget_broken("ann", "key", lost.run).await;
                forgotten.unwrap().then_some(())
            })
            .await;
        } else {
            sqlx::query("DELETE FROM idempotency")
                .execute(&other.pool)
                .await
                .unwrap();
        }
        let _promise = other.promise(kept.run);
        assert_eq!(asked(&other, kept.run).await, KeyUse::First);
        let mut journal = other.journal(kept.run, of_server());
        journal.append(&[kept.begin("t")]).await.unwrap();
        assert_eq!(asked(&frozen, lost.run).await, KeyUse::Same(kept.run));

        let mut journal = frozen.journal(lost.run, of_server());
        let refused = journal.append(&[lost.begin("t")]).await.unwrap_err();
        let refused = refused
            .get_ref()
            .and_then(|it| it.downcast_ref::<Arc<WriteError>>());
        assert!(
            matches!(refused.map(|it| &**it), Some(WriteError::PromiseLost { run }) if *run == lost.run),
            "{refused:?}"
        );
        assert!(other.run(lost.run).await.unwrap().is_none());
        drop(lost_promise);
        for store in [&frozen, &other] {
            let forgotten = store.forget_broken("ann", "key", kept.run).await.unwrap();
            assert!(!forgotten, "its run has begun");
        }
    }
}
