//! Row 33: folders nested deeper than a stack, left behind where the host removes and copies files.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Arena, Lab};
use crate::measure::Baseline;
use crate::process;
use crate::trees;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use toolhold_admission::own_work;
use toolhold_policy::{Caller, Grant, Keep, ScratchGrant};
use toolhold_sandbox::{ModulePolicy, Storage, remove_tree};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 33,
        name: "deep_tree_of_a_session",
        attack: "50 000 folders in each other, then the session ends",
        must: "removed; the host lives",
        company: Company::Others,
        tries: |lab| Box::pin(deep_tree_of_a_session(lab, DESCRIPTORS)),
    },
    Attack {
        row: 33,
        name: "deep_tree_without_descriptors",
        attack: "the same, where a process may open few files",
        must: "removed; the host lives",
        company: Company::Others,
        tries: |lab| Box::pin(deep_tree_of_a_session(lab, 256)),
    },
    Attack {
        row: 33,
        name: "deep_tree_at_start",
        attack: "50 000 folders in each other, left for the next start",
        must: "removed; the host starts",
        company: Company::Others,
        tries: |lab| Box::pin(deep_tree_at_start(lab)),
    },
    Attack {
        row: 33,
        name: "deep_tree_that_is_carried",
        attack: "a session with such a tree goes on as another one",
        must: "copied or refused; the host lives",
        company: Company::Others,
        tries: |lab| Box::pin(deep_tree_that_is_carried(lab)),
    },
    Attack {
        row: 33,
        name: "deep_tree_of_a_call",
        attack: "a guest nests folders in its scratch files, over and over",
        must: "refused or removed; the host lives",
        company: Company::Others,
        tries: |lab| Box::pin(deep_tree_of_a_call(lab)),
    },
];

/// As many as a host usually may open.
const DESCRIPTORS: u64 = 1 << 20;
/// Deep enough for the 8 MiB of stack that a process begins with, by 160 bytes a level. Threads have less.
const LEVELS: usize = 50_000;
/// Removing that many folders takes seconds.
const PATIENCE: Duration = Duration::from_mins(1);

const ADA: Caller<'static> = Caller {
    tenant: "ada",
    session: "1",
};

/// A host with scratch files that are kept for sessions, and one file in ada's.
struct Kept {
    state: TempDir,
    arena: Arena,
}

impl Kept {
    async fn new(lab: &Lab, keep: Keep) -> Result<Self, AttackFailure> {
        let state = lab.folder_in_memory()?;
        let mut arena = lab.arena(|policy| {
            policy.storage = storage(state.path());
            policy.limits.timeout_ms = 30_000;
            policy.limits.fuel = u64::MAX;
            let module = ModulePolicy {
                grant: Grant {
                    scratch: Some(ScratchGrant {
                        quota_bytes: 4 << 30,
                        keep,
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
        let write = json!({"dir": "/scratch", "path": "file", "content": "x"});
        arena.call_as(ADA, "bad.write", write).await.result?;
        Ok(Self { state, arena })
    }

    /// The only folder of scratch files that there is.
    fn session(&self) -> Result<PathBuf, AttackFailure> {
        let mut entries = fs::read_dir(self.state.path().join("scratch"))?;
        let first = entries.next();
        first
            .ok_or_else(|| AttackFailure::Broke("no scratch folder was made".into()))?
            .map(|entry| entry.path())
            .map_err(AttackFailure::from)
    }

    /// Everything is removed in time. It may go on in the background after the request for it was answered.
    async fn emptied(&self, what: &str) -> Result<(), AttackFailure> {
        let started = Instant::now();
        while fs::read_dir(self.state.path().join("scratch"))?
            .next()
            .is_some()
        {
            ensure(started.elapsed() < PATIENCE, || {
                format!("{what} is left behind")
            })?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

fn storage(state: &Path) -> Storage {
    Storage {
        scratch: Some(state.join("scratch")),
        key_value: None,
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Before the folder is dropped, which would recurse.
        let _ = remove_tree(self.state.path());
    }
}

async fn deep_tree_of_a_session(lab: &Lab, descriptors: u64) -> Result<String, AttackFailure> {
    let kept = Kept::new(lab, Keep::Session).await?;
    trees::deepen(&kept.session()?.join("deep"), LEVELS)?;
    process::bound_descriptors(descriptors)?;
    let session = kept.session()?;
    let removed = kept.arena.registry.remove_scratch("ada", "1").await;
    ensure(removed.is_ok(), || {
        format!("it is left behind: {removed:?}")
    })?;
    ensure(!session.exists(), || "its name is left behind".into())?;
    kept.emptied("the tree").await?;
    kept.arena.unharmed().await?;
    Ok(format!("{LEVELS} levels removed"))
}

async fn deep_tree_at_start(lab: &Lab) -> Result<String, AttackFailure> {
    let kept = Kept::new(lab, Keep::Session).await?;
    let session = kept.session()?;
    trees::deepen(&session.join("deep"), LEVELS)?;
    // What a host that was killed left, long ago.
    let long_ago = SystemTime::now() - Duration::from_hours(30 * 24);
    fs::File::open(&session)?.set_modified(long_ago)?;
    let storage = storage(kept.state.path());
    let swept = own_work(move || storage.sweep()).await;
    ensure(swept.is_ok(), || "the host panicked".into())?;
    kept.emptied("the tree").await?;
    kept.arena.unharmed().await?;
    Ok(format!("{LEVELS} levels removed"))
}

async fn deep_tree_that_is_carried(lab: &Lab) -> Result<String, AttackFailure> {
    let kept = Kept::new(lab, Keep::Session).await?;
    trees::deepen(&kept.session()?.join("deep"), LEVELS)?;
    let baseline = Baseline::now()?;
    let carried = kept.arena.registry.carry_scratch("ada", "1", "2").await;
    // The names of so many folders, and no path for each.
    baseline.ensure_peak(128 << 20, "copying it")?;
    for session in ["1", "2"] {
        let removed = kept.arena.registry.remove_scratch("ada", session).await;
        ensure(removed.is_ok(), || {
            format!("it is left behind: {removed:?}")
        })?;
    }
    kept.emptied("a part of the copy").await?;
    kept.arena.unharmed().await?;
    let how = if carried.is_ok() { "copied" } else { "refused" };
    Ok(format!("{LEVELS} levels {how}, and removed"))
}

async fn deep_tree_of_a_call(lab: &Lab) -> Result<String, AttackFailure> {
    let kept = Kept::new(lab, Keep::Call).await?;
    let deepen = json!({"dir": "/scratch", "levels": 30_000});
    let report = kept.arena.call("bad.deepen", deepen).await;
    let made = format!("{:?}", report.result);
    kept.emptied(&format!("the tree, after {made:.100},"))
        .await?;
    kept.arena.unharmed().await?;
    Ok(format!("removed after {made:.60}"))
}
