//! Servers that misbehave, called as the loop calls them.

mod calls;
mod http;
mod life;
mod trust;

use crate::error::Failure;
use crate::pin::{Pinning, ServerPins};
use crate::server::McpServer;
use crate::settings::{Launch, ServerSettings};
use crate::tool::McpTool;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use toolhold_agent::{Activity as _, ToolCall};
use toolhold_policy::ErrorClass;
use toolhold_policy::{EarlierPinDecision, Pin, PinState, PinStore, PinWriteError};
use toolhold_protocol::failure::ToolFailure;

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/mcp_server.py"
);
const TOOLS: [&str; 15] = [
    "echo", "add", "liar", "fail", "refuse", "hang", "huge", "die", "endless", "env", "flood",
    "paint", "several", "ask", "change",
];

/// A variable that cargo sets, and as secret as any.
const SECRET: &str = "CARGO_MANIFEST_DIR";

/// Pins in memory. `None` is one that cannot be read.
#[derive(Debug, Default)]
struct Memory(Mutex<BTreeMap<String, Option<Pin>>>);

impl PinStore for Memory {
    fn get(&self, slot: &str) -> Option<Pin> {
        self.0.lock().unwrap().get(slot).cloned().flatten()
    }

    fn replace(&self, before: Option<&Pin>, pin: &Pin) -> Result<(), PinWriteError> {
        let mut pins = self.0.lock().unwrap();
        let now = pins.get(&pin.slot).and_then(Option::as_ref);
        if now != before {
            let decision = EarlierPinDecision::of(now);
            return Err(PinWriteError::Decided(decision));
        }
        pins.insert(pin.slot.clone(), Some(pin.clone()));
        Ok(())
    }

    fn revoke(&self, slot: &str) -> io::Result<()> {
        let pin = Pin::revoked(slot);
        self.0.lock().unwrap().insert(slot.to_owned(), Some(pin));
        Ok(())
    }

    fn knows(&self, module: &str) -> bool {
        self.0.lock().unwrap().contains_key(module)
    }
}

/// A server's log and pins.
struct McpFixture {
    folder: TempDir,
    pins: Arc<Memory>,
    settings: ServerSettings,
}

impl McpFixture {
    fn new(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log").display().to_string();
        let command = ["python3", SCRIPT, "--log", &log];
        let settings = ServerSettings {
            name: "s".into(),
            launch: Launch::Command {
                command: command
                    .iter()
                    .chain(flags)
                    .map(ToString::to_string)
                    .collect(),
                env: BTreeMap::from([("GIVEN".to_owned(), "yes".to_owned())]),
                secret_env: Vec::new(),
            },
            secrets: Ok(Vec::new()),
            timeout: Duration::from_secs(20),
            max_result_bytes: 100_000,
            tools: TOOLS.map(str::to_owned).to_vec(),
            offer: true,
            found: false,
            fault: None,
        };
        Self {
            folder,
            pins: Arc::default(),
            settings,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut ServerSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    fn server(&self, pinning: Pinning) -> Arc<McpServer> {
        let pins = ServerPins::new(self.pins.clone(), pinning);
        let mut settings = self.settings.clone();
        settings.secrets = settings.launch.secrets(|name| std::env::var(name).ok());
        Arc::new(McpServer::new(settings, pins))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn starts(&self) -> usize {
        self.log()
            .lines()
            .filter(|line| line.starts_with("start"))
            .count()
    }

    /// Waits until the server wrote `line`.
    async fn logged(&self, line: &str) {
        eventually(|| self.log().lines().any(|own| own.starts_with(line))).await;
    }
}

async fn eventually(mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(10), "it never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn call_for(
    server: &Arc<McpServer>,
    tool: &str,
    arguments: Value,
    timeout: Duration,
) -> Result<Value, ToolFailure> {
    let runner = McpTool {
        server: server.clone(),
        name: tool.into(),
        is_withheld: false,
    };
    let call = ToolCall {
        timeout,
        ..ToolCall::new("c", format!("s.{tool}"), arguments)
    };
    runner.call(&call).await.outcome.map(|output| output.value)
}

async fn call(server: &Arc<McpServer>, tool: &str, arguments: Value) -> Result<Value, ToolFailure> {
    call_for(server, tool, arguments, Duration::from_secs(20)).await
}
