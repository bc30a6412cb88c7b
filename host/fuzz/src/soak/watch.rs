//! What a soak measures, and the verdict on it.

use super::callers::Benign;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use toolhold_files::ProcessFolder;

/// Resident memory that may be more at the end than at the start, in bytes.
const RESIDENT_SLACK: u64 = 64 << 20;
/// How long after its deadline a benign call may come back.
const GRACE: Duration = Duration::from_millis(250);

/// What this process holds. 0 where the system does not say.
#[derive(Debug, Clone, Copy, Default)]
pub struct Resources {
    pub resident_bytes: u64,
    pub threads: usize,
    pub descriptors: usize,
}

pub fn resources() -> Resources {
    let own = ProcessFolder::own();
    let count = |counted: Option<u64>| usize::try_from(counted.unwrap_or(0)).unwrap_or_default();
    Resources {
        resident_bytes: own.resident_bytes().unwrap_or(0),
        threads: count(own.threads()),
        descriptors: count(own.descriptors()),
    }
}

/// How often something was done.
#[derive(Debug, Default)]
pub struct Counts {
    hostile: AtomicU64,
    loads: AtomicU64,
    failed_loads: AtomicU64,
}

impl Counts {
    pub fn called(&self) {
        self.hostile.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether at least `hostile` calls of hostile modules and `loads` loads were made.
    pub fn have_reached(&self, hostile: u64, loads: u64) -> bool {
        self.hostile.load(Ordering::Relaxed) >= hostile
            && self.loads.load(Ordering::Relaxed) >= loads
    }

    pub fn loaded(&self, worked: bool) {
        self.loads.fetch_add(1, Ordering::Relaxed);
        if !worked {
            self.failed_loads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What was measured up to a moment.
#[derive(Debug, Clone)]
pub struct Sample {
    pub elapsed: Duration,
    pub resources: Resources,
    /// Calls of hostile modules, and loads of the folder.
    pub hostile: u64,
    pub loads: u64,
    /// Benign calls: all, those that were refused in time, and the slowest.
    pub benign: u64,
    pub refused: u64,
    pub slowest: Duration,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>5} s  {:>5} MiB  {:>4} threads  {:>4} descriptors  {:>8} hostile calls  {:>6} loads  {:>7} benign calls, \
             {} refused, slowest {} ms",
            self.elapsed.as_secs(),
            self.resources.resident_bytes >> 20,
            self.resources.threads,
            self.resources.descriptors,
            self.hostile,
            self.loads,
            self.benign,
            self.refused,
            self.slowest.as_millis(),
        )
    }
}

/// Samples a running soak.
#[derive(Debug)]
pub struct Watch<F> {
    every: Duration,
    on_sample: F,
    began: Instant,
    counts: Arc<Counts>,
    faults: Vec<String>,
    last: Option<Sample>,
}

impl<F: FnMut(&Sample)> Watch<F> {
    pub fn new(every: Duration, on_sample: F) -> Self {
        Self {
            every,
            on_sample,
            began: Instant::now(),
            counts: Arc::default(),
            faults: Vec::new(),
            last: None,
        }
    }

    /// Counts from now on.
    pub fn begin(&mut self) {
        self.began = Instant::now();
        self.counts = Arc::default();
    }

    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    pub async fn during(&mut self, duration: Duration, benign: &Benign) {
        let began = Instant::now();
        while let Some(rest) = duration.checked_sub(began.elapsed()) {
            tokio::time::sleep(self.every.min(rest)).await;
            if rest > self.every {
                self.sample(benign);
            }
        }
    }

    pub fn sample(&mut self, benign: &Benign) {
        let sample = Sample {
            elapsed: self.began.elapsed(),
            resources: resources(),
            hostile: self.counts.hostile.load(Ordering::Relaxed),
            loads: self.counts.loads.load(Ordering::Relaxed),
            benign: benign.calls(),
            refused: benign.refused(),
            slowest: benign.slowest(),
        };
        (self.on_sample)(&sample);
        self.last = Some(sample);
        self.faults.extend(benign.take_faults());
    }

    /// Judges what was measured since [`Self::begin`]. `left` is what lies on the disk and should not.
    pub fn verdict(
        self,
        start: Resources,
        end: Resources,
        left: Vec<String>,
        deadline: Duration,
    ) -> Verdict {
        let mut faults = self.faults;
        faults.extend(left);
        if end.resident_bytes > start.resident_bytes + RESIDENT_SLACK {
            faults.push(format!(
                "{} MiB are resident, {} at the start",
                end.resident_bytes >> 20,
                start.resident_bytes >> 20
            ));
        }
        if end.threads > start.threads {
            faults.push(format!(
                "{} threads, {} at the start",
                end.threads, start.threads
            ));
        }
        if end.descriptors > start.descriptors {
            faults.push(format!(
                "{} descriptors, {} at the start",
                end.descriptors, start.descriptors
            ));
        }
        let slowest = self
            .last
            .as_ref()
            .map_or(Duration::ZERO, |last| last.slowest);
        if slowest > deadline + GRACE {
            faults.push(format!(
                "a benign call took {} ms; its deadline is {} ms",
                slowest.as_millis(),
                deadline.as_millis()
            ));
        }
        match &self.last {
            Some(last) if last.benign > last.refused && last.hostile > 0 && last.loads > 0 => {}
            _ => faults
                .push("nothing was tried: no benign call, no hostile call or no load".to_owned()),
        }
        Verdict { start, end, faults }
    }
}

/// Whether the host kept its promises.
#[derive(Debug)]
pub struct Verdict {
    pub start: Resources,
    pub end: Resources,
    /// Every promise that was broken. Empty: all held.
    pub faults: Vec<String>,
}
