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
    ///
    /// # Errors
    /// The system has no thread or no file descriptor left.
    pub fn start(work: impl Future<Output = ()> + Send + 'static) -> io::Result<Self> {
        let (end, ended) = channel();
        let (begin, begun) = channel();
        let run = move || {
            // Dropped last, also by a panic.
            let _end: Sender<()> = end;
            // Made here, because a runtime must not be dropped where the caller may be: in another runtime.
            let made = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            match made {
                Ok(runtime) => {
                    drop(begin.send(Ok(())));
                    runtime.block_on(work);
                }
                Err(error) => drop(begin.send(Err(error))),
            }
        };
        let handle = Builder::new().name("toolhold-writer".into()).spawn(run)?;
        begun.recv().map_err(io::Error::other)??;
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
