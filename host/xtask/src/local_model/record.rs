//! Records of the detached servers that this program started. Process ids are reused, so a record also has a
//! token that is on the server's command line; a process without it is never ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{Model, health, home};

/// Time for a server to end after SIGTERM; it has nothing to save.
const EXIT_GRACE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Record {
    pub model: String,
    pub pid: u32,
    pub port: u16,
    pub token: String,
}

pub fn base_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/v1")
}

/// The record of a model's server, if its process is still there.
pub fn find(model: &Model) -> Result<Option<Record>> {
    let path = path(model)?;
    let Ok(text) = fs::read(&path) else {
        return Ok(None);
    };
    let record: Option<Record> = serde_json::from_slice(&text).ok();
    let alive = record.filter(Record::is_ours);
    if alive.is_none() {
        // Left over from a process that ended by itself.
        fs::remove_file(&path).with_context(|| format!("could not remove {}", path.display()))?;
    }
    Ok(alive)
}

fn path(model: &Model) -> Result<PathBuf> {
    Ok(home::subfolder("run")?.join(format!("{}.json", model.name)))
}

impl Record {
    pub fn write(&self, model: &Model) -> Result<()> {
        let path = path(model)?;
        // Written atomically: a partial record would be taken for a stale one and removed.
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)
            .and_then(|()| fs::rename(&new, &path))
            .with_context(|| format!("could not write {}", path.display()))
    }

    pub fn base_url(&self) -> String {
        base_url(self.port)
    }

    pub fn answers(&self) -> bool {
        self.is_ours() && health::healthy(self.port)
    }

    pub fn is_ours(&self) -> bool {
        command_line(self.pid).is_some_and(|line| line.contains(&self.token))
    }

    /// Ends the process and forgets it.
    pub fn stop(&self, model: &Model) -> Result<()> {
        for signal in ["TERM", "KILL"] {
            let until = Instant::now() + EXIT_GRACE;
            if self.is_ours() {
                send(signal, self.pid)?;
            }
            while self.is_ours() && Instant::now() < until {
                sleep(Duration::from_millis(50));
            }
        }
        if self.is_ours() {
            bail!("process {} does not end; end it by hand", self.pid);
        }
        let path = path(model)?;
        fs::remove_file(&path).with_context(|| format!("could not remove {}", path.display()))
    }
}

/// The shell's own `kill`: the program of that name is missing in slim images, and the standard
/// library can only signal its own children.
fn send(signal: &str, pid: u32) -> Result<()> {
    let status = Command::new("sh")
        .args(["-c", "kill -\"$1\" \"$2\"", "sh", signal, &pid.to_string()])
        .stderr(Stdio::null())
        .status()
        .context("could not run sh to stop the server")?;
    // It may have ended between the look and the signal; the caller looks again.
    if !status.success() && command_line(pid).is_some() {
        bail!("could not send {signal} to process {pid}: is it another user's?");
    }
    Ok(())
}

/// Without /proc (macOS), `ps` is always available.
fn command_line(pid: u32) -> Option<String> {
    let bytes = if Path::new("/proc/self/cmdline").exists() {
        fs::read(format!("/proc/{pid}/cmdline")).ok()?
    } else {
        let ps = Command::new("ps")
            .args(["-ww", "-o", "args=", "-p", &pid.to_string()])
            .output()
            .ok()?;
        ps.stdout
    };
    // A zombie's is empty: it has ended.
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pid: u32, token: &str) -> Record {
        Record {
            model: "m".into(),
            pid,
            port: 1,
            token: token.into(),
        }
    }

    #[test]
    fn a_process_is_ours_only_with_the_token() {
        let mut other = Command::new("sleep").arg("30.0625").spawn().unwrap();
        while !record(other.id(), "30.0625").is_ours() {
            sleep(Duration::from_millis(1));
        }
        assert!(!record(other.id(), "toolhold-0").is_ours());
        send("KILL", other.id()).unwrap();
        other.wait().unwrap();
        assert!(!record(other.id(), "30.0625").is_ours());
    }
}
