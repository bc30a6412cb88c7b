//! The engine's clock: interrupts guests at regular intervals, so that a spinning one notices its deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;
use wasmtime::EngineWeak;

/// Interval between checks of a running guest's deadline. A spinning guest overshoots its deadline
/// by about this much, and holds a worker thread no longer than this.
pub(crate) const EPOCH_INTERVAL: Duration = Duration::from_millis(1);

/// Intervals without a call after which the clock stops. A call that comes before need not wake its thread, which takes
/// a system call.
const IDLE_INTERVALS: u32 = 50;

/// Advances the engine's epoch every [`EPOCH_INTERVAL`] while calls run and for [`IDLE_INTERVALS`] after, and sleeps
/// otherwise.
#[derive(Debug)]
pub(super) struct Ticker {
    running: Arc<AtomicUsize>,
    thread: Thread,
}

impl Ticker {
    pub fn start(engine: EngineWeak) -> std::io::Result<Self> {
        let running = Arc::new(AtomicUsize::new(0));
        let seen = running.clone();
        let handle = thread::Builder::new()
            .name("toolhold-epoch".into())
            .spawn(move || {
                let mut idle = 0;
                loop {
                    if seen.load(Ordering::Acquire) > 0 {
                        idle = 0;
                    }
                    if idle < IDLE_INTERVALS {
                        idle += 1;
                        thread::sleep(EPOCH_INTERVAL);
                    } else {
                        // A missed wake-up costs at most this once: unpark before park is remembered.
                        thread::park_timeout(Duration::from_millis(500));
                    }
                    match engine.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => return,
                    }
                }
            })?;
        Ok(Self {
            running,
            thread: handle.thread().clone(),
        })
    }

    pub fn enter(&self) -> TickingCall<'_> {
        if self.running.fetch_add(1, Ordering::AcqRel) == 0 {
            self.thread.unpark();
        }
        TickingCall(self)
    }
}

/// The last of an engine: its clock thread is woken to find it gone.
impl Drop for Ticker {
    fn drop(&mut self) {
        self.thread.unpark();
    }
}

/// A call in progress, for the clock.
#[derive(Debug)]
pub struct TickingCall<'a>(&'a Ticker);

impl Drop for TickingCall<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}
