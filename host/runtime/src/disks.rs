//! Looks how much room is left on the disks of folders, for the metrics.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use toolhold_admission::own_work;
use toolhold_files::DiskSpace;
use toolhold_telemetry::Telemetry;

const LOOK_INTERVAL: Duration = Duration::from_secs(15);
/// Age up to which a measurement is exported. A disk of another machine that does not answer has no value then.
const MAX_AGE: Duration = Duration::from_mins(1);

/// Result of the last look.
#[derive(Debug, Default)]
struct SeenDisks {
    at: Option<Instant>,
    disks: Vec<(&'static str, DiskSpace)>,
}

impl SeenDisks {
    fn at(&self, now: Instant) -> Vec<(&'static str, DiskSpace)> {
        let age = self.at.map(|at| now.saturating_duration_since(at));
        if age.is_some_and(|age| age <= MAX_AGE) {
            self.disks.clone()
        } else {
            Vec::new()
        }
    }
}

/// Exports how much room is left on the disks of the state folder and of the cache, for as long as it is polled. One look
/// at a time: one that hangs holds one thread.
pub async fn watch_disks(telemetry: &Telemetry, state: PathBuf, cache: PathBuf) {
    let folders = [("state", state), ("cache", cache)];
    let seen = Arc::new(Mutex::new(SeenDisks::default()));
    let shown = Arc::downgrade(&seen);
    telemetry.watch_disks(move || {
        let seen = shown.upgrade();
        let seen = seen.as_ref().map(|seen| lock(seen).at(Instant::now()));
        seen.unwrap_or_default()
    });
    loop {
        let folders = folders.clone();
        let disks = own_work(move || folders.map(look)).await;
        if let Ok(disks) = disks {
            *lock(&seen) = SeenDisks {
                at: Some(Instant::now()),
                disks: disks.into_iter().flatten().collect(),
            };
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn lock(seen: &Mutex<SeenDisks>) -> MutexGuard<'_, SeenDisks> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The disk of a folder, or of the nearest one above it that there is: the cache's is made when something is kept.
fn look((name, folder): (&'static str, PathBuf)) -> Option<(&'static str, DiskSpace)> {
    let folder = std::path::absolute(folder).ok()?;
    let mut places = folder.ancestors();
    let space = places.find_map(|place| DiskSpace::at(place).ok())?;
    Some((name, space))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_is_old_tells_nothing() {
        let space = DiskSpace { free: 1, size: 2 };
        let now = Instant::now();
        let seen = SeenDisks {
            at: Some(now),
            disks: vec![("state", space)],
        };
        assert_eq!(seen.at(now + MAX_AGE), [("state", space)]);
        assert_eq!(seen.at(now + MAX_AGE + LOOK_INTERVAL), []);
        assert_eq!(SeenDisks::default().at(now), []);
    }

    #[test]
    fn a_folder_that_is_not_there_yet_has_the_disk_of_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        let (_, own) = look(("state", folder.path().to_owned())).unwrap();
        let (name, below) = look(("cache", folder.path().join("a/b"))).unwrap();
        assert_eq!((name, below.size), ("cache", own.size));
    }
}
