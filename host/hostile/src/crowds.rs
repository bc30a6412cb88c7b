//! Row 42: one module, one key or one client wants everything that all share.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, kind, ms};
use crate::serving::{Answered, Served};
use futures_util::future::{join, join_all};
use serde_json::json;
use std::future::ready;
use std::time::{Duration, Instant};
use toolhold_policy::Caller;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 42,
        name: "wish_for_all_places",
        attack: "a module that wishes for all places fills them with long calls, for one key or for many",
        must: "another module and another key get a place at once",
        company: Company::Others,
        tries: |lab| Box::pin(wish_for_all_places(lab)),
    },
    Attack {
        row: 42,
        name: "rate_spent_by_one_key",
        attack: "one key calls a module until its rate is spent, from several sessions",
        must: "other keys may still call it",
        company: Company::Others,
        tries: |lab| Box::pin(rate_spent_by_one_key(lab)),
    },
    Attack {
        row: 42,
        name: "memory_kept_by_one_key",
        attack: "one key's calls make the host keep all the memory that it may for calls",
        must: "refused before that; another key's call, of the same module, still gets some",
        company: Company::Others,
        tries: |lab| Box::pin(memory_kept_by_one_key(lab)),
    },
    Attack {
        row: 42,
        name: "sessions_begun_in_a_loop",
        attack: "sessions begun over MCP without end, and never used",
        must: "refused, or unused ones are ended; one that was used goes on",
        company: Company::Others,
        tries: |lab| Box::pin(ready(sessions_begun_in_a_loop(lab))),
    },
    Attack {
        row: 42,
        name: "wrong_keys_without_end",
        attack: "2 000 wrong keys from one address, then a good one that was never used",
        must: "429 for wrong ones; the good one works at once",
        company: Company::Others,
        tries: |lab| Box::pin(ready(wrong_keys_without_end(lab))),
    },
];

const fn caller<'a>(tenant: &'a str, session: &'a str) -> Caller<'a> {
    Caller { tenant, session }
}

async fn wish_for_all_places(lab: &Lab) -> Result<String, AttackFailure> {
    const SLEEP: Duration = Duration::from_secs(4);
    /// As many as by default: of these, some are kept for newcomers.
    const PLACES: u32 = 64;
    const CROWD: usize = 2 * PLACES as usize;
    // No caller waits for a sleeper to wake.
    let most = SLEEP / 4;
    let tenants: Vec<String> = (0..CROWD).map(|number| format!("t{number}")).collect();
    let mut slowest = Duration::ZERO;
    for (what, wish, of_one) in [
        ("a wish, one key", Some(1_000), true),
        ("a wish, many keys", Some(1_000), false),
        ("no wish, one key", None, true),
        (
            "all places to the number, one key",
            Some(u64::from(PLACES)),
            true,
        ),
    ] {
        let mut arena = lab.arena_of(PLACES, |policy| {
            let module = policy.modules.entry("bad".into()).or_default();
            module.limits.timeout_ms = Some(120_000);
            module.limits.concurrent_calls = wish;
        })?;
        arena.benign().await?;
        arena.load("bad", components::ATTACKER.to_vec()).await?;
        let sleep = json!({"count": 1, "nanoseconds": SLEEP.as_nanos() as u64});
        // Only those that hold a place matter: when the others were served, the rest of the crowd is cancelled.
        let crowd = join_all(tenants.iter().map(|own| {
            let tenant = if of_one { "ada" } else { own };
            arena.call_as(caller(tenant, "1"), "bad.wait", sleep.clone())
        }));
        let others = async {
            tokio::time::sleep(SLEEP / 8).await;
            join(
                arena.call_as(caller("bob", "1"), "benign.count", json!({})),
                // Where one module's callers hold all that it may have, another one waits for them.
                async {
                    if of_one {
                        Some(
                            arena
                                .call_as(caller("bob", "1"), "bad.arguments", json!({}))
                                .await,
                        )
                    } else {
                        None
                    }
                },
            )
            .await
        };
        let served = tokio::select! {
            _ = crowd => return Err(AttackFailure::Broke(format!("{what}: others waited for the whole crowd"))),
            served = others => served,
        };
        for (who, report) in [
            ("another module", Some(&served.0)),
            ("another key", served.1.as_ref()),
        ] {
            let Some(report) = report else { continue };
            ensure(kind(report) == "ok", || {
                format!("{what}: {who} got {:?}", report.result)
            })?;
            let queued = report.usage.queued;
            ensure(queued < most, || {
                format!("{what}: {who} waited {} for a place", ms(queued))
            })?;
            slowest = slowest.max(queued);
        }
        // Cancelled calls give their places back.
        let started = Instant::now();
        while arena.engine.free_places() < PLACES as usize && started.elapsed() < lab.grace() * 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        arena.unharmed().await?;
    }
    Ok(format!(
        "{CROWD} asleep; others waited {} at most",
        ms(slowest)
    ))
}

