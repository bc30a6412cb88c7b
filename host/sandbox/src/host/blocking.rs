//! Work on the file system, on a thread that may block.

use std::io;
use tokio::task::{JoinHandle, spawn_blocking};

/// Work under way. If it is dropped before the work has begun, the work never begins: nothing of a call starts after it.
#[derive(Debug)]
pub struct Blocking<T>(JoinHandle<io::Result<T>>);

impl<T: Send + 'static> Blocking<T> {
    pub fn start(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Self {
        Self(spawn_blocking(work))
    }

    /// Waits for the end of the work.
    pub async fn done(&mut self) -> io::Result<T> {
        let done = (&mut self.0).await;
        done.map_err(io::Error::other)?
    }

    /// Work that has not begun does not begin; waits for work that has.
    pub async fn stop(&mut self) {
        self.0.abort();
        // Its result is of no use any more.
        let _ = (&mut self.0).await;
    }
}

impl<T> Drop for Blocking<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
