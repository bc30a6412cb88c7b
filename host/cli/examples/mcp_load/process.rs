//! The server's process, and what it uses of the machine.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs;
use std::process::Child;
use std::time::Duration;
use toolhold_hostile::processor_time_of;

/// Dropping it kills the process.
pub struct McpProcess(pub Child);

impl Drop for McpProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Resources that a process has used up to a moment.
pub struct Usage {
    processor_time: Duration,
    /// Context switches, by thread.
    switches: BTreeMap<String, u64>,
}

/// Resources that a process has used between two moments.
pub struct Used {
    pub processor_time: Duration,
    /// Without those of threads that ended meanwhile, which the system forgets.
    pub switches: u64,
}

impl McpProcess {
    pub fn usage(&self) -> Result<Usage> {
        let process = self.0.id();
        let mut switches = BTreeMap::new();
        let threads = fs::read_dir(format!("/proc/{process}/task"));
        for thread in threads.context("only Linux tells what a server uses")? {
            let thread = thread?;
            // It may have ended.
            if let Ok(status) = fs::read_to_string(thread.path().join("status")) {
                let name = thread.file_name().to_string_lossy().into_owned();
                switches.insert(name, switches_in(&status));
            }
        }
        Ok(Usage {
            processor_time: processor_time_of(process).context("the server ended")?,
            switches,
        })
    }
}

impl Usage {
    pub fn since(&self, before: &Self) -> Used {
        let switches = self.switches.iter().map(|(thread, switches)| {
            let earlier = before.switches.get(thread).copied().unwrap_or(0);
            switches.saturating_sub(earlier)
        });
        Used {
            processor_time: self.processor_time.saturating_sub(before.processor_time),
            switches: switches.sum(),
        }
    }
}

/// Both kinds: `voluntary_ctxt_switches` and `nonvoluntary_ctxt_switches`.
fn switches_in(status: &str) -> u64 {
    let lines = status.lines().filter_map(|line| {
        let (name, number) = line.split_once(':')?;
        let is_counted = name.ends_with("voluntary_ctxt_switches");
        number.trim().parse::<u64>().ok().filter(|_| is_counted)
    });
    lines.sum()
}
