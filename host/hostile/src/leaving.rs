//! Row 60: clients that leave while the files of an earlier response are copied for theirs.

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::runs::RunClient;
use crate::scripted::ScriptedModel;
use crate::serving::{Answered, Served};
use serde_json::{Value, json};
use std::fs;
use std::future::ready;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const ATTACKS: &[Attack] = &[Attack {
    row: 60,
    name: "copies_of_requests_that_left",
    attack: "clients ask for responses after one with very many files, and leave while these are copied",
    must: "the copies end with their requests and leave nothing; no run begins; whoever waits has all files",
    company: Company::Others,
    tries: |lab| Box::pin(ready(copies_of_requests_that_left(lab))),
}];

const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// Files of the response: their copy takes longer than a client needs to leave.
const FILES: usize = 20_000;
/// Clients that leave at the same time.
const CLIENTS: usize = 3;
/// Maximum time for a copy to begin, or to be removed after its request left, on a slow disk.
const PATIENCE: Duration = Duration::from_secs(30);
const KEY: &str = "idempotency-key";

/// Number of the folders of scratch files. A copy under way has the name of a session only when it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ScratchFolders {
    copies: usize,
    sessions: usize,
}

/// A server, one response of which has files.
struct CopiedHost {
    served: Served,
    root: PathBuf,
    /// Id of the response.
    response: String,
    _folder: CommandFolder,
}

/// The folders of sessions, and the number of others.
fn sessions_in(root: &Path) -> Result<(Vec<PathBuf>, usize), AttackFailure> {
    let (mut sessions, mut others) = (Vec::new(), 0);
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b"session-") {
            sessions.push(entry.path());
        } else {
            others += 1;
        }
    }
    Ok((sessions, others))
}

impl CopiedHost {
    fn new(lab: &Lab) -> Result<Self, AttackFailure> {
        let model = ScriptedModel::start(r#"{"calls": [], "output": "done"}"#)?;
        let folder = CommandFolder::new(lab)?;
        folder.write("modules/bad.wasm", components::ATTACKER)?;
        folder.write(
            "host.toml",
            format!(
                "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"schema\"\n\
                 [modules]\npinning = \"never\"\n[serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n\
                 [decisions]\ndefault = \"never\"\n[fallback]\nenabled = false\n\
                 [module.bad]\nscratch = {{ guest = \"/scratch\", quota_bytes = 1000000000, keep = \"session\" }}\n",
                model.port
            ),
        )?;
        let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
        let served = Served::start(&folder, &serve)?;
        // Until it is ready.
        let task = json!({"messages": [{"role": "user", "content": "Wait."}]});
        served.run_task(&task.to_string())?;
        let write = json!({
            "_tool": "bad.write", "dir": "/scratch", "path": "first", "content": "kept",
        });
        model.say([json!({"calls": [write], "output": null}).to_string()]);
        let mut host = Self {
            served,
            root: folder.path().join("state/modules/scratch"),
            response: String::new(),
            _folder: folder,
        };
        let first = host.ask("first")?;
        let said: Value = serde_json::from_str(&first.body).unwrap_or_default();
        said["id"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut host.response);
        let (sessions, _) = sessions_in(&host.root)?;
        let [files] = sessions.as_slice() else {
            return Err(AttackFailure::Broke(format!(
                "a response has not one folder of files: nothing is proved: {sessions:?}"
            )));
        };
        for number in 0..FILES {
            fs::write(files.join(format!("f{number}")), "x")?;
        }
        Ok(host)
    }

    fn body(&self) -> String {
        let mut body = json!({"model": "default", "input": "Write."});
        if !self.response.is_empty() {
            body["previous_response_id"] = json!(self.response);
        }
        body.to_string()
    }

    /// Waits for a response.
    fn ask(&self, key: &str) -> Result<Answered, AttackFailure> {
        let answered = self
            .served
            .ask("POST", "/v1/responses", &[(KEY, key)], &self.body())?;
        ensure(answered.status == 200, || {
            format!("a response that must come did not: {answered:?}")
        })?;
        Ok(answered)
    }

    /// Asks for a response, and waits for nothing.
    fn send(&self, key: &str) -> Result<TcpStream, AttackFailure> {
        self.served
            .send("POST", "/v1/responses", &[(KEY, key)], &self.body())
    }

    fn folders(&self) -> Result<ScratchFolders, AttackFailure> {
        let (sessions, copies) = sessions_in(&self.root)?;
        Ok(ScratchFolders {
            copies,
            sessions: sessions.len(),
        })
    }

    fn runs(&self) -> Result<usize, AttackFailure> {
        let client = RunClient {
            served: &self.served,
            key: None,
        };
        Ok(client.runs()?.len())
    }

    /// Looks every millisecond until the folders are so. Returns how long that took.
    fn until(
        &self,
        what: &str,
        is_so: impl Fn(ScratchFolders) -> bool,
    ) -> Result<Duration, AttackFailure> {
        let started = Instant::now();
        loop {
            let found = self.folders()?;
            if is_so(found) {
                return Ok(started.elapsed());
            }
            ensure(started.elapsed() < PATIENCE, || {
                format!("{what}: after {PATIENCE:?} there are {found:?}")
            })?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Clients ask, and leave in the midst of their copies. Returns how long the copies stayed after them.
    fn leave(&self, round: usize) -> Result<Duration, AttackFailure> {
        let (before, runs) = (self.folders()?, self.runs()?);
        let asked: Vec<TcpStream> = (0..CLIENTS)
            .map(|number| self.send(&format!("left-{round}-{number}")))
            .collect::<Result<_, _>>()?;
        self.until("no copy begins", |found| found.copies > 0)?;
        drop(asked);
        let stayed = self.until("copies whose requests left stay", |found| found.copies == 0)?;
        let (after, begun) = (self.folders()?, self.runs()?);
        ensure(after.sessions == before.sessions && begun == runs, || {
            format!(
                "{before:?} and {runs} runs before clients left, {after:?} and {begun} runs after it"
            )
        })?;
        Ok(stayed)
    }
}

fn copies_of_requests_that_left(lab: &Lab) -> Result<String, AttackFailure> {
    let host = CopiedHost::new(lab)?;
    let rounds = lab.times(2, 10);
    let mut stayed = Duration::ZERO;
    for round in 0..rounds {
        stayed = stayed.max(host.leave(round)?);
    }
    // The same request, under the same key, when its client waits: a run begins with all files.
    let (known, _) = sessions_in(&host.root)?;
    let runs = host.runs()?;
    host.ask("left-0-0")?;
    host.until("copies are under way", |found| found.copies == 0)?;
    let (sessions, _) = sessions_in(&host.root)?;
    let new: Vec<&PathBuf> = sessions
        .iter()
        .filter(|folder| !known.contains(folder))
        .collect();
    let begun = host.runs()?;
    ensure(
        known.len() == 1 && new.len() == 1 && begun == runs + 1,
        || {
            format!(
                "of {} responses one waited, and there are {known:?} and {new:?}",
                rounds * CLIENTS + 1
            )
        },
    )?;
    let mut files = 0;
    for folder in new {
        files += fs::read_dir(folder)?.count();
    }
    ensure(files == FILES + 1, || {
        format!("{files} of {} files were copied", FILES + 1)
    })?;
    Ok(format!(
        "{} copies ended {} after their clients left at most; one that was waited for is whole",
        rounds * CLIENTS,
        ms(stayed)
    ))
}
