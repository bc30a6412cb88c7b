//! Keeps a run as long as its client may come back, and ends it then (`serve.on_disconnect`).

use super::{BeginNote, ClientState, UndeliveredAnswer};
use crate::http::App;
use crate::settings::OnDisconnect;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use uuid::Uuid;

/// Shortest pause between two looks whether others watch the run.
const WATCHED_PAUSE: Duration = Duration::from_secs(1);

/// The reason of the cancellation, which the readers of the run are shown.
const GONE: &str = "its client closed the connection and did not come back (serve.on_disconnect)";

impl App {
    /// Notes that the run of `note` has begun, and ends it when its client is gone for too long.
    pub fn keep(&self, note: &BeginNote) {
        note.begun();
        let (app, answer) = (self.clone(), note.answer.clone());
        tokio::spawn(async move {
            if app.is_given_up(&answer).await {
                app.abandon(answer.run).await;
            }
        });
    }

    /// Waits until the answer is delivered or its client is given up. Returns true if the run is to be cancelled.
    async fn is_given_up(&self, answer: &Arc<UndeliveredAnswer>) -> bool {
        let kept = &self.undelivered.inner;
        let mut client = answer.client.subscribe();
        loop {
            let state = *client.borrow_and_update();
            let patience = match (state, kept.on_disconnect) {
                (ClientState::Settled, _) => return false,
                (ClientState::Connected, _) => {
                    if client.changed().await.is_err() {
                        return false;
                    }
                    continue;
                }
                (ClientState::Gone(_), OnDisconnect::Cancel) => Duration::ZERO,
                (ClientState::Gone(since), _) => kept.patience.saturating_sub(since.elapsed()),
            };
            tokio::select! {
                changed = client.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    continue;
                }
                _ = self.dispatcher.waits(patience) => {}
            }
            // A server that stops closes connections itself, and its runs go on elsewhere.
            if self.dispatcher.is_closing() {
                return false;
            }
            if self.undelivered.give_up(answer) {
                break;
            }
        }
        match kept.on_disconnect {
            OnDisconnect::Cancel => true,
            OnDisconnect::Continue => false,
            OnDisconnect::Wait => {
                !answer.has_ids.load(Ordering::Relaxed) && self.is_unwatched(answer.run).await
            }
        }
    }

    /// Waits until nothing follows the events of the run here. Returns false if the server stops before.
    async fn is_unwatched(&self, run: Uuid) -> bool {
        let pause = self.undelivered.inner.patience.max(WATCHED_PAUSE);
        while self.dispatcher.is_watched(run) {
            if !self.dispatcher.waits(pause).await {
                return false;
            }
        }
        true
    }

    /// Cancels the run of a client that is gone, wherever it works by now.
    async fn abandon(&self, run: Uuid) {
        if self.dispatcher.cancel_because(run, GONE) {
            tracing::info!(%run, "cancelled: {GONE}");
        }
        // Recorded like any other cancellation, so that no other server goes on with the run.
        let stopped = match self.dispatcher.store().run(run).await {
            Ok(Some(row)) if row.ended.is_none() => {
                self.stop(&row).await.map_err(|it| it.message().to_owned())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = stopped {
            tracing::warn!(%run, error, "the cancellation for a client that is gone is not recorded");
        }
    }
}
