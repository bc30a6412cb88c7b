//! Work that blocks a thread (files, keys and values, walks through directories), for one call.
//!
//! - **Share.** Threads are handed out by a fair queue, in which modules and keys have their lanes. So one call with a
//!   slow directory takes no thread that another one needs. The thread keeps its permit until the work is over, also if
//!   the call is not.
//! - **Wait.** Work that waits for a thread takes it and gives it back, whether the guest polls the work or not. A guest that
//!   starts writes and polls none of them holds threads no longer than the writes take.
//! - **End.** Work stops with its waiter. It does not begin when the call is over, or what the call may use was taken back,
//!   and long work looks at its [`Stop`] on the way.

use crate::revocation::Revocation;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use toolhold_admission::{BlockingWork, FairQueue, Lane, WorkStop, own_work, start_queued};

/// Permits of work that blocks: a lane for each module (by its number) and each tenant that calls it.
pub(crate) type WorkQueue = FairQueue<u64, Arc<str>>;

/// Threads for the work of calls, at least: from 16 on, a queue leaves some to modules and keys that have none.
const MIN_THREADS: usize = 16;
/// Threads for the work of calls, at most. The runtime has 512, and the host's own work needs some.
const MAX_THREADS: usize = 256;
/// Maximum pieces of work that wait for a thread. A waiting write counts in what the host keeps for its call.
const MAX_WAITING: usize = 4_096;
/// Time between two looks at a [`Stop`], of work that waits for a lock.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Makes the queue of a host that runs up to `concurrent_calls` at a time.
pub(crate) fn work_queue(concurrent_calls: usize) -> Arc<WorkQueue> {
    WorkQueue::of_members(
        concurrent_calls.clamp(MIN_THREADS, MAX_THREADS),
        MAX_WAITING,
    )
}

/// Starts the blocking work of one call.
#[derive(Debug, Clone)]
pub(crate) struct CallWork {
    queue: Arc<WorkQueue>,
    lane: Lane<u64, Arc<str>>,
    revocation: Arc<Revocation>,
}

/// Tells work that it is of no use any more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    waiter: WorkStop,
    revocation: Arc<Revocation>,
}

/// Work ends with this when nothing waits for it any more, or when what the call may use was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("what waited for the work is over, or what it may use was taken back")]
pub(crate) struct WorkStopped;

/// Work under way. If it is dropped before the work has begun, the work never begins: nothing of a call starts after it.
pub(crate) struct Blocking<T, E = io::Error> {
    work: BlockingWork<Result<T, E>>,
}

impl From<WorkStopped> for io::Error {
    fn from(stopped: WorkStopped) -> Self {
        Self::new(io::ErrorKind::Interrupted, stopped)
    }
}

impl Stop {
    /// For work that is no call's.
    pub fn of(waiter: &WorkStop) -> Self {
        Self {
            waiter: waiter.clone(),
            revocation: Arc::default(),
        }
    }

    /// # Errors
    /// The work is to end.
    pub fn check(&self) -> Result<(), WorkStopped> {
        if self.waiter.is_left() || self.revocation.check().is_err() {
            return Err(WorkStopped);
        }
        Ok(())
    }

