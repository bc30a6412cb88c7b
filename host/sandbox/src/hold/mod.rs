//! Directories that calls have to themselves, one call at a time, over all processes of this machine.
//!
//! A module wishes it (`exclusive` in its `module.toml`) where its files would break under two calls at a time. Each
//! directory has a fair queue in this process; its head takes the system's lock on the directory itself (`flock`). So
//! processes with other state folders, or of other users, meet at the same lock, no file is left behind, and the lock
//! ends with the process that has it, however that ends.
//!
//! Nothing waits beyond its deadline. A call takes its directories in one order, so two calls never wait for each other;
//! a call that a holder makes never waits for what its callers have.

#[cfg(test)]
mod tests;

use crate::blocking::blocking;
use crate::disk::folder_use::has_no_lock;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::fs::{File, TryLockError};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use toolhold_admission::{FairQueue, Lane, Permit};
use toolhold_files::EntryId;
use toolhold_policy::{CallError, TakenPlaces};

/// Between two tries for a lock that another process has.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
/// While calls of this process wait for a directory, another process gets its turn after this time: for a gap in which
/// it surely tries.
const TURN: Duration = Duration::from_millis(100);
const GAP: Duration = Duration::from_millis(10);

tokio::task_local! {
    /// The directories that the callers of the current call have to themselves.
    static HELD: Arc<HeldDirectories>;
}

/// A directory that a call is to have to itself.
#[derive(Debug, Clone)]
pub(crate) struct ExclusivePlace {
    pub id: EntryId,
    pub directory: Arc<File>,
    /// The path that the guest sees.
    pub guest: String,
}

/// A call that waits for directories.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    /// The number of its module, and its tenant: parties of the queue.
    pub lane: Lane<u64, Arc<str>>,
    /// For those that wait for it.
    pub tool: String,
}

/// The directories that calls of this process have or wait for.
#[derive(Debug)]
pub(crate) struct Holds {
    lines: Mutex<HashMap<EntryId, Weak<DirectoryLine>>>,
    /// The most calls that wait for one directory.
    max_waiting: usize,
}

/// Calls of this process that have or wait for one directory.
#[derive(Debug)]
struct DirectoryLine {
    queue: Arc<FairQueue<u64, Arc<str>>>,
    state: Mutex<LineState>,
}

#[derive(Debug, Default)]
struct LineState {
    /// The tool that has it, and since when.
    holder: Option<(String, Instant)>,
    /// Since when calls of this process have had it one after the other.
    turn: Option<Instant>,
}

/// Directories that a call has to itself until the last of these is dropped.
#[derive(Debug)]
pub(crate) struct HeldDirectories {
    /// These, and those of the calls that this one is nested in.
    ids: BTreeSet<EntryId>,
    _holds: Vec<HeldDirectory>,
}

#[derive(Debug)]
struct HeldDirectory {
    /// Locked, by a handle of its own. Dropped before the next call of this process has its turn.
    _lock: File,
    _turn: LineHead,
}

/// A place at the head of the line.
#[derive(Debug)]
struct LineHead {
    line: Arc<DirectoryLine>,
    _permit: Permit<u64, Arc<str>>,
}

/// The directories that the current call has to itself, or its callers.
pub(crate) fn current() -> Option<Arc<HeldDirectories>> {
    HELD.try_with(Arc::clone).ok()
}

impl Holds {
    pub fn new(max_waiting: usize) -> Self {
        Self {
            lines: Mutex::default(),
            max_waiting,
        }
    }

    /// Waits until the call has all of them to itself.
    ///
    /// # Errors
    /// [`CallError::Busy`] if others still have one at `deadline`, and [`CallError::Denied`] if a call has one in which
    /// this one is nested.
    pub async fn take(
        &self,
        mut places: Vec<ExclusivePlace>,
        holder: &Holder,
        mut deadline: Instant,
    ) -> Result<Arc<HeldDirectories>, CallError> {
        places.sort_by_key(|place| place.id);
        places.dedup_by_key(|place| place.id);
        let outer = current().map(|held| held.ids.clone()).unwrap_or_default();
        if let Some(place) = places.iter().find(|place| outer.contains(&place.id)) {
            return Err(CallError::Denied {
                reason: format!(
                    "the call that makes this one has the directory {} to itself until it ends, so this one would wait for its \
                     own caller; call the tool on its own",
                    place.guest
                ),
            });
        }
        let began = Instant::now();
        // Who has a later one in the order may be waiting for this one.
        if places.first().map(|place| place.id) < outer.last().copied() {
            deadline = began;
        }
        let (mut ids, mut holds) = (outer, Vec::with_capacity(places.len()));
        for place in places {
            holds.push(self.hold(&place, holder, began, deadline).await?);
            ids.insert(place.id);
        }
        Ok(Arc::new(HeldDirectories { ids, _holds: holds }))
    }

