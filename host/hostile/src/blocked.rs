//! Row 60: work that blocks threads, all of it for one caller.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Arena, Lab, expect_kind, ms};
use crate::process;
use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use toolhold_policy::{Access, Caller, DirectoryGrant, Grant, Keep, Output, ScratchGrant};
use toolhold_sandbox::{ModulePolicy, Storage};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 60,
        name: "walks_of_one_caller",
        attack: "one caller lists and measures a crowded directory in all its places, and cancels, over and over",
        must: "others' calls of files are answered meanwhile; no walk goes on after its call",
        company: Company::Others,
        tries: |lab| Box::pin(walks_of_one_caller(lab)),
    },
    Attack {
        row: 60,
        name: "copies_of_one_key",
        attack: "one key asks for hundreds of copies of its session's files, and leaves",
        must: "another key's are copied in its turn; what waited is not begun",
        company: Company::Others,
        tries: |lab| Box::pin(copies_of_one_key(lab)),
    },
];

/// Places of the engine: some of them, and of its threads for files, are kept for newcomers.
const PLACES: u32 = 32;
/// Calls of the caller at a time: more than it has places.
const CALLS: usize = 40;
/// Entries of the crowded directory. With more than 100 000 it would be full without being measured.
const ENTRIES: usize = 60_000;
/// Time until the caller cancels all of its calls. Not all of the listings end within it.
const HOLD: Duration = Duration::from_millis(40);
/// Maximum time of a call of others, beside threads that compute.
const ANSWERED: Duration = Duration::from_secs(5);
/// Room of the small directories.
const ROOM: u64 = 1 << 20;

const ADA: Caller<'_> = Caller {
    tenant: "ada",
    session: "1",
};
const BOB: Caller<'_> = Caller {
    tenant: "bob",
    session: "1",
};
const EVE: Caller<'_> = Caller {
    tenant: "eve",
    session: "1",
};

fn limited(host: &Path, guest: &str, quota_bytes: u64) -> DirectoryGrant {
    DirectoryGrant {
        host: host.to_owned(),
        guest: guest.into(),
        access: Access::ReadWrite,
        quota_bytes: Some(quota_bytes),
    }
}

/// Descriptors of this process that lead to the folder. 0 where the system does not say.
fn open_in(folder: &Path) -> usize {
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else {
        return 0;
    };
    descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.starts_with(folder))
        .count()
}

/// Processor time of this process; zero where the system does not tell it.
fn computed() -> Duration {
    process::processor_time_of(std::process::id()).unwrap_or_default()
}

async fn walks_of_one_caller(lab: &Lab) -> Result<String, AttackFailure> {
    let (crowded, small) = (lab.folder_in_memory()?, lab.folder()?);
    for number in 0..ENTRIES {
        fs::write(crowded.path().join(format!("file-{number}")), "")?;
    }
    let folders = ["bad", "other"].map(|name| small.path().join(name));
    for folder in &folders {
        fs::create_dir(folder)?;
        fs::write(folder.join("file.txt"), "granted")?;
    }
    let [own, others] = &folders;
    let mut arena = lab.arena_of(PLACES, |policy| {
        policy.limits.timeout_ms = 30_000;
        policy.limits.calls_per_minute = 0;
        for (name, directories) in [
            // The crowded one is full, so each write into it asks for a measurement.
            (
                "bad",
                vec![
                    limited(crowded.path(), "/data", 1),
                    limited(own, "/small", ROOM),
                ],
            ),
            ("other", vec![limited(others, "/data", ROOM)]),
        ] {
            let module = ModulePolicy {
                grant: Grant {
                    directories,
                    ..Grant::default()
                },
                ..ModulePolicy::default()
            };
            policy.modules.insert(name.into(), module);
        }
    })?;
    arena.benign().await?;
    for name in ["bad", "other"] {
        arena.load(name, components::ATTACKER.to_vec()).await?;
    }
    let walks = Walks {
        arena: &arena,
        folder: crowded.path().canonicalize()?,
        patience: lab.grace(),
    };
    // Each round looks whether all of its walks have ended: what one leaves behind is seen in the first.
    Box::pin(walks.repeated(lab.times(6, 16))).await
}

/// Walks through the crowded directory.
struct Walks<'a> {
    arena: &'a Arena,
    folder: PathBuf,
    /// Time for all walks of cancelled calls to end.
    patience: Duration,
}

