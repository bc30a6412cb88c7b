//! Work that blocks a thread: scans, walks through folders, files, names that the system looks up.
//!
//! This is the only place that hands work to the blocking threads of the runtime (`.clippy.toml` forbids it elsewhere), so
//! that a few rules hold for all of it:
//!
//! - **Permit.** Work that others can ask for in any number has a permit of a [`FairQueue`], in which kinds of work and
//!   the keys that ask for it have their lanes. The thread keeps the permit until the work is over, also if its waiter left.
//! - **Wait.** Work that waits for a permit takes it and gives it back, whether its waiter is polled or not.
//! - **End.** Work stops with its waiter: it does not begin after the waiter left, and long work looks at its [`WorkStop`].
//! - **Faults.** A panic is a [`WorkFailure`] with the message of the panic.
//!
//! Work must not wait for other work of the same queue: all permits could be held by work that waits for one.

use crate::queue::{FairQueue, Lane, LaneKey, Permit, QueueRefusal};
use std::any::Any;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

/// Threads for all kinds of work of a process. A runtime has 512, of which the calls of modules take up to 256.
const THREADS: usize = 64;
/// Maximum pieces of work of all kinds that wait for a thread.
const MAX_WAITING: usize = 4_096;
/// Maximum time that a piece of work waits for a thread. A waiter that left waits no longer.
const QUEUE_TIME: Duration = Duration::from_mins(1);

/// Queue for the threads of all kinds of work.
static KINDS: LazyLock<Arc<FairQueue<&'static str, WorkParty>>> =
    LazyLock::new(|| FairQueue::of_members(THREADS, MAX_WAITING));

/// The party for whom work is done. Parties share the threads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WorkParty {
    /// The party of all work of one kind about whose party nothing else is known.
    Kind(&'static str),
    /// The API key of this name.
    Key(Arc<str>),
    /// The module of this name, where its work is the same for all keys.
    Module(Arc<str>),
}

/// A kind of work that requests, calls and replies of models cause, on threads that all kinds share.
#[derive(Debug, Clone, Copy)]
pub struct WorkKind {
    name: &'static str,
    /// Threads of this kind at a time.
    most: usize,
}

/// Tells work that nothing waits for it any more.
#[derive(Debug, Clone, Default)]
pub struct WorkStop {
    is_left: Arc<AtomicBool>,
}

/// Why work has no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WorkFailure {
    /// Its waiter left, or the runtime ends.
    #[error("the work was stopped before it began")]
    Stopped,
    /// So much work waits already that this piece was not accepted.
    #[error("too much work waits for a thread; try again later")]
    Full,
    /// No thread was free before the deadline.
    #[error("no thread was free in time; try again later")]
    Late,
    /// Its code panicked.
    #[error("the work ended with a panic, which is a fault of this program: {cause}")]
    Panicked { cause: String },
}

/// Work under way. If it is dropped before the work has begun, the work never begins.
pub struct BlockingWork<T> {
    stop: WorkStop,
    /// Ends the wait for a permit. Absent: it has one, or needs none.
    leave_queue: Option<Arc<Notify>>,
    /// Absent once it is over.
    task: Option<JoinHandle<Result<T, WorkFailure>>>,
    /// True if the end of the waiter does not stop the work.
    goes_on: bool,
}

impl WorkFailure {
    fn of(error: JoinError) -> Self {
        match error.try_into_panic() {
            Ok(panic) => Self::Panicked {
                cause: message(&*panic),
            },
            Err(_) => Self::Stopped,
        }
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it has no message".to_owned())
}

impl From<QueueRefusal> for WorkFailure {
    fn from(refusal: QueueRefusal) -> Self {
        match refusal {
            QueueRefusal::Full => Self::Full,
            QueueRefusal::Deadline | QueueRefusal::GroupLimit => Self::Late,
        }
    }
}

impl From<WorkFailure> for io::Error {
    fn from(failure: WorkFailure) -> Self {
        let kind = match failure {
            WorkFailure::Stopped => io::ErrorKind::Interrupted,
            WorkFailure::Full | WorkFailure::Late => io::ErrorKind::ResourceBusy,
            WorkFailure::Panicked { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, failure)
    }
}

impl WorkStop {
    /// Whether nothing waits for the work any more.
    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// Tells the work that nothing waits for it any more.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }
}

impl WorkKind {
    /// At most `most` threads do work of this kind at a time.
    pub const fn new(name: &'static str, most: usize) -> Self {
        Self { name, most }
    }

    /// Begins the work if a thread is free, and lets it wait for one otherwise. `key` is the API key that asked for it, if
    /// that is known.
    pub fn start<T: Send + 'static>(
        self,
        key: Option<&str>,
        work: impl FnOnce(&WorkStop) -> T + Send + 'static,
    ) -> BlockingWork<T> {
        let party = key.map_or(WorkParty::Kind(self.name), |key| WorkParty::Key(key.into()));
        self.start_for(party, work)
    }

