//! Bytes of images that are kept once for all runs that name them.

use super::{EventScript, TestDatabase, databases, opened};
use crate::database::Database;
use crate::schema::migrator_until;
use crate::*;
use futures_util::future::join_all;
use serde_json::json;
use sqlx::Connection as _;
use std::fs::File;
use std::slice::from_ref;
use toolhold_protocol::bound::BoundTools;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{Event, EventKind, Journal as _};
use toolhold_protocol::image::Image;
use toolhold_protocol::settings::RunRequest;
use uuid::Uuid;

fn image(last: u8) -> Image {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    bytes.resize(9_000, last);
    Image::new("a.png", &bytes).unwrap()
}

fn begins_with(image: &Image) -> EventKind {
    let mut request = RunRequest::new(Uuid::now_v7(), "what is it?");
    request.context.push(Message::Image(image.clone()));
    EventKind::Run {
        format: toolhold_protocol::event::FORMAT,
        prompts: toolhold_protocol::event::PROMPTS,
        task: "t".into(),
        model: "m".into(),
        request: Box::new(request),
        tools: BoundTools::default(),
        host: String::new(),
    }
}

/// Writes the record of a run of `owner` that was shown the image, and ended.
async fn shown(store: &Store, owner: &str, image: &Image, turn: Option<(Uuid, u32)>) -> Uuid {
    let mut script = EventScript::new();
    let label = Label {
        owner: owner.into(),
        turn,
        ..Label::default()
    };
    let mut journal = store.journal(script.run, label);
    for event in [script.event(begins_with(image)), script.done()] {
        journal.append(from_ref(&event)).await.unwrap();
    }
    script.run
}

fn url_of(event: &Event) -> Option<String> {
    let EventKind::Run { request, .. } = &event.kind else {
        return None;
    };
    match request.context.last() {
        Some(Message::Image(image)) => image.url(),
        _ => None,
    }
}

async fn sums(store: &Store, owner: &str) -> (u64, u64) {
    let sums = store.blob_sums(owner).await.unwrap();
    (sums.owner, sums.all)
}

#[tokio::test]
async fn equal_images_are_kept_once_and_go_with_the_last_run() {
    for database in databases().await {
        let store = opened(&database).await;
        let (logo, photo) = (image(1), image(2));
        let mut of_ann = Vec::new();
        for _ in 0..3 {
            of_ann.push(shown(&store, "ann", &logo, None).await);
        }
        let of_bob = shown(&store, "bob", &logo, None).await;
        let other = shown(&store, "bob", &photo, None).await;
        assert_eq!(sums(&store, "ann").await, (9_000, 18_000));
        assert_eq!(sums(&store, "bob").await, (18_000, 18_000));
        assert_eq!(sums(&store, "carl").await, (0, 18_000));
        for run in of_ann {
            assert!(store.delete_run("ann", run).await.unwrap());
        }
        assert_eq!(sums(&store, "ann").await, (0, 18_000));
        assert_eq!(store.image_bytes_of(of_bob).await.unwrap(), 9_000);
        let read = store.read(&Source::Run(of_bob)).await.unwrap();
        assert_eq!(url_of(&read[0]), logo.url());
        let mut context = vec![Message::Image(serde_json::from_value(json!(logo)).unwrap())];
        store.restore_images(of_bob, &mut context).await.unwrap();
        let [Message::Image(restored)] = context.as_slice() else {
            panic!("{context:?}");
        };
        assert_eq!(restored.url(), logo.url());
        assert!(store.delete_run("bob", of_bob).await.unwrap());
        assert_eq!(sums(&store, "bob").await, (9_000, 9_000));
        // Events of the script end about a second after 1970.
        store.prune(5_000, PrunedBy::Person).await.unwrap();
        assert_eq!(sums(&store, "bob").await, (0, 0));
        assert!(store.run(other).await.unwrap().is_none());

        let session = store.create_session("ann", "default", "").await.unwrap();
        shown(&store, "ann", &logo, Some((session.id, 0))).await;
        assert_eq!(sums(&store, "ann").await, (9_000, 9_000));
        assert!(store.delete_session("ann", session.id).await.unwrap());
        assert_eq!(sums(&store, "ann").await, (0, 0));
    }
}

/// Two stores of one database, as two servers have it.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_begins_while_its_image_is_deleted_has_it() {
    for database in databases().await {
        let (one, other) = (opened(&database).await, opened(&database).await);
        let logo = image(1);
        let begins_and_deletes = async |store: &Store| {
            for _ in 0..20 {
                let run = shown(store, "ann", &logo, None).await;
                let read = store.read(&Source::Run(run)).await.unwrap();
                assert_eq!(url_of(&read[0]), logo.url());
                assert!(store.delete_run("ann", run).await.unwrap());
            }
        };
        tokio::join!(begins_and_deletes(&one), begins_and_deletes(&other));
        one.prune(0, PrunedBy::Person).await.unwrap();
        assert_eq!(sums(&one, "ann").await, (0, 0));
    }
}

