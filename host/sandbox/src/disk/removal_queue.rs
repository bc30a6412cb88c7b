//! Trees whose removal takes long: one thread removes them, in turns.
//!
//! Some file systems need milliseconds for each directory, and a guest makes directories faster than that. A thread for
//! each tree would use up the threads that all file operations share.

use super::remove::remove_until;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The turn of one tree.
const TURN: Duration = Duration::from_secs(1);
/// With more trees waiting, no scratch directory is made: what waits holds up to a quota each.
const MAX_WAITING: usize = 256;

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<PathBuf>,
    is_worked: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    waiting: VecDeque::new(),
    is_worked: false,
});

/// Whether as many trees wait as may.
pub fn is_full() -> bool {
    QUEUE.lock().waiting.len() >= MAX_WAITING
}

/// Removes a tree: at once if that takes no longer than a turn, and else in the background. Blocks on the file system.
pub fn remove_soon(path: PathBuf) {
    if let Some(path) = turn(path) {
        later(path);
    }
}

/// Works at a tree for a turn; returns it if it is not done.
fn turn(path: PathBuf) -> Option<PathBuf> {
    match remove_until(&path, Instant::now() + TURN) {
        Ok(()) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Some(path),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a scratch directory stays behind");
            None
        }
    }
}

fn later(path: PathBuf) {
    let mut queue = QUEUE.lock();
    queue.waiting.push_back(path);
    if queue.is_worked {
        return;
    }
    let worker = std::thread::Builder::new().name("toolhold-remove".into());
    match worker.spawn(work) {
        Ok(_) => queue.is_worked = true,
        // The next one tries again, and so does the next start.
        Err(error) => tracing::warn!(%error, "scratch directories stay behind for now"),
    }
}

fn work() {
    loop {
        let next = {
            let mut queue = QUEUE.lock();
            let next = queue.waiting.pop_front();
            queue.is_worked = next.is_some();
            next
        };
        let Some(path) = next else {
            return;
        };
        if let Some(path) = turn(path) {
            QUEUE.lock().waiting.push_back(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_trees_are_removed_and_the_thread_ends() {
        let root = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..20).map(|n| root.path().join(n.to_string())).collect();
        for path in &paths {
            std::fs::create_dir_all(path.join("a/b/c/d")).unwrap();
            later(path.clone());
        }
        later(root.path().join("missing"));
        let until = Instant::now() + Duration::from_secs(20);
        while paths.iter().any(|path| path.exists()) || QUEUE.lock().is_worked {
            assert!(Instant::now() < until, "{:?}", QUEUE.lock());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!is_full());
    }

    #[test]
    fn there_is_a_bound_for_what_waits() {
        QUEUE.lock().is_worked = true;
        for n in 0..MAX_WAITING {
            assert!(!is_full(), "{n}");
            later(PathBuf::from(n.to_string()));
        }
        assert!(is_full());
    }
}
