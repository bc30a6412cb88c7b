//! Row 65: calls that wait for a place, which the end of what they are part of frees.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::effects::EffectServer;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::runs::{RunClient, until};
use crate::scripted::ScriptedModel;
use crate::serving::{Answering, MODELS, Served};
use serde_json::{Value, json};
use std::future::ready;
use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 65,
        name: "calls_in_places_that_an_end_frees",
        attack: "many calls of a run wait for the place of one of them when the run is cancelled or its time is over",
        must: "none of them begins; the next call of another run has the place at once",
        company: Company::Others,
        tries: |lab| Box::pin(ready(calls_in_places_that_an_end_frees(lab))),
    },
    Attack {
        row: 65,
        name: "calls_in_places_of_an_ended_session",
        attack: "a crowd of calls of an MCP client waits for the place of one of them when the client ends its session",
        must: "none of them begins; the next call of another session has the place at once",
        company: Company::Others,
        tries: |lab| Box::pin(ready(calls_in_places_of_an_ended_session(lab))),
    },
];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// Number of the calls that want the one place.
const CROWD: usize = 12;
/// The tool that has one place, and asks for an address.
const TOOL: &str = "bad.drain";
/// Agents whose runs have little time, and their time in milliseconds: the next one where the machine was too slow.
const HASTY: [(&str, u32); 3] = [("hasty", 2_000), ("slower", 8_000), ("slowest", 30_000)];

/// How the run with the crowd ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrowdEnd {
    /// By a request to its server.
    Cancelled,
    /// By a command, through the database.
    Commanded,
    /// By its timeout.
    Late,
}

/// A run whose calls want the one place.
#[derive(Debug, Clone, Copy)]
struct CrowdedRun {
    name: &'static str,
    agent: &'static str,
    is_nested: bool,
    end: CrowdEnd,
}

/// A server with a module that has one place.
struct FreedBench {
    folder: CommandFolder,
    served: Served,
    model: ScriptedModel,
    effects: EffectServer,
}

impl FreedBench {
    fn start(lab: &Lab) -> Result<Self, AttackFailure> {
        let model = ScriptedModel::start(r#"{"calls": [], "output": "done"}"#)?;
        let effects = EffectServer::start()?;
        let folder = CommandFolder::new(lab)?;
        folder.write("modules/bad.wasm", components::FETCHER)?;
        folder.write("modules/probe.wasm", components::PROBE)?;
        let agents: Vec<String> = HASTY
            .iter()
            .map(|(name, time)| format!("[agents.{name}]\nrun = {{ timeout_ms = {time} }}\n"))
            .collect();
        folder.write(
            "host.toml",
            format!(
                "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"schema\"\n\
                 [modules]\npinning = \"never\"\n[serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n\
                 [decisions]\ndefault = \"never\"\n[fallback]\nenabled = false\n\
                 [run]\nmax_calls = 16\nparallel_calls = 16\nmax_tokens = 4000\ncall_timeout_ms = 120000\n\
                 [module.probe]\ntools = [\"{TOOL}\"]\n[module.probe.limits]\ntimeout_ms = 120000\n\
                 [module.bad]\n{}\
                 [module.bad.limits]\ntimeout_ms = 120000\nhttp_timeout_ms = 60000\nconcurrent_calls = 1\n{}",
                model.port,
                effects.grant(),
                agents.concat()
            ),
        )?;
        let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
        let served = Served::start(&folder, &serve)?;
        let task = json!({"messages": [{"role": "user", "content": "Wait."}]});
        served.run_task(&task.to_string())?;
        Ok(Self {
            folder,
            served,
            model,
            effects,
        })
    }

    fn client(&self) -> RunClient<'_> {
        RunClient {
            served: &self.served,
            key: None,
        }
    }

    fn url(&self, path: &str) -> Value {
        json!({"url": self.effects.url(path)})
    }

