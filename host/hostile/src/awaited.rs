//! Row 79: runs that a killed server left, resumed while their modules are not loaded yet.

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::liar::{self, Claim, LiarReply};
use crate::runs::{RunClient, count, until};
use crate::scripted::{RawAnswer, ScriptedModel, native};
use crate::serving::Served;
use serde_json::{Value, json};
use std::future::ready;
use std::time::{Duration, Instant};

pub const ATTACKS: &[Attack] = &[Attack {
    row: 79,
    name: "resumed_before_modules_are_loaded",
    attack: "a server is killed in the midst of runs, and their module is slow when the next one starts",
    must: "not ready before it is loaded; each call of each run is made, and none is refused",
    company: Company::Others,
    tries: |lab| Box::pin(ready(resumed_before_modules_are_loaded(lab))),
}];

/// Time until the module has told its tools.
const PAUSE: Duration = Duration::from_millis(700);
/// Time that a server waits for its modules before it takes requests.
const START_MS: u32 = 50;
/// Runs that the killed server leaves.
const RUNS: usize = 4;
const TOOL: &str = "bad.say";
/// The answer of each run.
const DONE: &str = "done";

/// The beginning of an answer of which no more comes.
fn unended() -> RawAnswer {
    RawAnswer {
        begin: b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            .to_vec(),
        again: b": ping\n\n".to_vec(),
        pause: Duration::from_millis(50),
        ..RawAnswer::default()
    }
}

/// Waits until the server says that it is ready. The time until then, if it said before that it was not.
fn until_ready(served: &Served, since: Instant) -> Result<Option<Duration>, AttackFailure> {
    let mut was_unready = false;
    until("a server that is ready", || {
        let answered = served.ask("GET", "/readyz", &[], "")?;
        was_unready |= answered.status == 503;
        Ok((answered.status == 200).then_some(()))
    })?;
    Ok(was_unready.then(|| since.elapsed()))
}

fn resumed_before_modules_are_loaded(lab: &Lab) -> Result<String, AttackFailure> {
    let model = ScriptedModel::start(DONE)?;
    let folder = CommandFolder::new(lab)?;
    let reply = LiarReply::Value("7".into());
    folder.write(
        "modules/bad.wasm",
        liar::listing_late(&[Claim::named("say")], &reply, PAUSE)?,
    )?;
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"tools\"\n\
             [fallback]\nenabled = false\n[modules]\npinning = \"never\"\nstart_timeout_ms = {START_MS}\n\
             [decisions]\ndefault = \"never\"\n[serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n\
             [module.bad.limits]\nlist_tools_ms = 5000\n",
            model.port
        ),
    )?;
    let serve = ["--config", "host.toml", "serve", "--listen", "127.0.0.1:0"];
    let mut first = Served::start(&folder, &serve)?;
    until_ready(&first, Instant::now())?;
    // A run of each is asked about, and hears nothing more.
    model.say([]);
    for _ in 0..RUNS {
        model.answer_raw(unended());
    }
    let task = json!({"messages": [{"role": "user", "content": "Say a number."}], "tools": [TOOL]});
    let answers = (0..RUNS).map(|_| first.send("POST", "/v1/agent", &[], &task.to_string()));
    let _answers = answers.collect::<Result<Vec<_>, _>>()?;
    until("requests of all runs", || {
        Ok((model.prompts().len() == RUNS).then_some(()))
    })?;
    first.kill()?;

    // With a number each: one run may be told all of them, and no call is a repetition.
    model.say((0..RUNS).map(|number| native(&[(TOOL, json!({"number": number}))])));
    let began = Instant::now();
    let second = Served::start(&folder, &serve)?;
    let ready = until_ready(&second, began)?.ok_or_else(|| {
        AttackFailure::Broke("it was ready while its module was being loaded".into())
    })?;
    // Its module was late indeed.
    ensure(ready >= PAUSE, || {
        format!(
            "it was ready {} after its start, and its module needs {}",
            ms(ready),
            ms(PAUSE)
        )
    })?;
    let client = RunClient {
        served: &second,
        key: None,
    };
    let runs = client.runs()?;
    ensure(runs.len() == RUNS, || {
        format!(
            "{} runs are there, of {RUNS}: nothing is proved",
            runs.len()
        )
    })?;
    let mut made = 0;
    for run in &runs {
        client.until_over(run)?;
        let events = client.events(run)?;
        let results = events
            .iter()
            .filter(|event| event["event"] == "tool_result");
        let failed: Vec<&Value> = results.filter(|event| !event["error"].is_null()).collect();
        ensure(failed.is_empty(), || {
            format!("a resumed run has calls that were not made: {failed:?}")
        })?;
        made += count(&events, "tool_result");
        let end = events.last().cloned().unwrap_or_default();
        ensure(
            count(&events, "resumed") == 1 && end["reason"] == "output" && end["output"] == DONE,
            || format!("a resumed run ended so: {end}"),
        )?;
    }
    ensure(made == RUNS, || {
        format!("{made} calls were made, of {RUNS}")
    })?;
    Ok(format!(
        "ready after {}; {made} calls of {RUNS} runs made",
        ms(ready)
    ))
}
