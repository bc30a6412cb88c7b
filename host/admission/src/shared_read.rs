//! Reads whose results are shared by all who asked before they began.

use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Mutex, OnceCell};

/// A read that many callers ask for at the same time, such as that of a folder. One read is made at a time. Callers that
/// ask during a read wait for the next one and share it. So no caller gets the result of a read that began before it asked,
/// and a crowd makes two reads instead of one each.
#[derive(Debug)]
pub struct SharedRead<T> {
    /// Held by the read that is made.
    turn: Mutex<()>,
    /// The read that has not begun. Gone if there is none, or no caller waits for it any more.
    next: StdMutex<Weak<OnceCell<T>>>,
}

impl<T> Default for SharedRead<T> {
    fn default() -> Self {
        Self {
            turn: Mutex::new(()),
            next: StdMutex::new(Weak::new()),
        }
    }
}

impl<T: Clone> SharedRead<T> {
    /// The result of a read that begins after this is called: of `read`, or of an equal one of another caller. If the
    /// caller that reads is dropped, the next one reads.
    pub async fn of(&self, read: impl Future<Output = T>) -> T {
        let planned = self.planned();
        let reading = async {
            let _turn = self.turn.lock().await;
            self.begin(&planned);
            read.await
        };
        planned.get_or_init(|| reading).await.clone()
    }

    /// The read that has not begun; a new one if there is none.
    fn planned(&self) -> Arc<OnceCell<T>> {
        let mut next = self.lock();
        next.upgrade().unwrap_or_else(|| {
            let planned = Arc::new(OnceCell::new());
            *next = Arc::downgrade(&planned);
            planned
        })
    }

    /// Notes that a read begins, so that no caller joins it any more.
    fn begin(&self, planned: &Arc<OnceCell<T>>) {
        let mut next = self.lock();
        if std::ptr::eq(next.as_ptr(), Arc::as_ptr(planned)) {
            *next = Weak::new();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Weak<OnceCell<T>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use tokio::task::yield_now;
    use tokio::time::timeout;

    #[tokio::test]
    async fn callers_during_a_read_share_the_next_one() {
        let shared = SharedRead::default();
        let reads = AtomicU32::new(0);
        let read = async || {
            let number = reads.fetch_add(1, Ordering::Relaxed);
            yield_now().await;
            number
        };
        let (first, second, third) =
            tokio::join!(shared.of(read()), shared.of(read()), shared.of(read()));
        assert_eq!((first, second, third), (0, 1, 1));
        assert_eq!(shared.of(read()).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_leaves_holds_up_nobody() {
        const MOMENT: Duration = Duration::from_millis(5);
        let shared = SharedRead::default();
        let mut endless = Box::pin(shared.of(std::future::pending()));
        assert!(timeout(MOMENT, &mut endless).await.is_err());
        // Both wait, and the one that is to read leaves first.
        let mut leaves = Box::pin(shared.of(async { 1 }));
        let mut stays = Box::pin(shared.of(async { 2 }));
        assert!(timeout(MOMENT, &mut leaves).await.is_err());
        assert!(timeout(MOMENT, &mut stays).await.is_err());
        drop((endless, leaves));
        assert_eq!(timeout(MOMENT, stays).await, Ok(2));
    }
}
