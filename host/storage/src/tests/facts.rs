//! Facts of memory.

use super::{databases, opened};
use crate::*;
use uuid::Uuid;

fn new<'a>(scope: &'a FactScope, text: &'a str, supersedes: Option<Uuid>) -> NewFact<'a> {
    NewFact {
        scope,
        text,
        source: "call c1",
        confidence: 0.75,
        supersedes,
    }
}

async fn keep(store: &Store, owner: &str, scope: &FactScope, text: &str) -> Fact {
    let quota = FactQuota::default();
    let kept = store.remember(owner, new(scope, text, None), quota).await;
    kept.unwrap()
}

async fn found(store: &Store, owner: &str, scope: Option<&FactScope>) -> Vec<String> {
    let facts = store.facts(owner, scope, None, 100).await.unwrap();
    facts.into_iter().map(|fact| fact.text).collect()
}

#[tokio::test]
async fn facts_are_found_by_their_owner_in_their_scope() {
    for database in databases().await {
        let store = opened(&database).await;
        let agent = FactScope::Agent("bank".into());
        let fact = keep(&store, "ann", &FactScope::User, "likes tea \0").await;
        assert_eq!((fact.text.as_str(), fact.confidence), ("likes tea  ", 0.75));
        keep(&store, "ann", &agent, "asks in the morning").await;
        keep(&store, "bob", &FactScope::User, "likes coffee").await;

        assert_eq!(
            found(&store, "ann", None).await,
            ["asks in the morning", "likes tea  "]
        );
        assert_eq!(
            found(&store, "ann", Some(&FactScope::User)).await,
            ["likes tea  "]
        );
        let other = FactScope::Agent("shop".into());
        assert!(found(&store, "ann", Some(&other)).await.is_empty());
        assert_eq!(found(&store, "bob", None).await, ["likes coffee"]);
        // Another owner's fact is there for no one else, by its id either.
        assert_eq!(store.fact("ann", fact.id).await.unwrap().unwrap(), fact);
        assert_eq!(store.fact("bob", fact.id).await.unwrap(), None);
        assert!(
            store
                .fact_history("bob", fact.id, 10)
                .await
                .unwrap()
                .is_empty()
        );
        for extent in [ForgetExtent::Fact, ForgetExtent::Chain] {
            let forgotten = store.forget("bob", fact.id, extent, "bob").await.unwrap();
            assert_eq!(forgotten, None);
        }
        let quota = FactQuota::default();
        for (owner, scope) in [("bob", &FactScope::User), ("ann", &agent)] {
            let theirs = new(scope, "hates tea", Some(fact.id));
            let refused = store.remember(owner, theirs, quota).await;
            assert!(
                matches!(refused, Err(MemoryError::Unknown { .. })),
                "{refused:?}"
            );
        }
        assert_eq!(
            found(&store, "ann", Some(&FactScope::User)).await,
            ["likes tea  "]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_superseded_is_history_until_it_is_forgotten() {
    for database in databases().await {
        let store = opened(&database).await;
        let scope = FactScope::User;
        let quota = FactQuota::default();
        let first = keep(&store, "ann", &scope, "lives in Bonn").await;
        // Two writers of two processes: one of them is told which fact is true now.
        let second = opened(&database).await;
        let (one, other) = tokio::join!(
            store.remember("ann", new(&scope, "lives in Köln", Some(first.id)), quota),
            second.remember("ann", new(&scope, "lives in Ulm", Some(first.id)), quota),
        );
        let (kept, refused) = match (one, other) {
            (Ok(kept), Err(refused)) | (Err(refused), Ok(kept)) => (kept, refused),
            both => panic!("{both:?}"),
        };
        assert!(
            matches!(refused, MemoryError::Superseded { by, .. } if by == kept.id),
            "{refused:?}"
        );
        assert_eq!(
            found(&store, "ann", None).await,
            std::slice::from_ref(&kept.text)
        );
        let history = store.fact_history("ann", kept.id, 10).await.unwrap();
        let [old, now] = history.as_slice() else {
            panic!("{history:?}")
        };
        assert_eq!((old.id, old.superseded_by), (first.id, Some(kept.id)));
        assert_eq!((old.ended_ms, now), (Some(kept.created_ms), &kept));

        let third = new(&scope, "lives in Trier", Some(kept.id));
        let third = store.remember("ann", third, quota).await.unwrap();
        let alone = store
            .forget("ann", kept.id, ForgetExtent::Fact, "ann")
            .await;
        assert_eq!(alone.unwrap().unwrap().facts, [kept.id]);
        let history = store.fact_history("ann", first.id, 10).await.unwrap();
        let texts: Vec<&str> = history.iter().map(|fact| fact.text.as_str()).collect();
        assert_eq!(texts, ["lives in Bonn", "", "lives in Trier"]);
        let chain = store
            .forget("ann", third.id, ForgetExtent::Chain, "ann")
            .await
            .unwrap();
        let mut chain = chain.unwrap();
        chain.facts.sort();
        assert_eq!(
            (chain.facts, chain.is_in_log),
            (vec![first.id, third.id], false)
        );
        assert!(found(&store, "ann", None).await.is_empty());
        let again = store
            .forget("ann", third.id, ForgetExtent::Chain, "ann")
            .await;
        assert_eq!(again.unwrap(), None);
        let late = new(&scope, "lives in Mainz", Some(third.id));
        let late = store.remember("ann", late, quota).await;
        assert!(matches!(late, Err(MemoryError::Unknown { .. })), "{late:?}");

        // The text is nowhere, the audit log included.
        if let Location::File(path) = &database.location {
            for name in ["toolhold.db", "toolhold.db-wal"] {
                let bytes = std::fs::read(path.with_file_name(name)).unwrap_or_default();
                for text in ["lives in Bonn", "lives in Trier"] {
                    let mut windows = bytes.windows(text.len());
                    assert!(!windows.any(|it| it == text.as_bytes()), "{name}: {text}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_and_a_long_fact_are_refused() {
    for database in databases().await {
        let store = opened(&database).await;
        let quota = FactQuota {
            facts: 5,
            bytes: 10,
        };
        let scope = FactScope::User;
        for (text, has) in [("", 0), (" ", 1), ("12345678901", 11)] {
            let refused = store.remember("ann", new(&scope, text, None), quota).await;
            assert!(
                matches!(refused, Err(MemoryError::Length { has: is, most: 10 }) if is == has),
                "{text}: {refused:?}"
            );
        }
        // All at once: the bound holds between them.
        let writes = (0..10).map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                let text = format!("fact {n}");
                let kept = store.remember("ann", new(&FactScope::User, &text, None), quota);
                kept.await.map(|_| ())
            })
        });
        let writes: Vec<_> = writes.collect();
        let (mut kept, mut full) = (0, 0);
        for write in writes {
            match write.await.unwrap() {
                Ok(()) => kept += 1,
                Err(MemoryError::Full { most: 5 }) => full += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!((kept, full), (5, 5));
        // Another owner has room of its own, and what is forgotten makes room.
        keep(&store, "bob", &scope, "fact").await;
        let one = store.facts("ann", None, None, 1).await.unwrap()[0].id;
        store
            .forget("ann", one, ForgetExtent::Fact, "ann")
            .await
            .unwrap();
        let more = store.remember("ann", new(&scope, "one more", None), quota);
        more.await.unwrap();
        let full = store.remember("ann", new(&scope, "too many", None), quota);
        assert!(matches!(full.await, Err(MemoryError::Full { .. })));
    }
}

#[tokio::test]
async fn what_was_kept_for_a_session_goes_with_it() {
    for database in databases().await {
        let store = opened(&database).await;
        let session = Uuid::now_v7();
        sqlx::query(
            "INSERT INTO sessions (id, owner, agent, title, created_ms) VALUES ($1, 'ann', 'a', 't', 0)",
        )
        .bind(session.to_string())
        .execute(&store.pool)
        .await
        .unwrap();
        let scope = FactScope::Session(session.to_string());
        keep(&store, "ann", &scope, "for now").await;
        keep(&store, "ann", &FactScope::User, "for ever").await;
        assert!(store.delete_session("ann", session).await.unwrap());
        assert_eq!(found(&store, "ann", None).await, ["for ever"]);
        let facts: i64 = sqlx::query_scalar("SELECT facts FROM fact_owners WHERE owner = 'ann'")
            .fetch_one(&store.pool)
            .await
            .unwrap();
        assert_eq!(facts, 1);
    }
}