    /// Waits for a number of calls without a place. Returns false if the run was over before.
    fn until_waiting(&self, count: usize, run: &str) -> Result<bool, AttackFailure> {
        let end = format!(" {count}");
        until("calls that wait for a place", || {
            let shown = self.client().ask("GET", "/metrics", &Value::Null)?;
            let mut lines = shown.body.lines();
            let is_so_many = lines.any(|line| {
                line.starts_with("toolhold_sandbox_calls")
                    && line.contains("state=\"waiting\"")
                    && line.ends_with(&end)
            });
            if is_so_many {
                return Ok(Some(true));
            }
            let is_over = self.client().state(run)? == "done";
            Ok(is_over.then_some(false))
        })
    }

    /// Begins a run whose model makes a call for each of the paths. The connection has the answer at its end.
    fn begin(
        &self,
        agent: &str,
        is_nested: bool,
        paths: &[String],
    ) -> Result<(String, TcpStream), AttackFailure> {
        let calls = paths.iter().map(|path| {
            let mut call = self.url(path);
            if is_nested {
                call = json!({"tool": TOOL, "arguments": call});
            }
            call["_tool"] = json!(if is_nested { "probe.ask" } else { TOOL });
            call
        });
        let calls: Vec<Value> = calls.collect();
        self.model
            .say([json!({"calls": calls, "output": null}).to_string()]);
        let known = self.client().runs()?;
        let task = json!({"agent": agent, "messages": [{"role": "user", "content": "Wait."}]});
        let answer = self
            .served
            .send("POST", "/v1/agent", &[], &task.to_string())?;
        let id = until("a run", || {
            let mut runs = self.client().runs()?.into_iter();
            Ok(runs.find(|run| !known.contains(run)))
        })?;
        Ok((id, answer))
    }

    /// Waits until the call for a path, which is answered, has its effect and its end.
    fn ensure_made(&self, path: &str, mut answer: TcpStream) -> Result<(), AttackFailure> {
        until("the effect of a call that has the free place", || {
            Ok((self.effects.count(path) == 1).then_some(()))
        })?;
        let mut said = String::new();
        answer.read_to_string(&mut said)?;
        ensure(said.split(' ').nth(1) == Some("200"), || {
            format!("a call with a free place was answered {said:.300}")
        })
    }

    fn end(&self, run: &str, end: CrowdEnd) -> Result<(), AttackFailure> {
        match end {
            CrowdEnd::Cancelled => {
                let cancel = format!("/v1/runs/{run}/cancel");
                let answered = self.client().ask("POST", &cancel, &Value::Null)?;
                ensure(answered.status == 202, || {
                    format!("a cancellation was answered {answered:?}")
                })
            }
            CrowdEnd::Commanded => {
                let cancel = [&CONFIG[..], &["runs", "cancel", run]].concat();
                let ran = self.folder.run(&cancel, BOUNDS)?;
                ensure(ran.code == Some(0), || {
                    format!("a run cannot be cancelled: {:.300}", ran.stderr)
                })
            }
            CrowdEnd::Late => Ok(()),
        }
    }

    /// The crowd waits while its run ends. False: it was over before they waited.
    fn ends(&self, crowded: &CrowdedRun) -> Result<bool, AttackFailure> {
        let CrowdedRun {
            name,
            agent,
            is_nested,
            end,
        } = *crowded;
        let crowd = format!("/hold-{name}-{agent}");
        let paths: Vec<String> = (0..CROWD)
            .map(|number| format!("{crowd}-{number}"))
            .collect();
        // Whichever comes first has the place, and keeps it. Calls by modules have one more.
        let places = if is_nested { 2 } else { 1 };
        let (run, _answer) = self.begin(agent, is_nested, &paths)?;
        if !self.until_waiting(CROWD - places, &run)? {
            return Ok(false);
        }
        let free = format!("/free-{name}-{agent}");
        let other = self
            .client()
            .send(TOOL, &json!({"arguments": self.url(&free)}))?;
        if !self.until_waiting(CROWD - places + 1, &run)? {
            self.ensure_made(&free, other)?;
            return Ok(false);
        }
        self.end(&run, end)?;
        self.client().until_over(&run)?;
        self.ensure_made(&free, other)?;
        let made = self.effects.take();
        let made = made.iter().filter(|path| path.starts_with(&crowd)).count();
        ensure(made == places, || {
            format!(
                "{name}: {made} calls of a run that ended were made, and not the first {places} alone"
            )
        })?;
        let events = self.client().events(&run)?;
        let returned = events
            .iter()
            .filter(|event| event["event"] == "tool_result" && event.get("output").is_some());
        let returned = returned.count();
        ensure(returned == 0, || {
            format!("{name}: {returned} calls of a run that ended returned something")
        })?;
        let reason = events.last().map(|event| event["reason"].clone());
        let expected = if end == CrowdEnd::Late {
            "timeout"
        } else {
            "cancelled"
        };
        ensure(reason == Some(json!(expected)), || {
            format!("{name}: the run ended with {reason:?}, not with {expected}")
        })?;
        Ok(true)
    }