async fn rate_spent_by_one_key(lab: &Lab) -> Result<String, AttackFailure> {
    const RATE: u64 = 120;
    let mut arena = lab.arena(|policy| {
        let module = policy.modules.entry("bad".into()).or_default();
        module.limits.calls_per_minute = Some(RATE);
    })?;
    arena.benign().await?;
    arena
        .load("bad", components::parse(&components::which(1))?)
        .await?;
    let mut refused = 0;
    for number in 0..RATE * 2 {
        let session = (number % 7).to_string();
        let report = arena
            .call_as(caller("ada", &session), "bad.which", json!({}))
            .await;
        match kind(&report) {
            "ok" => {}
            "rate" => refused += 1,
            other => {
                return Err(AttackFailure::Broke(format!(
                    "{other}: {:?}",
                    report.result
                )));
            }
        }
    }
    ensure(refused > 0, || {
        format!("{} calls were within a rate of {RATE}", RATE * 2)
    })?;
    let keys = 5;
    for number in 0..keys {
        let tenant = format!("bob{number}");
        for call in 0..2 {
            let report = arena
                .call_as(caller(&tenant, "1"), "bad.which", json!({}))
                .await;
            ensure(kind(&report) == "ok", || {
                format!("key {number}, call {call}: {:?}", report.result)
            })?;
        }
    }
    // The same key still has spent its own.
    let report = arena
        .call_as(caller("ada", "9"), "bad.which", json!({}))
        .await;
    ensure(kind(&report) == "rate", || {
        format!("a new session has a rate of its own: {:?}", report.result)
    })?;
    arena.unharmed().await?;
    Ok(format!(
        "{refused} refused for one key; {keys} others served"
    ))
}

async fn memory_kept_by_one_key(lab: &Lab) -> Result<String, AttackFailure> {
    const CEILING: u64 = 64 << 20;
    /// So many calls keep more than the ceiling, and leave places to others.
    const CROWD: usize = 40;
    const HOLD: Duration = Duration::from_secs(8);
    // Fields of 120 KiB each.
    let hold = |count: u32, time: Duration| json!({"handle": "fields", "count": count, "nanoseconds": time.as_nanos() as u64});
    let mut arena = lab.arena_keeping(64, CEILING, |policy| {
        policy.limits.timeout_ms = 60_000;
    })?;
    arena.benign().await?;
    arena.load("bad", components::ATTACKER.to_vec()).await?;
    let crowd =
        join_all((0..CROWD).map(|_| arena.call_as(caller("ada", "1"), "bad.hold", hold(20, HOLD))));
    let other = async {
        let started = Instant::now();
        while arena.registry.kept().taken() < CEILING / 4 * 3 && started.elapsed() < HOLD {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // For those that begin now.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = arena.registry.kept().taken();
        let report = arena
            .call_as(caller("bob", "1"), "bad.hold", hold(28, Duration::ZERO))
            .await;
        (before, report)
    };
    let (crowd, (before, other)) = join(crowd, other).await;
    ensure(before <= CEILING, || {
        format!("{before} bytes were kept, of {CEILING}")
    })?;
    ensure(kind(&other) == "ok", || {
        format!("while {before} bytes were kept: {:?}", other.result)
    })?;
    let refused = crowd.iter().filter(|it| kind(it) == "host_full").count();
    ensure(refused > 0, || {
        format!("{CROWD} calls of one key kept less than all")
    })?;
    let left = arena.registry.kept().taken();
    ensure(left == 0, || format!("{left} bytes are still counted"))?;
    arena.unharmed().await?;
    Ok(format!(
        "{refused} of {CROWD} calls refused at {} MiB; another key served",
        before >> 20
    ))
}

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};

