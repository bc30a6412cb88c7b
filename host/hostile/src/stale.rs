//! Row 81: reads of a model beside writes, which it repeats word for word.

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::runs::{RunClient, until};
use crate::scripted::{ScriptedModel, native};
use crate::serving::Served;
use serde_json::{Value, json};
use std::future::ready;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 81,
    name: "reads_after_writes",
    attack: "a model reads a value again and again, and between that writes it: itself, and by a module's nested call",
    must: "each read after a write is made, and the model is shown what is there; reads without a write are intercepted",
    company: Company::Others,
    tries: |lab| Box::pin(ready(reads_after_writes(lab))),
}];

const RECALL: &str = "probe.recall";
const REMEMBER: &str = "probe.remember";
/// The key of the value.
const KEY: &str = "kept";

fn read() -> (&'static str, Value) {
    (RECALL, json!({"key": KEY}))
}

fn write(value: &str) -> (&'static str, Value) {
    (REMEMBER, json!({"key": KEY, "value": value}))
}

/// A call of the module that has it write by a call of its own.
fn nested(value: &str) -> (&'static str, Value) {
    let (tool, arguments) = write(value);
    ("probe.ask", json!({"tool": tool, "arguments": arguments}))
}

/// Results of the reads of a run in their order, and the number of reads that were not made.
fn reads(client: RunClient<'_>, run: &str) -> Result<(Vec<Value>, usize), AttackFailure> {
    client.until_over(run)?;
    let events = client.events(run)?;
    let results = events
        .iter()
        .filter(|event| event["event"] == "tool_result" && event["tool"] == RECALL);
    let (made, refused): (Vec<&Value>, Vec<&Value>) =
        results.partition(|result| result["error"].is_null());
    let made = made.iter().map(|result| result["output"].clone());
    Ok((made.collect(), refused.len()))
}

fn reads_after_writes(lab: &Lab) -> Result<String, AttackFailure> {
    let model = ScriptedModel::start("done")?;
    let folder = CommandFolder::new(lab)?;
    folder.write("modules/probe.wasm", components::PROBE)?;
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"tools\"\n\
             [fallback]\nenabled = false\n[modules]\npinning = \"never\"\n[decisions]\ndefault = \"never\"\n\
             [run]\nmax_steps = 40\n[serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n\
             [module.probe]\nkey_value = {{}}\ntools = [\"probe\"]\n",
            model.port
        ),
    )?;
    let served = Served::start(
        &folder,
        &["--config", "host.toml", "serve", "--listen", "127.0.0.1:0"],
    )?;
    until("a server that is ready", || {
        let ready = served.ask("GET", "/readyz", &[], "")?;
        Ok((ready.status == 200).then_some(()))
    })?;
    let client = RunClient {
        served: &served,
        key: None,
    };
    let told = |calls: &[Vec<(&str, Value)>]| -> Result<(Vec<Value>, usize), AttackFailure> {
        model.say(calls.iter().map(|calls| native(calls)));
        let known = client.runs()?;
        let task = json!({"messages": [{"role": "user", "content": "Keep a value."}]});
        client.ask("POST", "/v1/agent", &task)?;
        let run = client.runs()?.into_iter().find(|run| !known.contains(run));
        let run = run.ok_or_else(|| AttackFailure::Broke("no run began".into()))?;
        reads(client, &run)
    };

    let (made, refused) = told(&[
        vec![write("one")],
        vec![read()],
        vec![read()],
        vec![write("two")],
        vec![read()],
        vec![nested("three")],
        vec![read()],
        vec![read()],
        vec![write("four")],
        vec![read()],
    ])?;
    let expected: Vec<Value> = ["one", "one", "two", "three", "three", "four"]
        .map(Value::from)
        .into();
    ensure(made == expected && refused == 0, || {
        format!("reads returned {made:?}, {refused} were not made; what was there: {expected:?}")
    })?;
    // The model was shown the last value, in a result of its own.
    let shown = model.prompts().pop().unwrap_or_default();
    ensure(shown.contains("four"), || {
        format!("the model was not shown the last value: {shown:.300}")
    })?;

    // Without a write they are intercepted, or the counts are no counts.
    let again = vec![vec![read()]; 5];
    let (made, refused) = told(&again)?;
    ensure(!made.is_empty() && refused > 0, || {
        format!(
            "five equal reads: {} made, {refused} intercepted",
            made.len()
        )
    })?;
    Ok(format!(
        "{} reads made as they must, {refused} of 5 without a write intercepted",
        expected.len()
    ))
}
