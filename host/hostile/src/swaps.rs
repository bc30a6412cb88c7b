//! Row 31: what is granted, and what the host keeps, is another file by the time it is opened again.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::ground::{AttackFolders, SECRET};
use crate::lab::{Arena, Lab, directory};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toolhold_policy::{Access, Grant};
use toolhold_sandbox::{LoadError, ModulePolicy, PinFolder, Pinning, Policy};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 31,
        name: "grant_replaced_by_a_link",
        attack: "a granted folder replaced by a link, by a guest that may write above it",
        must: "refused, or the folder that was granted; nothing outside touched",
        company: Company::Others,
        tries: |lab| Box::pin(grant_replaced_by_a_link(lab)),
    },
    Attack {
        row: 31,
        name: "grant_replaced_by_a_folder",
        attack: "a granted folder moved away, another one in its place",
        must: "refused, or the folder that was granted; nothing outside touched",
        company: Company::Others,
        tries: |lab| Box::pin(grant_replaced_by_a_folder(lab)),
    },
    Attack {
        row: 31,
        name: "grant_swapped_before_start",
        attack: "an approved folder, or one above it, is a link at the next start",
        must: "refused; nothing outside touched",
        company: Company::Others,
        tries: |lab| Box::pin(grant_swapped_before_start(lab)),
    },
];

/// A folder that is granted, and what is put in its place.
#[derive(Clone, Copy)]
struct Swap {
    /// Below `inside`, with a file `deep.txt`.
    granted: &'static str,
    /// The entry that is moved away: `granted`, or a folder above it.
    moved: &'static str,
    /// Where the link leads, as seen from `inside`.
    target: &'static str,
}

const SWAPS: [Swap; 2] = [
    Swap {
        granted: "sub",
        moved: "sub",
        target: "../outside",
    },
    Swap {
        granted: "middle/dir",
        moved: "middle",
        target: "../outside",
    },
];

/// `bad` may write `inside` as /data; `holder` has the granted folder as /sub. They may be one module.
struct Swapped {
    ground: AttackFolders,
    arena: Arena,
    policy: Policy,
    holder: &'static str,
}

impl Swapped {
    /// `None`: the grants were refused, and nothing is left to try.
    async fn new(
        lab: &Lab,
        swap: Swap,
        access: Access,
        holder: &'static str,
    ) -> Result<Option<Self>, AttackFailure> {
        let ground = AttackFolders::new(lab)?;
        fs::create_dir_all(ground.inside("middle/dir"))?;
        fs::write(ground.inside("middle/dir/deep.txt"), "granted")?;
        let above = directory(&ground.root().join("inside"), "/data", Access::ReadWrite);
        let below = directory(&ground.inside(swap.granted), "/sub", access);
        let mut policy = Policy::default();
        policy.limits.timeout_ms = 5_000;
        for (module, grant) in [("bad", above), (holder, below)] {
            let own = policy.modules.entry(module.into()).or_default();
            own.grant.directories.push(grant);
        }
        let mut arena = lab.arena(|own| *own = policy.clone())?;
        arena.benign().await?;
        let mut modules = vec!["bad", holder];
        modules.dedup();
        for module in modules {
            match arena.load(module, components::ATTACKER.to_vec()).await {
                Ok(()) => {}
                Err(LoadError::Grant { .. }) => return Ok(None),
                Err(other) => return Err(other.into()),
            }
        }
        let swapped = Self {
            ground,
            arena,
            policy,
            holder,
        };
        // The grant must work, or nothing is proved.
        let read = swapped.ask("read", "deep.txt").await;
        ensure(read.contains("granted"), || format!("it read {read}"))?;
        Ok(Some(swapped))
    }

