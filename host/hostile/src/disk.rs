//! Rows 11 and 40: filling the disk under a write grant with a quota, in every way that a directory can grow.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Arena, Lab, PLACES, expect_kind, kind};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::time::sleep;
use toolhold_policy::{Access, DirectoryGrant, Grant};
use toolhold_sandbox::ModulePolicy;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 11,
        name: "disk_filled",
        attack: "writes, streams, sizes, empty files, folders, links",
        must: "quota; the directory never above it",
        company: Company::Others,
        tries: |lab| Box::pin(disk_filled(lab)),
    },
    Attack {
        row: 11,
        name: "disk_filled_by_many",
        attack: "all places write into one directory at once",
        must: "quota; the directory never above it",
        company: Company::Others,
        tries: |lab| Box::pin(disk_filled_by_many(lab)),
    },
    Attack {
        row: 40,
        name: "sparse_files",
        attack: "one byte far behind the end of a file, by writes and by streams",
        must: "quota; no file longer than it",
        company: Company::Others,
        tries: |lab| Box::pin(sparse_files(lab)),
    },
];

const QUOTA: u64 = 256 << 10;
/// Bytes charged for a directory entry, independent of its content.
const ENTRY: u64 = 4 << 10;
/// Maximum time for which a directory counts as full after another program has freed something, and some more.
const FULL_TIME: Duration = Duration::from_secs(70);

/// A directory with a quota and room for no more than that, and the two guests that fill it.
struct Disk {
    folder: TempDir,
    arena: Arena,
}

impl Disk {
    async fn new(lab: &Lab) -> Result<Self, AttackFailure> {
        let folder = lab.folder()?;
        let grant = Grant {
            directories: vec![DirectoryGrant {
                host: folder.path().to_owned(),
                guest: "/data".into(),
                access: Access::ReadWrite,
                quota_bytes: Some(QUOTA),
            }],
            ..Grant::default()
        };
        let mut arena = lab.arena(|policy| {
            for name in ["bad", "probe"] {
                let module = ModulePolicy {
                    grant: grant.clone(),
                    ..ModulePolicy::default()
                };
                policy.modules.insert(name.into(), module);
            }
        })?;
        arena.benign().await?;
        arena.load("bad", components::ATTACKER.to_vec()).await?;
        arena.load("probe", components::PROBE.to_vec()).await?;
        Ok(Self { folder, arena })
    }

    /// Makes calls until one is refused, which must be for the quota. Returns the number of
    /// successful calls.
    async fn until_full(
        &self,
        tool: &str,
        arguments: impl Fn(u64) -> Value,
    ) -> Result<u64, AttackFailure> {
        for n in 0..=QUOTA / ENTRY {
            let report = self.arena.call(tool, arguments(n)).await;
            self.ensure_within(tool)?;
            if report.result.is_err() {
                expect_kind(&report, "quota")?;
                return Ok(n);
            }
        }
        Err(AttackFailure::Broke(format!(
            "{tool} was allowed {} times",
            QUOTA / ENTRY + 1
        )))
    }

    fn ensure_within(&self, after: &str) -> Result<(), AttackFailure> {
        let (bytes, entries) = held(self.folder.path())?;
        ensure(bytes <= QUOTA && entries * ENTRY <= QUOTA, || {
            format!("after {after}, {bytes} bytes in {entries} entries are there, quota {QUOTA}")
        })
    }

