//! The images of runs: an event has their digests and sizes, and their bytes are kept beside the events.

use crate::database::{Database, InTime as _};
use crate::statements::OpenTransaction;
use sqlx::AnyPool;
use std::collections::BTreeMap;
use std::sync::Arc;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{Event, EventKind};
use toolhold_protocol::image::Image;
use uuid::Uuid;

/// Digest and bytes, as base64, of the images that a run, or one inside of it, begins with.
pub fn begun_with(event: &EventKind) -> BTreeMap<String, Arc<str>> {
    let of = |message: &Message| match message {
        Message::Image(image) => Some((image.digest.clone(), image.data()?.clone())),
        _ => None,
    };
    match event {
        EventKind::Run { request, .. } => request.context.iter().filter_map(of).collect(),
        EventKind::Sub { what, .. } => begun_with(what),
        _ => BTreeMap::new(),
    }
}

/// Keeps images of a run. Those that it has already are left.
pub async fn write(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
    images: &BTreeMap<String, Arc<str>>,
) -> Result<(), sqlx::Error> {
    for (digest, data) in images {
        transaction
            .execute(
                "INSERT INTO run_images (run, digest, data) VALUES ($1, $2, $3) ON CONFLICT (run, digest) DO NOTHING",
                &[run.into(), digest.into(), (&**data).into()],
            )
            .await?;
    }
    Ok(())
}

/// Gives the images of a run's events their bytes again, as far as they are kept.
pub async fn restore(
    pool: &AnyPool,
    database: &Database,
    run: Uuid,
    events: &mut [Event],
) -> Result<(), sqlx::Error> {
    let mut lacking: Vec<&mut Image> = Vec::new();
    for event in events {
        let mut kind = &mut event.kind;
        while let EventKind::Sub { what, .. } = kind {
            kind = what;
        }
        if let EventKind::Run { request, .. } = kind {
            lacking.extend(
                request
                    .context
                    .iter_mut()
                    .filter_map(|message| match message {
                        Message::Image(image) => Some(image),
                        _ => None,
                    }),
            );
        }
    }
    if lacking.is_empty() {
        return Ok(());
    }
    let kept: Vec<(String, String)> =
        sqlx::query_as("SELECT digest, data FROM run_images WHERE run = $1")
            .bind(run.to_string())
            .fetch_all(pool)
            .in_time(database)
            .await?;
    for image in lacking {
        if let Some((_, data)) = kept.iter().find(|(digest, _)| *digest == image.digest) {
            image.restore(data);
        }
    }
    Ok(())
}
