//! `cargo xtask quickstart`: from a fresh clone to a task that a real model solves by calling Wasm
//! components, in one command.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use crate::local_model::{self, Choice, LocalModel};
use crate::project::{self, Beside, Profile};
use crate::{interrupt, narrate};

/// Needs two modules, text and calculator: a model can neither count letters nor multiply nine digits.
const TASK: &str = "How many r are in 'refrigerator'? What is 123456789 * 987654321?";

/// Minutes that the build takes on two cores where nothing was compiled before. Measured by hand, and told by the README, too.
const MINUTES: u32 = 9;

#[derive(Args, Debug)]
pub struct QuickstartArguments {
    /// Task of the model
    #[arg(default_value = TASK)]
    task: String,
    /// URL of an OpenAI-compatible endpoint to use instead of a local model, e.g. http://gpu:8000/v1
    #[arg(long)]
    base_url: Option<String>,
    /// Name of the model at that endpoint
    #[arg(long, requires = "base_url")]
    model: Option<String>,
}

pub fn run(arguments: &QuickstartArguments) -> Result<ExitCode> {
    let model = Choice::Smaller.model()?;
    narrate::line(&format!(
        "building toolhold; the first time this compiles the Wasm engine and some 400 crates, {MINUTES} minutes on two cores"
    ));
    let fetching = needs_a_model(arguments).then(|| local_model::fetch_meanwhile(model));
    let toolhold = project::build_toolhold(Profile::Dev, Beside::Nothing)?;
    if let Some(fetching) = fetching {
        // A failure was told, and the start of the model tries again.
        drop(fetching.join());
    }
    let mut run = Command::new(&toolhold);
    run.current_dir(project::root())
        .arg("run")
        .arg(&arguments.task)
        // The modules and the host are from the same checkout: a module that a `git pull` changed
        // needs no pin here.
        .arg("--trust-all");

    let local = if endpoint_is_given(arguments) || endpoint_is_configured(&toolhold) {
        // Environment and configuration file reach toolhold as they are.
        run.args(flag("--base-url", arguments.base_url.as_deref()));
        run.args(flag("--model", arguments.model.as_deref()));
        None
    } else {
        narrate::line(
            "no endpoint is configured: a small real model will run on this machine's CPU",
        );
        let local = LocalModel::borrow_or_start(model)?;
        run.args(["--base-url", &local.base_url, "--model", local.name]);
        // A model of this size fails at native tool calls and succeeds with grammar-bound JSON.
        run.args(["--contract", "schema", "--max-tokens", "400"]);
        // If reasons are required, the model copies those of the examples.
        run.env("TOOLHOLD_RUN__REASONS", "false");
        if arguments.task == TASK {
            // Fewer tools confuse the model less. A task of the user's own may need any of them.
            run.args(["--tools", "calculator,text"]);
        }
        Some(local)
    };

    narrate::line(&format!("toolhold run \"{}\"", arguments.task));
    let status = project::run(&mut run)?;
    let was_local = local.is_some();
    drop(local);
    if !interrupt::happened() {
        narrate::block(&next_steps(&toolhold, was_local));
    }
    Ok(project::exit_code(status))
}

fn endpoint_is_given(arguments: &QuickstartArguments) -> bool {
    arguments.base_url.is_some()
        || env::var_os("TOOLHOLD_BASE_URL").is_some_and(|url| !url.is_empty())
}

/// Whether the local model will probably be used: no endpoint is given, and the user has no configuration, which may
/// name one. `toolhold` itself, which knows, is not built yet.
fn needs_a_model(arguments: &QuickstartArguments) -> bool {
    let configuration = env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".config")))
        .map(|folder| folder.join("toolhold"));
    !endpoint_is_given(arguments)
        && env::var_os("TOOLHOLD_ENDPOINT").is_none()
        && !project::root().join("toolhold.toml").exists()
        && !configuration.is_some_and(|folder| folder.exists())
}

/// Asks toolhold itself, because only it knows the origins of its configuration. The following run reports an
/// unreadable configuration.
fn endpoint_is_configured(toolhold: &Path) -> bool {
    let output = Command::new(toolhold)
        .args(["config", "--json"])
        .current_dir(project::root())
        .stdin(Stdio::null())
        .output();
    output.is_ok_and(|output| names_an_endpoint(&output.stdout))
}

fn names_an_endpoint(config: &[u8]) -> bool {
    let Ok(Value::Array(entries)) = serde_json::from_slice(config) else {
        return false;
    };
    let setting = |key: &str| entries.iter().find(|entry| entry["key"] == key);
    let selected = setting("endpoint").and_then(|entry| entry["value"].as_str());
    let base_url = format!("endpoints.{}.base_url", selected.unwrap_or("default"));
    setting(&base_url).is_some_and(|entry| entry["origin"] != "default")
}

fn flag<'a>(name: &'a str, value: Option<&'a str>) -> impl Iterator<Item = &'a str> {
    value.into_iter().flat_map(move |value| [name, value])
}

fn next_steps(toolhold: &Path, was_local: bool) -> String {
    let toolhold = toolhold.display();
    let keep = if was_local {
        "
Keep the local model running for more tasks, or serve the one that errs less (1.1 GB):
  cargo xtask local-model start --model 1.5b      (prints its base URL; ends with: local-model stop)
"
    } else {
        ""
    };
    format!(
        "
Point Toolhold at a GPU endpoint: vLLM, SGLang, llama.cpp, anything OpenAI-compatible:
  vllm serve Qwen/Qwen3-32B                       (on the GPU machine; listens on port 8000)
  export TOOLHOLD_API_KEY=...                     (if the endpoint wants a key)
  {toolhold} run \"...\" --base-url http://gpu-machine:8000/v1 --model Qwen/Qwen3-32B
{keep}
See a recorded exchange of a real model replayed against the live sandbox:
  {toolhold} demo"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_configured_endpoint_counts() {
        let from = |selected: &str, origin: &str| {
            let config = serde_json::json!([
                { "key": "endpoint", "value": selected, "origin": "default" },
                { "key": "endpoints.default.base_url", "value": "http://x/v1", "origin": origin },
            ]);
            names_an_endpoint(config.to_string().as_bytes())
        };
        assert!(from("default", "file toolhold.toml"));
        assert!(!from("default", "default"));
        assert!(!from("gpu", "file toolhold.toml"));
        assert!(!names_an_endpoint(b"error: no such key"));
    }

    #[test]
    fn the_readme_tells_the_same_minutes() {
        let readme = std::fs::read_to_string(project::root().join("README.md")).unwrap();
        let told = format!("the first took {MINUTES} minutes (");
        assert!(readme.contains(&told), "{told}");
    }

    #[test]
    fn a_flag_is_given_only_with_a_value() {
        assert_eq!(
            flag("--model", Some("m")).collect::<Vec<_>>(),
            ["--model", "m"]
        );
        assert_eq!(flag("--model", None).count(), 0);
    }
}
