//! Row 64: texts of deleted documents and forgotten facts in records of runs, and events that say of themselves that
//! such texts were taken out of them.

pub mod composed;
pub mod tombstones;

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder, Ran};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::liar::{self, Claim, LiarReply};
use crate::runs::{RunClient, joined, until};
use crate::scripted::ScriptedModel;
use crate::serving::Served;
use serde_json::{Value, json};
use std::fs;
use std::future::ready;
use std::path::Path;
use std::thread::scope;
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 64,
    name: "texts_of_deleted_documents",
    attack: "a document is deleted and a fact forgotten that models and clients were shown, wrote, passed on and had a person decide about, also in a run that goes on",
    must: "no byte of them in the database once the runs are over; the records are genuine",
    company: Company::Others,
    tries: |lab| Box::pin(ready(texts_of_deleted_documents(lab))),
}];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// Words of the document and of the fact, which no model says but where it remembers the fact.
const PASSAGE: &str = "quokkafee";
const FACT: &str = "numbatfact";
const WORDS: [&str; 2] = [PASSAGE, FACT];
/// Question of the searches, without the words: questions stay.
const QUESTION: &str = "What does a lost card cost?";
const REMEMBER: &str = "knowledge.remember";

/// A host with a document, the module that searches it, and one that takes anything and always says the same.
struct KnowledgeHost {
    folder: CommandFolder,
    model: ScriptedModel,
}

impl KnowledgeHost {
    /// `said`: the result of `liar.say`. `more`: the end of the configuration.
    fn new(lab: &Lab, said: &str, more: &str) -> Result<Self, AttackFailure> {
        let model = ScriptedModel::start(r#"{"calls": [], "output": "done"}"#)?;
        let folder = CommandFolder::new(lab)?;
        let claim = Claim {
            input_schema: json!({"type": "object", "properties": {"word": {}}}).to_string(),
            ..Claim::named("say")
        };
        let liar = liar::component(&[claim], &LiarReply::Value(json!(said).to_string()))?;
        folder.write("modules/liar.wasm", liar)?;
        folder.write("modules/knowledge/knowledge.wasm", components::KNOWLEDGE)?;
        folder.write(
            "modules/knowledge/module.toml",
            components::KNOWLEDGE_MODULE,
        )?;
        folder.write(
            "notes/fees.md",
            format!(
                "# Cards of {PASSAGE}\n\nA lost card costs \"20\" euro of {PASSAGE}, über\\all.\n\n\
                 ## Another {PASSAGE}\n\nA lost card costs {PASSAGE} again.\n"
            ),
        )?;
        folder.write("notes/spare.md", "# Hours\n\nOpen on Saturdays.\n")?;
        folder.write(
            "host.toml",
            format!(
                "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"schema\"\n\
                 [modules]\npinning = \"never\"\n[serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n\
                 [decisions]\ndefault = \"never\"\nalways = [\"{REMEMBER}\"]\n[fallback]\nenabled = false\n\
                 [run]\nmax_steps = 20\nmax_tokens = 400\nwiring = \"always\"\n\
                 [module.knowledge]\nknowledge = {{ collections = [{{ name = \"*\" }}], \
                 memory = {{ user = [\"recall\", \"remember\", \"forget\"] }} }}\n{more}",
                model.port
            ),
        )?;
        let host = Self { folder, model };
        host.must(&["knowledge", "add", "--collection", "fees", "notes"])?;
        Ok(host)
    }

    fn serve(&self) -> Result<Served, AttackFailure> {
        let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
        Served::start(&self.folder, &serve)
    }

    fn run(&self, arguments: &[&str]) -> Result<Ran, AttackFailure> {
        self.folder.run(&[&CONFIG[..], arguments].concat(), BOUNDS)
    }

    /// Runs a command that must end well.
    fn must(&self, arguments: &[&str]) -> Result<String, AttackFailure> {
        let ran = self.run(arguments)?;
        ensure(ran.code == Some(0), || {
            let said = format!("{}{}", ran.stdout, ran.stderr);
            format!("{arguments:?} ended with {:?}: {said:.400}", ran.code)
        })?;
        Ok(ran.stdout)
    }

    /// Deletes a document. The write-ahead log is empty then.
    fn remove(&self, document: &str) -> Result<(), AttackFailure> {
        self.must(&["knowledge", "remove", "--collection", "fees", document])?;
        Ok(())
    }

    /// The record of a run, as it is stored.
    fn exported(&self, run: &str) -> Result<String, AttackFailure> {
        self.must(&["runs", "export", run])
    }

    /// Files of the host's state in whose bytes one of the words is.
    fn files_with(&self, words: &[&str]) -> Result<Vec<String>, AttackFailure> {
        let mut found = Vec::new();
        let mut folders = vec![self.folder.path().join("state")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.is_file() {
                    let bytes = fs::read(&path)?;
                    let has = words.iter().filter(|word| holds(&bytes, word));
                    found.extend(has.map(|word| format!("{word} in {}", name(&path))));
                }
            }
        }
        Ok(found)
    }
}

