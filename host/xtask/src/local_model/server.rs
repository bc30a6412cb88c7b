//! The server process: `local_model/serve.py` in the cached environment.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::record::{self, Record};
use super::{InstalledModel, health, home};
use crate::narrate::{self, Narration};
use crate::{interrupt, project};

/// Preferred port of `local-model start`, so that the address is usually the same.
const USUAL_PORT: u16 = 18_080;
/// Longest time to load the model: one or two seconds from the page cache, more from a cold, busy disk.
const START_TIMEOUT: Duration = Duration::from_mins(3);
/// How long an owned server may take to end after its lifeline is cut.
const EXIT_GRACE: Duration = Duration::from_secs(5);
/// Enough of the log to hold llama.cpp's reason.
const LOG_LINES: usize = 20;

/// A server that ends when this is dropped, or when this process ends.
#[derive(Debug)]
pub struct LocalServer {
    port: u16,
    child: Child,
}

/// A free port: the wanted one if possible.
pub fn free_port(wanted: Option<u16>) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted.unwrap_or(0))).with_context(
        || match wanted {
            Some(port) => format!("port {port} is taken: choose another with --port"),
            None => "no free port on 127.0.0.1".to_owned(),
        },
    )?;
    Ok(listener
        .local_addr()
        .context("the port has no number")?
        .port())
}

pub fn usual_port() -> Result<u16> {
    free_port(Some(USUAL_PORT)).or_else(|_| free_port(None))
}

impl LocalServer {
    pub fn start_owned(installed: &InstalledModel, port: u16) -> Result<Self> {
        let (mut command, log) = command(installed, port, &token())?;
        // The pipe is the lifeline: the system closes it however this process ends.
        command.arg("--lifeline").stdin(Stdio::piped());
        let child = spawn(&mut command)?;
        let mut server = Self { port, child };
        wait_until_healthy(installed, &mut server.child, port, &log)?;
        Ok(server)
    }

    pub fn base_url(&self) -> String {
        record::base_url(self.port)
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        end(&mut self.child);
    }
}

/// Waits for a process that was asked to end, then kills it.
fn end(child: &mut Child) {
    let until = Instant::now() + EXIT_GRACE;
    while Instant::now() < until {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    if child.kill().and_then(|()| child.wait()).is_err() {
        narrate::line(&format!(
            "the model server, process {}, could not be ended",
            child.id()
        ));
    }
}

/// Starts a server that outlives this process.
pub fn start_detached(installed: &InstalledModel, port: u16) -> Result<Record> {
    let token = token();
    let (mut command, log) = command(installed, port, &token)?;
    let mut child = spawn(command.stdin(Stdio::null()))?;
    let record = Record {
        model: installed.model.name.clone(),
        pid: child.id(),
        port,
        token,
    };
    let started = await_command_line(&record, &mut child)
        .and_then(|()| record.write(installed.model))
        .and_then(|()| wait_until_healthy(installed, &mut child, port, &log));
    if let Err(error) = started {
        record
            .stop(installed.model)
            .unwrap_or_else(|_| end(&mut child));
        return Err(error);
    }
    Ok(record)
}

/// Waits until the started process has a command line. Until then, another command would take its record
/// for a stale one.
fn await_command_line(record: &Record, child: &mut Child) -> Result<()> {
    while !record.is_ours() {
        if let Some(status) = child
            .try_wait()
            .context("could not look at the model server")?
        {
            bail!("the model server ended at once ({status})");
        }
        sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn command(installed: &InstalledModel, port: u16, token: &str) -> Result<(Command, PathBuf)> {
    let log = home::subfolder("run")?.join(format!("{}-{port}.log", installed.model.name));
    let output =
        File::create(&log).with_context(|| format!("could not write {}", log.display()))?;
    let errors = output.try_clone().context("could not share the log")?;
    let mut command = Command::new(&installed.python);
    command
        .arg(project::xtask_folder().join("local_model/serve.py"))
        .arg("--model")
        .arg(&installed.weights)
        .args([
            "--alias",
            &installed.model.name,
            "--port",
            &port.to_string(),
            "--token",
            token,
        ])
        // Threads sleep at OpenMP barriers; spinning, the default, is 8 times slower beside a build.
        .env("OMP_WAIT_POLICY", "passive")
        .stdout(output)
        .stderr(errors)
        // Its own process group: Ctrl-C in the terminal interrupts the run, which may still need the model to
        // finish.
        .process_group(0);
    Ok((command, log))
}

fn spawn(command: &mut Command) -> Result<Child> {
    command
        .spawn()
        .with_context(|| format!("could not run {command:?}"))
}

/// A token that is unique per start on this machine; `record` needs no more.
fn token() -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("toolhold-{}-{}", std::process::id(), now.as_nanos())
}

fn wait_until_healthy(
    installed: &InstalledModel,
    child: &mut Child,
    port: u16,
    log: &Path,
) -> Result<()> {
    let begin = Instant::now();
    let name = &installed.model.name;
    let spinner = narrate::spinner(
        &format!("starting {name} on 127.0.0.1:{port}"),
        Narration::Drawn,
    );
    while !health::healthy(port) {
        if interrupt::happened() {
            bail!("interrupted while the model was loading");
        }
        if let Some(status) = child
            .try_wait()
            .context("could not look at the model server")?
        {
            bail!(
                "the model server ended while starting ({status}); its log ends:\n{}",
                tail(log)
            );
        }
        if begin.elapsed() > START_TIMEOUT {
            bail!(
                "the model server was not ready after {} s; its log ends:\n{}",
                START_TIMEOUT.as_secs(),
                tail(log)
            );
        }
        sleep(Duration::from_millis(100));
    }
    spinner.finish_and_clear();
    narrate::line(&format!(
        "{} answers after {:.1} s",
        installed.model.name,
        begin.elapsed().as_secs_f32()
    ));
    Ok(())
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_refused_by_its_number() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let refused = free_port(Some(port)).unwrap_err().to_string();
        assert!(
            refused.contains(&port.to_string()) && refused.contains("--port"),
            "{refused}"
        );
        assert_ne!(free_port(None).unwrap(), port);
    }

    #[test]
    fn tail_keeps_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let lines: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        fs::write(&log, lines.join("\n")).unwrap();
        assert!(tail(&log).starts_with("80\n") && tail(&log).ends_with("\n99"));
        assert_eq!(tail(&folder.path().join("none")), "");
    }
}
