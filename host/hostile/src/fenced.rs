//! Row 63: two servers with one database, of which one is frozen, and then killed.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::effects::EffectServer;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::runs::{RunClient, count, joined, until};
use crate::serving::{Answered, Answering, MODELS, Served};
use serde_json::{Value, json};
use std::future::ready;
use std::net::TcpStream;
use std::sync::Barrier;
use std::thread::scope;
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 63,
    name: "runs_of_a_frozen_server",
    attack: "a server is frozen, and later killed, while another one and commands resume, cancel and decide in its runs at once",
    must: "a frozen one keeps its runs, of a dead one each is taken once; no event is doubled, each call has one effect",
    company: Company::Others,
    tries: |lab| Box::pin(ready(runs_of_a_frozen_server(lab))),
}];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// The tool that waits for a person.
const JUDGED: &str = "bad.drain";
const FREE: &str = "bad.fetch";
/// Texts of the error of a run that another process has, or had to its end.
const TAKEN: [&str; 2] = ["still going on in another process", "this run is over"];

/// Two servers with one SQLite database.
struct ServerPair<'a> {
    folder: &'a CommandFolder,
    effects: &'a EffectServer,
    first: RunClient<'a>,
    second: RunClient<'a>,
}

/// Runs of the first server, and their open connections.
struct FirstRuns {
    /// Its call waits for a person.
    waiting: String,
    /// Run with a call that is made until the end.
    busy: String,
    /// Run that is cancelled while its server is frozen.
    cancelled: String,
    _answers: [TcpStream; 3],
}

/// An attempt to get a run of another server.
#[derive(Debug, PartialEq, Eq)]
enum ResumeOutcome {
    Taken,
    Refused,
}