    /// [`Self::start`] for a party that may be another than a key.
    pub fn start_for<T: Send + 'static>(
        self,
        party: WorkParty,
        work: impl FnOnce(&WorkStop) -> T + Send + 'static,
    ) -> BlockingWork<T> {
        let lane = Lane {
            group: self.name,
            member: party,
            // Work waits for no other work.
            depth: 0,
        };
        start_queued(&KINDS, lane, self.most, work)
    }

    /// Does the work, and waits for its end. `key` is the API key that asked for it, if that is known.
    ///
    /// # Errors
    /// There was no thread in time, or no room in the queue; the work panicked.
    pub async fn run<T: Send + 'static>(
        self,
        key: Option<&str>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkFailure> {
        self.start(key, move |_| work()).done().await
    }
}

/// Begins the work if the queue has a permit for the lane, and lets it wait for one otherwise. The lane's group holds at
/// most `group_limit` permits at a time.
pub fn start_queued<G: LaneKey, M: LaneKey, T: Send + 'static>(
    queue: &Arc<FairQueue<G, M>>,
    lane: Lane<G, M>,
    group_limit: usize,
    work: impl FnOnce(&WorkStop) -> T + Send + 'static,
) -> BlockingWork<T> {
    let stop = WorkStop::default();
    let seen = stop.clone();
    let begin = move |permit: Permit<G, M>| {
        on_thread(move || {
            // Until the thread is free, and not only until the waiter is gone.
            let _permit = permit;
            if seen.is_left() {
                return Err(WorkFailure::Stopped);
            }
            Ok(work(&seen))
        })
    };
    let (leave_queue, task) = match queue.try_enter(lane.clone(), group_limit) {
        Some(permit) => (None, begin(permit)),
        None => {
            let leave = Arc::new(Notify::new());
            let waiting = after_wait(queue.clone(), lane, group_limit, leave.clone(), begin);
            (Some(leave), tokio::spawn(waiting))
        }
    };
    BlockingWork {
        stop,
        leave_queue,
        task: Some(task),
        goes_on: false,
    }
}

/// Waits for a permit, unless told to leave the queue, and for the end of the work that has it.
async fn after_wait<G: LaneKey, M: LaneKey, T>(
    queue: Arc<FairQueue<G, M>>,
    lane: Lane<G, M>,
    group_limit: usize,
    leave: Arc<Notify>,
    begin: impl FnOnce(Permit<G, M>) -> JoinHandle<Result<T, WorkFailure>>,
) -> Result<T, WorkFailure> {
    let deadline = Instant::now() + QUEUE_TIME;
    let permit = tokio::select! {
        biased;
        () = leave.notified() => return Err(WorkFailure::Stopped),
        permit = queue.enter(lane, group_limit, deadline) => permit?,
    };
    let done = begin(permit).await;
    done.unwrap_or_else(|error| Err(WorkFailure::of(error)))
}

/// Begins work of the host itself without a permit. Requests and calls must not cause such work.
pub fn start_own<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> BlockingWork<T> {
    BlockingWork {
        stop: WorkStop::default(),
        leave_queue: None,
        task: Some(on_thread(move || Ok(work()))),
        goes_on: false,
    }
}

/// Does work of the host itself without a permit, and waits for its end. Requests and calls must not cause such work.
///
/// # Errors
/// The work panicked.
pub async fn own_work<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, WorkFailure> {
    start_own(work).done().await
}

/// Does work of the host itself that nothing waits for. Where no runtime is, it is done before this returns.
pub fn detach(work: impl FnOnce() + Send + 'static) {
    if Handle::try_current().is_ok() {
        drop(start_own(work).even_if_left());
    } else {
        work();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that hands work to blocking threads"
)]
fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkFailure> + Send + 'static,
) -> JoinHandle<Result<T, WorkFailure>> {
    tokio::task::spawn_blocking(work)
}

impl<T> BlockingWork<T> {
    /// Keeps the work going if this value is dropped.
    pub fn even_if_left(mut self) -> Self {
        self.goes_on = true;
        self
    }

    /// Waits for the end of the work.
    ///
    /// # Errors
    /// There was no permit in time, or no room in the queue; the work was stopped or panicked.
    pub async fn done(&mut self) -> Result<T, WorkFailure> {
        let Some(task) = &mut self.task else {
            return Err(WorkFailure::Stopped);
        };
        let done = task.await;
        self.task = None;
        done.unwrap_or_else(|error| Err(WorkFailure::of(error)))
    }

    /// Work that has not begun does not begin; waits for work that has.
    pub async fn stop(&mut self) {
        self.stop.leave();
        if let Some(task) = &mut self.task {
            match &self.leave_queue {
                // A task that has a thread by now waits for the end of its work.
                Some(leave) => leave.notify_one(),
                None => task.abort(),
            }
            // Its result is of no use any more.
            let _ = task.await;
        }
        self.task = None;
    }
}

