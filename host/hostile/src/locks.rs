//! Row 49: modules that take locks, on files and on directories, and do not give them back.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Arena, Lab, directory, expect_kind, kind, ms};
use crate::process;
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use toolhold_policy::{Access, CallReport, Caller, Output};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 49,
        name: "locks_never_released",
        attack: "a call locks a file and returns, dies, sleeps beyond its deadline, is cancelled",
        must: "others are told that it is busy, and have the lock when the call is over",
        company: Company::Others,
        tries: |lab| Box::pin(locks_never_released(lab)),
    },
    Attack {
        row: 49,
        name: "locks_without_number",
        attack: "100 000 files opened for locks; 100 000 ranges of one file locked",
        must: "refused at a bound; descriptors and others' calls are fine",
        company: Company::Others,
        tries: |lab| Box::pin(locks_without_number(lab)),
    },
    Attack {
        row: 49,
        name: "directory_never_left",
        attack: "calls that have a directory to themselves, one after the other without end, and one that dies",
        must: "another module and another caller get it in their turn",
        company: Company::Others,
        tries: |lab| Box::pin(directory_never_left(lab)),
    },
];

const TIMEOUT: Duration = Duration::from_secs(2);
const FILE: &str = "/data/a.db";

/// `bad` and `other` may write one folder.
struct LockArena {
    folder: TempDir,
    arena: Arena,
}

impl LockArena {
    async fn new(lab: &Lab, is_exclusive: bool) -> Result<Self, AttackFailure> {
        let folder = lab.folder()?;
        let data = folder.path().join("data");
        fs::create_dir(&data)?;
        fs::write(data.join("a.db"), "of both")?;
        fs::write(data.join("free.txt"), "free")?;
        let mut arena = lab.arena(|policy| {
            policy.limits.timeout_ms = u64::try_from(TIMEOUT.as_millis()).unwrap_or(u64::MAX);
            policy.limits.calls_per_minute = 0;
            for name in MODULES {
                let module = policy.modules.entry(name.into()).or_default();
                module.grant.directories = vec![directory(&data, "/data", Access::ReadWrite)];
            }
        })?;
        arena.benign().await?;
        let modules = folder.path().join("modules");
        for name in MODULES {
            let own = modules.join(name);
            fs::create_dir_all(&own)?;
            fs::write(
                own.join("module.toml"),
                format!(
                    "[[grants.directories]]\nguest = \"/data\"\naccess = \"read-write\"\nexclusive = {is_exclusive}\nreason = \"it\"\n"
                ),
            )?;
            fs::write(own.join(format!("{name}.wasm")), components::ATTACKER)?;
        }
        arena.registry.load_folder(&modules, None, &|_| ()).await?;
        Ok(Self { folder, arena })
    }

    async fn lock(&self, module: &str, wish: Value) -> CallReport {
        let arguments = json!({"path": FILE, "wish": wish});
        self.arena.call(&format!("{module}.lock"), arguments).await
    }

    /// A lock of another module, which is given back at once.
    async fn other(&self) -> CallReport {
        self.lock("other", wish(1, 1, Duration::ZERO, false)).await
    }

    /// Beside a lock other files are read and written, other modules called, and sockets and files of the host opened.
    async fn goes_on(&self) -> Result<(), AttackFailure> {
        let free = json!({"dir": "/data", "path": "free.txt"});
        let read = self.arena.value("other.read", free).await?;
        ensure(read == json!("free"), || {
            format!("another call read {read}")
        })?;
        let write = json!({"dir": "/data", "path": "new.txt", "content": "mine"});
        self.arena.value("other.write", write).await?;
        self.arena.value("benign.count", json!({})).await?;
        TcpListener::bind("127.0.0.1:0")?;
        fs::read(self.folder.path().join("data/a.db"))?;
        Ok(())
    }
}

const MODULES: [&str; 2] = ["bad", "other"];

