//! Leases of runs whose holder is frozen, and the fence that its later writes meet.

use super::{EventScript, OUTAGE_TIMEOUT, databases, until};
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

/// As if `store`'s process had been frozen for longer than its lease; the process renews the lease within seconds.
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
        let store = Store::open(&database.location, OUTAGE_TIMEOUT)
            .await
            .unwrap();
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
        let frozen = Store::open(&database.location, OUTAGE_TIMEOUT)
            .await
            .unwrap();
        let other = Store::open(&database.location, OUTAGE_TIMEOUT)
            .await
            .unwrap();
        if frozen.process.lease().is_none() {
            // SQLite: a lock of this machine.
            continue;
        }
        let mut script = EventScript::new();
        let run = script.run;
        let mut journal = frozen.journal(run, of_server());
        journal.append(&[script.begin("t")]).await.unwrap();
        assert!(other.orphans().await.unwrap().is_empty());
        assert!(frozen.taken_over(&[run]).await.unwrap().is_empty());

        // Again, because the process may renew its lease between two statements.
        let orphans = until(async || {
            ends_lease(&frozen).await;
            let orphans = other.orphans().await.unwrap();
            (!orphans.is_empty()).then_some(orphans)
        })
        .await;
        let holder = Some(frozen.process.name().to_owned());
        let loss = HolderLoss::Silent;
        assert_eq!(orphans, [Orphan { run, holder, loss }]);
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
        assert_eq!(frozen.lease_state(run).await.unwrap(), LeaseState::Held);
        drop(journal);
        taken.append(&[later.done()]).await.unwrap();
        let events = other.read(&Source::Run(run)).await.unwrap();
        assert_eq!(events.len(), 3);
    }
}

#[tokio::test]
async fn a_lease_that_was_not_renewed_in_time_holds_again_once_it_is() {
    for database in databases().await {
        let late = Store::open(&database.location, OUTAGE_TIMEOUT)
            .await
            .unwrap();
        let other = Store::open(&database.location, OUTAGE_TIMEOUT)
            .await
            .unwrap();
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
        journal.append(&[script.done()]).await.unwrap();
    }
}

#[tokio::test]
async fn rows_of_processes_that_ended_long_ago_are_deleted() {
    for database in databases().await {
        let store = Store::open(&database.location, OUTAGE_TIMEOUT)
            .await
            .unwrap();
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
        let other = Store::open(&database.location, OUTAGE_TIMEOUT)
            .await
            .unwrap();
        let rows: Vec<String> =
            sqlx::query_scalar("SELECT process FROM process_leases ORDER BY deadline_ms, process")
                .fetch_all(&other.pool)
                .await
                .unwrap();
        assert_eq!(rows.len(), 3, "{rows:?}");
        assert_eq!(rows[0], "has a run");
    }
}

/// A process that was frozen while its request waited for a place, and whose key was given free meanwhile.
#[tokio::test]
async fn a_run_whose_promise_was_given_free_does_not_begin() {
    for database in databases().await {
        let frozen = Store::open(&database.location, OUTAGE_TIMEOUT)
            .await
            .unwrap();
        let other = Store::open(&database.location, OUTAGE_TIMEOUT)
            .await
            .unwrap();
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