    /// Has a crowd wait for the place of another run's call, and checks that each of its calls begins after that.
    fn ensure_begun_otherwise(&self) -> Result<(), AttackFailure> {
        let (holder, _answer) = self.client().begin(
            TOOL,
            &json!({"arguments": self.url("/hold-of-another-run")}),
        )?;
        until("the effect of a call", || {
            Ok((self.effects.count("/hold-of-another-run") == 1).then_some(()))
        })?;
        let paths: Vec<String> = (0..CROWD).map(|number| format!("/own-{number}")).collect();
        let (run, _answer) = self.begin("default", false, &paths)?;
        let is_waiting = self.until_waiting(CROWD, &run)?;
        ensure(is_waiting, || {
            "a run was over before its calls had a place: nothing is proved".into()
        })?;
        self.end(&holder, CrowdEnd::Cancelled)?;
        self.client().until_over(&run)?;
        let made = self.effects.take();
        let made = made.iter().filter(|path| path.starts_with("/own-")).count();
        ensure(made == CROWD, || {
            format!("{made} of {CROWD} calls began in a free place: nothing is proved")
        })
    }
}

fn calls_in_places_that_an_end_frees(lab: &Lab) -> Result<String, AttackFailure> {
    let bench = FreedBench::start(lab)?;
    bench.ensure_begun_otherwise()?;
    let crowded = |name, is_nested, end| CrowdedRun {
        name,
        agent: "default",
        is_nested,
        end,
    };
    let rounds = lab.times(1, 10);
    for round in 0..rounds {
        for run in [
            crowded("cancelled", false, CrowdEnd::Cancelled),
            crowded("nested", true, CrowdEnd::Cancelled),
            crowded("commanded", false, CrowdEnd::Commanded),
        ] {
            ensure(bench.ends(&run)?, || {
                format!(
                    "{}: over too soon in round {round}: nothing is proved",
                    run.name
                )
            })?;
        }
    }
    for (agent, _) in HASTY {
        let run = CrowdedRun {
            agent,
            ..crowded("late", false, CrowdEnd::Late)
        };
        if bench.ends(&run)? {
            return Ok(format!(
                "{} crowds of {CROWD} calls, of each those alone are made that have a place",
                3 * rounds + 1
            ));
        }
    }
    Err(AttackFailure::Broke(
        "no calls waited before the time of their run was over: nothing is proved".into(),
    ))
}

const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");
const VERSION: (&str, &str) = ("mcp-protocol-version", "2025-06-18");

/// A session of an MCP client.
struct CrowdSession<'a> {
    served: &'a Served,
    id: String,
}

impl<'a> CrowdSession<'a> {
    fn begin(served: &'a Served) -> Result<Self, AttackFailure> {
        let hello = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {
            "protocolVersion": VERSION.1, "capabilities": {},
            "clientInfo": {"name": "hostile", "version": "1"},
        }});
        let answer = served.ask("POST", "/mcp", &[ACCEPT], &hello.to_string())?;
        let Some(id) = answer.header("mcp-session-id") else {
            return Err(AttackFailure::Broke(format!(
                "a session that must begin did not: {answer:?}"
            )));
        };
        Ok(Self {
            id: id.to_owned(),
            served,
        })
    }

    fn headers(&self) -> [(&str, &str); 3] {
        [ACCEPT, VERSION, ("mcp-session-id", self.id.as_str())]
    }

    /// Calls the tool. The answer comes on the connection.
    fn call(&self, number: usize, url: &str) -> Result<TcpStream, AttackFailure> {
        let call = json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {
            "name": TOOL, "arguments": {"url": url},
        }});
        self.served
            .send("POST", "/mcp", &self.headers(), &call.to_string())
    }

    fn cancel(&self, number: usize) -> Result<(), AttackFailure> {
        let note = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {
            "requestId": number,
        }});
        self.served
            .ask("POST", "/mcp", &self.headers(), &note.to_string())?;
        Ok(())
    }

    fn end(&self) -> Result<(), AttackFailure> {
        let ended = self.served.ask("DELETE", "/mcp", &self.headers(), "")?;
        ensure(ended.status < 300, || {
            format!("a session cannot be ended: {ended:?}")
        })
    }
}

