//! The measured server, as a process of its own.

use crate::endpoint::LoadEndpoint;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use toolhold_hostile::processor_time_of;

pub struct ServerProcess {
    child: Child,
    address: String,
    folder: TempDir,
}

/// Configuration without limits that the load would reach.
const CONFIGURATION: &str = "
[endpoints.default]
concurrent_requests = 4096
[agents.load]
[run]
reasons = false
[modules]
concurrent_calls = 1024
waiting_calls = 65536
[limits]
concurrent_calls = 256
calls_per_minute = 0
[serve]
concurrent_runs = 4096
key_concurrent_runs = 4096
waiting_runs = 65536
key_requests_per_minute = 0
";

impl ServerProcess {
    /// With the calculator of the modules folder as its only module.
    pub fn start(binary: &str, modules: &str, endpoint: &LoadEndpoint) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let module = folder.path().join("modules/calculator");
        std::fs::create_dir_all(&module)?;
        for file in ["module.toml", "calculator.wasm"] {
            let from = Path::new(modules).join("calculator").join(file);
            std::fs::copy(&from, module.join(file))
                .with_context(|| format!("{} cannot be copied", from.display()))?;
        }
        let binary =
            std::fs::canonicalize(binary).with_context(|| format!("{binary} is missing"))?;
        std::fs::write(folder.path().join("load.toml"), CONFIGURATION)?;
        let mut child = Command::new(binary)
            .args([
                "--config",
                "load.toml",
                "serve",
                "--trust-all",
                "--listen",
                "127.0.0.1:0",
                "--model",
                "m",
            ])
            .args(["--base-url", &endpoint.base_url()])
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .env("TOOLHOLD_PATHS__STATE", folder.path().join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stderr.take().context("a pipe")?);
        let mut line = String::new();
        let address = loop {
            line.clear();
            ensure!(lines.read_line(&mut line)? > 0, "the server ended");
            if let Some((_, rest)) = line.split_once("http://") {
                let host = rest.split('/').next().unwrap_or_default();
                break format!("http://{host}");
            }
        };
        // An unread pipe would block the server.
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                println!("  server: {line}");
            }
        });
        Ok(Self {
            child,
            address,
            folder,
        })
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    pub async fn post(&self, client: &reqwest::Client, path: &str, body: &Value) -> Result<Value> {
        let answer = json(client.post(self.url(path)), body).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.is_success(), "{status}: {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// Processor time that it has used so far.
    pub fn processor_time(&self) -> Result<Duration> {
        processor_time_of(self.child.id()).context("the server ended")
    }

    /// Resident bytes.
    pub fn memory(&self) -> Result<u64> {
        memory(self.child.id())
    }

    /// Bytes of the database's file and of its write-ahead log.
    pub fn database_bytes(&self) -> Result<u64> {
        let file = |name: &str| self.folder.path().join("state").join(name);
        let log = std::fs::metadata(file("toolhold.db-wal")).map_or(0, |it| it.len());
        Ok(std::fs::metadata(file("toolhold.db"))?.len() + log)
    }

    /// Samples the memory from now on.
    pub fn peak_memory(&self) -> Peak {
        let (bytes, is_over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (most, end, process) = (bytes.clone(), is_over.clone(), self.child.id());
        std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                most.fetch_max(memory(process).unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Peak { bytes, is_over }
    }
}

/// A request with this body.
pub fn json(request: reqwest::RequestBuilder, body: &Value) -> reqwest::RequestBuilder {
    request
        .header("content-type", "application/json")
        .body(body.to_string())
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Peak {
    bytes: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Peak {
    pub fn read(self) -> Result<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed);
        ensure!(bytes > 0, "the memory of the server cannot be read");
        Ok(bytes)
    }
}

fn memory(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kib.context("no VmRSS")? << 10)
}
