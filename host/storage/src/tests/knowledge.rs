//! Collections, documents and passages.

use super::{OUTAGE_TIMEOUT, databases, opened};
use crate::*;
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

const ROOM: Quotas = Quotas {
    collection: Quota {
        documents: 100,
        passages: 1_000,
        bytes: 1_000_000,
    },
    owner: None,
};

const VECTORS: Vectors = Vectors {
    model: String::new(),
    dimensions: 2,
};

fn new<'a>(
    source: &'a str,
    digest: &'a str,
    labels: &'a BTreeMap<String, String>,
) -> NewDocument<'a> {
    NewDocument {
        source,
        title: "A title",
        media_type: "text/plain",
        digest,
        recipe: "1",
        labels,
        bytes: 1_000,
    }
}

fn passage(words: &str) -> NewPassage {
    NewPassage {
        heading: "Chapter\nSection".into(),
        text: format!("Text \0 of {words}."),
        range: 0..10,
        words: words.into(),
        vector: Some(vec![0, 60, 0, 0]),
    }
}

pub async fn collection(store: &Store, owner: &str, name: &str) -> Collection {
    let created = store
        .create_collection(owner, name, Some(&VECTORS), None)
        .await;
    assert_eq!(created.unwrap(), CollectionCreation::Created);
    let found = store.collection(owner, owner, name).await.unwrap();
    let (found, membership) = found.unwrap();
    assert_eq!(membership.access, Access::Write);
    assert_eq!(membership.state, MembershipState::Owner);
    found
}

async fn stage(store: &Store, to: &Collection, new: &NewDocument<'_>) -> StagedDocument {
    match store.stage_document(to, new).await.unwrap() {
        Begun::Staged(staged) => staged,
        found => panic!("{found:?}"),
    }
}

pub async fn add(
    store: &Store,
    to: &Collection,
    source: &str,
    digest: &str,
    words: &[&str],
) -> Uuid {
    let labels = BTreeMap::new();
    let mut staged = stage(store, to, &new(source, digest, &labels)).await;
    let passages: Vec<_> = words.iter().map(|words| passage(words)).collect();
    store.stage_passages(&mut staged, &passages).await.unwrap();
    store
        .publish_document("k", to, &staged, ROOM)
        .await
        .unwrap();
    staged.id
}

/// What is found by words, of which one may be there several times, by `reader`.
async fn hits(
    store: &Store,
    reader: &str,
    within: &[Uuid],
    words: &[&str],
    labels: &BTreeMap<String, String>,
) -> Vec<FoundPassage> {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(*word).or_default() += 1;
    }
    let words = counts.into_iter().map(|(word, count)| QuestionWord {
        word: word.into(),
        count,
    });
    let words: Vec<QuestionWord> = words.collect();
    let question = WordQuestion {
        words: &words,
        labels,
        most: 10,
    };
    store.find_words(reader, within, question).await.unwrap()
}

/// The texts that the owner of the first collection finds.
async fn found(store: &Store, within: &[&Collection], words: &[&str]) -> Vec<String> {
    let ids: Vec<Uuid> = within.iter().map(|collection| collection.id).collect();
    let reader = within[0].owner.as_str();
    let hits = hits(store, reader, &ids, words, &BTreeMap::new()).await;
    assert!(hits.is_sorted_by(|a, b| a.score >= b.score), "{hits:?}");
    assert!(hits.iter().all(|hit| hit.score > 0.0), "{hits:?}");
    let hits: Vec<i64> = hits.iter().map(|hit| hit.passage).collect();
    let (passages, documents) = store.passages(reader, &ids, &hits).await.unwrap();
    assert_eq!(passages.len(), hits.len());
    for passage in &passages {
        assert!(documents.contains_key(&passage.document));
    }
    passages.into_iter().map(|passage| passage.text).collect()
}

