//! Row 66: persons of whom some resume a run that no process drives, and others cancel it, at the same time.

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::components;
use crate::effects::EffectServer;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::runs::{RunClient, count, joined, until};
use crate::serving::{Answered, Answering, MODELS, Served};
use serde_json::{Value, json};
use std::future::ready;
use std::sync::Barrier;
use std::thread::scope;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 66,
    name: "resumed_and_cancelled_at_once",
    attack: "runs that a killed server left are resumed and cancelled by several persons at once, and then their call is approved",
    must: "what was cancelled makes no call and ends as cancelled, once; what was only resumed goes on",
    company: Company::Others,
    tries: |lab| Box::pin(ready(resumed_and_cancelled_at_once(lab))),
}];

const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// The tool that waits for a person, and one that does not.
const JUDGED: &str = "bad.drain";
const FREE: &str = "bad.fetch";
/// Persons who resume each run, and as many who cancel it.
const PERSONS: usize = 2;

/// A run whose call waits for a person.
struct LeftRun {
    id: String,
    /// The call, as the list of waiting ones has it.
    call: Value,
    /// Path of the call's request.
    path: String,
}

/// The server on which persons decide.
#[derive(Clone, Copy)]
struct ResumeBench<'a> {
    client: RunClient<'a>,
    effects: &'a EffectServer,
}

impl ResumeBench<'_> {
    fn act(self, run: &LeftRun, verb: &str) -> Result<Answered, AttackFailure> {
        let path = format!("/v1/runs/{}/{verb}", run.id);
        let answered = self.client.ask("POST", &path, &Value::Null)?;
        ensure(matches!(answered.status, 202 | 409), || {
            format!("{verb} of a run was answered {answered:?}")
        })?;
        Ok(answered)
    }

    fn approve(self, run: &LeftRun) -> Result<Answered, AttackFailure> {
        let call = run.call["call"].as_str().unwrap_or_default();
        let path = format!("/v1/approvals/{}/{call}", run.id);
        let body = json!({"digest": run.call["digest"], "verdict": "approve"});
        self.client.ask("POST", &path, &body)
    }

    /// The end of a run: its reason, and how often it was resumed and its call was made and had its effect.
    fn ended(self, run: &LeftRun) -> Result<(Value, [usize; 3]), AttackFailure> {
        self.client.until_over(&run.id)?;
        let events = self.client.events(&run.id)?;
        let reason = events.last().map(|event| event["reason"].clone());
        let [resumed, begun] = ["resumed", "tool_start"].map(|kind| count(&events, kind));
        // A begin that was refused is recorded with the end of the run, and with an end that says that no call was made.
        let refused = events.iter().filter(|event| {
            event["event"] == "tool_result" && event["error"]["kind"] == "not_made"
        });
        let made = begun.saturating_sub(refused.count());
        Ok((
            reason.unwrap_or_default(),
            [resumed, made, self.effects.count(&run.path)],
        ))
    }

    /// Resumes one run and cancels another, without a second person.
    fn ensure_each_alone(
        self,
        resumed: &LeftRun,
        cancelled: &LeftRun,
    ) -> Result<(), AttackFailure> {
        let answered = self.act(resumed, "resume")?;
        let approved = self.approve(resumed)?;
        let ended = self.ended(resumed)?;
        ensure(
            (answered.status, approved.status) == (202, 202)
                && ended == (json!("output"), [1, 1, 1]),
            || format!("a run that was only resumed: {answered:?}, {approved:?}, {ended:?}"),
        )?;
        let answered = self.act(cancelled, "cancel")?;
        let late = self.act(cancelled, "resume")?;
        self.approve(cancelled)?;
        let (reason, [_, made, had_effect]) = self.ended(cancelled)?;
        ensure(
            (answered.status, late.status) == (202, 409)
                && reason == "cancelled"
                && (made, had_effect) == (0, 0),
            || {
                format!(
                    "a run that was only cancelled: {answered:?}, {late:?}, {reason}, {made} calls"
                )
            },
        )
    }

    /// Persons resume and cancel each of the runs at once, and approve its call when they were answered. How many runs
    /// were resumed for all that.
    fn at_once(self, runs: &[LeftRun]) -> Result<usize, AttackFailure> {
        let gate = Barrier::new(runs.len() * 2 * PERSONS);
        let gate = &gate;
        let taken = scope(|threads| {
            let of_all = runs.iter().map(|run| {
                let asked = (0..2 * PERSONS).map(|number| {
                    threads.spawn(move || {
                        gate.wait();
                        let verb = ["resume", "cancel"][number % 2];
                        Ok::<(&str, u16), AttackFailure>((verb, self.act(run, verb)?.status))
                    })
                });
                asked.collect::<Vec<_>>()
            });
            let of_all: Vec<_> = of_all.collect();
            let mut taken = 0;
            for (asked, run) in of_all.into_iter().zip(runs) {
                let answers: Vec<(&str, u16)> =
                    asked.into_iter().map(joined).collect::<Result<_, _>>()?;
                ensure(answers.contains(&("cancel", 202)), || {
                    format!("no cancellation of a run that waits was taken: {answers:?}")
                })?;
                taken += answers.iter().filter(|it| **it == ("resume", 202)).count();
                // Whoever cancelled it was told so by now.
                self.approve(run)?;
            }
            Ok::<usize, AttackFailure>(taken)
        })?;
        for run in runs {
            let (reason, [resumed, made, had_effect]) = self.ended(run)?;
            ensure(
                reason == "cancelled" && resumed <= 1 && (made, had_effect) == (0, 0),
                || {
                    format!(
                        "a cancelled run ended with {reason}, was resumed {resumed} times, and made {made} calls with \
                         {had_effect} effects"
                    )
                },
            )?;
        }
        Ok(taken)
    }
}

