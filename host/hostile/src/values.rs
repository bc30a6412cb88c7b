//! Row 45: what modules keep beyond their calls, by many calls at once.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, PLACES, expect_kind, kind};
use futures_util::future::join_all;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use toolhold_policy::{Caller, Grant, KeyValueGrant, ScratchGrant};
use toolhold_sandbox::{ModulePolicy, Storage};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 45,
        name: "values_kept_by_many",
        attack: "two modules keep large values in one namespace, in all places at once",
        must: "quota; one of them is kept",
        company: Company::Others,
        tries: |lab| Box::pin(values_kept_by_many(lab)),
    },
    Attack {
        row: 45,
        name: "value_larger_than_is_kept",
        attack: "a module reads a value for which the host may not keep memory",
        must: "memory, before it is read",
        company: Company::Others,
        tries: |lab| Box::pin(value_larger_than_is_kept(lab)),
    },
    Attack {
        row: 45,
        name: "writes_larger_than_is_kept",
        attack: "a module writes more at once, to a file or as a value, than the host may keep for it",
        must: "memory, before it is written",
        company: Company::Others,
        tries: |lab| Box::pin(writes_larger_than_is_kept(lab)),
    },
];

/// Enough for the small keys and one large value, and not for two.
const QUOTA: u64 = 1_000_000;
const LARGE: usize = 500_000;

async fn values_kept_by_many(lab: &Lab) -> Result<String, AttackFailure> {
    let state = lab.folder()?;
    let values = state.path().join("values");
    let mut arena = lab.arena(|policy| {
        policy.storage = Storage {
            scratch: None,
            key_value: Some(values.clone()),
        };
        // Two modules share the namespace, and the quota with it.
        for name in ["bad", "worse"] {
            let grant = Grant {
                key_value: Some(KeyValueGrant {
                    namespace: "shared".into(),
                    quota_bytes: QUOTA,
                }),
                ..Grant::default()
            };
            let module = ModulePolicy {
                grant,
                ..ModulePolicy::default()
            };
            policy.modules.insert(name.into(), module);
        }
    })?;
    arena.benign().await?;
    for name in ["bad", "worse"] {
        arena.load(name, components::PROBE.to_vec()).await?;
    }
    let at = Caller {
        tenant: "ada",
        session: "1",
    };
    let small = json!({"key": "k", "value": "v"});
    expect_kind(&arena.call_as(at, "bad.remember", small).await, "ok")?;
    let folder = keys_that_take_long_to_read(&values)?;
    let rounds = lab.times(10, 20);
    for round in 0..rounds {
        let bytes = LARGE;
        let calls = (0..PLACES).map(|place| {
            let tool = ["bad.remember", "worse.remember"][place as usize % 2];
            let entry = json!({"key": format!("large{place}"), "value": "v".repeat(bytes)});
            arena.call_as(at, tool, entry)
        });
        let mut kept = 0;
        for report in join_all(calls).await {
            ensure(["ok", "tool"].contains(&kind(&report)), || {
                format!("{}: {:?}", kind(&report), report.result)
            })?;
            kept += usize::from(kind(&report) == "ok");
        }
        ensure(kept == 1, || {
            format!("round {round}: {kept} values of {bytes} bytes were kept in a quota of {QUOTA}")
        })?;
        for file in fs::read_dir(&folder)? {
            let file = file?;
            if file.metadata()?.len() >= bytes as u64 {
                fs::remove_file(file.path())?;
            }
        }
    }
    arena.unharmed().await?;
    Ok(format!("{rounds} rounds, one value kept in each"))
}