impl<T> Drop for BlockingWork<T> {
    /// Aborting a task that waits for a permit takes it out of the queue. Work that has a thread looks at its [`WorkStop`].
    fn drop(&mut self) {
        if self.goes_on {
            return;
        }
        self.stop.leave();
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl<T> fmt::Debug for BlockingWork<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingWork")
            .field("stop", &self.stop)
            .field("goes_on", &self.goes_on)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tokio::runtime::{Builder, Runtime};

    const KIND: WorkKind = WorkKind::new("test", 4);

    /// With a single blocking thread, so that a second piece of work does not begin before the first one has ended.
    fn one_thread() -> Runtime {
        let mut builder = Builder::new_current_thread();
        builder.max_blocking_threads(1).build().unwrap()
    }

    #[test]
    fn own_work_of_a_waiter_that_left_never_begins_unless_it_goes_on() {
        for goes_on in [false, true] {
            one_thread().block_on(async {
                let (go_on, wait) = mpsc::channel::<()>();
                let mut first = start_own(move || wait.recv());
                let (tell, told) = mpsc::channel();
                let second = start_own(move || tell.send(()));
                if goes_on {
                    drop(second.even_if_left());
                } else {
                    drop(second);
                }
                drop(go_on);
                assert!(first.done().await.unwrap().is_err());
                assert_eq!(told.recv().is_ok(), goes_on);
            });
        }
    }

    #[tokio::test]
    async fn a_panic_is_told_with_its_message_and_gives_the_permit_back() {
        let queue = FairQueue::<&str>::new(1, 8);
        for text in ["no such row", "no such column"] {
            let mut work = start_queued(&queue, Lane::of("a"), 1, move |_| -> u8 {
                panic!("{text}");
            });
            let cause = text.to_owned();
            assert_eq!(work.done().await, Err(WorkFailure::Panicked { cause }));
        }
        let mut work = start_queued(&queue, Lane::of("a"), 1, |_| 5);
        assert_eq!(work.done().await, Ok(5));
        let failed = own_work(|| -> u8 { panic!("no file") }).await;
        let told = io::Error::from(failed.unwrap_err()).to_string();
        assert!(told.ends_with("no file"), "{told}");
    }

    #[tokio::test]
    async fn a_kind_has_no_more_threads_than_it_may_and_leaves_others_to_other_kinds() {
        let (tell, told) = mpsc::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let mut all: Vec<_> = (0..12)
            .map(|_| {
                let (tell, wait) = (tell.clone(), wait.clone());
                KIND.start(Some("ada"), move |_| {
                    tell.send(()).unwrap();
                    drop(wait.lock().map(|wait| wait.recv()));
                })
            })
            .collect();
        assert_eq!(told.iter().take(4).count(), 4);
        let other = WorkKind::new("another test", 1);
        assert_eq!(other.run(None, || 5).await, Ok(5));
        assert!(told.try_recv().is_err(), "a fifth thread");
        drop(go_on);
        for work in &mut all {
            work.done().await.unwrap();
        }
    }

    /// Lookups of names, each of which waits for a name server.
    #[tokio::test]
    async fn a_module_that_takes_all_threads_it_may_leaves_some_to_another_one() {
        const LOOKUPS: WorkKind = WorkKind::new("test of modules", 32);
        let (tell, told) = mpsc::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let all: Vec<_> = (0..40)
            .map(|_| {
                let (tell, wait) = (tell.clone(), wait.clone());
                LOOKUPS.start_for(WorkParty::Module("slow".into()), move |_| {
                    tell.send(()).unwrap();
                    drop(wait.lock().map(|wait| wait.recv()));
                })
            })
            .collect();
        assert_eq!(told.iter().take(28).count(), 28);
        let mut other = LOOKUPS.start_for(WorkParty::Module("quick".into()), |_| 5);
        let done = tokio::time::timeout(Duration::from_secs(30), other.done()).await;
        assert_eq!(done, Ok(Ok(5)), "no thread was left");
        assert!(told.try_recv().is_err(), "a 29th thread of one module");
        drop((go_on, all));
    }

    #[tokio::test(start_paused = true)]
    async fn work_without_room_is_told_apart_from_work_that_waited_too_long() {
        let queue = FairQueue::in_order(1, 1);
        let held = queue.try_enter(Lane::of(()), 1);
        let mut late = start_queued(&queue, Lane::of(()), 1, |_| ());
        while queue.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let mut refused = start_queued(&queue, Lane::of(()), 1, |_| ());
        assert_eq!(refused.done().await, Err(WorkFailure::Full));
        assert_eq!(late.done().await, Err(WorkFailure::Late));
        drop(held);
    }

    #[test]
    fn work_without_a_runtime_is_done_before_it_returns() {
        let (tell, told) = mpsc::channel();
        detach(move || tell.send(()).unwrap());
        assert!(told.try_recv().is_ok());
    }
}
