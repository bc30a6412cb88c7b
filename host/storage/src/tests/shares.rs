//! Shares of collections, and the bounds of what an owner has and of what is offered to a key.

use super::{OUTAGE_TIMEOUT, databases, opened};
use crate::schema::migrator_until;
use crate::*;
use sqlx::Connection as _;
use tokio::task::JoinSet;

async fn collection(store: &Store, owner: &str, name: &str) -> Collection {
    let created = store.create_collection(owner, name, None, None).await;
    assert_eq!(created.unwrap(), CollectionCreation::Created);
    store
        .collection(owner, owner, name)
        .await
        .unwrap()
        .unwrap()
        .0
}

async fn state(store: &Store, reader: &str, of: &Collection) -> Option<MembershipState> {
    let found = store.collection(reader, &of.owner, &of.name).await.unwrap();
    found.map(|(_, membership)| membership.state)
}

/// Owners and names of the collections of a search that names none.
async fn searched(store: &Store, reader: &str) -> Vec<(String, String)> {
    let found = store.default_collections(reader, 1_000).await.unwrap();
    found.into_iter().map(|it| (it.owner, it.name)).collect()
}

fn named(owner: &str, name: &str) -> (String, String) {
    (owner.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_share_is_searched_by_default_from_its_acceptance_until_it_is_left() {
    for database in databases().await {
        let store = opened(&database).await;
        let notes = collection(&store, "bob", "notes").await;
        collection(&store, "ann", "own").await;
        assert!(!store.accept_share("ann", &notes).await.unwrap());
        let shared = store.share_collection(&notes, "ann", Access::Read).await;
        assert_eq!(shared.unwrap(), MembershipState::Offered);
        assert_eq!(searched(&store, "ann").await, [named("ann", "own")]);
        let offered = Some(MembershipState::Offered);
        assert_eq!(state(&store, "ann", &notes).await, offered);

        assert!(store.accept_share("ann", &notes).await.unwrap());
        assert!(store.accept_share("ann", &notes).await.unwrap());
        let both = [named("ann", "own"), named("bob", "notes")];
        assert_eq!(searched(&store, "ann").await, both);
        // Another right needs no other answer.
        let shared = store.share_collection(&notes, "ann", Access::Write).await;
        assert_eq!(shared.unwrap(), MembershipState::Accepted);
        let keys = store.shared_with(&notes).await.unwrap();
        assert!(keys[0].is_accepted && keys[0].access == Access::Write);

        assert!(store.leave_share("ann", &notes).await.unwrap());
        assert!(!store.leave_share("ann", &notes).await.unwrap());
        assert_eq!(state(&store, "ann", &notes).await, None);
        assert_eq!(searched(&store, "ann").await, [named("ann", "own")]);
        let shared = store.share_collection(&notes, "ann", Access::Read).await;
        assert_eq!(shared.unwrap(), MembershipState::Offered);
        // A refusal is the same.
        assert!(store.leave_share("ann", &notes).await.unwrap());
        assert_eq!(store.shared_with(&notes).await.unwrap(), []);

        let log = store
            .audited(&AuditFilter::default(), AuditOrder::Before(i64::MAX), 99)
            .await
            .unwrap();
        let count = |action: &str| {
            let action = format!("\"action\":\"{action}\"");
            log.iter().filter(|it| it.text.contains(&action)).count()
        };
        assert_eq!((count("share_accepted"), count("share_left")), (1, 2));
    }
}

#[tokio::test]
async fn a_share_of_the_terminal_counts_as_accepted() {
    for database in databases().await {
        let store = opened(&database).await;
        let manual = collection(&store, "", "manual").await;
        let shared = store.share_collection(&manual, "ann", Access::Read).await;
        assert_eq!(shared.unwrap(), MembershipState::Accepted);
        assert_eq!(searched(&store, "ann").await, [named("", "manual")]);
        assert!(store.leave_share("ann", &manual).await.unwrap());
        assert!(searched(&store, "ann").await.is_empty());
    }
}

/// Writes shares with `ann` of a collection for each of `numbers`, in one transaction; `of` gives the owner of each.
async fn seed(
    store: &Store,
    numbers: std::ops::Range<u32>,
    of: impl Fn(u32) -> String,
    accepted_ms: Option<i64>,
) {
    let mut transaction = store.pool.begin().await.unwrap();
    for number in numbers {
        let id = uuid::Uuid::now_v7().to_string();
        let collection = "INSERT INTO collections (id, owner, name, version, documents, passages, words, bytes, created_ms) \
                          VALUES ($1, $2, $3, 0, 0, 0, 0, 0, 1)";
        sqlx::query(collection)
            .bind(&id)
            .bind(of(number))
            .bind(format!("seed{number}"))
            .execute(&mut *transaction)
            .await
            .unwrap();
        let share = "INSERT INTO collection_grants (collection, grantee, access, accepted_ms) VALUES ($1, 'ann', 'read', $2)";
        sqlx::query(share)
            .bind(&id)
            .bind(accepted_ms)
            .execute(&mut *transaction)
            .await
            .unwrap();
    }
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn offers_have_bounds_by_owner_and_by_key_at_any_concurrency() {
    for database in databases().await {
        let store = opened(&database).await;
        seed(&store, 0..MAX_OFFERS_OF_OWNER - 2, |_| "bob".into(), None).await;
        let mut offered = Vec::new();
        for number in 0..4 {
            offered.push(collection(&store, "bob", &format!("c{number}")).await);
        }
        let mut sharing = JoinSet::new();
        for it in offered.clone() {
            let store = store.clone();
            sharing.spawn(async move { store.share_collection(&it, "ann", Access::Read).await });
        }
        let done = sharing.join_all().await;
        let is_bound = |it: &&Result<_, _>| matches!(it, Err(ShareError::OffersOfOwner { .. }));
        assert_eq!(done.iter().filter(is_bound).count(), 2, "{done:?}");
        // Another owner has room, and so has this one when the key has answered.
        let other = collection(&store, "eve", "c").await;
        let shared = store.share_collection(&other, "ann", Access::Read).await;
        assert_eq!(shared.unwrap(), MembershipState::Offered);
        let mut left = None;
        for it in &offered {
            match state(&store, "ann", it).await {
                Some(_) => assert!(store.accept_share("ann", it).await.unwrap()),
                None => left = Some(it),
            }
        }
        let left = left.unwrap();
        let shared = store.share_collection(left, "ann", Access::Read).await;
        assert_eq!(shared.unwrap(), MembershipState::Offered);
        store.delete_collection("bob", left).await.unwrap();
        let gone = store.share_collection(left, "ann", Access::Read).await;
        assert!(matches!(gone, Err(ShareError::Gone)), "{gone:?}");

        // There are those of bob and eve. That of the deleted collection does not count.
        let open = MAX_OFFERS_OF_OWNER - 2 + 1;
        let owner = |number| format!("k{}", number / MAX_OFFERS_OF_OWNER);
        seed(&store, open..MAX_OFFERS_TO_KEY - 1, owner, None).await;
        let last = collection(&store, "last", "c").await;
        let shared = store.share_collection(&last, "ann", Access::Read).await;
        assert_eq!(shared.unwrap(), MembershipState::Offered);
        let more = collection(&store, "more", "c").await;
        let full = store.share_collection(&more, "ann", Access::Read).await;
        assert!(
            matches!(full, Err(ShareError::OffersToKey { .. })),
            "{full:?}"
        );
        let shared = store.share_collection(&more, "dan", Access::Read).await;
        assert_eq!(shared.unwrap(), MembershipState::Offered);
    }
}

#[tokio::test]
async fn accepted_shares_and_keys_of_a_collection_have_bounds() {
    for database in databases().await {
        let store = opened(&database).await;
        seed(&store, 0..MAX_ACCEPTED_SHARES, |_| "bob".into(), Some(1)).await;
        let more = collection(&store, "bob", "more").await;
        let shared = store.share_collection(&more, "ann", Access::Read).await;
        assert_eq!(shared.unwrap(), MembershipState::Offered);
        let full = store.accept_share("ann", &more).await;
        assert!(matches!(full, Err(ShareError::Accepted { .. })), "{full:?}");
        // The terminal passes the bound neither: what it shares is offered then.
        let manual = collection(&store, "", "manual").await;
        let shared = store.share_collection(&manual, "ann", Access::Read).await;
        assert_eq!(shared.unwrap(), MembershipState::Offered);
        let mut transaction = store.pool.begin().await.unwrap();
        for number in 1..MAX_KEYS_OF_COLLECTION {
            let share = "INSERT INTO collection_grants (collection, grantee, access) VALUES ($1, $2, 'read')";
            sqlx::query(share)
                .bind(more.id.to_string())
                .bind(format!("k{number}"))
                .execute(&mut *transaction)
                .await
                .unwrap();
        }
        transaction.commit().await.unwrap();
        let full = store.share_collection(&more, "another", Access::Read).await;
        assert!(matches!(full, Err(ShareError::Keys { .. })), "{full:?}");
        let changed = store.share_collection(&more, "k1", Access::Write).await;
        assert_eq!(changed.unwrap(), MembershipState::Offered);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_created_at_once_stay_within_the_bound_of_their_kind() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut creating = JoinSet::new();
        for number in 0..16 {
            let store = store.clone();
            creating.spawn(async move {
                let name = if number % 2 == 0 {
                    format!("c{number}")
                } else {
                    attached_name(uuid::Uuid::now_v7())
                };
                store.create_collection("ann", &name, None, Some(3)).await
            });
        }
        let done = creating.join_all().await;
        let created = done
            .iter()
            .filter(|it| matches!(it, Ok(CollectionCreation::Created)))
            .count();
        assert_eq!(created, 6, "{done:?}");
        for kind in [CollectionKind::Named, CollectionKind::Attached] {
            let sums = store.owned_sums("ann", kind).await.unwrap();
            assert_eq!(sums.collections, 3, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn shares_of_an_older_database_are_offers_unless_the_terminal_made_them() {
    for database in databases().await {
        let store_of_now = Store::open(&database.location, OUTAGE_TIMEOUT);
        let connected = crate::database::Database::of(&database.location).unwrap();
        if let Location::File(path) = &database.location {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::File::create(path).unwrap();
        }
        let mut connection = connected.connect().await.unwrap();
        let before = migrator_until(connected.is_file(), 7);
        before.run(&mut connection).await.unwrap();
        for (id, owner) in [
            ("0190f000-0000-7000-8000-000000000001", "bob"),
            ("0190f000-0000-7000-8000-000000000002", ""),
        ] {
            let made = "INSERT INTO collections (id, owner, name, version, documents, passages, words, bytes, created_ms) \
                        VALUES ($1, $2, 'notes', 0, 0, 0, 0, 0, 1)";
            let shared = "INSERT INTO collection_grants (collection, grantee, access) VALUES ($1, 'ann', 'read')";
            sqlx::query(made)
                .bind(id)
                .bind(owner)
                .execute(&mut connection)
                .await
                .unwrap();
            sqlx::query(shared)
                .bind(id)
                .execute(&mut connection)
                .await
                .unwrap();
        }
        connection.close().await.unwrap();
        let store = store_of_now.await.unwrap();
        assert_eq!(searched(&store, "ann").await, [named("", "notes")]);
        let (theirs, membership) = store
            .collection("ann", "bob", "notes")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(membership.state, MembershipState::Offered);
        assert!(store.accept_share("ann", &theirs).await.unwrap());
        assert_eq!(searched(&store, "ann").await.len(), 2);
    }
}