fn resumed_and_cancelled_at_once(lab: &Lab) -> Result<String, AttackFailure> {
    let endpoint = Answering::start(200, MODELS)?;
    let effects = EffectServer::start()?;
    let folder = CommandFolder::new(lab)?;
    folder.write("modules/bad.wasm", components::FETCHER)?;
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\n\
             [modules]\npinning = \"never\"\n[serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n\
             [decisions]\ndefault = \"never\"\nalways = [\"{JUDGED}\"]\n[module.bad]\n{}",
            endpoint.port,
            effects.grant()
        ),
    )?;
    let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
    let free = json!({"arguments": {
        "method": "GET", "url": effects.url("/ready"), "headers": [], "body": null,
    }});
    let first = Served::start(&folder, &serve)?;
    let client = RunClient {
        served: &first,
        key: None,
    };
    client.until_ready(FREE, &free)?;
    let (mut runs, mut answers) = (Vec::new(), Vec::new());
    for number in 0..lab.times(10, 26) {
        let path = format!("/judged-{number}");
        let (id, answer) =
            client.begin(JUDGED, &json!({"arguments": {"url": effects.url(&path)}}))?;
        let call = client.until_question(&id)?;
        runs.push(LeftRun { id, call, path });
        answers.push(answer);
    }
    drop(first);
    // It goes on with none of them by itself.
    let second = Served::start(&folder, &[&serve[..], &["--hold-runs"]].concat())?;
    let bench = ResumeBench {
        client: RunClient {
            served: &second,
            key: None,
        },
        effects: &effects,
    };
    bench.client.until_ready(FREE, &free)?;
    for run in &runs {
        until("the end of a killed server", || {
            Ok((bench.client.state(&run.id)? == "parked").then_some(()))
        })?;
    }
    let [resumed, cancelled, rest @ ..] = runs.as_slice() else {
        return Err(AttackFailure::Broke("there are no runs".into()));
    };
    bench.ensure_each_alone(resumed, cancelled)?;
    let taken = bench.at_once(rest)?;
    Ok(format!(
        "{} runs cancelled, {taken} of them resumed before; none made a call",
        rest.len()
    ))
}
