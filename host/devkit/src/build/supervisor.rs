//! Ends a build whose host was killed, which could not end it itself.
//!
//! A command runs under a process of the host's own executable ([`supervise`] is its whole `main`), which leads the
//! command's process group and reads a socket that only the host holds. Its end is the end of the group, as
//! long as the command runs. The supervisor is in the group, so that the group's number is nobody else's.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use rustix::io::Errno;
use rustix::process::{Signal, getpgrp, getpid, kill_current_process_group, kill_process};

/// How to start a process whose `main` is [`supervise`].
#[derive(Debug, Clone)]
pub struct Supervisor {
    pub program: PathBuf,
    /// What comes before the command that it runs.
    pub arguments: Vec<OsString>,
}

/// The host's end of the socket. The supervisor lives no longer than it.
#[derive(Debug)]
pub(super) struct HostEnd(UnixStream);

/// The exit code of a supervisor that could not do its work; the socket says why.
const FAILED: u8 = 127;

impl Supervisor {
    /// The same command under a new supervisor. What it prints has to be set anew.
    pub(super) fn command(&self, of: &Command) -> io::Result<(Command, HostEnd)> {
        let (own, theirs) = UnixStream::pair()?;
        own.set_nonblocking(true)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .arg(of.get_program())
            .args(of.get_args())
            .stdin(OwnedFd::from(theirs));
        for (name, value) in of.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = of.get_current_dir() {
            command.current_dir(folder);
        }
        Ok((command, HostEnd(own)))
    }
}

impl HostEnd {
    /// Why the command could not be started, once its supervisor has ended.
    pub(super) fn failure(mut self) -> io::Result<()> {
        let mut number = [0; size_of::<i32>()];
        match self.0.read_exact(&mut number) {
            Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number))),
            Err(_) => Ok(()),
        }
    }
}

/// The supervisor's process: runs the command to its end, and ends as it did; or ends all of its group when the host is
/// gone.
///
/// # Errors
/// It was not started by the host. What the caller should print to stderr before it exits with a failure.
pub fn supervise(command: &[OsString]) -> Result<u8, String> {
    const FOREIGN: &str =
        "this command is the host's own supervisor of builds; it is not for people";
    let [program, arguments @ ..] = command else {
        return Err(FOREIGN.into());
    };
    // Else the group would be another program's.
    if getpgrp() != getpid() {
        return Err(FOREIGN.into());
    }
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    let mut host = UnixStream::from(stdin.map_err(|error| error.to_string())?);
    host.peer_addr().map_err(|_| FOREIGN)?;
    match run(program, arguments, &host) {
        Ok(status) => Ok(ended_as(status)),
        Err(error) => {
            let unknown = Errno::IO.raw_os_error();
            let number = error.raw_os_error().unwrap_or(unknown);
            // A host that is gone hears nothing.
            let _ = host.write_all(&number.to_ne_bytes());
            Ok(FAILED)
        }
    }
}

fn run(program: &OsStr, arguments: &[OsString], host: &UnixStream) -> io::Result<ExitStatus> {
    let watched = host.try_clone()?;
    // Before there is a command that it would have to end.
    thread::Builder::new().spawn(move || end_with(watched))?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .status()
}

/// Ends the group, and this process with it, when the host's end of the socket is closed. The host writes nothing.
fn end_with(mut host: UnixStream) {
    while let Err(error) = host.read(&mut [0]) {
        if error.kind() != ErrorKind::Interrupted {
            break;
        }
    }
    let _ = kill_current_process_group(Signal::KILL);
}

/// The exit code; a signal that ended the command ends this process, too.
fn ended_as(status: ExitStatus) -> u8 {
    if let Some(signal) = status.signal().and_then(Signal::from_named_raw) {
        let _ = kill_process(getpid(), signal);
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.unwrap_or(FAILED)
}
