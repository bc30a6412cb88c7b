//! Files of the host inside of directories that a module may write, every way to change one, and what must go on
//! beside them.

use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::ground::FolderSnapshot;
use crate::lab::{Arena, Lab, directory, kind};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use tempfile::TempDir;
use toolhold_policy::{Access, DirectoryGrant};
use toolhold_sandbox::{Policy, ReservedPath};

/// ```text
/// work/       granted as /data, read-write
///   conf/host.toml, missing.toml, new/deep/late.toml, requests/, named.toml -> conf/linked.toml    of the host
///   alias -> conf, to-host -> conf/host.toml, dangling -> missing.toml, to-requests -> requests    an operator's
///   second-name, outside-name                          hard links to conf/host.toml, elsewhere/config.toml
/// second/     granted as /second, read-write: the same hard links
/// elsewhere/  config.toml: of the host, not granted
/// ```
pub struct HostFiles {
    folder: TempDir,
}

/// Role in messages.
pub const ROLE: &str = "a file of the host";

/// Below `work`.
pub const RESERVED: [&str; 5] = [
    "work/conf/host.toml",
    "work/missing.toml",
    "work/new/deep/late.toml",
    "work/requests",
    "work/named.toml",
];

impl HostFiles {
    pub fn new(lab: &Lab) -> Result<Self, AttackFailure> {
        let files = Self {
            folder: lab.folder()?,
        };
        for folder in [
            "work/conf",
            "work/requests/sub",
            "work/spare",
            "second",
            "elsewhere",
        ] {
            fs::create_dir_all(files.at(folder))?;
        }
        for file in [
            "work/conf/host.toml",
            "work/conf/linked.toml",
            "work/requests/one.json",
            "work/requests/sub/two.json",
            "elsewhere/config.toml",
        ] {
            fs::write(files.at(file), "of the host")?;
        }
        for file in ["work/free.txt", "work/conf/free.txt", "second/free.txt"] {
            fs::write(files.at(file), "of the guest")?;
        }
        for (target, name) in [
            ("conf/linked.toml", "work/named.toml"),
            ("conf", "work/alias"),
            ("conf/host.toml", "work/to-host"),
            ("missing.toml", "work/dangling"),
            ("requests", "work/to-requests"),
        ] {
            symlink(target, files.at(name))?;
        }
        for (of, name) in [
            ("work/conf/host.toml", "work/second-name"),
            ("work/conf/host.toml", "second/second-name"),
            ("elsewhere/config.toml", "work/outside-name"),
            ("elsewhere/config.toml", "second/outside-name"),
        ] {
            fs::hard_link(files.at(of), files.at(name))?;
        }
        Ok(files)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn reserved(&self) -> Vec<ReservedPath> {
        let outside = ["elsewhere/config.toml"];
        let all = RESERVED.iter().chain(&outside);
        all.map(|path| reserved(self.at(path), false)).collect()
    }

    pub fn directories(&self, quota_bytes: Option<u64>) -> Vec<DirectoryGrant> {
        [("work", "/data"), ("second", "/second")]
            .into_iter()
            .map(|(host, guest)| DirectoryGrant {
                quota_bytes,
                ..directory(&self.at(host), guest, Access::ReadWrite)
            })
            .collect()
    }

    pub async fn arena(&self, lab: &Lab, quota_bytes: Option<u64>) -> Result<Arena, AttackFailure> {
        let directories = self.directories(quota_bytes);
        arena(lab, policy(directories, self.reserved())).await
    }

    /// Everything that must not change.
    pub fn picture(&self) -> Result<FolderSnapshot, AttackFailure> {
        let mut picture = FolderSnapshot::default();
        for name in [
            "work/conf/host.toml",
            "work/conf/linked.toml",
            "work/requests",
            "work/named.toml",
            "elsewhere",
        ] {
            picture.take(&self.at(name))?;
        }
        for name in ["work/missing.toml", "work/new"] {
            ensure(fs::symlink_metadata(self.at(name)).is_err(), || {
                format!("{name} was made")
            })?;
        }
        Ok(picture)
    }
}

pub fn reserved(path: PathBuf, is_secret: bool) -> ReservedPath {
    ReservedPath {
        path,
        what: ROLE.into(),
        is_secret,
    }
}

pub fn policy(directories: Vec<DirectoryGrant>, reserved: Vec<ReservedPath>) -> Policy {
    let mut policy = Policy::default();
    policy.limits.timeout_ms = 10_000;
    policy.limits.calls_per_minute = 0;
    let bad = policy.modules.entry("bad".into()).or_default();
    bad.grant.directories = directories;
    policy.reserved = reserved.into();
    policy
}

pub async fn arena(lab: &Lab, policy: Policy) -> Result<Arena, AttackFailure> {
    let mut arena = lab.arena(|own| *own = policy)?;
    arena.benign().await?;
    arena.load("bad", components::ATTACKER.to_vec()).await?;
    Ok(arena)
}

/// Every change of the bytes that a path leads to, and of the times.
pub fn writing(dir: &str, path: &str) -> Vec<(&'static str, Value)> {
    let with = |more: Value| {
        let mut arguments = json!({"dir": dir, "path": path});
        if let (Some(all), Value::Object(more)) = (arguments.as_object_mut(), more) {
            all.extend(more);
        }
        arguments
    };
    vec![
        ("write", with(json!({"content": "gotcha"}))),
        ("overwrite", with(json!({"content": "gotcha"}))),
        ("fill", with(json!({"chunk": 16, "chunks": 2}))),
        ("write_at", with(json!({"offset": 3, "by-stream": false}))),
        ("write_at", with(json!({"offset": 3, "by-stream": true}))),
        ("set_size", with(json!({"size": 0}))),
        ("set_times", with(json!({}))),
    ]
}

/// Every change of the entry that a path names.
pub fn naming(dir: &str, path: &str) -> Vec<(&'static str, Value)> {
    let at = json!({"dir": dir, "path": path});
    let from = |name: &str| json!({"dir": "/data", "path": name, "to-dir": dir, "to-path": path});
    let to = |to: &str| json!({"dir": dir, "path": path, "to-dir": to, "to-path": "gained"});
    vec![
        (
            "symlink",
            json!({"dir": dir, "target": "free.txt", "path": path}),
        ),
        ("make_dir", at.clone()),
        ("hard_link", from("free.txt")),
        ("hard_link", to("/data")),
        ("hard_link", to("/second")),
        ("rename", from("free.txt")),
        ("rename", from("spare")),
        ("rename", from("alias")),
        ("rename", to("/data")),
        ("rename", to("/second")),
        ("remove", at.clone()),
        ("remove_dir", at),
    ]
}

/// Calls the guest; it must be told that it may not.
pub async fn denied(arena: &Arena, tool: &str, arguments: &Value) -> Result<(), AttackFailure> {
    let report = arena.call(&format!("bad.{tool}"), arguments.clone()).await;
    ensure(kind(&report) == "tool", || {
        let said = format!("{:?}", report.result);
        format!("{tool} {arguments} was not denied: {said:.200}")
    })
}

/// The module changes its own files beside those of the host, or nothing is proved.
pub async fn goes_on(arena: &Arena) -> Result<(), AttackFailure> {
    for folder in ["", "conf/", "alias/", "spare/../conf/"] {
        let path = format!("{folder}own.txt");
        let at = json!({"dir": "/data", "path": path});
        let write = json!({"dir": "/data", "path": path, "content": "mine"});
        arena.value("bad.write", write.clone()).await?;
        arena.value("bad.write", write).await?;
        let seen = arena.value("bad.read", at.clone()).await?;
        ensure(seen == json!("mine"), || format!("{path} holds {seen}"))?;
        arena.value("bad.set_times", at).await?;
        let moved = format!("{folder}moved.txt");
        let arguments = json!({"dir": "/data", "path": path, "to-dir": "/data", "to-path": moved});
        arena.value("bad.rename", arguments).await?;
        let at = json!({"dir": "/data", "path": moved});
        arena.value("bad.remove", at).await?;
        let made = json!({"dir": "/data", "path": format!("{folder}made")});
        arena.value("bad.make_dir", made.clone()).await?;
        arena.value("bad.remove_dir", made).await?;
    }
    Ok(())
}

pub fn moved(from: &str, to: &str) -> Value {
    json!({"dir": "/data", "path": from, "to-dir": "/data", "to-path": to})
}
