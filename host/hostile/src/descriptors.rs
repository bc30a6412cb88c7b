//! Row 36: calls that take all files that this process may open, and files that become FIFOs.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::ground::AttackFolders;
use crate::lab::{Arena, Lab, kind, ms};
use crate::measure::fifo;
use crate::process;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toolhold_policy::{Grant, Output};
use toolhold_sandbox::{ModulePolicy, Policy, Registry};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 36,
        name: "descriptors_hoarded_by_two",
        attack: "two calls open files until none is left in the process",
        must: "refused; other calls, loads and servers go on",
        company: Company::Others,
        tries: |lab| Box::pin(descriptors_hoarded_by_two(lab)),
    },
    Attack {
        row: 36,
        name: "fifo_by_a_race",
        attack: "a granted file becomes a FIFO between look and open",
        must: "denied in time; no thread blocked",
        company: Company::Others,
        tries: |lab| Box::pin(fifo_by_a_race(lab)),
    },
    Attack {
        row: 36,
        name: "module_becomes_a_fifo",
        attack: "a module's file becomes a FIFO between look and open",
        must: "refused in time; no thread blocked",
        company: Company::Others,
        tries: |lab| Box::pin(module_becomes_a_fifo(lab)),
    },
    Attack {
        row: 36,
        name: "modules_without_number",
        attack: "more bad modules in a folder, as files and as folders, than a process may open files",
        must: "each refused; the good ones load",
        company: Company::Others,
        tries: |lab| Box::pin(modules_without_number(lab)),
    },
];

/// Where many systems begin.
const DESCRIPTORS: u64 = 1_024;