/// Has a run of this task go on while something is tried.
fn during<T>(
    served: &Served,
    task: &Value,
    tries: impl FnOnce() -> Result<T, AttackFailure>,
) -> Result<T, AttackFailure> {
    let body = task.to_string();
    scope(|threads| {
        let ended = threads.spawn(|| served.run_task(&body));
        let tried = tries();
        if tried.is_err() {
            // The run would wait for a person who does not come.
            served.kill_now();
        }
        let ended = joined(ended);
        let tried = tried?;
        ended?;
        Ok(tried)
    })
}

/// True if the word is there in large or small letters: indexes have small ones.
fn holds(bytes: &[u8], word: &str) -> bool {
    let word = word.as_bytes();
    bytes
        .windows(word.len())
        .any(|part| part.eq_ignore_ascii_case(word))
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// A reply that makes one call.
fn calls(tool: &str, arguments: &Value) -> String {
    let mut call = json!({"_tool": tool});
    for (name, value) in arguments.as_object().into_iter().flatten() {
        call[name.as_str()] = value.clone();
    }
    json!({"calls": [call], "output": null}).to_string()
}

fn search() -> String {
    calls(
        "knowledge.search",
        &json!({"question": QUESTION, "_outputPath": "†state.found"}),
    )
}

fn task() -> Value {
    json!({"messages": [{"role": "user", "content": QUESTION}]})
}

fn client(served: &Served) -> RunClient<'_> {
    RunClient { served, key: None }
}

/// The call that waits for a person, once there is one.
fn question(served: &Served) -> Result<Value, AttackFailure> {
    until("a call that waits for a person", || {
        let listed = client(served).get("/v1/approvals")?;
        let first = listed["calls"].as_array().and_then(|calls| calls.first());
        Ok(first.cloned())
    })
}

fn approve(served: &Served) -> Result<(), AttackFailure> {
    let call = question(served)?;
    let part = |name: &str| call[name].as_str().unwrap_or_default();
    let path = format!("/v1/approvals/{}/{}", part("run"), part("call"));
    let body = json!({"digest": call["digest"], "verdict": "approve"});
    let answered = client(served).ask("POST", &path, &body)?;
    ensure(answered.status == 202, || {
        format!("a decision was answered {answered:?}")
    })
}

