//! What older versions wrote is taken over: `fixtures/older_state` has a folder for each, and every test here goes
//! through all of them.

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::endpoint::{Endpoint, Scenario};
use support::host::{Finished, Host};
use support::records::Records;
use support::sandbox::repository;
use support::server::Server;
use support::transcript::{answers, told};
use uuid::Uuid;

/// What the maker of a state wrote down of it: `facts.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateFacts {
    /// The folder in which it was made.
    home: PathBuf,
    ended: EndedRun,
    request: EndedRun,
    chat: EndedRun,
    waiting_at_the_terminal: WaitingRun,
    server: ServerFacts,
    /// What `audit verify --json` printed in the end.
    audit: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndedRun {
    run: String,
    output: String,
}

/// A run whose process was killed while a call of it waited for a person.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitingRun {
    run: String,
    call: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerFacts {
    key: String,
    session: String,
    /// The answers of the session's turns.
    turns: Vec<String>,
    response: String,
    waiting: WaitingRun,
}

/// A copy of the state that one version left.
struct OlderState {
    host: Host,
    facts: StateFacts,
}

impl OlderState {
    /// One of each version.
    fn all() -> Vec<Self> {
        let folder = repository().join("tests/fixtures/older_state");
        let entries = fs::read_dir(folder).unwrap();
        let versions = entries.map(|entry| entry.unwrap().path());
        let all: Vec<Self> = versions
            .filter(|path| path.is_dir())
            .map(|path| Self::of(&path))
            .collect();
        assert!(!all.is_empty(), "there are states");
        all
    }

    fn of(version: &Path) -> Self {
        eprintln!("the state of {}", version.display());
        let facts = fs::read(version.join("facts.json")).unwrap();
        let facts: StateFacts = serde_json::from_slice(&facts).unwrap();
        let host = Host::new();
        // Makes the state folder with the key of the compiled cache, which the archive lacks.
        host.command(&[]);
        let unpacked = Command::new("tar")
            .args(["--no-same-owner", "-xpzf"])
            .arg(version.join("home.tar.gz"))
            .arg("-C")
            .arg(host.path())
            .status();
        assert!(unpacked.unwrap().success());
        let state = Self { host, facts };
        state.move_home();
        state.rename_keys();
        state
    }

