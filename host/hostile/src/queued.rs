//! Row 58: requests that wait when the right of their key ends.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::revoked::{ExpiringKey, LIVES, MOST, RightEnd, revoke};
use crate::runs::{RunClient, until};
use crate::serving::{Answering, MODELS, Served};
use serde_json::{Value, json};
use std::future::ready;
use std::io::Read as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

pub const ATTACKS: &[Attack] = &[Attack {
    row: 58,
    name: "requests_that_wait_for_their_turn",
    attack: "a key is revoked, another expires, while requests of it wait for a permit, a place of a module and a person",
    must: "all end with the reason; none is made, although the places are free then",
    company: Company::Others,
    tries: |lab| Box::pin(ready(requests_that_wait_for_their_turn(lab))),
}];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// The tool that waits for a person.
const JUDGED: &str = "bad.fill";
/// Files that the requests would make.
const FILES: [&str; 3] = ["by-person", "by-place", "by-permit"];

/// Requests of a key that wait: for a person, for the place of a call that sleeps, and for a permit.
struct WaitingRequests {
    /// The call that sleeps, of another key: nothing of the ended key frees its place.
    sleeper: (String, TcpStream),
    /// Ids of the runs that began; the last request waits to be one.
    runs: Vec<String>,
    answers: Vec<TcpStream>,
}

struct QueuedBench {
    served: Served,
    folder: CommandFolder,
    /// Header of a key that sees everything.
    admin: String,
}

impl QueuedBench {
    fn client<'a>(&'a self, key: &'a str) -> RunClient<'a> {
        RunClient {
            served: &self.served,
            key: Some(key),
        }
    }

    fn admin(&self) -> RunClient<'_> {
        self.client(&self.admin)
    }

    /// Waits until a gauge is 1.
    fn until_one(&self, gauge: &str, label: &str, deadline: Instant) -> Result<(), AttackFailure> {
        until("a request that waits", || {
            ensure(Instant::now() < deadline, || {
                "the key ended before its requests waited".into()
            })?;
            let shown = self.admin().ask("GET", "/metrics", &Value::Null)?;
            let mut lines = shown.body.lines();
            let is_one = lines.any(|line| {
                line.starts_with(gauge) && line.contains(label) && line.ends_with(" 1")
            });
            Ok(is_one.then_some(()))
        })
    }

    /// Has requests of a key wait in each way.
    fn begin(&self, key: &str, deadline: Instant) -> Result<WaitingRequests, AttackFailure> {
        let own = self.client(key);
        let [person, place, permit] = FILES;
        let calls = "toolhold_sandbox_calls";
        let sleep = json!({"arguments": {"count": 1, "nanoseconds": 60_000_000_000_u64}});
        let sleeper = self.admin().begin("bad.wait", &sleep)?;
        self.until_one(calls, "state=\"running\"", deadline)?;
        let (fill, question) = own.begin(
            JUDGED,
            &json!({"arguments": {"dir": "/data", "path": person, "chunk": 1, "chunks": 1}}),
        )?;
        own.until_question(&fill)?;
        let (next, placeless) = own.begin("bad.write", &written(place))?;
        self.until_one(calls, "state=\"waiting\"", deadline)?;
        let permitless = own.send("bad.write", &written(permit))?;
        self.until_one("toolhold_run_queue_length", "", deadline)?;
        Ok(WaitingRequests {
            sleeper,
            runs: vec![fill, next],
            answers: vec![question, placeless, permitless],
        })
    }

    /// Ends the right of a key whose requests wait. Returns how long they waited after it; `None`: it had ended before
    /// they waited.
    fn ends(
        &self,
        key: &str,
        word: &str,
        deadline: Instant,
        end: impl FnOnce() -> Result<RightEnd, AttackFailure>,
    ) -> Result<Option<Duration>, AttackFailure> {
        let before = self.admin().runs()?.len();
        let begun = self.begin(key, deadline);
        if Instant::now() >= deadline {
            // The call that sleeps may be there: the next key waits for its end.
            self.wake()?;
            return Ok(None);
        }
        let WaitingRequests {
            sleeper,
            runs,
            mut answers,
        } = begun?;
        let RightEnd { latest, .. } = end()?;
        let mut said = Vec::new();
        for answer in &mut answers {
            let mut bytes = Vec::new();
            answer.read_to_end(&mut bytes)?;
            said.push(String::from_utf8_lossy(&bytes).into_owned());
        }
        let took = latest.elapsed();
        ensure(took < MOST, || {
            format!("requests of an ended key went on for {}", ms(took))
        })?;
        // The one without a permit is no run, so its answer alone has the reason.
        let unbegun = said.last().map(String::as_str).unwrap_or_default();
        ensure(
            unbegun.split(' ').nth(1) == Some("401") && unbegun.contains(word),
            || format!("a request that waited for a permit was answered {unbegun:.400}"),
        )?;
        for run in &runs {
            self.admin().until_over(run)?;
            let events = self.admin().events(run)?;
            let last = events.last().map(Value::to_string).unwrap_or_default();
            ensure(last.contains(word), || {
                format!("a run of an ended key does not say why it ended: {last:.400}")
            })?;
        }
        let after = self.admin().runs()?.len();
        ensure(after == before + 1 + runs.len(), || {
            format!(
                "{before} runs, {} begun, and {after} in the end",
                1 + runs.len()
            )
        })?;
        ensure(self.admin().state(&sleeper.0)? == "running", || {
            "the call of another key ended with them".into()
        })?;
        self.wake()?;
        Ok(Some(took))
    }

    /// Cancels the calls of the other key, and waits until their places are free.
    fn wake(&self) -> Result<(), AttackFailure> {
        for run in self.admin().runs()? {
            if self.admin().state(&run)? != "done" {
                let cancel = format!("/v1/runs/{run}/cancel");
                self.admin().ask("POST", &cancel, &Value::Null)?;
                self.admin().until_over(&run)?;
            }
        }
        Ok(())
    }

    /// The places are free again: another key's call is made, and none of the ended keys was.
    fn ensure_unmade(&self, name: &str) -> Result<(), AttackFailure> {
        let answered = self
            .admin()
            .ask("POST", "/v1/tools/bad.write", &written(name))?;
        let data = self.folder.path().join("data");
        ensure(answered.status == 200 && data.join(name).exists(), || {
            format!("no call is made after it: nothing is proved: {answered:?}")
        })?;
        let made: Vec<_> = FILES
            .iter()
            .filter(|file| data.join(file).exists())
            .collect();
        ensure(made.is_empty(), || {
            format!("requests of an ended key were made: {made:?}")
        })
    }
}

