//! The thread in which the writer of a SQLite file runs. Its statements block, and each hand-over to another thread costs
//! more than they do.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle, current};
use std::time::Duration;

/// Longest wait for the thread when the last handle is dropped. It has then written what was queued, unless the database
/// is out of order.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A thread that ends by itself. Dropping it waits for the end.
#[derive(Debug)]
pub struct WriterThread {
    handle: JoinHandle<()>,
    /// Closed when the thread ends.
    ended: parking_lot::Mutex<Receiver<()>>,
}

impl WriterThread {
    /// Starts a thread that runs `work` to its end.
    pub fn start(work: impl Future<Output = ()> + Send + 'static) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let (end, ended) = channel();
        let run = move || {
            // Dropped last, also by a panic.
            let _end: Sender<()> = end;
            runtime.block_on(work);
        };
        let handle = Builder::new().name("toolhold-writer".into()).spawn(run)?;
        let ended = ended.into();
        Ok(Self { handle, ended })
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        // What is attached to an entry may have the last handle.
        if current().id() == self.handle.thread().id() {
            return;
        }
        let ended = self.ended.get_mut().recv_timeout(END_TIMEOUT);
        if ended == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the database takes no writes: what was queued last may be lost");
        }
    }
}
