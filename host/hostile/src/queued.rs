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
    attack: "keys are revoked or expire while their requests wait for a permit, a person, or a place that a call of the same or another key has",
    must: "all end with the reason; none is made, although the places are free then, or freed by that very end",
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
/// Files that the requests would make: by the call that waits for a person, those that wait for a place, and the one that
/// waits for a permit.
const FILES: [&str; 4] = ["by-person", "by-place", "by-place-too", "by-permit"];
/// Runs of a key at a time.
const PERMITS: usize = 2;

/// Whose call sleeps in the one place of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleeper {
    /// A call of the key that ends, whose end frees the place.
    Own,
    /// A call of another key. Nothing of the ended key frees its place.
    Others,
}

/// Requests of a key that wait: for a person, for the place of a call that sleeps, and for a permit.
struct WaitingRequests {
    /// The call that sleeps.
    sleeper: (String, TcpStream),
    /// Ids of the runs that began and wait; the last request waits to be one.
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

    /// Waits until a gauge has this number.
    fn until_gauge(
        &self,
        (gauge, label): (&str, &str),
        count: usize,
        deadline: Instant,
    ) -> Result<(), AttackFailure> {
        let end = format!(" {count}");
        until("a request that waits", || {
            ensure(Instant::now() < deadline, || {
                "the key ended before its requests waited".into()
            })?;
            let shown = self.admin().ask("GET", "/metrics", &Value::Null)?;
            let mut lines = shown.body.lines();
            let is_there = lines.any(|line| {
                line.starts_with(gauge) && line.contains(label) && line.ends_with(&end)
            });
            Ok(is_there.then_some(()))
        })
    }

    /// Has requests of a key wait in each way, in all of its permits.
    fn begin(
        &self,
        key: &str,
        sleeper: Sleeper,
        deadline: Instant,
    ) -> Result<WaitingRequests, AttackFailure> {
        let own = self.client(key);
        let [person, places @ .., permit] = FILES;
        let running = ("toolhold_sandbox_calls", "state=\"running\"");
        let waiting = ("toolhold_sandbox_calls", "state=\"waiting\"");
        let sleep = json!({"arguments": {"count": 1, "nanoseconds": 60_000_000_000_u64}});
        let (sleeps, free) = match sleeper {
            Sleeper::Own => (own, PERMITS - 1),
            Sleeper::Others => (self.admin(), PERMITS),
        };
        let sleeper = sleeps.begin("bad.wait", &sleep)?;
        self.until_gauge(running, 1, deadline)?;
        let (fill, question) = own.begin(
            JUDGED,
            &json!({"arguments": {"dir": "/data", "path": person, "chunk": 1, "chunks": 1}}),
        )?;
        own.until_question(&fill)?;
        let (mut runs, mut answers) = (vec![fill], vec![question]);
        // A run that waits for a person has no permit.
        for place in places.into_iter().take(free) {
            let (run, answer) = own.begin("bad.write", &written(place))?;
            runs.push(run);
            answers.push(answer);
        }
        self.until_gauge(waiting, free, deadline)?;
        answers.push(own.send("bad.write", &written(permit))?);
        self.until_gauge(("toolhold_run_queue_length", ""), 1, deadline)?;
        Ok(WaitingRequests {
            sleeper,
            runs,
            answers,
        })
    }

    /// Ends the right of a key whose requests wait. Returns how long they waited after it; `None`: it had ended before
    /// they waited.
    fn ends(
        &self,
        key: &str,
        whose: Sleeper,
        word: &str,
        deadline: Instant,
        end: impl FnOnce() -> Result<RightEnd, AttackFailure>,
    ) -> Result<Option<Duration>, AttackFailure> {
        let before = self.admin().runs()?.len();
        let begun = self.begin(key, whose, deadline);
        if Instant::now() >= deadline {
            // The call that sleeps may be there: the next key waits for its end.
            self.wake()?;
            return Ok(None);
        }
        let WaitingRequests {
            sleeper: (sleeper, _sleeps),
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
        let is_own = whose == Sleeper::Own;
        for run in runs.iter().chain(is_own.then_some(&sleeper)) {
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
        let sleeps_on = self.admin().state(&sleeper)? == "running";
        ensure(sleeps_on != is_own, || {
            format!("a call in the place of {whose:?} goes on: {sleeps_on}")
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
             [serve]\nkeys = \"always\"\nkey_requests_per_minute = 0\nkey_concurrent_runs = {PERMITS}\n\
             [decisions]\ndefault = \"never\"\nalways = [\"{JUDGED}\"]\n[run]\ncall_timeout_ms = 120000\n\
             [module.bad]\ndirectories = [{{ host = \"./data\", guest = \"/data\", access = \"read-write\" }}]\n\
             [module.bad.limits]\ntimeout_ms = 120000\nconcurrent_calls = 1\n",
            endpoint.port
        ),
    )?;
    let admin = folder.key_with(&CONFIG, "root", &["--scopes", "run,approve,admin"], BOUNDS)?;
    let revoked = [
        ("ada", Sleeper::Others, folder.key(&CONFIG, "ada", BOUNDS)?),
        ("bob", Sleeper::Own, folder.key(&CONFIG, "bob", BOUNDS)?),
    ];
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
    let mut slowest = Duration::ZERO;
    for (name, whose, key) in &revoked {
        let late = Instant::now() + BOUNDS.time;
        let ended = bench.ends(key, *whose, "revoked", late, || {
            revoke(&bench.folder, name, &[])
        })?;
        let ended = ended.ok_or_else(|| {
            AttackFailure::Broke("its requests did not wait in time: nothing is proved".into())
        })?;
        slowest = slowest.max(ended);
        bench.ensure_unmade(&format!("after-{name}"))?;
    }
    for life in LIVES {
        let name = format!("dora{life}");
        let ExpiringKey { header, end } = ExpiringKey::new(&bench.folder, &name, life)?;
        let deadline = end.earliest;
        let ended = bench.ends(&header, Sleeper::Own, "has expired", deadline, || Ok(end))?;
        if let Some(last) = ended {
            bench.ensure_unmade("after-dora")?;
            return Ok(format!(
                "all ended {} after it at most",
                ms(slowest.max(last))
            ));
        }
    }
    Err(AttackFailure::Broke(
        "no requests waited before their key expired: nothing is proved".into(),
    ))
}