/// A crowd of calls of a session, the first of which has the place.
struct CrowdOfSession<'a> {
    session: CrowdSession<'a>,
    /// Beginning of the paths.
    prefix: String,
    _answers: Vec<TcpStream>,
}

impl<'a> CrowdOfSession<'a> {
    fn begin(
        served: &'a Served,
        effects: &EffectServer,
        round: usize,
    ) -> Result<Self, AttackFailure> {
        let session = CrowdSession::begin(served)?;
        let prefix = format!("/hold-{round}-");
        let answers: Vec<TcpStream> = (0..CROWD)
            .map(|number| session.call(number, &effects.url(&format!("{prefix}{number}"))))
            .collect::<Result<_, _>>()?;
        let crowd = Self {
            session,
            prefix,
            _answers: answers,
        };
        until("the effect of the first call", || {
            Ok((crowd.made(effects) == 1).then_some(()))
        })?;
        Ok(crowd)
    }

    /// Number of its calls that had an effect.
    fn made(&self, effects: &EffectServer) -> usize {
        (0..CROWD)
            .filter(|number| effects.count(&format!("{}{number}", self.prefix)) > 0)
            .count()
    }

    /// The first of its calls that had an effect.
    fn first(&self, effects: &EffectServer) -> Option<usize> {
        (0..CROWD).find(|number| effects.count(&format!("{}{number}", self.prefix)) > 0)
    }
}

fn calls_in_places_of_an_ended_session(lab: &Lab) -> Result<String, AttackFailure> {
    let endpoint = Answering::start(200, MODELS)?;
    let effects = EffectServer::start()?;
    let folder = CommandFolder::new(lab)?;
    folder.write("modules/bad.wasm", components::FETCHER)?;
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\n\
             [modules]\npinning = \"never\"\n[decisions]\ndefault = \"never\"\n[run]\ncall_timeout_ms = 120000\n\
             [module.bad]\n{}\
             [module.bad.limits]\ntimeout_ms = 120000\nhttp_timeout_ms = 60000\nconcurrent_calls = 1\n",
            endpoint.port,
            effects.grant()
        ),
    )?;
    let serve = [&CONFIG[..], &["mcp", "--http", "127.0.0.1:0"]].concat();
    let served = Served::start(&folder, &serve)?;
    // Where the first call alone is cancelled, another one of the crowd has its place.
    let crowd = CrowdOfSession::begin(&served, &effects, 0)?;
    let first = crowd.first(&effects).unwrap_or_default();
    crowd.session.cancel(first)?;
    until("the effect of a second call", || {
        Ok((crowd.made(&effects) == 2).then_some(()))
    })?;
    crowd.session.end()?;
    let rounds = lab.times(6, 40);
    for round in 1..=rounds {
        let crowd = CrowdOfSession::begin(&served, &effects, round)?;
        let other = CrowdSession::begin(&served)?;
        let free = format!("/free-{round}");
        let mut answer = other.call(0, &effects.url(&free))?;
        crowd.session.end()?;
        until("the effect of a call that has the free place", || {
            Ok((effects.count(&free) == 1).then_some(()))
        })?;
        let mut said = String::new();
        answer.read_to_string(&mut said)?;
        let made = crowd.made(&effects);
        ensure(made == 1, || {
            format!(
                "{made} calls of an ended session were made in round {round}, and not the first one alone"
            )
        })?;
        other.end()?;
    }
    Ok(format!(
        "{rounds} sessions with {CROWD} calls, of each the first one alone is made"
    ))
}