    /// Waits for what `get` waits for. `get` takes the time that it may wait.
    ///
    /// # Errors
    /// The work is to end.
    pub fn until<T>(&self, mut get: impl FnMut(Duration) -> Option<T>) -> Result<T, WorkStopped> {
        loop {
            self.check()?;
            if let Some(got) = get(LOOK_INTERVAL) {
                return Ok(got);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn leave(&self) {
        self.waiter.leave();
    }
}

impl CallWork {
    /// For a call of the module with this number, for this tenant.
    pub fn new(
        queue: &Arc<WorkQueue>,
        module: u64,
        tenant: Arc<str>,
        revocation: Arc<Revocation>,
    ) -> Self {
        // Work waits for no other work, whatever its call is nested in.
        let lane = Lane {
            group: module,
            member: tenant,
            depth: 0,
        };
        Self {
            queue: queue.clone(),
            lane,
            revocation,
        }
    }

    /// Begins the work if a thread is free for the call, and lets it wait for one otherwise.
    pub fn start<T, E>(
        &self,
        work: impl FnOnce(&Stop) -> Result<T, E> + Send + 'static,
    ) -> Blocking<T, E>
    where
        T: Send + 'static,
        E: From<io::Error> + Send + 'static,
    {
        let revocation = self.revocation.clone();
        let work = move |waiter: &WorkStop| {
            let stop = Stop {
                waiter: waiter.clone(),
                revocation,
            };
            stop.check().map_err(io::Error::from)?;
            work(&stop)
        };
        Blocking {
            work: start_queued(&self.queue, self.lane.clone(), usize::MAX, work),
        }
    }

    /// Does the work, and waits for its end.
    ///
    /// # Errors
    /// Those of the work. [`io::ErrorKind::ResourceBusy`] if no thread was free in time, and
    /// [`io::ErrorKind::Interrupted`] if what the call may use was taken back before the work began.
    pub async fn run<T, E>(
        &self,
        work: impl FnOnce(&Stop) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<io::Error> + Send + 'static,
    {
        self.start(work).done().await
    }
}

impl<T: Send + 'static, E: From<io::Error> + Send + 'static> Blocking<T, E> {
    /// Waits for the end of the work.
    ///
    /// # Errors
    /// As [`CallWork::run`].
    pub async fn done(&mut self) -> Result<T, E> {
        self.work.done().await.map_err(io::Error::from)?
    }

    /// Work that has not begun does not begin; waits for work that has.
    pub async fn stop(&mut self) {
        self.work.stop().await;
    }
}

impl<T, E> fmt::Debug for Blocking<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking")
            .field("work", &self.work)
            .finish()
    }
}

/// Work of the host itself, which no call waits for: without a permit.
///
/// # Errors
/// Those of the work; its thread ended without a result.
pub(crate) async fn blocking<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<io::Error> + Send + 'static,
{
    own_work(work).await.map_err(io::Error::from)?
}

#[cfg(test)]
impl CallWork {
    /// Work of a call that nothing else competes with.
    pub fn alone() -> Self {
        Self::new(&work_queue(1), 1, "".into(), Arc::default())
    }

    /// Permits until the call gets no more.
    pub fn all_permits(&self) -> Vec<toolhold_admission::Permit<u64, Arc<str>>> {
        std::iter::from_fn(|| self.queue.try_enter(self.lane.clone(), usize::MAX)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::sync::mpsc;
    use tokio::task::yield_now;

    fn of(queue: &Arc<WorkQueue>, module: u64, tenant: &str) -> CallWork {
        CallWork::new(queue, module, tenant.into(), Arc::default())
    }

    #[tokio::test]
    async fn one_module_leaves_a_thread_to_another() {
        let queue = work_queue(16);
        let held = of(&queue, 1, "a").all_permits();
        assert!(held.len() < 16);
        let other = of(&queue, 2, "b");
        let other = other.run(|_| io::Result::Ok(5));
        let other = tokio::time::timeout(Duration::from_secs(5), other).await;
        assert_eq!(other.unwrap().unwrap(), 5);
    }

    #[tokio::test]
    async fn work_stops_with_its_waiter_and_keeps_its_permit_until_it_has() {
        let queue = work_queue(16);
        let work = of(&queue, 1, "a");
        let (tell, told) = mpsc::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let walk = work.start(move |stop| {
            tell.send(stop.check()).unwrap();
            let _ = wait.recv();
            tell.send(stop.check()).unwrap();
            io::Result::Ok(())
        });
        assert_eq!(told.recv().unwrap(), Ok(()));
        drop(walk);
        assert_eq!(queue.held(), 1);
        drop(go_on);
        assert_eq!(told.recv().unwrap(), Err(WorkStopped));
        while queue.held() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until the queue has this number of entries.
    async fn until_waiting(queue: &WorkQueue, entries: usize) {
        let reached = async {
            while queue.waiting() != entries {
                yield_now().await;
            }
        };
        let reached = tokio::time::timeout(Duration::from_secs(5), reached).await;
        assert!(reached.is_ok(), "{} wait", queue.waiting());
    }

    #[tokio::test]
    async fn queued_work_of_a_waiter_that_left_never_begins() {
        for is_dropped in [true, false] {
            let queue = work_queue(16);
            let work = of(&queue, 1, "a");
            let held = work.all_permits();
            let (tell, told) = mpsc::channel();
            let mut late = work.start(move |_| {
                tell.send(()).unwrap();
                io::Result::Ok(())
            });
            assert!(late.done().now_or_never().is_none());
            until_waiting(&queue, 1).await;
            if is_dropped {
                drop(late);
            } else {
                late.stop().await;
            }
            until_waiting(&queue, 0).await;
            drop(held);
            assert!(told.recv().is_err(), "its work was dropped unbegun");
            assert_eq!(queue.held(), 0);
        }
    }

    #[tokio::test]
    async fn queued_work_that_nothing_polls_gives_its_thread_back() {
        let queue = work_queue(16);
        let work = of(&queue, 1, "a");
        let held = work.all_permits();
        let mut queued: Vec<_> = (0..20)
            .map(|_| work.start(|_| io::Result::Ok(())))
            .collect();
        for work in &mut queued {
            assert!(work.done().now_or_never().is_none());
        }
        until_waiting(&queue, queued.len()).await;
        drop(held);
        let all_back = async {
            while queue.held() > 0 || queue.waiting() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let all_back = tokio::time::timeout(Duration::from_secs(5), all_back).await;
        assert!(all_back.is_ok(), "{} threads are held", queue.held());
        let other = of(&queue, 2, "b").run(|_| io::Result::Ok(5)).await;
        assert_eq!(other.unwrap(), 5);
        for work in &mut queued {
            work.done().await.unwrap();
        }
    }

    #[tokio::test]
    async fn queued_work_that_has_a_thread_is_waited_for_when_it_is_stopped() {
        let queue = work_queue(16);
        let work = of(&queue, 1, "a");
        let held = work.all_permits();
        let (tell, told) = tokio::sync::oneshot::channel();
        let (go_on, wait) = mpsc::channel::<()>();
        let mut late = work.start(move |_| {
            let _ = tell.send(());
            let _ = wait.recv();
            io::Result::Ok(())
        });
        until_waiting(&queue, 1).await;
        drop(held);
        told.await.unwrap();
        let stopped = tokio::time::timeout(Duration::from_millis(20), late.stop()).await;
        assert!(stopped.is_err(), "its work is not over");
        drop(go_on);
        late.stop().await;
        while queue.held() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn work_does_not_begin_after_the_revocation() {
        let revocation = Arc::new(Revocation::default());
        let work = CallWork::new(&work_queue(1), 1, "".into(), revocation.clone());
        revocation.revoke();
        let refused = work.run(|_| io::Result::Ok(())).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Interrupted);
    }

    #[tokio::test(start_paused = true)]
    async fn work_waits_for_a_thread_for_a_bounded_time() {
        let queue = work_queue(16);
        let work = of(&queue, 1, "a");
        let held = work.all_permits();
        let late = work.run(|_| io::Result::Ok(())).await.unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::ResourceBusy);
        drop(held);
    }
}