async fn value_larger_than_is_kept(lab: &Lab) -> Result<String, AttackFailure> {
    let state = lab.folder()?;
    let values = state.path().join("values");
    let mut arena = lab.arena(|policy| {
        policy.storage = Storage {
            scratch: None,
            key_value: Some(values.clone()),
        };
        for (name, kept_bytes) in [("good", None), ("bad", Some(LARGE as u64 / 2))] {
            let mut module = ModulePolicy {
                grant: Grant {
                    key_value: Some(KeyValueGrant {
                        namespace: "shared".into(),
                        quota_bytes: QUOTA,
                    }),
                    ..Grant::default()
                },
                ..ModulePolicy::default()
            };
            module.limits.kept_bytes = kept_bytes;
            policy.modules.insert(name.into(), module);
        }
    })?;
    arena.benign().await?;
    for name in ["good", "bad"] {
        arena.load(name, components::PROBE.to_vec()).await?;
    }
    let at = Caller {
        tenant: "ada",
        session: "1",
    };
    for (key, bytes) in [("small", 10), ("large", LARGE)] {
        let entry = json!({"key": key, "value": "v".repeat(bytes)});
        expect_kind(&arena.call_as(at, "good.remember", entry).await, "ok")?;
    }
    let recall = |tool: &'static str, key: &str| arena.call_as(at, tool, json!({"key": key}));
    expect_kind(&recall("bad.recall", "small").await, "ok")?;
    expect_kind(&recall("bad.recall", "large").await, "kept_bytes")?;
    expect_kind(&recall("good.recall", "large").await, "ok")?;
    let left = arena.registry.kept().taken();
    ensure(left == 0, || format!("{left} bytes are still counted"))?;
    arena.unharmed().await?;
    Ok(format!("{LARGE} bytes refused before they were read"))
}

async fn writes_larger_than_is_kept(lab: &Lab) -> Result<String, AttackFailure> {
    let state = lab.folder()?;
    let at = |name: &str| Some(state.path().join(name));
    let mut arena = lab.arena(|policy| {
        policy.storage = Storage {
            scratch: at("scratch"),
            key_value: at("values"),
        };
        for name in ["values", "files"] {
            let mut module = ModulePolicy {
                grant: Grant {
                    key_value: Some(KeyValueGrant {
                        namespace: "own".into(),
                        quota_bytes: 10 * QUOTA,
                    }),
                    scratch: Some(ScratchGrant {
                        quota_bytes: 10 * QUOTA,
                        ..ScratchGrant::default()
                    }),
                    ..Grant::default()
                },
                ..ModulePolicy::default()
            };
            module.limits.kept_bytes = Some(LARGE as u64);
            policy.modules.insert(name.into(), module);
        }
    })?;
    arena.benign().await?;
    arena.load("values", components::PROBE.to_vec()).await?;
    arena.load("files", components::ATTACKER.to_vec()).await?;
    let caller = Caller {
        tenant: "ada",
        session: "1",
    };
    for (bytes, end) in [
        (LARGE / 2, "ok"),
        (LARGE + 1, "kept_bytes"),
        (LARGE / 2, "ok"),
    ] {
        let value = json!({"key": "k", "value": "v".repeat(bytes)});
        let remembered = arena.call_as(caller, "values.remember", value).await;
        expect_kind(&remembered, end)?;
        let file = json!({"dir": "/scratch", "path": "f", "chunk": bytes, "chunks": 2});
        expect_kind(&arena.call_as(caller, "files.fill", file).await, end)?;
    }
    let left = arena.registry.kept().taken();
    ensure(left == 0, || format!("{left} bytes are still counted"))?;
    arena.unharmed().await?;
    Ok(format!("{LARGE} bytes at once, and no more"))
}

/// Puts many keys without a value beside the one that is there: the more there are, the longer lies between the look at
/// the quota and the write. The folder they are in.
fn keys_that_take_long_to_read(root: &Path) -> Result<PathBuf, AttackFailure> {
    for folder in fs::read_dir(root)? {
        let folder = folder?.path();
        if let Some(file) = fs::read_dir(&folder)?.next() {
            let name = file?.file_name().to_string_lossy().into_owned();
            for number in 1_000..4_000 {
                // A key's name is written in hexadecimal, and a digit's is 3 and itself.
                let digits = number
                    .to_string()
                    .chars()
                    .fold(name.clone(), |name, digit| name + "3" + &digit.to_string());
                fs::write(folder.join(digits), "")?;
            }
            return Ok(folder);
        }
    }
    Err(AttackFailure::Broke(
        "a value was kept, and is not there".into(),
    ))
}