fn wish(opens: u32, ranges: u32, sleep: Duration, dies: bool) -> Value {
    let nanoseconds = u64::try_from(sleep.as_nanos()).unwrap_or(u64::MAX);
    json!({
        "opens": opens, "ranges": ranges, "exclusive": true, "nanoseconds": nanoseconds, "dies": dies,
    })
}

/// Open files of this process.
fn descriptors() -> Result<usize, AttackFailure> {
    let listed = fs::read_dir("/proc/self/fd").or_else(|_| fs::read_dir("/dev/fd"));
    Ok(listed?.count())
}

async fn locks_never_released(lab: &Lab) -> Result<String, AttackFailure> {
    const HELD: Duration = Duration::from_millis(800);
    let ground = LockArena::new(lab, false).await?;
    let mut slowest = Duration::ZERO;
    for (how, sleep, dies, is_cancelled, ends) in [
        ("returns", HELD, false, false, "ok"),
        ("dies", HELD, true, false, "trap"),
        ("sleeps on", 2 * TIMEOUT, false, false, "deadline"),
        ("is cancelled", 2 * TIMEOUT, false, true, ""),
    ] {
        let holding = async {
            let call = ground.lock("bad", wish(1, 1, sleep, dies));
            if is_cancelled {
                tokio::time::timeout(HELD, call).await.ok()
            } else {
                Some(call.await)
            }
        };
        let beside = async {
            tokio::time::sleep(HELD / 2).await;
            let started = Instant::now();
            let refused = ground.other().await;
            let said = format!("{:?}", refused.result);
            ensure(kind(&refused) == "tool" && said.contains("busy"), || {
                format!("beside a call that {how}, another one was told {said:.200}")
            })?;
            let took = started.elapsed();
            ensure(took < lab.grace(), || {
                format!("beside a call that {how}, the answer took {}", ms(took))
            })?;
            ground.goes_on().await
        };
        let (held, beside) = tokio::join!(holding, beside);
        beside?;
        match held {
            Some(report) => expect_kind(&report, ends)?,
            None => ensure(is_cancelled, || format!("a call that {how} went on"))?,
        }
        let over = Instant::now();
        loop {
            let report = ground.other().await;
            if report.result.is_ok() {
                break;
            }
            ensure(over.elapsed() < lab.grace(), || {
                format!(
                    "the lock of a call that {how} is still there {} after it",
                    ms(over.elapsed())
                )
            })?;
        }
        slowest = slowest.max(over.elapsed());
        ground.arena.unharmed().await?;
    }
    Ok(format!(
        "4 ends, the lock was free {} after each at most",
        ms(slowest)
    ))
}

/// The most locked ranges of one file, more than any database has. The system's memory for each counts for no process.
const MOST_RANGES: u64 = 1_000;