fn sessions_begun_in_a_loop(lab: &Lab) -> Result<String, AttackFailure> {
    const SESSIONS: usize = 32;
    let folder = CommandFolder::new(lab)?;
    folder.write(
        "modules/benign.wasm",
        components::parse(components::COMPUTE)?,
    )?;
    folder.write(
        "host.toml",
        format!("[mcp_server]\nsessions = {SESSIONS}\n"),
    )?;
    let served = Served::start(
        &folder,
        &["--config", "host.toml", "mcp", "--http", "127.0.0.1:0"],
    )?;
    let mut used = McpClient::begin(&served)?.map_err(|refused| {
        AttackFailure::Broke(format!("the first session was refused: {refused:?}"))
    })?;
    used.must_count()?;
    let (mut begun, mut refused) = (0, 0);
    // Twice as many as there is room for, and then a look whether the first one is still there.
    let rounds = lab.times(3, 20);
    for round in 0..rounds {
        for _ in 0..SESSIONS * 2 {
            match McpClient::begin(&served)? {
                Ok(_) => begun += 1,
                Err(answer) => {
                    ensure(matches!(answer.status, 429 | 503), || {
                        format!("a session was refused with {answer:?}")
                    })?;
                    refused += 1;
                }
            }
        }
        used.must_count().map_err(|fault| {
            AttackFailure::Broke(format!(
                "after {} sessions that nobody used: {fault}",
                (round + 1) * SESSIONS * 2
            ))
        })?;
    }
    Ok(format!(
        "{begun} begun and {refused} refused beside {SESSIONS} places"
    ))
}

struct McpClient<'a> {
    served: &'a Served,
    session: String,
    next: u64,
}

const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");
const VERSION: &str = "2025-06-18";

impl<'a> McpClient<'a> {
    /// A session, or the answer that refuses it.
    fn begin(served: &'a Served) -> Result<Result<Self, Answered>, AttackFailure> {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": VERSION, "capabilities": {},
            "clientInfo": {"name": "hostile", "version": "1"},
        }});
        let answer = served.ask("POST", "/mcp", &[ACCEPT], &hello.to_string())?;
        let Some(session) = answer.header("mcp-session-id") else {
            return Ok(Err(answer));
        };
        Ok(Ok(Self {
            session: session.to_owned(),
            served,
            next: 0,
        }))
    }

    fn count(&mut self) -> Result<Answered, AttackFailure> {
        self.next += 1;
        let call = json!({"jsonrpc": "2.0", "id": self.next, "method": "tools/call", "params": {
            "name": "benign.count", "arguments": {},
        }});
        let headers = [
            ACCEPT,
            ("mcp-session-id", self.session.as_str()),
            ("mcp-protocol-version", VERSION),
        ];
        self.served.ask("POST", "/mcp", &headers, &call.to_string())
    }

    /// The session is there, and its call works.
    fn must_count(&mut self) -> Result<(), AttackFailure> {
        let answer = self.count()?;
        ensure(
            answer.status == 200 && answer.body.contains("\"result\""),
            || format!("a session that is in use got {answer:?}"),
        )
    }
}

fn wrong_keys_without_end(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = CommandFolder::new(lab)?;
    folder.write("host.toml", "[serve]\nkeys = \"always\"\n")?;
    let config = ["--config", "host.toml"];
    let keys = [
        folder.key(&config, "ada", BOUNDS)?,
        folder.key(&config, "bob", BOUNDS)?,
    ];
    let served = Served::start(
        &folder,
        &[&config[..], &["serve", "--listen", "127.0.0.1:0"]].concat(),
    )?;
    let list = |key: &str| served.ask("GET", "/v1/models", &[("authorization", key)], "");
    let wrong = lab.times(300, 2_000);
    let mut throttled = 0;
    for number in 0..wrong {
        // Of the form of a good one, and of none.
        let key = match number % 3 {
            0 => format!("Bearer wrong-{number}"),
            1 => format!("{}{number}", keys[0]),
            _ => format!("Bearer {}", "k".repeat(number % 4_000)),
        };
        let answer = list(&key)?;
        ensure(matches!(answer.status, 401 | 429), || {
            format!("a wrong key got {answer:?}")
        })?;
        throttled += usize::from(answer.status == 429);
    }
    ensure(throttled > wrong / 2, || {
        format!("of {wrong} wrong keys only {throttled} were throttled")
    })?;
    for key in &keys {
        let answer = list(key)?;
        ensure(answer.status == 200, || {
            format!("after {wrong} wrong keys a good one got {answer:?}")
        })?;
    }
    // What is no key at all gains nothing by it.
    let answer = list("Bearer wrong-again")?;
    ensure(matches!(answer.status, 401 | 429), || {
        format!("a wrong key got {answer:?}")
    })?;
    Ok(format!(
        "{throttled} of {wrong} throttled; the good ones work"
    ))
}
