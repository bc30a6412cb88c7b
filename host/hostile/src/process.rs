//! What this process uses, as the system counts it. Linux says; elsewhere nothing is known.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::{Duration, Instant};
use std::{fs, io};
use toolhold_files::ProcessFolder;

/// Memory that is really there, in bytes.
pub fn resident_bytes() -> Option<u64> {
    ProcessFolder::own().resident_bytes()
}

/// The most of [`resident_bytes`] since [`forget_peak`].
pub fn peak_bytes() -> Option<u64> {
    ProcessFolder::own().peak_bytes()
}

/// [`resident_bytes`] of another process.
pub fn resident_of(process: u32) -> Option<u64> {
    ProcessFolder::of(process).resident_bytes()
}

/// [`peak_bytes`] of another process, since it began.
pub fn peak_of(process: u32) -> Option<u64> {
    ProcessFolder::of(process).peak_bytes()
}

/// The time that another process has computed, with all of its threads.
pub fn processor_time_of(process: u32) -> Option<Duration> {
    ProcessFolder::of(process).processor_time()
}

/// Maximum time by the clock of a process that computes beside other programs, as a multiple of its bound.
const SLOWEST: u32 = 8;

/// Measures the work of another process from one moment on. What is bounded is the processor time, because other
/// programs share the machine.
pub struct WorkClock {
    process: u32,
    before: Option<Duration>,
    started: Instant,
}

impl WorkClock {
    pub fn of(process: u32) -> Self {
        Self {
            process,
            before: processor_time_of(process),
            started: Instant::now(),
        }
    }

    /// Time by the clock.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the process has computed for more than `bound`, or [`SLOWEST`] times as much has passed by the clock.
    /// Where the system does not tell what a process computes, the bound is one by the clock.
    pub fn is_over(&self, bound: Duration) -> bool {
        let elapsed = self.elapsed();
        match (self.before, processor_time_of(self.process)) {
            (Some(before), Some(now)) => {
                now.saturating_sub(before) > bound || elapsed > SLOWEST * bound
            }
            _ => elapsed > bound,
        }
    }
}

/// Begins a new peak. Where the system refuses, the old one stays: too much is then reported, never
/// too little.
pub fn forget_peak() {
    // "5" resets the peak and touches nothing else (proc_pid_clear_refs(5)).
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Bounds the descriptors of this process for the rest of its life, to `most` or to fewer if it may have no more now.
///
/// # Errors
/// The system refuses.
pub fn bound_descriptors(most: u64) -> io::Result<()> {
    let hard = getrlimit(Resource::Nofile).maximum;
    let bound = Some(hard.map_or(most, |hard| hard.min(most)));
    let both = Rlimit {
        current: bound,
        maximum: bound,
    };
    Ok(setrlimit(Resource::Nofile, both)?)
}

/// The name of every thread of an attack's runtime, those for file operations included.
pub const THREAD: &str = "hostile";

/// Threads of attacks and of engines. Recognised by name, because the process that runs the suite
/// has threads of its own that come and go.
pub fn threads() -> Option<usize> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    Some(
        names
            .filter(|name| name.starts_with(THREAD) || name.starts_with("toolhold-"))
            .count(),
    )
}

/// Memory of the processes that this one started, all together. 0: there are none, or the system does
/// not say.
pub fn children_bytes() -> u64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return 0;
    };
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok())
        .map(|children| {
            let pids = children.split_ascii_whitespace();
            let pids = pids.filter_map(|pid| pid.parse().ok());
            pids.filter_map(resident_of).sum::<u64>()
        })
        .sum()
}
