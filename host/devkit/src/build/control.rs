//! Ends a build before it is done: on its deadline, or because its caller waits for it no longer.
//!
//! Each command of a build leads a process group of its own, and what is in the group ends with it: a compiler that hangs
//! in a process that it started would otherwise outlive the build, and hold whatever waits for its output. A host that is
//! killed ends nothing itself: see [`supervisor`](super::supervisor).

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::supervisor::{HostEnd, Supervisor};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Time for a whole build, unless its caller says otherwise. The first one of a language fetches its compiler, and a crate
/// may have hundreds of dependencies.
pub const DEFAULT_BUILD_TIMEOUT: Duration = Duration::from_mins(15);

/// Interval in which a process is looked at. Builds take seconds.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How long a build may take, and whether it goes on. Clones are of one build.
#[derive(Debug, Clone)]
pub struct BuildControl {
    shared: Arc<Shared>,
    /// The module that may have written the sources, which no person has read.
    unread: Option<Arc<str>>,
}

#[derive(Debug)]
struct Shared {
    timeout: Duration,
    /// Absent: so far ahead that no clock can say it.
    deadline: Option<Instant>,
    /// Absent: a host that is killed leaves its builds running.
    supervisor: Option<Supervisor>,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    is_cancelled: bool,
    /// The group of the command that runs now. Its number is nobody else's until its leader was waited for, which only
    /// happens after it was taken from here.
    group: Option<Pid>,
}

/// Why a build ended before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    Cancelled,
    Deadline { timeout: Duration },
}

/// Cancels its build when it is dropped.
#[derive(Debug)]
pub struct CancelOnDrop(BuildControl);

/// How a command ended.
pub(super) enum CommandEnd {
    Exited(ExitStatus),
    Stopped(Stopped),
}

impl BuildControl {
    /// For a build that begins now, which a host that is killed leaves running.
    pub fn new(timeout: Duration) -> Self {
        Self::supervised(timeout, None)
    }

    /// For a build that begins now, whose commands run under a supervisor, if there is one: it ends them when the host was
    /// killed.
    pub fn supervised(timeout: Duration, supervisor: Option<Supervisor>) -> Self {
        let shared = Shared {
            timeout,
            deadline: Instant::now().checked_add(timeout),
            supervisor,
            running: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            unread: None,
        }
    }

    /// Marks the sources as unread by a person and possibly written by this module: a build that runs them natively is
    /// refused.
    #[must_use]
    pub fn of_unread(self, writer: &str) -> Self {
        Self {
            unread: Some(writer.into()),
            ..self
        }
    }

    /// The module that may have written the sources, which no person has read.
    pub(super) fn unread(&self) -> Option<&str> {
        self.unread.as_deref()
    }

    /// Kills the processes of the build, and lets no other start.
    pub fn cancel(&self) {
        let mut running = self.running();
        running.is_cancelled = true;
        if let Some(group) = running.group {
            kill(group);
        }
    }

    pub fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }

    /// Why the build may not go on, if so.
    pub(super) fn stopped(&self) -> Option<Stopped> {
        if self.running().is_cancelled {
            return Some(Stopped::Cancelled);
        }
        let is_late = self
            .shared
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline);
        is_late.then_some(Stopped::Deadline {
            timeout: self.shared.timeout,
        })
    }

    /// Waits a moment, for something that tells nobody when it happens.
    pub(super) fn pause(&self) -> Result<(), Stopped> {
        sleep(POLL_INTERVAL);
        self.stopped().map_or(Ok(()), Err)
    }

    /// Runs a command without input in a process group of its own, which is empty when this returns.
    pub(super) fn run(
        &self,
        command: &mut Command,
        stdout: impl Into<Stdio>,
        stderr: impl Into<Stdio>,
    ) -> io::Result<CommandEnd> {
        match &self.shared.supervisor {
            None => self.lead(command.stdin(Stdio::null()), stdout, stderr, None),
            Some(supervisor) => {
                let (mut command, host) = supervisor.command(command)?;
                self.lead(&mut command, stdout, stderr, Some(host))
            }
        }
    }

    fn lead(
        &self,
        command: &mut Command,
        stdout: impl Into<Stdio>,
        stderr: impl Into<Stdio>,
        host: Option<HostEnd>,
    ) -> io::Result<CommandEnd> {
        command.stdout(stdout).stderr(stderr).process_group(0);
        let (mut child, group) = {
            // Held until the group is known, so that it is not cancelled unseen.
            let mut running = self.running();
            if running.is_cancelled {
                return Ok(CommandEnd::Stopped(Stopped::Cancelled));
            }
            let child = command.spawn().map_err(|error| match &host {
                None => error,
                // It is not the command that is missing.
                Some(_) => io::Error::other(format!("its supervisor cannot be started: {error}")),
            })?;
            let group = pid(&child)?;
            running.group = Some(group);
            (child, group)
        };
        let ended = self.wait(group);
        // What it started goes with it, in whichever way it ended. Its own number is not free yet.
        kill(group);
        self.running().group = None;
        let status = child.wait()?;
        if let Some(stopped) = ended? {
            return Ok(CommandEnd::Stopped(stopped));
        }
        host.map_or(Ok(()), HostEnd::failure)?;
        Ok(CommandEnd::Exited(status))
    }

    /// Waits until the process has exited, and leaves its number to it; or until it has to be stopped.
    fn wait(&self, process: Pid) -> io::Result<Option<Stopped>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            // Asked first: a process that was killed because of it has exited, too.
            let stopped = self.stopped();
            if stopped.is_some() {
                return Ok(stopped);
            }
            match waitid(WaitId::Pid(process), options) {
                Ok(Some(_)) => return Ok(self.stopped()),
                Ok(None) => sleep(POLL_INTERVAL),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        let running = &self.shared.running;
        running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

fn pid(child: &Child) -> io::Result<Pid> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    id.ok_or_else(|| io::Error::other("a process has a number that is none"))
}

