//! Uses every import of the tool world, so that the host's tests can see what each grant gives.

use schemars::JsonSchema;
use serde::Deserialize;
use std::fs;
use std::time::{Instant, SystemTime};
use toolhold_guest::{Error, Tool, Value, current_call, json, key_value, log, other_tools};

toolhold_guest::export!(tools);

fn tools() -> Vec<Tool> {
    vec![
        Tool::new("remember", "Keeps a value.", remember),
        Tool::new("recall", "Reads a value.", recall),
        Tool::new("ask", "Calls another tool.", ask),
        Tool::new("write", "Writes a file.", write),
        Tool::new("read", "Reads a file.", read),
        Tool::new("churn", "Writes and reads a file again and again.", churn),
        Tool::new("draw", "Draws a random number and reads the clocks.", draw),
        Tool::new("say", "Logs a line at every level.", say),
        Tool::new("reflect", "Says what it is told of its own call.", reflect),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: String,
    value: String,
}

fn remember(entry: Entry) -> Result<Value, Error> {
    key_value::set(&entry.key, entry.value.as_bytes()).map_err(failed)?;
    Ok(json!(key_value::keys("").map_err(failed)?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Name {
    key: String,
}

fn recall(name: Name) -> Result<Value, Error> {
    let value = key_value::get(&name.key).map_err(failed)?;
    Ok(json!(
        value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    ))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Question {
    tool: String,
    arguments: Value,
}

fn ask(question: Question) -> Result<Value, Error> {
    let arguments = question.arguments.to_string();
    let answer = other_tools::call(&question.tool, &arguments)
        .map_err(|error| Error::correctable(error.message))?;
    serde_json_value(&answer)
}

fn serde_json_value(text: &str) -> Result<Value, Error> {
    text.parse().map_err(failed)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    path: String,
    #[serde(default)]
    bytes: usize,
    #[serde(default)]
    times: usize,
}

fn write(file: File) -> Result<Value, Error> {
    fs::write(&file.path, vec![b'x'; file.bytes]).map_err(failed)?;
    Ok(json!(file.bytes))
}

fn read(file: File) -> Result<Value, Error> {
    Ok(json!(fs::read(&file.path).map_err(failed)?.len()))
}

fn churn(file: File) -> Result<Value, Error> {
    for _ in 0..file.times {
        fs::write(&file.path, vec![b'x'; file.bytes]).map_err(failed)?;
        fs::read(&file.path).map_err(failed)?;
    }
    Ok(json!(file.times))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn draw(_: Nothing) -> Result<Value, Error> {
    // `RandomState` is seeded from the host's random numbers.
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 1);
    let wall = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_err(failed)?;
    let start = Instant::now();
    let mut step = start.elapsed();
    while step.is_zero() {
        step = start.elapsed();
    }
    Ok(json!({
        "random": random.to_string(),
        "wall_us": wall.as_micros() as u64,
        "step_us": step.as_micros() as u64,
    }))
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of every tool")]
fn say(_: Nothing) -> Result<Value, Error> {
    for (level, text) in [
        (log::Level::Debug, "debug"),
        (log::Level::Info, "info"),
        (log::Level::Warn, "warn"),
    ] {
        log::write(level, text);
    }
    Ok(Value::Null)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Reflect {
    /// How often it asks.
    #[serde(default = "once")]
    times: u32,
}

fn once() -> u32 {
    1
}

fn reflect(reflect: Reflect) -> Result<Value, Error> {
    for _ in 1..reflect.times {
        current_call::tool_schema()?;
    }
    let reserved = current_call::reserved()?;
    Ok(json!({
        "tool": reserved.tool,
        "reason": reserved.reason,
        "instance": reserved.instance,
        "scopes": reserved.scopes,
        "output_path": reserved.output_path,
        "output_method": reserved.output_method,
        "others": reserved.others,
        "schema": current_call::tool_schema()?,
    }))
}

fn failed(error: impl std::fmt::Debug) -> Error {
    Error::correctable(format!("{error:?}"))
}