async fn locks_without_number(lab: &Lab) -> Result<String, AttackFailure> {
    process::bound_descriptors(1_024)?;
    let ground = LockArena::new(lab, false).await?;
    ground.goes_on().await?;
    // What the host opens once and keeps, it opens in the first round.
    Box::pin(hoard(&ground)).await?;
    let before = descriptors()?;
    let (taken, opened) = Box::pin(hoard(&ground)).await?;
    // What was opened is closed, and all of it may be had again.
    let asked = Instant::now();
    while descriptors()? > before {
        ensure(asked.elapsed() < Duration::from_secs(2), || {
            format!(
                "{} files stay open after the calls",
                descriptors().unwrap_or(0) - before
            )
        })?;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    expect_kind(&ground.other().await, "ok")?;
    ground.arena.unharmed().await?;
    Ok(format!(
        "{taken} ranges; {opened} for a call that opened files; all else went on"
    ))
}

/// Three calls open files without end, and one locks ranges. The number of those, and how the first call ended.
async fn hoard(ground: &LockArena) -> Result<(u64, &'static str), AttackFailure> {
    let hold = Duration::from_secs(1);
    let hoarding = async {
        let opening = wish(100_000, 0, hold, false);
        tokio::join!(
            ground.lock("bad", opening.clone()),
            ground.lock("bad", opening.clone()),
            ground.lock("bad", opening),
            ground.lock("bad", wish(1, 100_000, hold, false))
        )
    };
    let beside = async {
        tokio::time::sleep(hold / 2).await;
        ground.goes_on().await
    };
    let ((first, second, third, ranges), beside) = tokio::join!(hoarding, beside);
    beside.map_err(|fault| AttackFailure::Broke(format!("beside calls that hoard: {fault}")))?;
    for report in [&first, &second, &third] {
        ensure(
            ["ok", "descriptors", "deadline", "handles"].contains(&kind(report)),
            || format!("it opened files: {:?}", report.result),
        )?;
    }
    expect_kind(&ranges, "ok")?;
    let taken = match ranges.result? {
        Output::Value(value) | Output::Message(value) => value,
    };
    ensure(
        taken
            .as_u64()
            .is_some_and(|taken| (1..=MOST_RANGES).contains(&taken)),
        || format!("it locked {taken} ranges of one file"),
    )?;
    Ok((taken.as_u64().unwrap_or(0), kind(&first)))
}

async fn directory_never_left(lab: &Lab) -> Result<String, AttackFailure> {
    const TURN: Duration = Duration::from_millis(400);
    const CROWD: usize = 7;
    let ground = LockArena::new(lab, true).await?;
    let arena = &ground.arena;
    let free = json!({"dir": "/data", "path": "free.txt"});
    let until = Instant::now() + lab.times(Duration::from_secs(4), Duration::from_secs(10));
    let nanoseconds = u64::try_from(TURN.as_nanos()).unwrap_or(u64::MAX);
    let ada = Caller {
        tenant: "ada",
        session: "1",
    };
    let bob = Caller {
        tenant: "bob",
        session: "1",
    };
    // One caller has the directory or waits for it all the time.
    let crowd = (0..CROWD).map(|_| async {
        while Instant::now() < until {
            let wait = json!({"count": 1, "nanoseconds": nanoseconds});
            arena.call_as(ada, "bad.wait", wait).await;
        }
    });
    let beside = async {
        tokio::time::sleep(TURN / 2).await;
        let (mut turns, mut slowest) = (0, Duration::ZERO);
        while Instant::now() < until {
            for tool in ["other.read", "bad.read"] {
                let started = Instant::now();
                let report = arena.call_as(bob, tool, free.clone()).await;
                let took = started.elapsed();
                ensure(report.result.is_ok(), || {
                    format!("{tool} of another caller: {:?}", report.result)
                })?;
                // The call that has it, and one that was before.
                ensure(took < 2 * TURN + lab.grace(), || {
                    format!("{tool} of another caller waited {}", ms(took))
                })?;
                slowest = slowest.max(took);
                turns += 1;
            }
        }
        Ok::<_, AttackFailure>((turns, slowest))
    };
    let (_, beside) = tokio::join!(futures_util::future::join_all(crowd), beside);
    let (turns, slowest) = beside?;
    ensure(slowest > TURN / 10, || {
        "nobody ever waited for the directory: nothing is proved".into()
    })?;
    // One dies that has it, and one sleeps beyond its deadline.
    for (tool, arguments, ends) in [
        ("bad.panic", json!({"text": "it has it"}), "trap"),
        (
            "bad.wait",
            json!({"count": 1, "nanoseconds": 1_u64 << 40}),
            "deadline",
        ),
    ] {
        expect_kind(&arena.call(tool, arguments).await, ends)?;
        let started = Instant::now();
        arena.value("other.read", free.clone()).await?;
        let took = started.elapsed();
        ensure(took < lab.grace(), || {
            format!("after {tool} ended, another call waited {}", ms(took))
        })?;
    }
    arena.unharmed().await?;
    Ok(format!(
        "{turns} turns of others, the slowest after {}",
        ms(slowest)
    ))
}
