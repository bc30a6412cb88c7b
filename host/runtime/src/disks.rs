//! Room that is left on the disks of folders, for the metrics and the health of a server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use toolhold_admission::own_work;
use toolhold_files::DiskSpace;
use toolhold_telemetry::Telemetry;

const LOOK_INTERVAL: Duration = Duration::from_secs(15);
/// Age up to which a measurement is exported. A disk of another machine that does not answer has no value then.
const MAX_AGE: Duration = Duration::from_mins(1);
/// Divisor of a disk's size in bytes: free room below that part is short, as in the alert ToolholdDiskNearlyFull.
const SHORT_PART: u64 = 10;

/// Name of the state folder in metrics.
const STATE: &str = "state";

/// Result of the last look.
#[derive(Debug)]
struct SeenDisks {
    /// Time of the look; of the first one, the time since which it is awaited.
    at: Instant,
    disks: Vec<(&'static str, DiskSpace)>,
}

impl SeenDisks {
    fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) > MAX_AGE
    }

    fn at(&self, now: Instant) -> Vec<(&'static str, DiskSpace)> {
        if self.is_old(now) {
            Vec::new()
        } else {
            self.disks.clone()
        }
    }

    fn room(&self, now: Instant) -> DiskRoom {
        let state = self.disks.iter().find(|(name, _)| *name == STATE);
        match state {
            _ if self.is_old(now) => DiskRoom::Unknown,
            Some((_, space)) if space.free < space.size / SHORT_PART => DiskRoom::Short,
            // Not looked at yet, or not told by the system.
            Some(_) | None => DiskRoom::Enough,
        }
    }
}

/// Room on the disk of the state folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskRoom {
    Enough,
    /// Less than a tenth is free.
    Short,
    /// The disk has not answered for a minute.
    Unknown,
}

/// Room on the disks of the state folder and of the cache, as it was last seen. Clones share it.
#[derive(Debug, Clone)]
pub struct Disks(Arc<Mutex<SeenDisks>>);

impl Default for Disks {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(SeenDisks {
            at: Instant::now(),
            disks: Vec::new(),
        })))
    }
}

impl Disks {
    /// Room on the disk of the state folder. It looks at no disk.
    pub fn room(&self) -> DiskRoom {
        self.lock().room(Instant::now())
    }

    /// Looks at the disks and exports their room, for as long as it is polled. One look at a time: one that hangs holds
    /// one thread.
    pub async fn watch(&self, telemetry: &Telemetry, state: PathBuf, cache: PathBuf) {
        let folders = [(STATE, state), ("cache", cache)];
        // Weak: metrics must not keep what they measure.
        let shown = Arc::downgrade(&self.0);
        telemetry.watch_disks(move || {
            let seen = shown.upgrade().map(Self);
            let disks = seen.map(|seen| seen.lock().at(Instant::now()));
            disks.unwrap_or_default()
        });
        loop {
            let folders = folders.clone();
            let disks = own_work(move || folders.map(look)).await;
            if let Ok(disks) = disks {
                *self.lock() = SeenDisks {
                    at: Instant::now(),
                    disks: disks.into_iter().flatten().collect(),
                };
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, SeenDisks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

    fn seen(at: Instant, free: u64) -> SeenDisks {
        let space = DiskSpace { free, size: 100 };
        SeenDisks {
            at,
            disks: vec![(STATE, space)],
        }
    }

    #[test]
    fn a_look_that_is_old_tells_nothing() {
        let now = Instant::now();
        let (seen, later) = (seen(now, 50), now + MAX_AGE + LOOK_INTERVAL);
        assert_eq!(seen.at(now + MAX_AGE), seen.disks);
        assert_eq!(seen.room(now + MAX_AGE), DiskRoom::Enough);
        assert_eq!(seen.at(later), []);
        assert_eq!(seen.room(later), DiskRoom::Unknown);
        let first = Disks::default();
        assert_eq!(first.room(), DiskRoom::Enough);
    }

    #[test]
    fn less_than_a_tenth_is_short() {
        let now = Instant::now();
        for (free, expected) in [(9, DiskRoom::Short), (10, DiskRoom::Enough)] {
            assert_eq!(seen(now, free).room(now), expected, "{free}");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_yet_has_the_disk_of_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        let (_, own) = look(("state", folder.path().to_owned())).unwrap();
        let (name, below) = look(("cache", folder.path().join("a/b"))).unwrap();
        assert_eq!((name, below.size), ("cache", own.size));
    }
}
