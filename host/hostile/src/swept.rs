//! Row 61: scratch files beside the sweeps of other processes of this host.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::killed::Running;
use crate::lab::{Arena, Lab, expect_kind};
use crate::serving::{Answering, MODELS, Served};
use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use std::fs::{self, File, TryLockError};
use std::future::ready;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use toolhold_admission::own_work;
use toolhold_policy::{Caller, Grant, Keep, Output, ScratchGrant};
use toolhold_sandbox::{ModulePolicy, Storage};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 61,
        name: "sweeps_beside_a_stopped_process",
        attack: "processes start while another one with calls is stopped, and their scratch files have times long ago; then it is killed",
        must: "the files stay until its calls end; the next process removes what a killed one left",
        company: Company::Others,
        tries: |lab| Box::pin(ready(sweeps_beside_a_stopped_process(lab))),
    },
    Attack {
        row: 61,
        name: "calls_that_begin_beside_sweeps",
        attack: "calls begin and end without pause beside sweeps, and their sessions' files have times long ago",
        must: "each call has its files, from its begin to its end",
        company: Company::Others,
        tries: |lab| Box::pin(calls_that_begin_beside_sweeps(lab)),
    },
];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
const CONFIG: [&str; 2] = ["--config", "host.toml"];
/// Time for what must come sooner or later.
const PATIENCE: Duration = Duration::from_secs(30);
/// Age of a folder in hours: more than a session may rest.
const LONG_AGO: Duration = Duration::from_hours(60 * 24);
/// Content of a call's file, before and after each sweep.
const KEPT: &str = "kept";
/// Folders that nothing uses. A sweep that is over has removed all of them.
const BAITS: u32 = 8;

fn made_old(path: &Path) -> io::Result<()> {
    File::open(path)?.set_modified(SystemTime::now() - LONG_AGO)
}

/// A host with scratch files, of calls (module `bad`) and of sessions (module `worse`).
struct ScratchHost {
    folder: CommandFolder,
    /// Folder of the scratch files.
    root: PathBuf,
}

/// A process with a call, which reads its file again and again.
struct RunningCall {
    process: Running,
    /// Its own folder of scratch files.
    scratch: PathBuf,
    /// The file that it prints to.
    said: PathBuf,
}

impl ScratchHost {
    fn new(lab: &Lab, model: u16) -> Result<Self, AttackFailure> {
        let folder = CommandFolder::new(lab)?;
        for name in ["bad", "worse"] {
            folder.write(&format!("modules/{name}.wasm"), components::ATTACKER)?;
        }
        folder.write(
            "host.toml",
            format!(
                "[endpoints.default]\nbase_url = \"http://127.0.0.1:{model}/v1\"\nmodel = \"m\"\n\
                 [modules]\npinning = \"never\"\n[serve]\nkeys = \"never\"\n[decisions]\ndefault = \"never\"\n\
                 [run]\ncall_timeout_ms = 120000\n\
                 [module.bad]\nscratch = {{ guest = \"/scratch\", quota_bytes = 1000000 }}\n\
                 [module.bad.limits]\ntimeout_ms = 120000\n\
                 [module.worse]\nscratch = {{ guest = \"/scratch\", quota_bytes = 1000000, keep = \"session\" }}\n\
                 [module.worse.limits]\ntimeout_ms = 120000\n"
            ),
        )?;
        let root = folder.path().join("state/modules/scratch");
        Ok(Self { folder, root })
    }

    /// Starts a call that reads its file so often, with a pause between, and waits until its folder is used.
    fn begin(&self, module: &str, times: u32) -> Result<RunningCall, AttackFailure> {
        let tool = format!("{module}.watch");
        let watch =
            json!({"dir": "/scratch", "path": "f", "times": times, "nanoseconds": 20_000_000})
                .to_string();
        let call = ["modules", "call", &tool, &watch, "--json", "--session", "s"];
        let said = self.folder.path().join(format!("said-{module}"));
        let prefix = if module == "bad" { "call-" } else { "session-" };
        // A call's folder is new. One that a call before it left is locked by the sweep that removes it.
        let others = match module {
            "bad" => folders(&self.root)?,
            _ => Vec::new(),
        };
        let process = self
            .folder
            .command(&[&CONFIG[..], &call].concat())
            .stdout(File::create(&said)?)
            .stderr(Stdio::null())
            .spawn()?;
        let process = Running(process);
        let started = Instant::now();
        let scratch = loop {
            if let Some(scratch) = used_folder(&self.root, prefix, &others)? {
                break scratch;
            }
            ensure(started.elapsed() < PATIENCE, || {
                format!("{tool} does not use a folder {prefix}: nothing is proved")
            })?;
            std::thread::sleep(Duration::from_millis(5));
        };
        fs::write(scratch.join("f"), KEPT)?;
        Ok(RunningCall {
            process,
            scratch,
            said,
        })
    }

