//! Bytes of results, written during their run.

use super::{EventScript, databases, opened};
use crate::*;
use serde_json::json;
use std::slice::from_ref;
use std::sync::Arc;
use toolhold_protocol::blob::{BlobContent, BlobKeeper as _, BlobRefusal};
use toolhold_protocol::event::Journal as _;
use toolhold_protocol::image::Image;
use uuid::Uuid;

fn content(last: u8) -> BlobContent {
    sized(9_000, last)
}

fn sized(size: usize, last: u8) -> BlobContent {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    bytes.resize(size, last);
    let image = Image::new("", &bytes).unwrap();
    let part = json!({"mime": "image/png", "base64": image.data().unwrap().to_string()});
    BlobContent::of(&part).unwrap()
}

/// Begins a run of `owner`, whose journal is returned with it.
async fn begun(store: &Store, owner: &str) -> (EventScript, RunJournal) {
    let mut script = EventScript::new();
    let label = Label {
        owner: owner.into(),
        ..Label::default()
    };
    let mut journal = store.journal(script.run, label);
    let first = script.begin("t");
    journal.append(from_ref(&first)).await.unwrap();
    (script, journal)
}

#[tokio::test]
async fn bytes_of_results_are_kept_within_the_quota_and_go_with_their_run() {
    for database in databases().await {
        let store = opened(&database).await;
        let quota = BlobQuota {
            owner: 18_000,
            all: 27_000,
        };
        let keeper = ResultBlobs::new(store.clone(), Some(quota));
        let (of_ann, _journal) = begun(&store, "ann").await;
        let (of_bob, _other) = begun(&store, "bob").await;
        let (first, second, third) = (content(1), content(2), content(3));
        // The same bytes take no more room.
        for part in [&first, &first, &second] {
            assert_eq!(keeper.keep(of_ann.run, from_ref(part)).await, Ok(()));
        }
        // Of a result all parts are kept, or none.
        let refused = keeper
            .keep(of_ann.run, &[first.clone(), third.clone()])
            .await;
        assert!(matches!(refused, Err(BlobRefusal::Full(_))), "{refused:?}");
        assert_eq!(keeper.keep(of_bob.run, from_ref(&third)).await, Ok(()));
        let refused = keeper.keep(of_bob.run, &[content(4)]).await;
        assert!(matches!(refused, Err(BlobRefusal::Full(_))), "{refused:?}");
        // Without a run there is nothing that they go with.
        let lost = keeper.keep(Uuid::now_v7(), from_ref(&first)).await;
        assert_eq!(lost, Err(BlobRefusal::Failed));

        let read = keeper.read(of_ann.run, &first.digest).await;
        assert_eq!(read, Some(first.base64.clone()));
        let (later, _later) = begun(&store, "ann").await;
        let read = keeper.read(later.run, &first.digest).await;
        assert_eq!(read, Some(first.base64.clone()));
        assert_eq!(store.blob(later.run, &first.digest).await.unwrap(), None);
        let read = keeper.read(of_bob.run, &first.digest).await;
        assert_eq!(read, None::<Arc<str>>);
        let bytes = store.blob_bytes(of_bob.run, &third.digest).await.unwrap();
        assert_eq!(bytes, Some(9_000));
        assert_eq!(store.blob_sums("ann").await.unwrap().owner, 18_000);
        assert_eq!(store.blob_sums("ann").await.unwrap().all, 27_000);
    }
}

#[tokio::test]
async fn a_small_blob_counts_as_much_as_its_row_takes() {
    for database in databases().await {
        let store = opened(&database).await;
        let quota = BlobQuota {
            owner: 3_000,
            all: 30_000,
        };
        let keeper = ResultBlobs::new(store.clone(), Some(quota));
        let (of_ann, _journal) = begun(&store, "ann").await;
        let small: Vec<BlobContent> = (0..3).map(|last| sized(100, last)).collect();
        let refused = keeper.keep(of_ann.run, &small).await;
        assert!(matches!(refused, Err(BlobRefusal::Full(_))), "{refused:?}");
        assert_eq!(store.blob_sums("ann").await.unwrap().owner, 0);
        assert_eq!(keeper.keep(of_ann.run, &small[..2]).await, Ok(()));
        let sums = store.blob_sums("ann").await.unwrap();
        assert_eq!((sums.owner, sums.all), (2_048, 2_048));
        assert_eq!(store.blob_sums("bob").await.unwrap().owner, 0);
    }
}