    /// Gives keys of the configuration that have other names now these names, as the error says. The pin of the file is
    /// that of the new bytes.
    fn rename_keys(&self) {
        let file = self.host.path().join("toolhold.toml");
        let before = fs::read_to_string(&file).unwrap();
        if !before.contains("[approval]") {
            self.good(&["config"]);
            return;
        }
        let refused = self.host.run(&["config"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        let told = "it is called \"decisions.always\"";
        assert!(refused.stderr.contains(told), "{refused:?}");
        let now = before.replace("[approval]", "[decisions]");
        fs::write(&file, &now).unwrap();
        let pinned = trusted(&self.host.path().canonicalize().unwrap());
        let record = fs::read_to_string(&pinned).unwrap();
        let record = record
            .replace(&sha256(&before), &sha256(&now))
            .replace("[approval]", "[decisions]");
        fs::write(pinned, record).unwrap();
    }

    /// Has the files name this folder instead of the one in which they were made. The database is left as it is: its
    /// audit log, which names the old folder, is signed by its hashes.
    fn move_home(&self) {
        let from = &self.facts.home;
        let to = self.host.path().canonicalize().unwrap();
        let state = to.join(".state");
        // Pins are kept for each folder of modules, and trust for each file, under a hash of its path.
        let pin_folder = |home: &Path| {
            let modules = home.join("modules");
            let id = Uuid::new_v5(&Uuid::NAMESPACE_URL, modules.as_os_str().as_encoded_bytes());
            state.join("approvals").join(id.simple().to_string())
        };
        fs::rename(pin_folder(from), pin_folder(&to)).unwrap();
        let name = trusted(from).file_name().unwrap().to_owned();
        fs::rename(state.join("trusted").join(name), trusted(&to)).unwrap();
        let mut files = vec![state.join("grants.toml"), trusted(&to)];
        let pins = fs::read_dir(pin_folder(&to)).unwrap();
        files.extend(pins.map(|entry| entry.unwrap().path()));
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let moved = text.replace(from.to_str().unwrap(), to.to_str().unwrap());
            fs::write(file, moved).unwrap();
        }
    }

    fn good(&self, arguments: &[&str]) -> String {
        let done = self.host.run(arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}: {done:?}");
        done.stdout
    }

    /// A call of a tool at the terminal.
    fn call(&self, tool: &str, arguments: &Value) -> Finished {
        let arguments = arguments.to_string();
        self.host.run(&["modules", "call", tool, &arguments])
    }

    /// The same, which works without a question.
    fn result(&self, tool: &str, arguments: &Value) -> Value {
        let done = self.call(tool, arguments);
        assert_eq!(done.code, Some(0), "{tool}: {done:?}");
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// The bytes that the call that waited has written.
    fn written(&self) -> Option<usize> {
        let written = fs::read(self.host.path().join("notes/written"));
        written.ok().map(|bytes| bytes.len())
    }

    fn replays(&self, run: &str) {
        let again = self.good(&["runs", "replay", run]);
        assert!(again.contains("identical"), "{again}");
    }
}

/// The pin of the configuration file of this home, under a hash of its path.
fn trusted(home: &Path) -> PathBuf {
    let file = home.join("toolhold.toml");
    let hash = sha256(file.as_os_str().as_encoded_bytes());
    let pins = home.join(".state/trusted");
    pins.join(hash).with_extension("json")
}

/// SHA-256 in hex, as the older version computed it.
fn sha256(bytes: impl AsRef<[u8]>) -> String {
    let hash = Sha256::digest(bytes);
    let digits: Vec<String> = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

#[test]
fn runs_are_listed_shown_and_replayed() {
    for state in OlderState::all() {
        let facts = &state.facts;
        let listed = state.good(&["runs", "--json"]);
        let listed: Vec<Value> = listed
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let runs = Records::of(&state.host).runs();
        assert!(
            listed
                .iter()
                .map(|run| run["id"].as_str().unwrap())
                .eq(&runs),
            "{listed:?}"
        );
        for run in &runs {
            state.replays(run);
        }
        for ended in [&facts.ended, &facts.request, &facts.chat] {
            let entry = listed.iter().find(|it| it["id"] == *ended.run).unwrap();
            assert_eq!(entry["reason"], "output", "{entry}");
            let shown = state.good(&["show", &ended.run]);
            assert!(shown.contains(&ended.output), "{shown}");
        }
        let shown = state.good(&["show", &facts.ended.run]);
        for part in [
            "probe.remember",
            "helper",
            "The helper helped.",
            "knowledge.remember",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        for waiting in [&facts.waiting_at_the_terminal, &facts.server.waiting] {
            let entry = listed.iter().find(|it| it["id"] == *waiting.run).unwrap();
            assert_eq!(entry["waits"], true, "{entry}");
        }
        let stats = state.good(&["stats", &facts.ended.run, "--json"]);
        assert!(stats.contains("probe.remember"), "{stats}");
    }
}

#[test]
fn the_audit_log_is_genuine_and_goes_on() {
    for state in OlderState::all() {
        let verified = state.good(&["audit", "verify", "--json"]);
        let verified: Value = serde_json::from_str(&verified).unwrap();
        let made = &state.facts.audit;
        let entries = |of: &Value| of["entries"].as_u64().unwrap();
        // A version whose report has no such number kept the text of a fact that a run remembered: one more row says that
        // it was redacted.
        let redacted = u64::from(made["redacted"].is_null());
        assert_eq!(entries(&verified), entries(made) + redacted);
        assert_eq!(
            (&verified["redacted"], &verified["faults"]),
            (&json!(redacted), &json!([]))
        );
        let rows = state.good(&["audit", "export"]);
        assert!(!rows.contains("Ann pays by card"), "{rows}");
        let before = made["head"].as_str().unwrap();
        state.good(&["audit", "verify", "--expect", before]);
        state.good(&["keys", "create", "bob"]);
        let head = verified["head"].as_str().unwrap();
        let later = state.good(&["audit", "verify", "--expect", head, "--json"]);
        let later: Value = serde_json::from_str(&later).unwrap();
        assert_eq!(entries(&later), entries(&verified) + 1);
    }
}

#[test]
fn what_was_approved_runs_and_nothing_else() {
    for state in OlderState::all() {
        for module in ["clock", "text", "probe"] {
            state.good(&["modules", "diff", module]);
        }
        for tool in ["clock.now", "text.now"] {
            assert!(state.result(tool, &json!({}))["year"].is_u64(), "{tool}");
        }
        // It has the name of a module that comes with the program. Older versions pinned it at first sight, and later ones
        // waited for a person.
        let refused = state.call("search.now", &json!({}));
        let reasons = ["comes with Toolhold", "it has not been approved yet"];
        assert!(
            refused.code != Some(0) && reasons.iter().any(|why| refused.stderr.contains(why)),
            "{refused:?}"
        );
        state.good(&["modules", "approve", "search", "--yes"]);
        state.result("search.now", &json!({}));
        // Another component in the place of one that was pinned at first sight, or approved by a person.
        let other = state.host.path().join("modules/probe/probe.wasm");
        for module in ["clock", "text"] {
            let file = format!("modules/{module}.wasm");
            fs::copy(&other, state.host.path().join(file)).unwrap();
            let tool = format!("{module}.say");
            let refused = state.call(&tool, &json!({}));
            assert!(
                refused.code != Some(0)
                    && refused
                        .stderr
                        .contains("since it was approved: the component"),
                "{refused:?}"
            );
        }
    }
}

#[test]
fn grants_documents_and_facts_are_kept() {
    for state in OlderState::all() {
        for (key, value) in [("kept", "1"), ("of_a_run", "2")] {
            let recalled = state.call("probe.recall", &json!({"key": key}));
            assert_eq!(recalled.stdout.trim(), value, "{recalled:?}");
        }
        let fees = state.result("probe.read", &json!({"path": "/notes/fees.md"}));
        let length = fs::metadata(state.host.path().join("notes/fees.md"))
            .unwrap()
            .len();
        assert_eq!(fees, length);

        let facts = state.good(&["memory", "list"]);
        assert!(facts.contains("Ann pays by card."), "{facts}");
        let search = ["knowledge", "search", "lost card", "--collection", "fees"];
        let found = state.good(&search);
        assert!(found.contains("A lost card costs 20 euro."), "{found}");
        // A grant is for the component that it was given to, and each version brings its own: it is approved again, and
        // not granted again.
        let question = json!({"question": "lost card"});
        let refused = state.call("knowledge.search", &question);
        let only = "since it was approved: the component (toolhold modules approve knowledge)";
        assert!(
            refused.code == Some(0) || refused.stderr.contains(only),
            "{refused:?}"
        );
        state.good(&["modules", "approve", "knowledge", "--yes"]);
        let found = state.result("knowledge.search", &question).to_string();
        assert!(found.contains("20 euro"), "{found}");

        state.good(&["modules", "revoke", "probe"]);
        let refused = state.call("probe.recall", &json!({"key": "kept"}));
        assert_ne!(refused.code, Some(0), "{refused:?}");
    }
}

#[test]
fn trust_in_a_file_and_a_stored_key_hold() {
    for state in OlderState::all() {
        let model = || {
            let settings: Vec<Value> =
                serde_json::from_str(&state.good(&["config", "--json"])).unwrap();
            let found = settings
                .into_iter()
                .find(|it| it["key"] == "endpoints.default.model");
            found.unwrap()["value"].clone()
        };
        assert_eq!(model(), "scripted");
        let file = state.host.path().join("toolhold.toml");
        let changed = fs::read_to_string(&file)
            .unwrap()
            .replace("scripted", "other");
        fs::write(file, changed).unwrap();
        assert_eq!(model(), "");
        let said = state.host.run(&["config"]).stderr;
        assert!(said.contains("has changed since it was trusted"), "{said}");

        let endpoint =
            Endpoint::start(Scenario::new([answers("Hello.")]).with_key("sk-of-an-older-state"));
        let own = state.host.path().join(".config/toolhold/config.toml");
        let moved = fs::read_to_string(&own)
            .unwrap()
            .replace("http://127.0.0.1:9/v1", &endpoint.base_url());
        fs::write(own, moved).unwrap();
        state.good(&["run", "Say hello.", "--endpoint", "hosted"]);
        assert_eq!(endpoint.requests().len(), 1);
    }
}

#[test]
fn a_call_that_waits_at_the_terminal_is_decided_and_its_run_goes_on() {
    for state in OlderState::all() {
        let WaitingRun { run, call } = &state.facts.waiting_at_the_terminal;
        state.good(&["approvals", "approve", call]);
        assert_eq!(state.written(), None);
        let endpoint = Endpoint::start(Scenario::new([answers("It is written.")]));
        let resumed = state.good(&["resume", run, "--base-url", &endpoint.base_url()]);
        assert!(resumed.contains("It is written."), "{resumed}");
        assert_eq!(state.written(), Some(5));
        state.replays(run);
        state.good(&["audit", "verify"]);
    }
}

#[test]
fn a_server_goes_on_with_sessions_responses_and_runs() {
    for state in OlderState::all() {
        let facts = &state.facts.server;
        let endpoint = Endpoint::start(Scenario::new([
            answers("It is written."),
            answers("You are Ann."),
            answers("You said hello."),
        ]));
        let arguments = ["--base-url", &endpoint.base_url()];
        let mut server = Server::start(&state.host, &arguments);
        assert_eq!(server.get("/v1/runs").status, 401);
        server.use_key(&facts.key);

        let WaitingRun { run, call } = &facts.waiting;
        let waiting = server.get("/v1/approvals").good();
        let [waiting] = waiting["calls"].as_array().unwrap().as_slice() else {
            panic!("{waiting}");
        };
        assert_eq!(
            (&waiting["run"], &waiting["call"]),
            (&json!(run), &json!(call))
        );
        let decision = json!({"digest": waiting["digest"], "verdict": "approve"});
        let decided = server.post(&format!("/v1/approvals/{run}/{call}"), &decision);
        assert_eq!(decided.status, 202, "{decided:?}");
        let events = server.get(&format!("/v1/runs/{run}/events")).events();
        let done = events.last().unwrap().json();
        assert_eq!(done["output"], "It is written.", "{done} {}", server.said());
        assert_eq!(state.written(), Some(5));

        let session = format!("/v1/sessions/{}", facts.session);
        let shown = server.get(&session).good();
        let turns = shown["turns"].as_array().unwrap();
        assert_eq!(turns.len(), facts.turns.len(), "{shown}");
        let who = json!({"messages": [{"role": "user", "content": "Who am I?"}]});
        let answer = server.post(&format!("{session}/turns"), &who).good();
        assert_eq!(answer["output"], "You are Ann.");
        for part in facts.turns.iter().map(String::as_str).chain(["I am Ann."]) {
            assert!(told(&endpoint, 1).contains(part), "{part}");
        }

        let response = server.get(&format!("/v1/responses/{}", facts.response));
        assert_eq!(response.good()["output"][0]["content"][0]["text"], "Hello.");
        let next = json!({"model": "default", "input": "What did I say?",
            "previous_response_id": facts.response});
        server.post("/v1/responses", &next).good();
        assert!(told(&endpoint, 2).contains("Hello."));
        assert_eq!(server.terminate(), Some(0));
        state.replays(run);
        state.good(&["audit", "verify"]);
    }
}