fn written(path: &str) -> Value {
    json!({"arguments": {"dir": "/data", "path": path, "content": "x"}})
}

fn requests_that_wait_for_their_turn(lab: &Lab) -> Result<String, AttackFailure> {
    let endpoint = Answering::start(200, MODELS)?;
    let folder = CommandFolder::new(lab)?;
    folder.write("modules/bad.wasm", components::ATTACKER)?;
    folder.write("data/empty", "")?;
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\n\
             [modules]\npinning = \"never\"\n\
             [serve]\nkeys = \"always\"\nkey_requests_per_minute = 0\nkey_concurrent_runs = 1\n\
             [decisions]\ndefault = \"never\"\nalways = [\"{JUDGED}\"]\n[run]\ncall_timeout_ms = 120000\n\
             [module.bad]\ndirectories = [{{ host = \"./data\", guest = \"/data\", access = \"read-write\" }}]\n\
             [module.bad.limits]\ntimeout_ms = 120000\nconcurrent_calls = 1\n",
            endpoint.port
        ),
    )?;
    let admin = folder.key_with(&CONFIG, "root", &["--scopes", "run,approve,admin"], BOUNDS)?;
    let revoked = folder.key(&CONFIG, "ada", BOUNDS)?;
    let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
    let served = Served::start(&folder, &serve)?;
    let bench = QueuedBench {
        served,
        folder,
        admin,
    };
    bench
        .admin()
        .until_ready("bad.preopens", &json!({"arguments": {}}))?;
    let late = Instant::now() + BOUNDS.time;
    let ended = bench.ends(&revoked, "revoked", late, || {
        revoke(&bench.folder, "ada", &[])
    })?;
    let first = ended.ok_or_else(|| {
        AttackFailure::Broke("its requests did not wait in time: nothing is proved".into())
    })?;
    bench.ensure_unmade("after-ada")?;
    for life in LIVES {
        let name = format!("dora{life}");
        let ExpiringKey { header, end } = ExpiringKey::new(&bench.folder, &name, life)?;
        let deadline = end.earliest;
        if let Some(second) = bench.ends(&header, "has expired", deadline, || Ok(end))? {
            bench.ensure_unmade("after-dora")?;
            return Ok(format!(
                "all ended {} after it at most",
                ms(first.max(second))
            ));
        }
    }
    Err(AttackFailure::Broke(
        "no requests waited before their key expired: nothing is proved".into(),
    ))
}
