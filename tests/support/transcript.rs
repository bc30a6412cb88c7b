//! A run of the binary against a scripted endpoint, as its events tell it.

use crate::endpoint::{Endpoint, Reply};
use crate::host::{Finished, Host};
use serde_json::{Value, json};

/// What a run did and how it ended.
#[derive(Debug)]
pub struct Transcript {
    pub finished: Finished,
    pub events: Vec<Value>,
}

impl Transcript {
    /// Runs `arguments` against `endpoint`. A run that began is also run again from its record, and
    /// must come to the same.
    ///
    /// # Panics
    /// If the binary prints something else than events, or the record cannot be run again.
    pub fn of(host: &Host, endpoint: &Endpoint, arguments: &[&str]) -> Self {
        let url = endpoint.base_url();
        let options = ["--base-url", &url, "--model", "scripted", "--json"];
        Self::read(host, host.run(&[arguments, &options].concat()))
    }

    /// The same of a command that is over.
    ///
    /// # Panics
    /// As [`Self::of`].
    pub fn read(host: &Host, finished: Finished) -> Self {
        let lines = finished.stdout.lines().map(serde_json::from_str);
        let events: Result<Vec<Value>, _> = lines.collect();
        let events = events.unwrap_or_else(|error| panic!("{error}: {finished:?}"));
        if let Some(run) = events.first().and_then(|event| event["run"].as_str()) {
            let again = host.run(&["runs", "replay", run]);
            assert_eq!(again.code, Some(0), "{again:?}");
        }
        Self { finished, events }
    }

    /// The last event.
    ///
    /// # Panics
    /// If the run did not end.
    pub fn end(&self) -> &Value {
        let last = self.events.last();
        last.filter(|event| event["event"] == "done")
            .unwrap_or_else(|| panic!("{self:?}"))
    }

    /// What the run ended with.
    ///
    /// # Panics
    /// If it did not end with an output.
    pub fn output(&self) -> &Value {
        let end = self.end();
        assert_eq!(end["reason"], "output", "{end}\n{}", self.finished.stderr);
        &end["output"]
    }

    /// The results of the calls of `tool`, in the order of their ends.
    pub fn results(&self, tool: &str) -> Vec<&Value> {
        let of_tool = |event: &&Value| event["event"] == "tool_result" && event["tool"] == tool;
        self.events.iter().filter(of_tool).collect()
    }

    /// The output of the only call of `tool`.
    ///
    /// # Panics
    /// If there is not one, or it failed.
    pub fn result(&self, tool: &str) -> &Value {
        match self.results(tool).as_slice() {
            [result] if result.get("output").is_some() => &result["output"],
            other => panic!("{tool}: {other:?}"),
        }
    }

    /// The failure of the only call of `tool`.
    ///
    /// # Panics
    /// If there is not one, or it worked.
    pub fn failure(&self, tool: &str) -> &Value {
        match self.results(tool).as_slice() {
            [result] if result.get("error").is_some() => &result["error"],
            other => panic!("{tool}: {other:?}"),
        }
    }

    /// What happened in sub-agents, `depth` levels down.
    pub fn inner(&self, depth: usize) -> Vec<&Value> {
        let events = self.events.iter().filter_map(|event| {
            (0..depth).try_fold(event, |event, _| {
                (event["event"] == "sub").then(|| &event["what"])
            })
        });
        events.filter(|event| event["event"] != "sub").collect()
    }
}

/// A reply that makes calls: each a tool and its other properties.
pub fn calls<'a>(calls: impl IntoIterator<Item = (&'a str, Value)>) -> Reply {
    let calls = calls.into_iter().map(|(tool, properties)| {
        let mut call = json!({"_tool": tool, "_reasoningForCall": "because"});
        if let (Value::Object(call), Value::Object(properties)) = (&mut call, properties) {
            call.extend(properties);
        }
        call
    });
    Reply::solution(json!({"calls": calls.collect::<Vec<_>>(), "output": null}))
}

/// A reply that ends the run.
pub fn answers(output: impl Into<Value>) -> Reply {
    Reply::solution(json!({"calls": [], "output": output.into()}))
}

/// The text of all messages of the endpoint's `n`th request, beginning with 0.
///
/// # Panics
/// If there was none.
pub fn told(endpoint: &Endpoint, n: usize) -> String {
    let requests = endpoint.requests();
    let request = requests
        .get(n)
        .unwrap_or_else(|| panic!("{n} of {requests:?}"));
    let messages = request["messages"].as_array().into_iter().flatten();
    let texts = messages.filter_map(|message| message["content"].as_str());
    texts.collect::<Vec<_>>().join("\n\n")
}