/// Has the texts told in all ways. A run looks for passages before it begins, searches, remembers what a person
/// approves, recalls it, and passes the passages on; clients call the tools without a model.
fn tell(host: &KnowledgeHost, served: &Served) -> Result<(), AttackFailure> {
    let fact = format!("The user's \"{FACT}\" is a secret of {FACT}");
    host.model.say([
        search(),
        calls(
            REMEMBER,
            &json!({"text": fact, "_reasoningForCall": format!("because of {FACT}")}),
        ),
        calls("knowledge.recall", &json!({"question": "secret"})),
        calls("liar.say", &json!({"word": "†state.found"})),
    ]);
    during(served, &task(), || approve(served))?;
    let direct = |tool: &str, arguments: &Value| {
        let path = format!("/v1/tools/{tool}");
        let answered = client(served).ask("POST", &path, &json!({"arguments": arguments}))?;
        ensure(answered.status == 200, || {
            format!("a call of {tool} was answered {answered:?}")
        })?;
        let said: Value = serde_json::from_str(&answered.body).unwrap_or_default();
        Ok::<Value, AttackFailure>(said["result"].clone())
    };
    let found = direct("knowledge.search", &json!({"question": QUESTION}))?;
    let passage = &found["passages"][0]["id"];
    direct("knowledge.read", &json!({"id": passage}))?;
    direct("knowledge.recall", &json!({}))?;
    Ok(())
}

/// The id of the one fact that is known.
fn known_fact(host: &KnowledgeHost) -> Result<String, AttackFailure> {
    let listed = host.must(&["memory", "list", "--json"])?;
    let fact = listed.lines().next().unwrap_or_default();
    let fact: Value = serde_json::from_str(fact).unwrap_or_default();
    let id = fact["id"].as_str().unwrap_or_default().to_owned();
    ensure(!id.is_empty(), || {
        format!("no fact is remembered: nothing is proved: {listed:.300}")
    })?;
    Ok(id)
}

fn texts_of_deleted_documents(lab: &Lab) -> Result<String, AttackFailure> {
    let host = KnowledgeHost::new(lab, "said", "[knowledge]\ncollections = [\"fees\"]\n")?;
    let served = host.serve()?;
    tell(&host, &served)?;
    let ended = client(&served).runs()?;
    let told: Vec<String> = ended
        .iter()
        .map(|run| host.exported(run))
        .collect::<Result<_, _>>()?;
    let told = told.concat();
    // Each way is in a record, or nothing is proved.
    for part in [
        PASSAGE,
        FACT,
        "\"event\":\"retrieved\"",
        "\"event\":\"approval\"",
        "\"event\":\"decided\"",
        "\"filled\":",
    ] {
        ensure(told.contains(part), || {
            format!("{part} is in no record: nothing is proved")
        })?;
    }
    let fact = known_fact(&host)?;
    // A run that goes on keeps what it was shown, and no longer.
    host.model.say([
        calls("knowledge.recall", &json!({})),
        calls(REMEMBER, &json!({"text": "Nothing else."})),
    ]);
    let held = during(&served, &task(), || {
        let call = question(&served)?;
        let run = call["run"].as_str().unwrap_or_default().to_owned();
        host.must(&["memory", "forget", &fact])?;
        ensure(holds(host.exported(&run)?.as_bytes(), FACT), || {
            "a run that goes on lost what it may be resumed from: nothing is proved".into()
        })?;
        let cancel = format!("/v1/runs/{run}/cancel");
        client(&served).ask("POST", &cancel, &Value::Null)?;
        Ok(run)
    })?;
    drop(served);
    host.remove("notes/fees.md")?;
    let left = host.files_with(&WORDS)?;
    ensure(left.is_empty(), || {
        format!("texts that were deleted are still there: {left:?}")
    })?;
    let mut redacted = 0;
    for run in ended.iter().chain([&held]) {
        let record = host.exported(run)?;
        let has: Vec<&str> = WORDS
            .into_iter()
            .filter(|word| holds(record.as_bytes(), word))
            .collect();
        ensure(has.is_empty(), || {
            format!("the record of {run} still has {has:?}")
        })?;
        redacted += usize::from(record.contains("\"removed\":"));
        host.must(&["show", run])?;
        host.must(&["runs", "replay", run])?;
    }
    // One run of a model, one that went on, and three calls of clients.
    ensure(redacted == 5, || {
        format!("{redacted} records say that they lack texts, not 5")
    })?;
    host.must(&["audit", "verify"])?;
    Ok(format!("{redacted} records without the texts, all genuine"))
}