    /// Empties the directory for the next round, as a program beside the host does. The host notices this after ten times
    /// the duration of its last walk, which is long on a busy machine.
    async fn empty(&self) -> Result<(), AttackFailure> {
        self.remove_all()?;
        let file = json!({"dir": "/data", "path": "room", "content": ""});
        let emptied = Instant::now();
        loop {
            let report = self.arena.call("bad.write", file.clone()).await;
            if report.result.is_ok() {
                return Ok(self.remove_all()?);
            }
            expect_kind(&report, "quota")?;
            ensure(emptied.elapsed() < FULL_TIME, || {
                format!("the empty directory is full after {FULL_TIME:?}")
            })?;
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn remove_all(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            if path.is_dir() && !path.is_symlink() {
                fs::remove_dir_all(path)?;
            } else {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Bytes of files, and entries, below `folder`.
fn held(folder: &Path) -> io::Result<(u64, u64)> {
    let (mut bytes, mut entries) = (0, 0);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        entries += 1;
        if metadata.is_dir() {
            let below = held(&entry.path())?;
            (bytes, entries) = (bytes + below.0, entries + below.1);
        } else {
            bytes += metadata.len();
        }
    }
    Ok((bytes, entries))
}

async fn disk_filled(lab: &Lab) -> Result<String, AttackFailure> {
    let disk = Disk::new(lab).await?;
    let file = |n: u64| json!({"dir": "/data", "path": format!("f{n}"), "content": ""});
    let fill = |chunk: u32, chunks: u32| move |n: u64| json!({"dir": "/data", "path": format!("f{n}"), "chunk": chunk, "chunks": chunks});
    let stream = |bytes: u64, times: u64| move |n: u64| json!({"path": format!("/data/f{n}"), "bytes": bytes, "times": times});
    let named = |n: u64| json!({"dir": "/data", "path": format!("d{n}")});
    let deep = |n: u64| json!({"dir": "/data", "path": format!("{}d", "d/".repeat(n as usize))});
    let link = |n: u64| {
        let target = "x".repeat(1_000);
        json!({"dir": "/data", "target": target, "path": format!("l{n}")})
    };
    let mut ways = 0;
    // Large writes, small ones, one that is larger than everything.
    for (chunk, chunks) in [(64 << 10, 1_000), (100, 10_000), (1, 1), (8 << 20, 1)] {
        disk.until_full("bad.fill", fill(chunk, chunks)).await?;
        disk.empty().await?;
        ways += 1;
    }
    for bytes in [10 << 20, QUOTA, 20_000, 0] {
        disk.until_full("probe.write", stream(bytes, 0)).await?;
        disk.empty().await?;
        ways += 1;
    }
    // Overwritten repeatedly: freed space is credited once.
    let churn = disk
        .arena
        .value("probe.churn", stream(100_000, 20)(0))
        .await?;
    ensure(churn == json!(20), || format!("it wrote {churn} times"))?;
    disk.ensure_within("churn")?;
    disk.until_full("probe.churn", stream(100_000, 5)).await?;
    disk.empty().await?;
    // Entries that hold nothing.
    disk.until_full("bad.write", file).await?;
    disk.empty().await?;
    disk.until_full("bad.make_dir", named).await?;
    disk.empty().await?;
    disk.until_full("bad.make_dir", deep).await?;
    disk.empty().await?;
    disk.until_full("bad.symlink", link).await?;
    disk.empty().await?;
    disk.arena.value("bad.write", file(0)).await?;
    let again = |n: u64| json!({"dir": "/data", "path": "f0", "to-dir": "/data", "to-path": format!("h{n}")});
    disk.until_full("bad.hard_link", again).await?;
    disk.empty().await?;
    // A hole that is larger than the disk.
    disk.arena.value("bad.write", file(0)).await?;
    for size in [QUOTA + 1, 1 << 40, u64::MAX] {
        let grown = json!({"dir": "/data", "path": "f0", "size": size});
        disk.arena.ends("bad.set_size", grown, "quota").await?;
        disk.ensure_within("set_size")?;
    }
    ways += 7;
    // Space that another process frees is noticed.
    disk.empty().await?;
    disk.arena.value("bad.write", file(0)).await?;
    disk.arena.unharmed().await?;
    Ok(format!("{ways} ways, each ended by the quota"))
}

async fn disk_filled_by_many(lab: &Lab) -> Result<String, AttackFailure> {
    let disk = Disk::new(lab).await?;
    let (mut refused, rounds) = (0, lab.times(20, 200));
    for round in 0..rounds {
        let sizes = [64 << 10, 30_000, 4 << 10, 1_000];
        let chunk = sizes[round % sizes.len()];
        let chunks = (QUOTA as usize / chunk) + 1;
        // By writes in one round, and by streams in the next.
        let streams = round / sizes.len() % 2 == 1;
        let calls = (0..PLACES).map(async |place| {
            let path = format!("f{place}");
            if streams {
                let write = json!({"path": format!("/data/{path}"), "bytes": chunk * chunks});
                disk.arena.call("probe.write", write).await
            } else {
                let fill = json!({"dir": "/data", "path": path, "chunk": chunk, "chunks": chunks});
                disk.arena.call("bad.fill", fill).await
            }
        });
        for report in join_all(calls).await {
            ensure(["quota", "ok"].contains(&kind(&report)), || {
                format!("{:?}", report.result)
            })?;
            refused += usize::from(kind(&report) == "quota");
        }
        disk.ensure_within(&format!("round {round}, {chunk} bytes at a time"))?;
        disk.empty().await?;
    }
    ensure(refused >= rounds, || {
        format!("only {refused} calls were refused")
    })?;
    disk.arena.unharmed().await?;
    Ok(format!(
        "{rounds} rounds, {refused} calls ended by the quota"
    ))
}

async fn sparse_files(lab: &Lab) -> Result<String, AttackFailure> {
    let disk = Disk::new(lab).await?;
    let mut tried = 0;
    for offset in [
        QUOTA,
        1 << 20,
        1 << 40,
        (1 << 43) - 4_096,
        i64::MAX as u64 - 1,
        u64::MAX,
    ] {
        for by_stream in [false, true] {
            let arguments = json!({
                "dir": "/data", "path": format!("s{tried}"), "offset": offset,
                "by-stream": by_stream,
            });
            let report = disk.arena.call("bad.write_at", arguments).await;
            let how = if by_stream { "a stream" } else { "a write" };
            ensure(["quota", "tool"].contains(&kind(&report)), || {
                format!("{how} at {offset}: {:?}", report.result)
            })?;
            disk.ensure_within(&format!("{how} at {offset}"))?;
            tried += 1;
        }
    }
    // In steps, each of which leaves a hole below the quota.
    for step in 1..40 {
        let arguments = json!({
            "dir": "/data", "path": "steps", "offset": step * (QUOTA / 8), "by-stream": false,
        });
        disk.arena.call("bad.write_at", arguments).await;
        disk.ensure_within("holes in steps")?;
    }
    disk.empty().await?;
    disk.arena.unharmed().await?;
    Ok(format!("{} writes, none behind the quota", tried + 39))
}
