//! Resources that a process uses, and room on disks, as the system counts them. Only Linux tells those of a process.

use rustix::process::{Resource, getrlimit};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Milliseconds of a clock tick of `/proc`. The kernel's own clock may differ (proc_pid_stat(5), sysconf(3):
/// _SC_CLK_TCK).
const TICK_MS: u64 = 10;

/// The folder of a process below `/proc`.
#[derive(Debug, Clone)]
pub struct ProcessFolder(PathBuf);

impl ProcessFolder {
    /// The folder of this process.
    pub fn own() -> Self {
        Self::named("self")
    }

    /// The folder of the process with this id.
    pub fn of(process: u32) -> Self {
        Self::named(&process.to_string())
    }

    fn named(process: &str) -> Self {
        Self(Path::new("/proc").join(process))
    }

    /// Memory that is really there, in bytes.
    pub fn resident_bytes(&self) -> Option<u64> {
        Some(self.status("VmRSS:")? << 10)
    }

    /// The maximum of [`Self::resident_bytes`] since the start of the process, or since its reset.
    pub fn peak_bytes(&self) -> Option<u64> {
        Some(self.status("VmHWM:")? << 10)
    }

    /// Threads of the process.
    pub fn threads(&self) -> Option<u64> {
        self.status("Threads:")
    }

    /// The time that all threads of the process have computed, in the program and in the system.
    pub fn processor_time(&self) -> Option<Duration> {
        // `utime` and `stime`.
        let [user, system] = [self.stat(14)?, self.stat(15)?];
        Some(ticks(user.saturating_add(system)))
    }

    /// When the process began, since 1970 (UTC).
    pub fn start(&self) -> Option<Duration> {
        let system = fs::read_to_string("/proc/stat").ok()?;
        let boot = system.lines().find_map(|line| line.strip_prefix("btime "));
        let boot = Duration::from_secs(boot?.trim().parse().ok()?);
        // `starttime`, since the system began.
        boot.checked_add(ticks(self.stat(22)?))
    }

    /// Descriptors that the process has open.
    pub fn descriptors(&self) -> Option<u64> {
        let open = fs::read_dir(self.0.join("fd")).ok()?;
        Some(open.count() as u64)
    }

    /// A number of `status`, by its name. Of memory it counts KiB.
    fn status(&self, name: &str) -> Option<u64> {
        let status = fs::read_to_string(self.0.join("status")).ok()?;
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.split_ascii_whitespace().next()?.parse().ok()
    }

    /// A field of `stat`, by its number in proc_pid_stat(5), from the third on.
    fn stat(&self, number: usize) -> Option<u64> {
        let stat = fs::read_to_string(self.0.join("stat")).ok()?;
        // The second is the program's name, in brackets, which may hold anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        fields.nth(number.checked_sub(3)?)?.parse().ok()
    }
}

/// The most descriptors that this process may have open. `None`: there is no limit.
pub fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

fn ticks(count: u64) -> Duration {
    Duration::from_millis(count.saturating_mul(TICK_MS))
}

/// Room on the disk of a file or folder, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that a user without privileges may still write.
    pub free: u64,
    /// Bytes of the whole disk.
    pub size: u64,
}

impl DiskSpace {
    /// Asks the system. It may take long where the disk is another machine's.
    ///
    /// # Errors
    /// There is no such file or folder, or the system does not say.
    pub fn at(path: &Path) -> io::Result<Self> {
        let disk = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(Self {
            free: bytes(disk.f_bavail),
            size: bytes(disk.f_blocks),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_less_free_than_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let space = DiskSpace::at(folder.path()).unwrap();
        assert!(space.size > 0 && space.free <= space.size, "{space:?}");
        assert!(DiskSpace::at(&folder.path().join("none")).is_err());
    }

    #[cfg(target_os = "linux")]
    mod linux {
        use super::*;
        use std::time::{Instant, SystemTime, UNIX_EPOCH};

        #[test]
        fn a_process_is_told_what_it_uses() {
            let own = ProcessFolder::own();
            assert!(own.resident_bytes().unwrap() > 1 << 16);
            assert!(own.peak_bytes().unwrap() >= own.resident_bytes().unwrap() / 2);
            assert!(own.threads().unwrap() >= 1);
            let before = own.descriptors().unwrap();
            let files: Vec<_> = (0..10).map(|_| tempfile::tempfile().unwrap()).collect();
            // Other tests of this process open and close some, too.
            assert!(own.descriptors().unwrap() + 5 > before + files.len() as u64);
            let same = ProcessFolder::of(std::process::id());
            assert_eq!(same.start(), own.start());
        }

        #[test]
        fn a_process_began_before_now_and_its_time_grows_with_its_work() {
            let own = ProcessFolder::own();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let start = own.start().unwrap();
            // The system tells its own begin in whole seconds.
            assert!(start <= now + Duration::from_secs(2), "{start:?} {now:?}");
            assert!(now < start + Duration::from_hours(24), "{start:?} {now:?}");
            let before = own.processor_time().unwrap();
            let began = Instant::now();
            while own.processor_time().unwrap() == before {
                assert!(began.elapsed() < Duration::from_secs(30));
            }
        }

        #[test]
        fn a_process_that_is_none_uses_nothing() {
            let none = ProcessFolder::of(u32::MAX);
            assert_eq!(none.resident_bytes(), None);
            assert_eq!(none.processor_time(), None);
            assert_eq!(none.descriptors(), None);
        }
    }
}