fn kill(group: Pid) {
    // It may be empty already.
    let _ = kill_process_group(group, Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::test_kill_process;
    use std::fs;
    use std::path::Path;
    use std::thread;

    /// A shell that writes its child's number into a file, and waits for the child.
    fn forking(folder: &Path) -> Command {
        let mut command = Command::new("sh");
        command.current_dir(folder).args([
            "-c",
            "sleep 600 & echo $! > started; mv started child; wait",
        ]);
        command
    }

    fn run(control: &BuildControl, command: &mut Command) -> CommandEnd {
        let end = control.run(command, Stdio::null(), Stdio::null());
        end.unwrap()
    }

    fn child(folder: &Path) -> Pid {
        for _ in 0..500 {
            if let Ok(text) = fs::read_to_string(folder.join("child")) {
                return Pid::from_raw(text.trim().parse().unwrap()).unwrap();
            }
            sleep(Duration::from_millis(20));
        }
        panic!("the command started nothing");
    }

    fn assert_ended(process: Pid) {
        for _ in 0..500 {
            // One that nothing waited for yet is no process that runs.
            let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
            let is_zombie = stat.is_ok_and(|stat| stat.contains(") Z "));
            if is_zombie || test_kill_process(process).is_err() {
                return;
            }
            sleep(Duration::from_millis(20));
        }
        panic!("the process still runs");
    }

    #[test]
    fn a_deadline_ends_a_command_and_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let control = BuildControl::new(Duration::from_millis(1_500));
        let begun = Instant::now();
        let end = run(&control, &mut forking(folder.path()));
        assert!(matches!(end, CommandEnd::Stopped(Stopped::Deadline { .. })));
        assert!(begun.elapsed() < Duration::from_mins(1));
        assert_ended(child(folder.path()));
    }

    #[test]
    fn cancelling_ends_a_command_and_what_it_started_and_lets_none_start() {
        let folder = tempfile::tempdir().unwrap();
        let control = BuildControl::new(DEFAULT_BUILD_TIMEOUT);
        let running = thread::spawn({
            let (control, mut command) = (control.clone(), forking(folder.path()));
            move || run(&control, &mut command)
        });
        let child = child(folder.path());
        drop(control.cancel_on_drop());
        assert_ended(child);
        let end = running.join().unwrap();
        assert!(matches!(end, CommandEnd::Stopped(Stopped::Cancelled)));
        let end = run(&control, &mut Command::new("toolhold-no-such-program"));
        assert!(matches!(end, CommandEnd::Stopped(Stopped::Cancelled)));
    }

    #[test]
    fn what_a_command_leaves_behind_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command
            .current_dir(folder.path())
            .args(["-c", "sleep 600 & echo $! > child; exit 3"]);
        let end = run(&BuildControl::new(DEFAULT_BUILD_TIMEOUT), &mut command);
        assert!(matches!(end, CommandEnd::Exited(status) if status.code() == Some(3)));
        assert_ended(child(folder.path()));
    }
}