/// Calls of others beside a wave of walks.
#[derive(Default)]
struct BesideWave {
    calls: usize,
    slowest: Duration,
    /// The most descriptors of the crowded directory.
    open: usize,
}

impl Walks<'_> {
    async fn repeated(&self, rounds: usize) -> Result<String, AttackFailure> {
        let listing = |count: u32| json!({"handle": "listing", "count": count});
        let write = json!({"dir": "/data", "path": "new", "content": "x"});
        let before = open_in(&self.folder);
        let since = computed();
        let whole = self.arena.call_as(EVE, "bad.hoard", listing(1)).await;
        let listed = match whole.result? {
            Output::Value(value) | Output::Message(value) => value,
        };
        ensure(listed == json!(1), || {
            format!("the directory is not listed: {listed}; nothing is proved")
        })?;
        // The system counts in hundredths of a second.
        let whole = computed()
            .saturating_sub(since)
            .max(Duration::from_millis(10));
        let mut least = Duration::MAX;
        let (mut cut, mut calls, mut slowest, mut most_open) = (0, 0, Duration::ZERO, 0);
        for round in 0..rounds {
            let is_listing = round % 2 == 0;
            if !is_listing {
                // What is freed is why the next write measures the directory.
                let freed = json!({"dir": "/data", "path": format!("file-{round}")});
                let freed = self.arena.call_as(EVE, "bad.remove", freed).await;
                expect_kind(&freed, "ok")?;
            }
            let (tool, arguments) = if is_listing {
                ("bad.hoard", listing(2))
            } else {
                ("bad.write", write.clone())
            };
            let is_over = AtomicBool::new(false);
            let (ended, beside) = join(
                Box::pin(self.wave(tool, &arguments, &is_over)),
                Box::pin(self.beside(&is_over)),
            )
            .await;
            let beside = beside?;
            calls += beside.calls;
            slowest = slowest.max(beside.slowest);
            most_open = most_open.max(beside.open);
            cut += ended;
            let since = computed();
            self.ended(tool, before).await?;
            if is_listing {
                least = least.min(computed().saturating_sub(since));
            }
        }
        ensure(cut > 0 && calls > 0, || {
            format!("{cut} calls were cancelled beside {calls}: nothing is proved")
        })?;
        ensure(most_open > before || before == 0, || {
            "no walk was seen: nothing is proved".into()
        })?;
        // A listing that goes on is computed to its end: in each place, and in each round.
        let most = 4 * whole + Duration::from_millis(100);
        ensure(least < most, || {
            format!(
                "{} were computed after the calls were cancelled, and a whole listing takes {}",
                ms(least),
                ms(whole)
            )
        })?;
        self.arena.unharmed().await?;
        Ok(format!(
            "{cut} cancelled, {} computed after them; the slowest of {calls} calls beside them took {}",
            ms(least),
            ms(slowest)
        ))
    }

    /// Makes calls in all places of the caller, and cancels them at once. How many were cut off.
    async fn wave(&self, tool: &str, arguments: &Value, is_over: &AtomicBool) -> usize {
        let calls = (0..CALLS).map(|_| {
            let call = self.arena.call_as(EVE, tool, arguments.clone());
            tokio::time::timeout(HOLD, call)
        });
        let ended = join_all(calls).await;
        is_over.store(true, Ordering::Relaxed);
        ended.iter().filter(|ended| ended.is_err()).count()
    }

    /// Calls of another module, and of the same module for another key, until the wave is over.
    async fn beside(&self, is_over: &AtomicBool) -> Result<BesideWave, AttackFailure> {
        let file = json!({"dir": "/data", "path": "new", "content": "x"});
        let calls = [
            (BOB, "bad.list", json!({"dir": "/small", "path": "."})),
            (ADA, "other.list", json!({"dir": "/data", "path": "."})),
            (ADA, "other.write", file),
        ];
        let mut beside = BesideWave::default();
        while !is_over.load(Ordering::Relaxed) {
            for (who, tool, arguments) in &calls {
                beside.open = beside.open.max(open_in(&self.folder));
                let started = Instant::now();
                let report = self.arena.call_as(*who, tool, arguments.clone()).await;
                let took = started.elapsed();
                expect_kind(&report, "ok")?;
                ensure(took < ANSWERED, || {
                    format!("{tool} for {} took {}", who.tenant, ms(took))
                })?;
                beside.slowest = beside.slowest.max(took);
                beside.calls += 1;
            }
        }
        Ok(beside)
    }

    /// Waits until the cancelled calls have no descriptor and no kept memory.
    async fn ended(&self, tool: &str, before: usize) -> Result<(), AttackFailure> {
        let started = Instant::now();
        loop {
            let open = open_in(&self.folder).saturating_sub(before);
            let kept = self.arena.registry.kept().taken();
            if open == 0 && kept == 0 {
                return Ok(());
            }
            ensure(started.elapsed() < self.patience, || {
                format!(
                    "{tool}: {open} descriptors are open and {kept} bytes kept {} after all calls were cancelled",
                    ms(self.patience)
                )
            })?;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Copies that the key asks for at once. Sixteen are made at a time.
const COPIES: usize = 300;
/// Copies that may be made before the other key's: those under way, and as many again on a machine with other work.
const BEFORE: usize = 32;
/// Files of the session that is copied.
const FILES: usize = 1_000;
/// Copies of the other key beside them.
const OWN: usize = 4;

async fn copies_of_one_key(lab: &Lab) -> Result<String, AttackFailure> {
    let state = lab.folder()?;
    let root = state.path().join("scratch");
    let mut arena = lab.arena(|policy| {
        policy.storage = Storage {
            scratch: Some(root.clone()),
            key_value: None,
        };
        let module = ModulePolicy {
            grant: Grant {
                scratch: Some(ScratchGrant {
                    keep: Keep::Session,
                    ..ScratchGrant::default()
                }),
                ..Grant::default()
            },
            ..ModulePolicy::default()
        };
        policy.modules.insert("bad".into(), module);
    })?;
    arena.benign().await?;
    arena.load("bad", components::ATTACKER.to_vec()).await?;
    let write = json!({"dir": "/scratch", "path": "f", "content": "x"});
    arena
        .call_as(EVE, "bad.write", write.clone())
        .await
        .result?;
    // The only folder that there is.
    for folder in fs::read_dir(&root)? {
        let folder = folder?.path();
        for number in 0..FILES {
            fs::write(folder.join(number.to_string()), "x")?;
        }
    }
    arena.call_as(ADA, "bad.write", write).await.result?;
    let (copied, registry) = (AtomicUsize::new(0), &arena.registry);
    let flood = join_all((0..COPIES).map(|number| {
        let (to, copied) = (format!("copy-{number}"), &copied);
        async move {
            let made = registry.carry_scratch(EVE.tenant, EVE.session, &to).await;
            copied.fetch_add(1, Ordering::Relaxed);
            made
        }
    }));
    let own = async {
        let mut slowest = Duration::ZERO;
        for number in 0..OWN {
            let to = format!("own-{number}");
            let (started, earlier) = (Instant::now(), copied.load(Ordering::Relaxed));
            registry.carry_scratch(ADA.tenant, ADA.session, &to).await?;
            slowest = slowest.max(started.elapsed());
            let passed = copied.load(Ordering::Relaxed) - earlier;
            ensure(passed <= BEFORE, || {
                format!("{passed} copies of one key were made before one of another")
            })?;
        }
        Ok::<_, AttackFailure>(slowest)
    };
    let slowest = tokio::select! {
        // In this order, so that the flood is there first.
        biased;
        _ = Box::pin(flood) => Err(AttackFailure::Broke(
            "all copies of one key were made before those of another".into(),
        )),
        slowest = Box::pin(own) => slowest,
    }?;
    let before = copied.load(Ordering::Relaxed);
    let made = all_made(&root).await?;
    // Those of the other key, and the two sessions themselves.
    let made = made.saturating_sub(OWN + 2);
    ensure(made <= before + BEFORE, || {
        format!("{made} copies were made, of which {before} before the key left")
    })?;
    arena.unharmed().await?;
    Ok(format!(
        "{made} of {COPIES} copies made; another key waited {} at most",
        ms(slowest)
    ))
}

/// Waits until no copy is under way. How many folders of sessions there are.
async fn all_made(root: &Path) -> Result<usize, AttackFailure> {
    /// Maximum time for the copies under way, on a slow disk.
    const PATIENCE: Duration = Duration::from_secs(30);
    let started = Instant::now();
    loop {
        let (mut under_way, mut made) = (0, 0);
        for entry in fs::read_dir(root)? {
            let name = entry?.file_name();
            if name.as_encoded_bytes().starts_with(b"session-") {
                made += 1;
            } else {
                under_way += 1;
            }
        }
        if under_way == 0 {
            return Ok(made);
        }
        ensure(started.elapsed() < PATIENCE, || {
            format!("{under_way} copies are under way after the key left")
        })?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