    /// What the holder of the grant is told about `path` in /sub.
    async fn ask(&self, tool: &str, path: &str) -> String {
        let arguments = json!({
            "dir": "/sub", "path": path, "content": "gotcha", "target": "x", "size": 0,
            "chunk": 16, "chunks": 2, "then": "secret.txt", "offset": 0, "by-stream": false,
        });
        let wanted: &[&str] = match tool {
            "write" => &["dir", "path", "content"],
            "set_size" => &["dir", "path", "size"],
            "through" => &["dir", "path", "then"],
            "fill" => &["dir", "path", "chunk", "chunks"],
            _ => &["dir", "path"],
        };
        let arguments: Value = wanted
            .iter()
            .map(|key| ((*key).to_owned(), arguments[*key].clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let tool = format!("{}.{tool}", self.holder);
        format!("{:?}", self.arena.call(&tool, arguments).await.result)
    }

    /// The guest puts a link in the place of its grant. What the host does not let it do, another process does:
    /// it has the rights of the person whose folder it is.
    async fn by_a_link(&self, swap: Swap) -> Result<(), AttackFailure> {
        let away =
            json!({"dir": "/data", "path": swap.moved, "to-dir": "/data", "to-path": "away"});
        if self.arena.call("bad.rename", away).await.result.is_err() {
            fs::rename(self.ground.inside(swap.moved), self.ground.inside("away"))?;
        }
        let link = json!({"dir": "/data", "target": swap.target, "path": swap.moved});
        if self.arena.call("bad.symlink", link).await.result.is_err() {
            symlink(swap.target, self.ground.inside(swap.moved))?;
        }
        Ok(())
    }

    /// Tries everything, before and after what was granted is prepared anew.
    async fn tried(&self, what: &str) -> Result<(), AttackFailure> {
        self.ensure_held(what).await?;
        self.governed().await;
        self.ensure_held(&format!("{what}, and limits changed"))
            .await?;
        self.arena.unharmed().await
    }

    /// Tries everything that would show or change what lies outside.
    async fn ensure_held(&self, before: &str) -> Result<(), AttackFailure> {
        let picture = self.ground.picture()?;
        for (tool, path) in [
            ("read", "secret.txt"),
            ("read_nofollow", "secret.txt"),
            ("read", "dir/secret.txt"),
            ("stat", "secret.txt"),
            ("list", "."),
            ("through", "."),
            ("set_size", "secret.txt"),
        ] {
            let said = self.ask(tool, path).await;
            let leaks = said.contains(SECRET)
                || (tool == "list" && said.contains("secret.txt"))
                || (tool == "stat" && said.starts_with("Ok"));
            ensure(!leaks, || {
                format!("{before}, {tool} {path} led outside: {said:.200}")
            })?;
        }
        for (tool, path) in [
            ("write", "secret.txt"),
            ("write", "new.txt"),
            ("fill", "filled.txt"),
            ("make_dir", "made"),
            ("set_times", "secret.txt"),
            ("remove", "secret.txt"),
        ] {
            self.ask(tool, path).await;
            picture
                .ensure_same(&self.ground.picture()?)
                .map_err(|fault| AttackFailure::Broke(format!("{before}, {tool}: {fault}")))?;
        }
        Ok(())
    }

    /// The same after the operator changed something else: what was granted is prepared anew.
    async fn governed(&self) {
        let mut policy = self.policy.clone();
        for own in policy.modules.values_mut() {
            own.limits.timeout_ms = Some(4_000);
            own.grant.environment = [("CHANGED".into(), "yes".into())].into();
        }
        self.arena.registry.govern(policy).await;
    }
}

async fn grant_replaced_by_a_link(lab: &Lab) -> Result<String, AttackFailure> {
    let (mut refused, mut held, mut broke) = (0, 0, Vec::new());
    for swap in SWAPS {
        for access in [Access::Read, Access::ReadWrite] {
            for holder in ["bad", "holder"] {
                let Some(swapped) = Swapped::new(lab, swap, access, holder).await? else {
                    refused += 1;
                    continue;
                };
                swapped.by_a_link(swap).await?;
                let what = format!("{} of {holder} ({access:?}) replaced", swap.moved);
                match swapped.tried(&what).await {
                    Ok(()) => held += 1,
                    Err(fault) => broke.push(fault.to_string()),
                }
            }
        }
    }
    ensure(broke.is_empty(), || broke.join("; "))?;
    Ok(format!(
        "{refused} refused, {held} held to the granted folder"
    ))
}

async fn grant_replaced_by_a_folder(lab: &Lab) -> Result<String, AttackFailure> {
    let mut held = 0;
    for access in [Access::Read, Access::ReadWrite] {
        let swap = SWAPS[0];
        let Some(swapped) = Swapped::new(lab, swap, access, "holder").await? else {
            continue;
        };
        let ground = &swapped.ground;
        // No link anywhere: the folder itself is another one.
        let (granted, outside) = (ground.inside(swap.granted), ground.root().join("outside"));
        fs::rename(&granted, ground.inside("away"))?;
        fs::rename(&outside, &granted)?;
        let before = contents(&granted)?;
        let what = "after another folder took its place";
        for path in ["secret.txt", "dir/secret.txt"] {
            let said = swapped.ask("read", path).await;
            ensure(!said.contains(SECRET), || {
                format!("{what}, {path} was read")
            })?;
        }
        swapped.ask("write", "new.txt").await;
        ensure(contents(&granted)? == before, || {
            format!("{what}, it was written to")
        })?;
        swapped.arena.unharmed().await?;
        held += 1;
    }
    Ok(format!("{held} held to the granted folder"))
}

fn contents(folder: &Path) -> Result<Vec<PathBuf>, AttackFailure> {
    let mut names: Vec<_> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, std::io::Error>>()?;
    names.sort();
    Ok(names)
}

async fn grant_swapped_before_start(lab: &Lab) -> Result<String, AttackFailure> {
    let mut refused = 0;
    // The folder itself, and the one above it.
    for (granted, moved, evil) in [
        ("area/folder", "area/folder", "outside"),
        ("area/folder", "area", "above"),
    ] {
        let ground = AttackFolders::new(lab)?;
        let root = fs::canonicalize(ground.root())?;
        fs::create_dir_all(root.join(granted))?;
        fs::create_dir_all(root.join("above/folder"))?;
        fs::write(root.join("above/folder/secret.txt"), SECRET)?;
        fs::write(root.join(granted).join("file.txt"), "granted")?;
        let pins = lab.folder()?;
        let start = async || {
            let grant = Grant {
                directories: vec![directory(&root.join(granted), "/data", Access::ReadWrite)],
                ..Grant::default()
            };
            start(lab, grant, pins.path()).await
        };
        let (first, loaded) = start().await?;
        loaded?;
        let module = first
            .registry
            .module("bad")
            .ok_or_else(|| AttackFailure::Broke("it was not loaded".into()))?;
        first.registry.approve(&module, &module.etag()).await?;
        let file = json!({"dir": "/data", "path": "file.txt"});
        ensure(
            first.value("bad.read", file).await? == json!("granted"),
            || "the approved module does not work".into(),
        )?;
        drop(first);

        fs::rename(root.join(moved), root.join("away"))?;
        symlink(root.join(evil), root.join(moved))?;
        let picture = contents(&root.join("outside"))?;
        let (second, loaded) = start().await?;
        let secret = json!({"dir": "/data", "path": "secret.txt"});
        let said = format!("{:?}", second.call("bad.read", secret).await.result);
        ensure(!said.contains(SECRET), || {
            format!("{moved} became a link, and what it leads to was read")
        })?;
        let write = json!({"dir": "/data", "path": "new.txt", "content": "gotcha"});
        second.call("bad.write", write).await;
        ensure(contents(&root.join("outside"))? == picture, || {
            format!("{moved} became a link, and what it leads to was written to")
        })?;
        refused += usize::from(loaded.is_err());
        fs::remove_file(root.join(moved))?;
    }
    Ok(format!(
        "nothing outside touched; {refused} refused at start"
    ))
}

/// A host that starts: it knows the pins of the last one.
async fn start(
    lab: &Lab,
    grant: Grant,
    pins: &Path,
) -> Result<(Arena, Result<(), LoadError>), AttackFailure> {
    let mut arena = lab.arena(|policy| {
        policy.pinning = Pinning::Required {
            pins: Arc::new(PinFolder::new(pins)),
            first_sight: false,
        };
        let module = ModulePolicy {
            grant,
            ..ModulePolicy::default()
        };
        policy.modules.insert("bad".into(), module);
    })?;
    let loaded = arena.load("bad", components::ATTACKER.to_vec()).await;
    Ok((arena, loaded))
}
