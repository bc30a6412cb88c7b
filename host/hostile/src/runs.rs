//! Runs of a server, as a client of it sees them.

use crate::fault::{AttackFailure, ensure};
use crate::serving::{Answered, Served};
use serde_json::Value;
use std::net::TcpStream;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Maximum time of each wait.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A client of a server.
#[derive(Clone, Copy)]
pub struct RunClient<'a> {
    pub served: &'a Served,
    /// The `authorization` header; absent where the server needs no key.
    pub key: Option<&'a str>,
}

impl RunClient<'_> {
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Answered, AttackFailure> {
        self.served
            .ask(method, path, &self.headers(), &written(body))
    }

    /// The JSON of an answer that must be good.
    pub fn get(&self, path: &str) -> Result<Value, AttackFailure> {
        let answered = self.ask("GET", path, &Value::Null)?;
        ensure(answered.status == 200, || {
            format!("GET {path} was answered {answered:?}")
        })?;
        Ok(serde_json::from_str(&answered.body).unwrap_or_default())
    }

    /// Waits until the server makes this call, which must be harmless. `body` has the arguments.
    pub fn until_ready(&self, tool: &str, body: &Value) -> Result<(), AttackFailure> {
        let path = format!("/v1/tools/{tool}");
        until("a server that is ready", || {
            let answered = self.ask("POST", &path, body)?;
            ensure(matches!(answered.status, 200 | 503), || {
                format!("a call that must work was answered {answered:?}")
            })?;
            Ok((answered.status == 200).then_some(()))
        })
    }

    /// Begins a call of a tool, which is a run of its own; `body` has its arguments. Returns its id, and the connection on
    /// which the answer comes at its end.
    pub fn begin(&self, tool: &str, body: &Value) -> Result<(String, TcpStream), AttackFailure> {
        let known = self.runs()?;
        let answer = self.send(tool, body)?;
        let id = until("a run", || {
            let mut runs = self.runs()?.into_iter();
            Ok(runs.find(|run| !known.contains(run)))
        })?;
        Ok((id, answer))
    }

    /// Asks for a call of a tool, and does not wait until it begins.
    pub fn send(&self, tool: &str, body: &Value) -> Result<TcpStream, AttackFailure> {
        let path = format!("/v1/tools/{tool}");
        self.served
            .send("POST", &path, &self.headers(), &body.to_string())
    }

    /// The ids of the runs that the client may see, the newest first.
    pub fn runs(&self) -> Result<Vec<String>, AttackFailure> {
        let listed = self.get("/v1/runs")?;
        let runs = listed["runs"].as_array().into_iter().flatten();
        let ids = runs.filter_map(|run| run["id"].as_str());
        Ok(ids.map(str::to_owned).collect())
    }

    /// The call of a run that waits for a person, if one does.
    pub fn question(&self, run: &str) -> Result<Option<Value>, AttackFailure> {
        let listed = self.get("/v1/approvals")?;
        let mut calls = listed["calls"].as_array().into_iter().flatten();
        Ok(calls.find(|call| call["run"] == run).cloned())
    }

    /// Waits for the call of a run that waits for a person.
    pub fn until_question(&self, run: &str) -> Result<Value, AttackFailure> {
        until("a call that waits for a person", || self.question(run))
    }

    /// `running`, `waiting`, `parked` or `done`.
    pub fn state(&self, run: &str) -> Result<String, AttackFailure> {
        let shown = self.get(&format!("/v1/runs/{run}"))?;
        Ok(shown["state"].as_str().unwrap_or_default().to_owned())
    }

    pub fn until_over(&self, run: &str) -> Result<(), AttackFailure> {
        until("the end of a run", || {
            Ok((self.state(run)? == "done").then_some(()))
        })
    }

    /// The events of a run that is over, which must be there once each.
    pub fn events(&self, run: &str) -> Result<Vec<Value>, AttackFailure> {
        let streamed = self.ask("GET", &format!("/v1/runs/{run}/events"), &Value::Null)?;
        let lines = streamed.body.lines();
        let data = lines.filter_map(|line| line.strip_prefix("data:"));
        let events: Vec<Value> = data
            .filter_map(|text| serde_json::from_str(text).ok())
            .collect();
        // Pieces of replies have no seal and no number of their own.
        let recorded = events.iter().filter(|event| event["seal"].is_string());
        let numbers: Vec<_> = recorded.map(|event| event["seq"].as_u64()).collect();
        let expected = (0_u64..).take(numbers.len()).map(Some);
        let is_whole = numbers.iter().copied().eq(expected);
        ensure(is_whole && count(&events, "done") == 1, || {
            format!("run {run} has doubled or lost events: {events:?}")
        })?;
        Ok(events)
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        self.key.iter().map(|key| ("authorization", *key)).collect()
    }
}

/// Number of the events of this kind.
pub fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["event"] == kind).count()
}

/// Looks again and again, until there is a value.
pub fn until<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, AttackFailure>,
) -> Result<T, AttackFailure> {
    let started = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure(started.elapsed() < PATIENCE, || {
            format!("{what} did not come: nothing is proved")
        })?;
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The outcome of a client's thread.
pub fn joined<T>(
    thread: ScopedJoinHandle<'_, Result<T, AttackFailure>>,
) -> Result<T, AttackFailure> {
    thread
        .join()
        .map_err(|_| AttackFailure::Broke("a client panicked".into()))?
}

fn written(body: &Value) -> String {
    if body.is_null() {
        String::new()
    } else {
        body.to_string()
    }
}