    async fn hold(
        &self,
        place: &ExclusivePlace,
        holder: &Holder,
        began: Instant,
        deadline: Instant,
    ) -> Result<HeldDirectory, CallError> {
        let line = self.line(place.id);
        let lane = holder.lane.clone();
        let at_once = line.queue.try_enter(lane.clone(), usize::MAX);
        let has_waited = at_once.is_none();
        let busy = |by: String| CallError::Busy {
            places: TakenPlaces::Directory {
                guest: place.guest.clone(),
                by,
            },
            waited: began.elapsed(),
        };
        let permit = match at_once {
            Some(permit) => permit,
            None => {
                let entered = line.queue.enter(lane, usize::MAX, deadline).await;
                entered.map_err(|_| busy(line.held_by()))?
            }
        };
        let turn = LineHead {
            line,
            _permit: permit,
        };
        turn.leave_a_gap(has_waited, deadline).await;
        let failed = |error: io::Error| CallError::Grant {
            reason: format!(
                "the directory {} cannot be held for one call: {error}",
                place.guest
            ),
        };
        let lock = turn.lock(place, deadline).await.map_err(failed)?;
        let Some(lock) = lock else {
            return Err(busy("another process".into()));
        };
        turn.line.state.lock().holder = Some((holder.tool.clone(), Instant::now()));
        Ok(HeldDirectory {
            _lock: lock,
            _turn: turn,
        })
    }

    fn line(&self, id: EntryId) -> Arc<DirectoryLine> {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get(&id).and_then(Weak::upgrade) {
            return line;
        }
        lines.retain(|_, line| line.strong_count() > 0);
        let line = Arc::new(DirectoryLine {
            queue: FairQueue::of_members(1, self.max_waiting),
            state: Mutex::default(),
        });
        lines.insert(id, Arc::downgrade(&line));
        line
    }
}

impl HeldDirectories {
    /// Runs a call that has these directories.
    pub async fn scope<F: Future>(self: &Arc<Self>, call: F) -> F::Output {
        HELD.scope(self.clone(), call).await
    }
}

impl DirectoryLine {
    /// Names the holder of the directory, for an error.
    fn held_by(&self) -> String {
        match &self.state.lock().holder {
            Some((tool, since)) => {
                format!(
                    "a call of {tool}, for {} ms now,",
                    since.elapsed().as_millis()
                )
            }
            None => "another call".into(),
        }
    }
}

impl LineHead {
    /// Lets other processes have the directory between calls of this one that follow each other.
    async fn leave_a_gap(&self, has_waited: bool, deadline: Instant) {
        let now = Instant::now();
        let turn = self.line.state.lock().turn;
        let goes_on = has_waited && turn.is_some_and(|began| began + TURN > now);
        if goes_on {
            return;
        }
        if has_waited {
            sleep_until((now + GAP).min(deadline)).await;
        }
        self.line.state.lock().turn = Some(Instant::now());
    }

    /// The system's lock, or nothing if another process has it until the deadline.
    async fn lock(&self, place: &ExclusivePlace, deadline: Instant) -> io::Result<Option<File>> {
        let directory = place.directory.clone();
        let mut tried = blocking::<_, io::Error>(move || {
            let own = own_handle(&directory)?;
            let is_locked = try_lock(&own)?;
            Ok((own, is_locked))
        })
        .await?;
        let mut pause = FIRST_PAUSE;
        while !tried.1 {
            let now = Instant::now();
            if now >= deadline {
                return Ok(None);
            }
            sleep_until((now + pause).min(deadline)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            // Another process has had its turn.
            self.line.state.lock().turn = Some(Instant::now());
            tried =
                blocking(move || try_lock(&tried.0).map(|is_locked| (tried.0, is_locked))).await?;
        }
        Ok(Some(tried.0))
    }
}

impl Drop for LineHead {
    fn drop(&mut self) {
        self.line.state.lock().holder = None;
    }
}

/// Opens the directory anew: clones of a handle share its lock.
fn own_handle(directory: &File) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, openat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(directory, ".", flags, Mode::empty())?.into())
}

/// Whether the directory is locked now. Where the file system has no such lock, which some in networks have not, the
/// queue of this process is all there is.
fn try_lock(directory: &File) -> io::Result<bool> {
    match directory.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if has_no_lock(&error) => {
            tracing::debug!(%error, "a directory has no lock that other processes would see");
            Ok(true)
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}