async fn removed(store: &Store, staged_before_ms: u64) -> u64 {
    let removed = store.remove_gone_passages(staged_before_ms).await.unwrap();
    assert!(!removed.is_in_log);
    removed.passages
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_visible_when_it_is_published_and_gone_when_it_is_deleted() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let labels = BTreeMap::from([("part".to_owned(), "one".to_owned())]);
        let first = new("tales/a.txt", "d1", &labels);
        let mut staged = stage(&store, &tales, &first).await;
        let batch = [passage("fox jumps dog"), passage("fox fox sleeps")];
        store.stage_passages(&mut staged, &batch).await.unwrap();
        let batch = [passage("dog barks at everything that moves there")];
        store.stage_passages(&mut staged, &batch).await.unwrap();
        assert!(found(&store, &[&tales], &["fox"]).await.is_empty());
        assert!(store.documents(&tales, None, 10).await.unwrap().is_empty());
        assert!(
            store
                .vectors("k", staged.id, 0, 10)
                .await
                .unwrap()
                .is_empty()
        );

        store
            .publish_document("k", &tales, &staged, ROOM)
            .await
            .unwrap();
        let best = found(&store, &[&tales], &["fox", "sleeps"]).await;
        assert_eq!(
            best,
            ["Text   of fox fox sleeps.", "Text   of fox jumps dog."]
        );
        let document = store.document(&tales, staged.id).await.unwrap().unwrap();
        assert_eq!(
            (document.passages, document.labels.clone()),
            (3, labels.clone())
        );
        let read = store.passages_of("k", &document, 1, 10).await.unwrap();
        let numbers: Vec<u64> = read.iter().map(|passage| passage.number).collect();
        assert_eq!(numbers, [1, 2]);
        assert_eq!(store.vectors("k", staged.id, 1, 10).await.unwrap().len(), 2);
        let visible = store
            .visible_documents("k", tales.id, Uuid::nil(), 10)
            .await;
        assert_eq!(visible.unwrap(), [staged.id]);
        // By ids alone, others read nothing.
        assert!(
            store
                .vectors("o", staged.id, 0, 9)
                .await
                .unwrap()
                .is_empty()
        );
        let none = store.passages_of("o", &document, 0, 9).await.unwrap();
        assert!(none.is_empty());
        let none = store.visible_documents("o", tales.id, Uuid::nil(), 9).await;
        assert!(none.unwrap().is_empty());
        let (counted, _) = store.collection("k", "k", "tales").await.unwrap().unwrap();
        assert_eq!(
            (
                counted.documents,
                counted.passages,
                counted.words,
                counted.bytes
            ),
            (1, 3, 13, 1_000)
        );
        assert_eq!(counted.version, 1);

        // The same again is not read again, and neither is it with other labels; by another recipe, and with other
        // bytes, it is.
        let again = store.stage_document(&tales, &first).await.unwrap();
        assert_eq!(again, Begun::Unchanged(document.clone()));
        let other = BTreeMap::from([("part".to_owned(), "two".to_owned())]);
        let relabelled = new("tales/a.txt", "d1", &other);
        let again = store.stage_document(&tales, &relabelled).await.unwrap();
        assert_eq!(again, Begun::OtherLabels(document.clone()));
        let changed = store.label_document("k", &tales, document.id, &other).await;
        assert!(changed.unwrap());
        let again = store.document(&tales, document.id).await.unwrap().unwrap();
        assert_eq!((&again.labels, again.passages), (&other, 3));
        let none = store.label_document("k", &tales, Uuid::nil(), &other).await;
        assert!(!none.unwrap());
        let other = NewDocument {
            recipe: "2",
            ..first.clone()
        };
        stage(&store, &tales, &other).await;
        let replacing = add(&store, &tales, "tales/a.txt", "d2", &["cat purrs"]).await;
        assert!(found(&store, &[&tales], &["fox"]).await.is_empty());
        assert_eq!(found(&store, &[&tales], &["cat"]).await.len(), 1);
        assert_eq!(store.document(&tales, document.id).await.unwrap(), None);
        assert!(
            store
                .passages_of("k", &document, 0, 10)
                .await
                .unwrap()
                .is_empty()
        );

        // What nobody finds is removed; a document that this process stages is not.
        assert_eq!(removed(&store, u64::MAX).await, 3);
        assert!(store.delete_document("k", &tales, replacing).await.unwrap());
        assert!(!store.delete_document("k", &tales, replacing).await.unwrap());
        assert!(found(&store, &[&tales], &["cat"]).await.is_empty());
        assert_eq!(removed(&store, u64::MAX).await, 1);
        let (counted, _) = store.collection("k", "k", "tales").await.unwrap().unwrap();
        assert_eq!(
            (
                counted.documents,
                counted.passages,
                counted.words,
                counted.bytes
            ),
            (0, 0, 0, 0)
        );
        let rows = store
            .audited(&AuditFilter::default(), AuditOrder::After(0), 50)
            .await;
        let actions: Vec<String> = rows.unwrap().into_iter().map(|row| row.text).collect();
        for action in [
            "collection_created",
            "document_added",
            "document_labelled",
            "document_deleted",
        ] {
            assert!(actions.iter().any(|it| it.contains(action)), "{actions:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_is_in_the_file_no_more() {
    let database = databases().await.swap_remove(0);
    let Location::File(path) = &database.location else {
        unreachable!("the first is SQLite");
    };
    let store = opened(&database).await;
    let tales = collection(&store, "k", "tales").await;
    let words: Vec<String> = (0..50).map(|n| format!("word{n} marmalade{n}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let document = add(&store, &tales, "a", "d", &words).await;
    add(&store, &tales, "b", "d", &["other words"]).await;
    let holds = |needle: &str| {
        let files = [path.clone(), path.with_extension("db-wal")];
        files.iter().any(|file| {
            let bytes = std::fs::read(file).unwrap_or_default();
            bytes
                .windows(needle.len())
                .any(|it| it == needle.as_bytes())
        })
    };
    assert!(holds("marmalade"));
    store.delete_document("k", &tales, document).await.unwrap();
    store.remove_gone_passages(0).await.unwrap();
    assert!(!holds("marmalade"));
    assert!(holds("other words"));
}

/// Somebody who reads an older state keeps the write-ahead log. That is told, and the next removal empties it, though
/// it has nothing else to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_keeps_what_is_deleted_in_the_log_and_that_is_told() {
    let database = databases().await.swap_remove(0);
    let Location::File(path) = &database.location else {
        unreachable!("the first is SQLite");
    };
    let store = opened(&database).await;
    let tales = collection(&store, "k", "tales").await;
    let document = add(&store, &tales, "a", "d", &["marmalade"]).await;
    let mut reader = store.pool.begin().await.unwrap();
    let read = "SELECT text FROM passages";
    sqlx::query(read).fetch_one(&mut *reader).await.unwrap();
    store.delete_document("k", &tales, document).await.unwrap();
    let removal = store.remove_gone_passages(0).await.unwrap();
    let expected = RemovedPassages {
        passages: 1,
        records: 0,
        is_in_log: true,
    };
    assert_eq!(removal, expected);
    reader.rollback().await.unwrap();
    assert_eq!(removed(&store, 0).await, 0);
    for file in [path.clone(), path.with_extension("db-wal")] {
        let bytes = std::fs::read(&file).unwrap_or_default();
        let holds = bytes.windows(9).any(|it| it == b"marmalade");
        assert!(!holds, "{}", file.display());
    }
}

/// What is staged, and what others have, changes neither what is found nor what it is worth.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_the_reader_finds_counts_for_rank() {
    for database in databases().await {
        let store = opened(&database).await;
        let (ours, theirs) = (
            collection(&store, "a", "notes").await,
            collection(&store, "b", "notes").await,
        );
        let words = [
            "fox runs",
            "dog runs",
            "dog sleeps",
            "cat sleeps here",
            "owl",
        ];
        add(&store, &ours, "x", "d", &words).await;
        let no_labels = BTreeMap::new();
        let within = [ours.id, theirs.id];
        let ask = || hits(&store, "a", &within, &["fox", "dog"], &no_labels);
        let before = ask().await;
        assert_eq!(before.len(), 3, "{before:?}");
        assert!(
            before[0].score > before[1].score,
            "fox is rarer: {before:?}"
        );
        let many = vec!["fox fox"; 40];
        add(&store, &theirs, "y", "d", &many).await;
        let mut staged = stage(&store, &ours, &new("z", "d", &no_labels)).await;
        let passages: Vec<NewPassage> = many.iter().map(|words| passage(words)).collect();
        store.stage_passages(&mut staged, &passages).await.unwrap();
        assert_eq!(ask().await, before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_question_repeats_counts_and_a_label_narrows_it() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        // Both words are as rare, and the passages as long.
        add(
            &store,
            &tales,
            "a",
            "d",
            &["fox runs", "dog runs", "it rains"],
        )
        .await;
        for (words, best) in [
            (["fox", "dog", "dog"], "Text   of dog runs."),
            (["fox", "fox", "dog"], "Text   of fox runs."),
        ] {
            assert_eq!(found(&store, &[&tales], &words).await[0], best);
        }
        let labels = BTreeMap::from([("te\"am".to_owned(), "a\\b'".to_owned())]);
        let mut staged = stage(&store, &tales, &new("b", "d", &labels)).await;
        let other = passage("one fox among many other words");
        store.stage_passages(&mut staged, &[other]).await.unwrap();
        store
            .publish_document("k", &tales, &staged, ROOM)
            .await
            .unwrap();
        let narrowed = hits(&store, "k", &[tales.id], &["fox"], &labels).await;
        assert_eq!(narrowed.len(), 1);
        assert_eq!(
            hits(&store, "k", &[tales.id], &["fox"], &BTreeMap::new())
                .await
                .len(),
            2
        );
        let wrong = BTreeMap::from([("te\"am".to_owned(), "a".to_owned())]);
        assert!(
            hits(&store, "k", &[tales.id], &["fox"], &wrong)
                .await
                .is_empty()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_are_their_owners_unless_they_are_shared() {
    for database in databases().await {
        let store = opened(&database).await;
        let (ours, theirs) = (
            collection(&store, "a", "notes").await,
            collection(&store, "b", "notes").await,
        );
        let again = store.create_collection("a", "notes", None, None).await;
        assert_eq!(again.unwrap(), CollectionCreation::NameTaken);
        add(&store, &ours, "x", "d", &["secret plan"]).await;
        add(&store, &theirs, "x", "d", &["secret recipe"]).await;
        assert_eq!(found(&store, &[&ours], &["secret"]).await.len(), 1);
        // Ids of another's collections and passages do not help.
        assert_eq!(found(&store, &[&ours, &theirs], &["secret"]).await.len(), 1);
        let no_labels = BTreeMap::new();
        let hits = hits(&store, "b", &[theirs.id], &["secret"], &no_labels).await;
        let hits: Vec<i64> = hits.iter().map(|hit| hit.passage).collect();
        for (reader, within) in [("a", theirs.id), ("a", ours.id), ("b", ours.id)] {
            let (passages, documents) = store.passages(reader, &[within], &hits).await.unwrap();
            assert!(passages.is_empty() && documents.is_empty(), "{reader}");
        }

        assert_eq!(store.collection("b", "a", "notes").await.unwrap(), None);
        let shared = store.share_collection(&ours, "b", Access::Read).await;
        assert_eq!(shared.unwrap(), MembershipState::Offered);
        let (_, membership) = store.collection("b", "a", "notes").await.unwrap().unwrap();
        assert_eq!(membership.access, Access::Read);
        assert_eq!(found(&store, &[&theirs, &ours], &["secret"]).await.len(), 2);
        let all = store.collections("b", 10).await.unwrap();
        let all: Vec<_> = all
            .iter()
            .map(|(it, membership)| (it.owner.as_str(), membership.access))
            .collect();
        assert_eq!(all, [("b", Access::Write), ("a", Access::Read)]);
        let shared = store.share_collection(&ours, "b", Access::Write).await;
        assert_eq!(shared.unwrap(), MembershipState::Offered);
        let shared = store.shared_with(&ours).await.unwrap();
        assert_eq!((shared.len(), shared[0].access), (1, Access::Write));
        assert!(store.unshare_collection(&ours, "b").await.unwrap());
        assert_eq!(store.collection("b", "a", "notes").await.unwrap(), None);
        assert_eq!(found(&store, &[&theirs, &ours], &["secret"]).await.len(), 1);

        // A name is free again at once; what the old one held is not found in the new one.
        assert!(store.delete_collection("a", &ours).await.unwrap());
        assert!(!store.delete_collection("a", &ours).await.unwrap());
        assert_eq!(store.collection_version(ours.id).await.unwrap(), None);
        let again = collection(&store, "a", "notes").await;
        assert!(found(&store, &[&again], &["secret"]).await.is_empty());
        assert_eq!(removed(&store, 0).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_refuses_what_is_too_much_and_keeps_what_is_there() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let labels = BTreeMap::new();
        add(&store, &tales, "a", "d1", &["one"]).await;
        let room = ROOM.collection;
        let full = [
            Quota {
                documents: 1,
                ..room
            },
            Quota {
                passages: 1,
                ..room
            },
            Quota {
                bytes: 1_999,
                ..room
            },
        ];
        let of_collection = full.map(|collection| Quotas {
            collection,
            owner: None,
        });
        let of_owner = full.map(|owner| Quotas {
            collection: room,
            owner: Some(owner),
        });
        for quota in of_collection.into_iter().chain(of_owner) {
            let mut staged = stage(&store, &tales, &new("b", "d2", &labels)).await;
            if staged.passages == 0 {
                store
                    .stage_passages(&mut staged, &[passage("two")])
                    .await
                    .unwrap();
            }
            let refused = store.publish_document("k", &tales, &staged, quota).await;
            assert!(
                matches!(refused, Err(PublishError::Quota { .. })),
                "{refused:?}"
            );
            store.release_document(&staged).await.unwrap();
            assert!(found(&store, &[&tales], &["two"]).await.is_empty());
        }
        // What takes the place of another counts alone.
        let mut staged = stage(&store, &tales, &new("a", "d3", &labels)).await;
        store
            .stage_passages(&mut staged, &[passage("three")])
            .await
            .unwrap();
        let exact = Quota {
            documents: 1,
            passages: 1,
            bytes: 1_000,
        };
        let quotas = Quotas {
            collection: exact,
            owner: Some(exact),
        };
        store
            .publish_document("k", &tales, &staged, quotas)
            .await
            .unwrap();
        assert_eq!(found(&store, &[&tales], &["three"]).await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_a_dead_process_staged_is_gone_on_with() {
    for database in databases().await {
        let labels = BTreeMap::new();
        let left = {
            let dead = opened(&database).await;
            let tales = collection(&dead, "k", "tales").await;
            let mut staged = stage(&dead, &tales, &new("a", "d", &labels)).await;
            dead.stage_passages(&mut staged, &[passage("one"), passage("two")])
                .await
                .unwrap();
            // Two writers do not share a staged document while both live.
            let other = opened(&database).await;
            let second = stage(&other, &tales, &new("a", "d", &labels)).await;
            assert_ne!(second.id, staged.id);
            assert_eq!(removed(&other, u64::MAX).await, 0);
            staged
        };
        // PostgreSQL notices within moments that the connections are gone.
        let store = opened(&database).await;
        let (tales, _) = store.collection("k", "k", "tales").await.unwrap().unwrap();
        let mut staged = stage(&store, &tales, &new("a", "d", &labels)).await;
        for _ in 0..100 {
            if staged.id == left.id {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            staged = stage(&store, &tales, &new("a", "d", &labels)).await;
        }
        assert_eq!((staged.id, staged.passages), (left.id, 2));
        store
            .stage_passages(&mut staged, &[passage("three")])
            .await
            .unwrap();
        store
            .publish_document("k", &tales, &staged, ROOM)
            .await
            .unwrap();
        assert_eq!(
            found(&store, &[&tales], &["one", "two", "three"])
                .await
                .len(),
            3
        );

        // A stale handle stores nothing more.
        let mut stale = StagedDocument {
            passages: 2,
            ..staged.clone()
        };
        let lost = store.stage_passages(&mut stale, &[passage("four")]).await;
        assert!(matches!(lost, Err(StagingError::Lost)), "{lost:?}");
        let lost = store.publish_document("k", &tales, &staged, ROOM).await;
        assert!(matches!(lost, Err(PublishError::Lost)), "{lost:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_staged_is_removed_later() {
    // More than are looked at in one round.
    const LEFT: u64 = 101;
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let labels = BTreeMap::new();
        let held = stage(&store, &tales, &new("held", "d", &labels)).await;
        for number in 0..LEFT {
            let source = number.to_string();
            let mut staged = stage(&store, &tales, &new(&source, "d", &labels)).await;
            store
                .stage_passages(&mut staged, &[passage("one")])
                .await
                .unwrap();
            store.release_document(&staged).await.unwrap();
        }
        add(&store, &tales, "whole", "d", &["one"]).await;
        assert_eq!(removed(&store, 0).await, 0);
        assert_eq!(removed(&store, u64::MAX).await, LEFT);
        assert_eq!(found(&store, &[&tales], &["one"]).await.len(), 1);
        store
            .publish_document("k", &tales, &held, ROOM)
            .await
            .unwrap();
        // A long document goes in several transactions.
        let long: Vec<String> = (0..450).map(|number| format!("long{number}")).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let document = add(&store, &tales, "long", "d", &long).await;
        assert!(store.delete_document("k", &tales, document).await.unwrap());
        assert_eq!(removed(&store, 0).await, 450);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn words_are_no_syntax() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        add(&store, &tales, "a", "d", &["and or not near żółw 東京 42"]).await;
        for word in ["and", "or", "not", "near", "żółw", "東京", "42"] {
            assert_eq!(found(&store, &[&tales], &[word]).await.len(), 1, "{word}");
        }
        // They are no words, and are left out.
        for word in [
            "\"",
            "a\" OR \"b",
            "and*",
            "a:b",
            "'",
            "a|b",
            "",
            "a,b",
            "a\0",
        ] {
            assert!(found(&store, &[&tales], &[word]).await.is_empty(), "{word}");
        }
    }
}

#[tokio::test]
async fn documents_expire_in_the_collections_that_say_so() {
    const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
    for database in databases().await {
        let store = opened(&database).await;
        let ours = collection(&store, "a", "notes").await;
        let kept = collection(&store, "a", "kept").await;
        add(&store, &ours, "one", "1", &["one"]).await;
        add(&store, &kept, "one", "1", &["one"]).await;
        let days = std::num::NonZeroU32::new(7);
        assert!(store.keep_documents_for("a", &ours, days).await.unwrap());
        let (ours, _) = store.collection("a", "a", "notes").await.unwrap().unwrap();
        assert_eq!(ours.keep_days, days);
        let later = |days: u64| now_ms() + days * DAY_MS + 1_000;
        assert_eq!(store.expire_all_documents(later(6)).await.unwrap(), 0);
        assert_eq!(store.expire_all_documents(later(7)).await.unwrap(), 1);
        assert_eq!(store.expire_all_documents(later(7)).await.unwrap(), 0);
        assert_eq!(found(&store, &[&ours, &kept], &["one"]).await.len(), 1);
        let sums = store.owned_sums("a", CollectionKind::Named).await.unwrap();
        assert_eq!((sums.collections, sums.documents), (2, 1), "{sums:?}");
        let sums = store.owned_sums("b", CollectionKind::Named).await.unwrap();
        assert_eq!(sums.bytes, 0);
        let log = store
            .audited(&AuditFilter::default(), AuditOrder::Before(i64::MAX), 9)
            .await
            .unwrap();
        let says = |what: &str| log.iter().any(|entry| entry.text.contains(what));
        assert!(says("\"action\":\"collection_retention\""), "{log:?}");
        assert!(says("\"by\":\"retention\"") && says("\"keep_days\":7"));
        assert!(store.keep_documents_for("a", &ours, None).await.unwrap());
        store.delete_collection("a", &kept).await.unwrap();
        assert!(!store.keep_documents_for("a", &kept, days).await.unwrap());
    }
}

/// Two connections of one process would wait for each other's lock of the file.
#[tokio::test]
async fn knowledge_in_a_file_is_written_by_the_thread_of_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::File(folder.path().join("toolhold.db"));
    let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
    let ours = collection(&store, "ann", "notes").await;
    let mut staged = stage(&store, &ours, &new("a", "1", &BTreeMap::new())).await;
    store.pool.close().await;
    let passages = [passage("one"), passage("two")];
    store.stage_passages(&mut staged, &passages).await.unwrap();
    let published = store.publish_document("ann", &ours, &staged, ROOM);
    published.await.unwrap();
    let deleted = store.delete_document("ann", &ours, staged.id);
    assert!(deleted.await.unwrap());
    assert!(store.delete_collection("ann", &ours).await.unwrap());
    assert!(!store.delete_collection("ann", &ours).await.unwrap());
    drop(store);
    let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
    let removed = store.remove_gone_passages(0).await.unwrap();
    assert_eq!(removed.passages, 2);
    assert_eq!(store.verify_audit(None).await.unwrap().faults, []);
}