/// Begins a run of `owner` with an image, within a quota. Returns whether it fits: a run that does not leaves nothing.
async fn begins(store: &Store, owner: &str, image: &Image, quota: BlobQuota) -> bool {
    let mut script = EventScript::new();
    let label = Label {
        owner: owner.into(),
        images: Some(quota),
        ..Label::default()
    };
    let mut journal = store.journal(script.run, label);
    let first = script.event(begins_with(image));
    let Err(error) = journal.append(from_ref(&first)).await else {
        journal.append(from_ref(&script.done())).await.unwrap();
        return true;
    };
    let cause = WriteError::cause_of(&error);
    assert!(matches!(cause, Some(WriteError::ImagesFull(_))), "{error}");
    assert!(store.run(script.run).await.unwrap().is_none());
    false
}

/// Two stores of one database, as two servers have it, each of which begins six runs at a time.
#[tokio::test(flavor = "multi_thread")]
async fn runs_that_begin_at_the_same_time_do_not_pass_a_quota_together() {
    for database in databases().await {
        let stores = [opened(&database).await, opened(&database).await];
        let quota = BlobQuota {
            owner: 27_000,
            all: 36_000,
        };
        let images: Vec<Image> = (0..12).map(image).collect();
        let begun = images.iter().zip(stores.iter().cycle());
        let begun = begun.map(|(image, store)| begins(store, "ann", image, quota));
        let begun = join_all(begun).await;
        let kept: Vec<&Image> = images
            .iter()
            .zip(&begun)
            .filter_map(|(image, is_begun)| is_begun.then_some(image))
            .collect();
        assert_eq!(kept.len(), 3, "{begun:?}");
        let [store, other] = &stores;
        assert_eq!(sums(store, "ann").await, (27_000, 27_000));
        // Images that are kept for the key take no more room, and those of another key take only room of this one.
        assert!(begins(store, "ann", kept[0], quota).await);
        assert!(begins(other, "bob", kept[0], quota).await);
        assert_eq!(sums(store, "bob").await, (9_000, 27_000));
        let (last, beyond) = (image(20), image(21));
        assert!(begins(store, "bob", &last, quota).await);
        assert!(!begins(other, "bob", &beyond, quota).await);
        assert_eq!(sums(store, "bob").await, (18_000, 36_000));
    }
}

/// Makes the database as version 20 of the schema left it: with these images of two runs.
async fn made_by_version_20(database: &TestDatabase, images: &[&Image]) -> [Uuid; 2] {
    if let Location::File(path) = &database.location {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create_new(path).unwrap();
    }
    let connected = Database::of(&database.location).unwrap();
    let mut connection = connected.connect().await.unwrap();
    let older = migrator_until(connected.is_file(), 20);
    older.run(&mut connection).await.unwrap();
    let runs = [Uuid::now_v7(), Uuid::now_v7()];
    for run in runs {
        sqlx::query(
            "INSERT INTO runs (id, owner, agent, origin, task, model, began_ms, ended_ms, reason, steps, calls, tokens) \
             VALUES ($1, 'ann', '', 'cli', 't', 'm', 1, 2, 'output', 1, 1, 1)",
        )
        .bind(run.to_string())
        .execute(&mut connection)
        .await
        .unwrap();
        for image in images {
            sqlx::query("INSERT INTO run_images (run, digest, data) VALUES ($1, $2, $3)")
                .bind(run.to_string())
                .bind(image.digest.as_str())
                .bind(&**image.data().unwrap())
                .execute(&mut connection)
                .await
                .unwrap();
        }
    }
    connection.close().await.unwrap();
    runs
}

#[tokio::test]
async fn images_of_runs_become_blobs_that_are_kept_once() {
    for database in databases().await {
        let (logo, photo) = (image(1), image(2));
        let runs = made_by_version_20(&database, &[&logo, &photo]).await;
        let store = opened(&database).await;
        assert_eq!(sums(&store, "ann").await, (18_000, 18_000));
        for run in runs {
            let mut context = vec![Message::Image(
                serde_json::from_value(json!(photo)).unwrap(),
            )];
            store.restore_images(run, &mut context).await.unwrap();
            let [Message::Image(restored)] = context.as_slice() else {
                panic!("{context:?}");
            };
            assert_eq!(restored.url(), photo.url());
        }
        store.prune(5_000, PrunedBy::Person).await.unwrap();
        assert_eq!(sums(&store, "ann").await, (0, 0));
    }
}
