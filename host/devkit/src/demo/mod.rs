//! A recorded exchange of a real model, replayed against the live sandbox.
//!
//! Only the model's bytes are recorded. The tools run for real: if a result differed, the next request would
//! differ from the recorded one and the replay would report it, so no recorded tool result is ever shown.
//! `cargo xtask record-demo` renews the recording.

use anyhow::{Context as _, Result};
use std::time::Duration;
use toolhold_protocol::settings::Settings;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::tools::SandboxTools;
use uuid::Uuid;

pub const TASK: &str = "How many r are in 'refrigerator'? What is 123456789 * 987654321?";
pub const RUN: Uuid = Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0001);
pub const RECORDING: &str = include_str!("recording.jsonl");
/// Three times the recorded speed: the model ran on a CPU.
pub const PACE: f64 = 1.0 / 3.0;

const CALCULATOR: &[u8] = include_bytes!("../../../../modules/calculator/calculator.wasm");
const TEXT: &[u8] = include_bytes!("../../../../modules/text/text.wasm");

/// Two of the shipped modules, from inside the binary: the demo works in any folder.
pub async fn toolbox(config: &Configuration) -> Result<SandboxTools> {
    let registry = host::trusting_registry(config)?;
    for (name, component) in [("calculator", CALCULATOR), ("text", TEXT)] {
        registry
            .load_bytes(name, component.to_vec())
            .await
            .with_context(|| format!("module {name}"))?;
    }
    Ok(SandboxTools::new(registry))
}

/// Fixed, because the requests must equal the recorded ones under any configuration.
pub fn settings() -> Settings {
    Settings {
        reasons: false,
        max_tokens: 400,
        timeout: Duration::from_mins(5),
        ..Settings::default()
    }
}

/// The model of the recording.
pub fn recorded_model() -> Result<String> {
    let first = RECORDING.lines().next().context("the recording is empty")?;
    let exchange: serde_json::Value = serde_json::from_str(first)?;
    let model = exchange["request"]["model"].as_str();
    Ok(model.context("the recording names no model")?.to_owned())
}