impl ServerPair<'_> {
    fn judged(&self, path: &str) -> Value {
        json!({"arguments": {"url": self.effects.url(path)}})
    }

    fn free(&self, path: &str) -> Value {
        let url = self.effects.url(path);
        json!({"arguments": {"method": "GET", "url": url, "headers": [], "body": null}})
    }

    /// Begins a call that is never answered, and waits until it has its effect.
    fn begin_busy(&self, path: &str) -> Result<(String, TcpStream), AttackFailure> {
        let begun = self.first.begin(FREE, &self.free(path))?;
        until("the effect of a call", || {
            Ok((self.effects.count(path) == 1).then_some(()))
        })?;
        Ok(begun)
    }

    fn begin_all(&self) -> Result<FirstRuns, AttackFailure> {
        let (waiting, one) = self.first.begin(JUDGED, &self.judged("/judged"))?;
        self.first.until_question(&waiting)?;
        let (busy, two) = self.begin_busy("/hold-busy")?;
        let (cancelled, three) = self.begin_busy("/hold-cancelled")?;
        Ok(FirstRuns {
            waiting,
            busy,
            cancelled,
            _answers: [one, two, three],
        })
    }

    /// Stops the first server in a moment in which it holds no lock of the database.
    fn freeze(&self) -> Result<(), AttackFailure> {
        until("a moment without a lock", || {
            self.first.served.signal("-STOP");
            let written = self.second.ask("POST", "/v1/sessions", &json!({}))?;
            if written.status == 201 {
                return Ok(Some(()));
            }
            self.first.served.signal("-CONT");
            Ok(None)
        })
    }

    /// The run is still that of the first server.
    fn ensure_held(&self, run: &str) -> Result<(), AttackFailure> {
        let state = self.second.state(run)?;
        ensure(["running", "waiting"].contains(&state.as_str()), || {
            format!("run {run} of a server that lives is {state}")
        })
    }

    fn resume(&self, run: &str) -> Result<ResumeOutcome, AttackFailure> {
        let path = format!("/v1/runs/{run}/resume");
        let answered = self.second.ask("POST", &path, &Value::Null)?;
        match answered.status {
            202 => Ok(ResumeOutcome::Taken),
            409 if is_taken(&answered.body) => Ok(ResumeOutcome::Refused),
            _ => Err(AttackFailure::Broke(format!(
                "resuming {run} was answered {answered:?}"
            ))),
        }
    }

    fn resume_by_command(&self, run: &str) -> Result<ResumeOutcome, AttackFailure> {
        // Some run at the same time, so none has files of the folder for its output.
        let output = self
            .folder
            .command(&[&CONFIG[..], &["resume", run]].concat())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(1) if is_taken(&said) => Ok(ResumeOutcome::Refused),
            // The run went on there to its end, whatever that is.
            Some(_) => Ok(ResumeOutcome::Taken),
            None => Err(AttackFailure::Broke(format!(
                "`toolhold resume` died: {said:.400}"
            ))),
        }
    }

    /// Resumes each of the runs by the server and by commands, all at the same time. Returns how many got it, for each.
    fn resume_at_once<const RUNS: usize>(
        &self,
        runs: [&str; RUNS],
        times: usize,
        meanwhile: impl FnOnce() -> Result<(), AttackFailure>,
    ) -> Result<[usize; RUNS], AttackFailure> {
        let gate = Barrier::new(RUNS * (times + 1) + 1);
        let gate = &gate;
        scope(|threads| {
            let asked = runs.map(|run| {
                let attempts = (0..=times).map(|number| {
                    threads.spawn(move || {
                        gate.wait();
                        if number == 0 {
                            self.resume_by_command(run)
                        } else {
                            self.resume(run)
                        }
                    })
                });
                attempts.collect::<Vec<_>>()
            });
            gate.wait();
            let done = meanwhile();
            let mut taken = [0; RUNS];
            for (number, attempts) in taken.iter_mut().zip(asked) {
                for attempt in attempts {
                    if joined(attempt)? == ResumeOutcome::Taken {
                        *number += 1;
                    }
                }
            }
            done.map(|()| taken)
        })
    }

    fn decide(&self, call: &Value, verdict: &Value) -> Result<Answered, AttackFailure> {
        let mut body = verdict.clone();
        body["digest"] = call["digest"].clone();
        let part = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
        let path = format!("/v1/approvals/{}/{}", part("run"), part("call"));
        self.second.ask("POST", &path, &body)
    }

    fn approve(&self, run: &str) -> Result<Value, AttackFailure> {
        let call = self.second.until_question(run)?;
        let answered = self.decide(&call, &json!({"verdict": "approve"}))?;
        ensure(answered.status == 202, || {
            format!("the first decision was answered {answered:?}")
        })?;
        Ok(call)
    }

    /// Cancels a run, and decides about a call that is approved already, several times at once.
    fn cancel_and_refuse(
        &self,
        runs: &FirstRuns,
        call: &Value,
        times: usize,
    ) -> Result<(), AttackFailure> {
        let cancel = format!("/v1/runs/{}/cancel", runs.cancelled);
        scope(|threads| {
            let cancel = &cancel;
            let asked = (0..times).map(|number| {
                threads.spawn(move || {
                    let told = self.second.ask("POST", cancel, &Value::Null)?;
                    ensure(told.status == 202, || {
                        format!("a cancellation for its owner was answered {told:?}")
                    })?;
                    let refuse = json!({"verdict": "refuse", "reason": format!("reason {number}")});
                    let late = self.decide(call, &refuse)?;
                    ensure(
                        late.status == 409 && late.body.contains("approved by api"),
                        || format!("a second decision was answered {late:?}"),
                    )
                })
            });
            let asked: Vec<_> = asked.collect();
            asked.into_iter().try_for_each(joined)
        })
    }

    /// The record of a run that is over: each event once, and some kinds in these numbers.
    fn ensure_record(&self, run: &str, counts: &[(&str, usize)]) -> Result<(), AttackFailure> {
        self.second.until_over(run)?;
        let events = self.second.events(run)?;
        for (kind, expected) in counts {
            let found = count(&events, kind);
            ensure(found == *expected, || {
                format!("run {run} has {found} events {kind}, not {expected}: {events:?}")
            })?;
        }
        Ok(())
    }

    fn ensure_effect(&self, path: &str) -> Result<(), AttackFailure> {
        let times = self.effects.count(path);
        ensure(times == 1, || {
            format!("the call of {path} had its effect {times} times")
        })
    }

    /// The first server is frozen, and everything of its runs is tried at the second one.
    fn ensure_kept(
        &self,
        runs: &FirstRuns,
        times: usize,
        longer: Duration,
    ) -> Result<(), AttackFailure> {
        self.freeze()?;
        let call = self.approve(&runs.waiting)?;
        let taken = self.resume_at_once([&runs.waiting, &runs.busy], times, || {
            self.cancel_and_refuse(runs, &call, times)
        })?;
        ensure(taken == [0, 0], || {
            format!("runs of a frozen server were taken: {taken:?}")
        })?;
        // As long as a server needs to take over what a dead one left.
        std::thread::sleep(longer);
        for run in [&runs.waiting, &runs.busy, &runs.cancelled] {
            self.ensure_held(run)?;
        }
        let early = self.effects.count("/judged");
        ensure(early == 0, || {
            "a call was made that a frozen server has".into()
        })?;
        self.first.served.signal("-CONT");
        self.ensure_record(
            &runs.waiting,
            &[
                ("resumed", 0),
                ("decided", 1),
                ("tool_start", 1),
                ("tool_result", 1),
            ],
        )?;
        self.ensure_record(&runs.cancelled, &[("resumed", 0), ("tool_start", 1)])?;
        self.ensure_held(&runs.busy)?;
        for path in ["/judged", "/hold-busy", "/hold-cancelled"] {
            self.ensure_effect(path)?;
        }
        Ok(())
    }

    /// The first server is killed, and all try to get its runs.
    fn ensure_taken_once(&self, runs: &FirstRuns, times: usize) -> Result<(), AttackFailure> {
        let (waiting, _answer) = self.first.begin(JUDGED, &self.judged("/judged-late"))?;
        self.first.until_question(&waiting)?;
        self.first.served.kill_now();
        until("the end of a killed server", || {
            Ok((self.second.state(&waiting)? == "parked").then_some(()))
        })?;
        // One that has the waiting run goes on when it is decided.
        let taken = self.resume_at_once([&waiting, &runs.busy], times, || {
            self.approve(&waiting).map(drop)
        })?;
        ensure(taken == [1, 1], || {
            format!("runs of a killed server were taken {taken:?} times")
        })?;
        self.ensure_record(
            &waiting,
            &[("resumed", 1), ("decided", 1), ("tool_start", 1)],
        )?;
        self.ensure_record(&runs.busy, &[("resumed", 1), ("tool_start", 1)])?;
        for path in ["/judged-late", "/hold-busy"] {
            self.ensure_effect(path)?;
        }
        Ok(())
    }
}

