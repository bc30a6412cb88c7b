//! Row 74: calls that hold all places of their own module, and wait for nested calls that need such a place
//! (docs/security.md, promise 1).

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::runs::{RunClient, joined};
use crate::serving::{Answered, Answering, MODELS, Served};
use serde_json::{Value, json};
use std::future::ready;
use std::sync::Barrier;
use std::thread::scope;
use std::time::{Duration, Instant};
use toolhold_policy::MAX_CALL_DEPTH;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 74,
    name: "parents_in_all_places_of_a_module",
    attack: "calls in all places of a module ask tools of the same module, and of another one that asks back, as deep as calls may be",
    must: "all end with their results, far before their deadline; other modules are answered meanwhile",
    company: Company::Others,
    tries: |lab| Box::pin(ready(parents_in_all_places_of_a_module(lab))),
}];

/// Calls of each module at a time.
const PLACES: usize = 4;
/// Calls that begin at once.
const CALLS: usize = 2 * PLACES;
/// Deadline of each call.
const DEADLINE: Duration = Duration::from_secs(4);
/// Maximum time for all calls of a kind together: who waits for a deadline takes longer.
const MOST: Duration = Duration::from_secs(3);
/// Modules with the same component, which ask each other.
const MODULES: [&str; 2] = ["first", "second"];
/// Calls that are nested in a call: as many as may be.
const DEPTH: usize = MAX_CALL_DEPTH as usize;

/// The arguments of a call of a module's `ask`, by which the others are asked in turn, and `draw` of the last one.
fn asking(asked: &[&str]) -> Value {
    let Some((last, between)) = asked.split_last() else {
        return json!({});
    };
    let draw = json!({"tool": format!("{last}.draw"), "arguments": {}});
    between.iter().rev().fold(
        draw,
        |arguments, module| json!({"tool": format!("{module}.ask"), "arguments": arguments}),
    )
}

/// Makes the calls of `MODULE.ask` at once, each with these arguments. The time until all have ended.
fn ask_at_once(
    client: RunClient<'_>,
    calls: &[(&str, Value)],
) -> Result<(Vec<Answered>, Duration), AttackFailure> {
    let gate = Barrier::new(calls.len());
    let gate = &gate;
    let began = Instant::now();
    let answers = scope(|threads| {
        let asked: Vec<_> = calls
            .iter()
            .map(|(module, arguments)| {
                threads.spawn(move || {
                    let path = format!("/v1/tools/{module}.ask");
                    gate.wait();
                    client.ask("POST", &path, &json!({"arguments": arguments}))
                })
            })
            .collect();
        asked.into_iter().map(joined).collect::<Result<Vec<_>, _>>()
    })?;
    Ok((answers, began.elapsed()))
}

fn parents_in_all_places_of_a_module(lab: &Lab) -> Result<String, AttackFailure> {
    let endpoint = Answering::start(200, MODELS)?;
    let folder = CommandFolder::new(lab)?;
    for module in MODULES {
        folder.write(&format!("modules/{module}.wasm"), components::PROBE)?;
    }
    let grants = MODULES.map(|module| {
        format!(
            "[module.{module}]\ntools = [\"first\", \"second\"]\n\
             [module.{module}.limits]\nconcurrent_calls = {PLACES}\ntimeout_ms = {}\n",
            DEADLINE.as_millis()
        )
    });
    let grants = grants.concat();
    folder.write(
        "modules/benign.wasm",
        components::parse(components::COMPUTE)?,
    )?;
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\n\
             [modules]\npinning = \"never\"\n[decisions]\ndefault = \"never\"\n\
             [serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n{grants}",
            endpoint.port
        ),
    )?;
    let served = Served::start(
        &folder,
        &["--config", "host.toml", "serve", "--listen", "127.0.0.1:0"],
    )?;
    let client = RunClient {
        served: &served,
        key: None,
    };
    let none = json!({"arguments": {}});
    for tool in ["first.draw", "second.draw", "benign.count"] {
        client.until_ready(tool, &none)?;
    }
    let deep: Vec<&str> = MODULES.into_iter().cycle().take(DEPTH).collect();
    let of_both: Vec<_> = [
        ("first", asking(&["second"])),
        ("second", asking(&["first"])),
    ]
    .into_iter()
    .cycle()
    .take(CALLS)
    .collect();
    let mut slowest = Duration::ZERO;
    for (what, calls) in [
        ("of itself", vec![("first", asking(&["first"])); CALLS]),
        ("of each other", of_both),
        (
            "of each other, deep",
            vec![("second", asking(&deep)); CALLS],
        ),
    ] {
        let (answers, took) = ask_at_once(client, &calls)?;
        let failed: Vec<_> = answers
            .iter()
            .filter(|answered| !is_good(answered))
            .collect();
        ensure(failed.is_empty(), || {
            format!(
                "calls {what}: {} of {CALLS} failed, as this: {:.400}",
                failed.len(),
                failed.first().map_or("", |answered| &answered.body)
            )
        })?;
        ensure(took < MOST, || {
            format!("calls {what}: all of them took {}", ms(took))
        })?;
        slowest = slowest.max(took);
        let benign = client.ask("POST", "/v1/tools/benign.count", &none)?;
        ensure(is_good(&benign), || {
            format!("another module after calls {what}: {benign:?}")
        })?;
    }
    Ok(format!(
        "{CALLS} parents in {PLACES} places, three ways; the slowest took {}",
        ms(slowest)
    ))
}

/// The call was made and returned.
fn is_good(answered: &Answered) -> bool {
    let answer: Value = serde_json::from_str(&answered.body).unwrap_or_default();
    answered.status == 200 && answer["error"].is_null() && !answer["result"].is_null()
}