async fn descriptors_hoarded_by_two(lab: &Lab) -> Result<String, AttackFailure> {
    process::bound_descriptors(DESCRIPTORS)?;
    let ground = AttackFolders::new(lab)?;
    let mut arena = lab.arena(|policy| {
        for name in ["bad", "other"] {
            let module = ModulePolicy {
                grant: Grant {
                    directories: ground.directories(),
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
    let mut rounds = 0;
    for handle in ["descriptor", "file-stream", "socket"] {
        let hold = json!({"handle": handle, "count": 990, "nanoseconds": 2_500_000_000_u64});
        let hoarding = async {
            tokio::join!(
                arena.call("bad.hold", hold.clone()),
                arena.call("bad.hold", hold.clone())
            )
        };
        let beside = async {
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            go_on(&arena, &ground, lab).await
        };
        let (_, beside) = tokio::join!(hoarding, beside);
        beside.map_err(|fault| {
            AttackFailure::Broke(format!(
                "beside two calls that hoard a {handle} each: {fault}"
            ))
        })?;
        arena.unharmed().await?;
        rounds += 1;
    }
    Ok(format!("{rounds} kinds of files; all else went on"))
}

/// What must go on: calls with and without files, listening, loading a module.
async fn go_on(arena: &Arena, ground: &AttackFolders, lab: &Lab) -> Result<(), AttackFailure> {
    arena.value("benign.count", json!({})).await?;
    for path in ["file.txt", "sub/deep.txt"] {
        let file = json!({"dir": "/data", "path": path});
        let read = arena.value("other.read", file).await?;
        ensure(read == json!("granted"), || {
            format!("another call read {read}")
        })?;
    }
    let list = json!({"dir": "/data", "path": "."});
    let listed = arena.value("other.list", list).await?;
    ensure(
        listed.as_array().is_some_and(|names| !names.is_empty()),
        || format!("another call listed {listed}"),
    )?;
    // What a server does for each client, and a host for its records.
    std::net::TcpListener::bind("127.0.0.1:0")?;
    fs::read(ground.inside("file.txt"))?;
    let registry = Registry::new(arena.engine.clone(), None, Policy::default());
    let bytes = components::parse(&components::which(1))?;
    registry.load_bytes("late", bytes).await?;
    drop(lab.folder()?);
    Ok(())
}

async fn modules_without_number(lab: &Lab) -> Result<String, AttackFailure> {
    process::bound_descriptors(DESCRIPTORS)?;
    let folder = lab.folder_in_memory()?;
    let good = components::parse(&components::which(1))?;
    for number in 0..DESCRIPTORS * 2 {
        // In the order of names before, between and behind the good ones.
        let name = ["a", "n", "z"][number as usize % 3];
        let path = folder.path().join(format!("{name}{number}"));
        if number % 2 == 0 {
            fs::write(path.with_extension("wasm"), "no component")?;
        } else {
            fs::create_dir(&path)?;
            fs::write(path.join("module.toml"), "")?;
        }
    }
    fs::write(folder.path().join("mine.wasm"), &good)?;
    fs::create_dir(folder.path().join("own"))?;
    fs::write(folder.path().join("own/own.wasm"), &good)?;
    let arena = lab.against(components::COMPUTE, |_| ()).await?;
    let registry = Registry::new(arena.engine.clone(), None, Policy::default());
    let started = Instant::now();
    for load in ["first", "second"] {
        registry.load_folder(folder.path(), None, &|_| ()).await?;
        for name in ["mine", "own"] {
            ensure(registry.module(name).is_some(), || {
                format!("the good module {name} is not there after the {load} load")
            })?;
        }
    }
    arena.unharmed().await?;
    Ok(format!(
        "{} bad ones beside two good ones, loaded twice in {}",
        DESCRIPTORS * 2,
        ms(started.elapsed())
    ))
}

/// Shorter than any read or load, so each of them meets changes. Without a pause the changes themselves would take a
/// processor.
const SWAP_PAUSE: Duration = Duration::from_micros(20);

/// Puts now a file with `content` and now a FIFO at a path.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Swapper {
    fn start(path: &Path, aside: &Path, content: &[u8]) -> Result<Self, AttackFailure> {
        let (file, pipe, next) = (aside.join("file"), aside.join("pipe"), aside.join("next"));
        fs::write(&file, content)?;
        fifo(&pipe)?;
        let (stop, path) = (Arc::new(AtomicBool::new(false)), path.to_owned());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for source in [&pipe, &file] {
                    // In one step, by a name for what is there already. The other one of the two is at the path, so
                    // the name is free again.
                    fs::hard_link(source, &next)?;
                    fs::rename(&next, &path)?;
                    std::thread::sleep(SWAP_PAUSE);
                }
            }
            Ok(())
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    fn stop(mut self) -> Result<(), AttackFailure> {
        self.stop.store(true, Ordering::Relaxed);
        let swapped = self.thread.take().map(JoinHandle::join);
        match swapped {
            Some(Ok(swapped)) => Ok(swapped?),
            _ => Err(AttackFailure::Broke("the swapper panicked".into())),
        }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

async fn fifo_by_a_race(lab: &Lab) -> Result<String, AttackFailure> {
    let (ground, aside) = (AttackFolders::new(lab)?, lab.folder()?);
    let grant = Grant {
        directories: ground.directories(),
        ..Grant::default()
    };
    // A call that fails alone: what matters is that it ends, and that its threads do.
    let arena = lab.against_guest(grant, |l| l.timeout_ms = 3_000).await?;
    let swapper = Swapper::start(&ground.inside("raced"), aside.path(), b"granted")?;
    let (mut slowest, calls) = (Duration::ZERO, lab.times(6, 40));
    let (mut outcome, mut changes) = (Ok(()), 0);
    // Some hundred reads, which take a fraction of the deadline unless one of them hangs. No pause between them: the
    // shortest one is a millisecond, in which no read meets a change.
    let watch = json!({"dir": "/data", "path": "raced", "times": 400, "nanoseconds": 0});
    for _ in 0..calls {
        let started = Instant::now();
        let report = arena.call("bad.watch", watch.clone()).await;
        let took = started.elapsed();
        slowest = slowest.max(took);
        if kind(&report) == "deadline" {
            outcome = Err(AttackFailure::Broke(format!(
                "a read hung on the FIFO until the deadline, for {}",
                ms(took)
            )));
            break;
        }
        if let Ok(Output::Value(Value::Array(contents)) | Output::Message(Value::Array(contents))) =
            &report.result
        {
            changes += contents.len().saturating_sub(1);
        }
    }
    swapper.stop()?;
    outcome?;
    ensure(changes > 0, || {
        "no call saw both the file and the FIFO: nothing is proved".into()
    })?;
    arena.unharmed().await?;
    // Threads that are left behind are counted after this.
    Ok(format!(
        "{calls} calls, which saw {changes} changes; slowest {}",
        ms(slowest)
    ))
}

async fn module_becomes_a_fifo(lab: &Lab) -> Result<String, AttackFailure> {
    let (folder, aside) = (lab.folder_in_memory()?, lab.folder_in_memory()?);
    let arena = lab.against(components::COMPUTE, |_| ()).await?;
    let bytes = components::parse(&components::which(1))?;
    let swapper = Swapper::start(&folder.path().join("raced.wasm"), aside.path(), &bytes)?;
    let (mut slowest, loads) = (Duration::ZERO, lab.times(300, 6_000));
    let (mut outcome, mut loaded) = (Ok(()), 0);
    for _ in 0..loads {
        let registry = Registry::new(arena.engine.clone(), lab.cache(), Policy::default());
        let started = Instant::now();
        let loading = registry.load_folder(folder.path(), None, &|_| ());
        if tokio::time::timeout(Duration::from_secs(5), loading)
            .await
            .is_err()
        {
            outcome = Err(AttackFailure::Broke("a load hangs on a FIFO".into()));
            break;
        }
        slowest = slowest.max(started.elapsed());
        loaded += usize::from(registry.module("raced").is_some());
    }
    swapper.stop()?;
    outcome?;
    // Both the file and the FIFO were found, or nothing is proved.
    ensure((1..loads).contains(&loaded), || {
        format!("the file was loaded {loaded} times of {loads}: nothing is proved")
    })?;
    arena.unharmed().await?;
    Ok(format!(
        "{loads} loads, {loaded} of the file; slowest {}",
        ms(slowest)
    ))
}