fn is_taken(said: &str) -> bool {
    TAKEN.iter().any(|words| said.contains(words))
}

fn runs_of_a_frozen_server(lab: &Lab) -> Result<String, AttackFailure> {
    let (times, longer) = lab.times((4, Duration::ZERO), (16, Duration::from_secs(9)));
    let endpoint = Answering::start(200, MODELS)?;
    let effects = EffectServer::start()?;
    let folder = CommandFolder::new(lab)?;
    folder.write("modules/bad.wasm", components::FETCHER)?;
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\n\
             [modules]\npinning = \"never\"\n[serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n\
             [decisions]\ndefault = \"never\"\nalways = [\"{JUDGED}\"]\n\
             [run]\ncall_timeout_ms = 120000\n[module.bad]\n{}\
             [module.bad.limits]\ntimeout_ms = 120000\nhttp_timeout_ms = 60000\n",
            endpoint.port,
            effects.grant()
        ),
    )?;
    let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
    let (first, second) = (
        Served::start(&folder, &serve)?,
        Served::start(&folder, &serve)?,
    );
    let client = |served| RunClient { served, key: None };
    let pair = ServerPair {
        folder: &folder,
        effects: &effects,
        first: client(&first),
        second: client(&second),
    };
    for (server, path) in [(pair.first, "/ready-first"), (pair.second, "/ready-second")] {
        server.until_ready(FREE, &pair.free(path))?;
    }
    let runs = pair.begin_all()?;
    pair.ensure_kept(&runs, times, longer)?;
    pair.ensure_taken_once(&runs, times)?;
    let verify = [&CONFIG[..], &["audit", "verify"]].concat();
    let verified = folder.run(&verify, BOUNDS)?;
    ensure(verified.code == Some(0), || {
        format!("the audit log does not verify: {}", verified.stdout)
    })?;
    Ok(format!(
        "{} attempts at each run of a frozen server refused; each run of the killed one taken once",
        times + 1
    ))
}
