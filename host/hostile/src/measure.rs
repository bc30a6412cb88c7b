//! Bounds on what the host takes of this machine while something is tried: memory, and time.

use crate::fault::{AttackFailure, ensure};
use crate::lab::ms;
use crate::process;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time in which the allocator gives back what is free: it keeps it for some seconds, for what comes next.
const GIVING_BACK: Duration = Duration::from_secs(30);

/// The memory that was resident when it was made: what comes on top is measured against it.
pub struct Baseline(u64);

impl Baseline {
    pub fn now() -> Result<Self, AttackFailure> {
        let resident = process::resident_bytes();
        process::forget_peak();
        resident.map(Self).ok_or_else(|| {
            AttackFailure::Unable("this system does not tell what is resident".into())
        })
    }

    /// The most that was resident since then was at most `bound` bytes more; how much it was.
    pub fn ensure_peak(&self, bound: u64, what: &str) -> Result<u64, AttackFailure> {
        let more = process::peak_bytes().unwrap_or(0).saturating_sub(self.0);
        ensure(more <= bound, || {
            format!(
                "{what}: {} MiB more were resident, bound {} MiB",
                more >> 20,
                bound >> 20
            )
        })?;
        Ok(more)
    }

    /// What is resident is soon at most `bound` bytes more. Blocks until then.
    pub fn ensure_given_back(&self, bound: u64, what: &str) -> Result<(), AttackFailure> {
        let started = Instant::now();
        loop {
            let resident = process::resident_bytes().unwrap_or(0);
            let more = resident.saturating_sub(self.0);
            if more <= bound {
                return Ok(());
            }
            ensure(started.elapsed() < GIVING_BACK, || {
                format!("{what}: {} MiB stay resident after it", more >> 20)
            })?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Makes a FIFO with a system tool, since std cannot.
pub fn fifo(path: &Path) -> Result<(), AttackFailure> {
    let made = Command::new("mkfifo")
        .arg(path)
        .stderr(Stdio::null())
        .status();
    if made.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err(AttackFailure::Unable(
        "no FIFO can be made here: `mkfifo` is missing".into(),
    ))
}

/// What `work` returns, if it does so within `bound`. It has a thread and a runtime of its own, because what
/// it tries may block in the kernel, where no timeout reaches.
pub fn in_time<T: Send + 'static>(
    bound: Duration,
    what: &str,
    work: impl AsyncFnOnce() -> Result<T, AttackFailure> + Send + 'static,
) -> Result<T, AttackFailure> {
    let (sender, receiver) = mpsc::channel();
    let started = Instant::now();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let done = match runtime {
            Ok(runtime) => runtime.block_on(work()),
            Err(error) => Err(error.into()),
        };
        // The receiver may have given up.
        let _ = sender.send(done);
    });
    match receiver.recv_timeout(bound) {
        Ok(done) => done,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(AttackFailure::Broke(format!(
            "{what}: the host hangs, still after {}",
            ms(started.elapsed())
        ))),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err(AttackFailure::Broke(format!("{what}: the host panicked")))
        }
    }
}

/// Opens the other end of a FIFO when dropped, so that whoever hangs on it goes on.
pub struct Released(pub PathBuf);

impl Drop for Released {
    fn drop(&mut self) {
        // For both, which never blocks on Linux.
        let _ = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.0);
    }
}