    /// Puts folders that nothing uses beside those of calls.
    fn put_baits(&self) -> Result<Vec<PathBuf>, AttackFailure> {
        let mut baits = Vec::new();
        for number in 0..BAITS {
            let kind = ["call", "session"][number as usize % 2];
            let bait = self.root.join(format!("{kind}-bait-{number}"));
            fs::create_dir_all(bait.join("deeper"))?;
            fs::write(bait.join("deeper/f"), "bait")?;
            made_old(&bait)?;
            baits.push(bait);
        }
        Ok(baits)
    }

    /// Starts a server, and waits until its sweep has removed these folders.
    fn next_process(&self, left: &[PathBuf]) -> Result<Served, AttackFailure> {
        let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
        let served = Served::start(&self.folder, &serve)?;
        let started = Instant::now();
        while let Some(left) = left.iter().find(|path| path.exists()) {
            ensure(started.elapsed() < PATIENCE, || {
                format!("{} is left behind by the next process", left.display())
            })?;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(served)
    }
}

/// The folders of scratch files that there are.
fn folders(root: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// A folder with this prefix that a call uses, and none of the `others`: its lock cannot be taken.
fn used_folder(
    root: &Path,
    prefix: &str,
    others: &[PathBuf],
) -> Result<Option<PathBuf>, AttackFailure> {
    for path in folders(root)? {
        let name = path.file_name().unwrap_or_default();
        if !name.as_encoded_bytes().starts_with(prefix.as_bytes()) || others.contains(&path) {
            continue;
        }
        match File::open(&path).map(|folder| folder.try_lock()) {
            Ok(Err(TryLockError::WouldBlock)) => return Ok(Some(path)),
            Ok(Err(TryLockError::Error(error))) => {
                let reason = format!("this file system has no locks of folders: {error}");
                return Err(AttackFailure::Unable(reason));
            }
            // Nothing uses it, or it is gone.
            Ok(Ok(())) | Err(_) => {}
        }
    }
    Ok(None)
}

impl RunningCall {
    fn signal(&self, signal: &str) -> Result<(), AttackFailure> {
        let number = self.process.0.id().to_string();
        let sent = Command::new("kill").args([signal, &number]).status()?;
        ensure(sent.success(), || format!("kill {signal}: {sent}"))
    }

    fn ensure_kept(&self, after: &str) -> Result<(), AttackFailure> {
        let file = self.scratch.join("f");
        let is_kept = fs::read_to_string(&file).is_ok_and(|text| text == KEPT);
        ensure(is_kept, || {
            format!("{}: lost by {after}, while its call ran", file.display())
        })
    }

    /// Waits for its end. The call saw its file to the end.
    fn ended(mut self) -> Result<(), AttackFailure> {
        let started = Instant::now();
        let status: ExitStatus = loop {
            if let Some(status) = self.process.0.try_wait()? {
                break status;
            }
            ensure(started.elapsed() < PATIENCE, || {
                "the call does not end after it went on".into()
            })?;
            std::thread::sleep(Duration::from_millis(10));
        };
        let said = fs::read_to_string(&self.said)?;
        let report: Value = serde_json::from_str(&said).unwrap_or_default();
        let seen = report["result"]["value"].as_array();
        let last = seen.and_then(|seen| seen.last());
        ensure(status.success() && last == Some(&json!(KEPT)), || {
            format!("the call ended with {status}, and saw {said:.300}")
        })
    }
}

fn sweeps_beside_a_stopped_process(lab: &Lab) -> Result<String, AttackFailure> {
    /// Two seconds, and two minutes.
    const SHORT: u32 = 100;
    const LONG: u32 = 6_000;
    let model = Answering::start(200, MODELS)?;
    let host = ScratchHost::new(lab, model.port)?;
    let storage = Storage {
        scratch: Some(host.root.clone()),
        key_value: None,
    };
    let mut calls = Vec::new();
    for module in ["bad", "worse"] {
        let call = host.begin(module, SHORT)?;
        call.signal("-STOP")?;
        calls.push(call);
    }
    let rounds = lab.times(1, 5);
    for _ in 0..rounds {
        for call in &calls {
            made_old(&call.scratch.join("f"))?;
            made_old(&call.scratch)?;
        }
        // This process is another one of the host, and its sweep is over when it returns.
        let baits = host.put_baits()?;
        storage.sweep();
        let left = baits.iter().filter(|bait| bait.exists()).count();
        ensure(left == 0, || {
            format!("{left} of {BAITS} unused folders are left behind by a sweep")
        })?;
        for call in &calls {
            call.ensure_kept("a sweep")?;
        }
        drop(host.next_process(&host.put_baits()?)?);
        for call in &calls {
            call.ensure_kept("the start of a server")?;
        }
    }
    for call in calls {
        call.signal("-CONT")?;
        call.ended()?;
    }
    // What a call left whose process was killed goes; what a session has stays for the next call.
    let (mut call, mut session) = (host.begin("bad", LONG)?, host.begin("worse", LONG)?);
    let ended = call.process.0.try_wait()?;
    ensure(ended.is_none(), || {
        let said = fs::read_to_string(&call.said).unwrap_or_default();
        format!("the call ended with {ended:?} before its process was killed: {said:.300}")
    })?;
    // The session's process first: on a busy machine its sweep runs late, and would remove what the other's leaves.
    session.process.kill()?;
    call.process.kill()?;
    ensure(call.scratch.exists(), || {
        "a killed process left nothing: nothing is proved".into()
    })?;
    drop(host.next_process(std::slice::from_ref(&call.scratch))?);
    session.ensure_kept("the start after its process was killed")?;
    let read = json!({"dir": "/scratch", "path": "f"}).to_string();
    let read = ["modules", "call", "worse.read", &read, "--session", "s"];
    let read = host.folder.run(&[&CONFIG[..], &read].concat(), BOUNDS)?;
    ensure(read.code == Some(0) && read.stdout.contains(KEPT), || {
        format!("a session lost its file: {}{}", read.stdout, read.stderr)
    })?;
    Ok(format!(
        "{rounds} rounds: files of stopped calls kept; what a killed call left is removed"
    ))
}

/// Sessions of the calls that keep their files.
const SESSIONS: [&str; 4] = ["one", "two", "three", "four"];

fn caller(session: &str) -> Caller<'_> {
    Caller {
        tenant: "ada",
        session,
    }
}

async fn calls_that_begin_beside_sweeps(lab: &Lab) -> Result<String, AttackFailure> {
    // Sweeps follow each other without a pause, and beside a call there are more of them where no disk is waited for.
    let state = lab.folder_in_memory()?;
    let root = state.path().join("scratch");
    let storage = Storage {
        scratch: Some(root.clone()),
        key_value: None,
    };
    let mut arena = lab.arena(|policy| {
        policy.storage = storage.clone();
        policy.limits.calls_per_minute = 0;
        for (name, keep) in [("bad", Keep::Call), ("worse", Keep::Session)] {
            let module = ModulePolicy {
                grant: Grant {
                    scratch: Some(ScratchGrant {
                        keep,
                        ..ScratchGrant::default()
                    }),
                    ..Grant::default()
                },
                ..ModulePolicy::default()
            };
            policy.modules.insert(name.into(), module);
        }
    })?;
    arena.benign().await?;
    for name in ["bad", "worse"] {
        arena.load(name, components::ATTACKER.to_vec()).await?;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = is_over.clone();
    let sweeping = own_work(move || {
        let mut sweeps = 0_u32;
        while !seen.load(Ordering::Relaxed) {
            storage.sweep();
            sweeps += 1;
        }
        sweeps
    });
    let rounds = lab.times(40, 160);
    let calling = async {
        let mut result = Ok(());
        for round in 0..rounds {
            result = one_round(&arena, &root, round).await;
            if result.is_err() {
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        result
    };
    let (sweeps, called) = join(Box::pin(sweeping), Box::pin(calling)).await;
    called?;
    let sweeps = sweeps.map_err(|failure| AttackFailure::Broke(failure.to_string()))?;
    ensure(sweeps > 1, || "nobody swept: nothing is proved".into())?;
    arena.unharmed().await?;
    Ok(format!("{rounds} rounds of calls beside {sweeps} sweeps"))
}

/// Calls in all sessions, whose folders have times long ago, and as many calls with files of their own. Then each session
/// has what was written in it last.
async fn one_round(arena: &Arena, root: &Path, round: u32) -> Result<(), AttackFailure> {
    if let Ok(entries) = fs::read_dir(root) {
        for entry in entries.flatten() {
            // A sweep may have it by now.
            let _ = made_old(&entry.path());
        }
    }
    let content = format!("round {round}");
    let write = json!({"dir": "/scratch", "path": "f", "content": content});
    let read = json!({"dir": "/scratch", "path": "f"});
    let each = SESSIONS.iter().flat_map(|session| {
        ["bad.write", "worse.write"].map(|tool| arena.call_as(caller(session), tool, write.clone()))
    });
    for report in join_all(each).await {
        expect_kind(&report, "ok")?;
    }
    for session in SESSIONS {
        let report = arena
            .call_as(caller(session), "worse.read", read.clone())
            .await;
        let found = match report.result? {
            Output::Value(value) | Output::Message(value) => value,
        };
        ensure(found == json!(content), || {
            format!("session {session} has {found} in round {round}")
        })?;
    }
    Ok(())
}
