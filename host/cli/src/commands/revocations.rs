//! Revocations while a command of the terminal runs modules. What a person takes back in another process, or in the
//! configuration, ends the calls that use it, as in a server.

use crate::commands::serving::{take_back, watch_decisions};
use crate::config::{Loaded, ReloadCause};
use std::time::Duration;
use tokio::time::sleep;
use toolhold_admission::own_work;
use toolhold_runtime::watch::ConfigDigests;
use toolhold_sandbox::Registry;

/// Time before the files are watched. Most calls are over before, so they neither wait for a watch nor start one.
const FIRST_LOOK: Duration = Duration::from_millis(250);

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
        let mut watch = watch.since(seen);
        // Pins may have changed before they were watched.
        registry.reconsider().await;
        loop {
            let changed = watch.changed().await;
            take_back(changed, ReloadCause::Change, &held, &registry).await;
        }
    });
}
