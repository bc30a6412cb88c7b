//! Revocations while a command of the terminal runs modules. What a person takes back in another process, or in the
//! configuration, ends the calls that use it, as in a server.

use crate::commands::serving::{changes, take_back, watch_decisions};
use crate::config::{Loaded, ReloadCause};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use toolhold_admission::own_work;
use toolhold_runtime::watch::{Changed, ConfigDigests};
use toolhold_sandbox::Registry;

/// Time before the files are watched. Most calls are over before, so they neither wait for a watch nor start one.
const FIRST_LOOK: Duration = Duration::from_millis(250);
/// Time without a change after which files without any grant are believed. An editor that writes one leaves it empty for
/// less.
const STILL_PERIOD: Duration = Duration::from_secs(1);

/// Lets revocations hold for the modules of `registry` until the process ends, those since the digests `seen` as well. Gives
/// nothing back, and loads no module again.
pub fn heed(loaded: &Loaded, registry: &Registry, seen: ConfigDigests) {
    let (held, registry) = (loaded.clone(), registry.clone());
    tokio::spawn(async move {
        sleep(FIRST_LOOK).await;
        let of = held.clone();
        // It looks at folders, which may be slow.
        let Ok(watch) = own_work(move || watch_decisions(&of)).await else {
            return;
        };
        let mut changes = changes(watch.since(seen));
        // Pins may have changed before they were watched.
        registry.reconsider().await;
        let mut still_at = None;
        loop {
            let (changed, cause) = tokio::select! {
                biased;
                told = changes.told.recv() => match told {
                    Some(changed) => (changed, ReloadCause::Change),
                    None => return,
                },
                // A server holds back what takes all grants away, until a person confirms it. Nobody can do that here.
                () = reached(still_at) => (Changed::Configuration, ReloadCause::Person),
            };
            if changed == Changed::Configuration {
                let is_change = cause == ReloadCause::Change;
                still_at = is_change.then(|| Instant::now() + STILL_PERIOD);
            }
            take_back(changed, cause, &held, &registry).await;
        }
    });
}

/// Completes at this time; never without one.
async fn reached(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
