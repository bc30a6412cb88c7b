//! Row 19: the cache of compiled code, which is native code under the control of anyone who can
//! write it.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, PseudoRandom, invoke};
use serde_json::json;
use std::fs;
use std::future::ready;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use toolhold_policy::Output;
use toolhold_sandbox::compile::cache::Cache;
use toolhold_sandbox::{Engine, LoadEvent, ModulePolicy, Policy, Registry};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 19,
        name: "flipped_bytes",
        attack: "flipped bytes in a compiled artefact; cut off; grown",
        must: "detected, compiled again",
        company: Company::Others,
        tries: |lab| Box::pin(flipped_bytes(lab)),
    },
    Attack {
        row: 19,
        name: "forged_artefacts",
        attack: "another module's, another engine's, another key's",
        must: "detected, compiled again",
        company: Company::Others,
        tries: |lab| Box::pin(forged_artefacts(lab)),
    },
    Attack {
        row: 19,
        name: "writable_cache",
        attack: "a cache folder that others can write",
        must: "refused",
        company: Company::Others,
        tries: |lab| Box::pin(ready(writable_cache(lab))),
    },
];

/// A modules folder with two components, and the cache of their compiled code.
struct Host {
    folder: TempDir,
    engine: Engine,
}

impl Host {
    fn new(lab: &Lab) -> Result<Self, AttackFailure> {
        // Each entry that is made again is flushed.
        let folder = lab.folder_in_memory()?;
        fs::create_dir(folder.path().join("modules"))?;
        for number in [1, 2] {
            let bytes = components::parse(&components::which(number))?;
            fs::write(folder.path().join(format!("modules/m{number}.wasm")), bytes)?;
        }
        let engine = lab.engine()?;
        Ok(Self { folder, engine })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Loads both modules, calls both, and returns how many had to be compiled.
    async fn start(&self, key: &str, policy: Policy) -> Result<usize, AttackFailure> {
        let cache = Cache::open(&self.path("compiled"), &self.path(key))?;
        let registry = Registry::new(self.engine.clone(), Some(cache), policy);
        let compiled = AtomicUsize::new(0);
        let count = |event| {
            if let LoadEvent::Compiling { .. } = event {
                compiled.fetch_add(1, Ordering::Relaxed);
            }
        };
        registry
            .load_folder(&self.path("modules"), None, &count)
            .await?;
        for (tool, answer) in [("m1.which", 1), ("m2.which", 2)] {
            let report = invoke(&registry, tool, &json!({}), None).await;
            let output = report.result?;
            ensure(output == Output::Value(json!(answer)), || {
                format!("{tool} answered {output:?}")
            })?;
        }
        Ok(compiled.into_inner())
    }

    async fn compiles(&self, times: usize, why: &str) -> Result<(), AttackFailure> {
        let compiled = self.start("key", Policy::default()).await?;
        ensure(compiled == times, || {
            format!("{why}: compiled {compiled} times instead of {times}")
        })
    }

    fn entries(&self) -> Result<Vec<PathBuf>, AttackFailure> {
        let mut entries: Vec<_> = fs::read_dir(self.path("compiled"))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_, std::io::Error>>()?;
        entries.sort();
        Ok(entries)
    }
}

async fn flipped_bytes(lab: &Lab) -> Result<String, AttackFailure> {
    let host = Host::new(lab)?;
    host.compiles(2, "the first time").await?;
    host.compiles(0, "the second time").await?;
    let entry = &host.entries()?[0];
    let original = fs::read(entry)?;
    let mut dice = PseudoRandom(19);
    let mut offsets: Vec<_> = (0..40)
        .chain([original.len() / 2, original.len() - 1])
        .collect();
    offsets.extend((0..lab.times(20, 200)).map(|_| dice.below(original.len() as u64) as usize));
    for at in &offsets {
        let mut flipped = original.clone();
        flipped[*at] ^= 1 << dice.below(8);
        overwrite(entry, &flipped)?;
        host.compiles(1, &format!("byte {at} was flipped")).await?;
        let repaired = fs::read(entry)?.len();
        ensure(repaired == original.len(), || {
            "the entry was not made sound again".into()
        })?;
    }
    for length in [0, 20, 32, 33, original.len() / 2, original.len() - 1] {
        overwrite(entry, &original[..length])?;
        host.compiles(1, &format!("cut off after {length} bytes"))
            .await?;
    }
    overwrite(entry, &[&original[..], b"more"].concat())?;
    host.compiles(1, "grown").await?;
    host.compiles(0, "sound again").await?;
    Ok(format!(
        "{} damaged entries, all compiled again",
        offsets.len() + 7
    ))
}

async fn forged_artefacts(lab: &Lab) -> Result<String, AttackFailure> {
    let host = Host::new(lab)?;
    host.compiles(2, "the first time").await?;
    let entries = host.entries()?;
    let original = fs::read(&entries[0])?;
    // Sound bytes, made by this host with this key, for another component.
    overwrite(&entries[0], &fs::read(&entries[1])?)?;
    host.compiles(1, "another module's artefact").await?;
    // Corrupt bytes under the MAC of the sound ones.
    overwrite(
        &entries[0],
        &[&original[..32], b"\x7fELF".as_slice()].concat(),
    )?;
    host.compiles(1, "another body under its check").await?;

    // Another engine: each stack size has one, with artefacts of its own under names of its own.
    let mut deep = Policy::default();
    deep.modules.insert("m1".into(), ModulePolicy::default());
    if let Some(module) = deep.modules.get_mut("m1") {
        module.limits.stack_bytes = Some(4 << 20);
    }
    let before = host.entries()?;
    let compiled = host.start("key", deep.clone()).await?;
    let made: Vec<_> = host
        .entries()?
        .into_iter()
        .filter(|entry| !before.contains(entry))
        .collect();
    if let (1, [other]) = (compiled, made.as_slice()) {
        let own = before
            .iter()
            .find(|entry| digest(entry) == digest(other))
            .ok_or_else(|| AttackFailure::Broke("the artefacts have unlike names".into()))?;
        overwrite(own, &fs::read(other)?)?;
        host.compiles(1, "another engine's artefact").await?;
    } else {
        ensure(compiled == 0, || {
            format!("another engine compiled {compiled} times and left {made:?}")
        })?;
    }

    let before = host.entries()?;
    let compiled = host.start("another-key", Policy::default()).await?;
    ensure(compiled == 2, || {
        format!("with another key, {compiled} were compiled instead of 2")
    })?;
    // Hosts that share a folder do not make each other compile.
    host.compiles(0, "beside a host with another key").await?;
    let foreign = host.entries()?;
    let foreign = foreign
        .iter()
        .find(|entry| !before.contains(entry) && digest(entry) == digest(&entries[0]));
    let foreign =
        foreign.ok_or_else(|| AttackFailure::Broke("no entry of the other key".into()))?;
    overwrite(&entries[0], &fs::read(foreign)?)?;
    host.compiles(1, "another key's artefact").await?;
    Ok("another module's, engine's, key's: compiled again".into())
}

fn writable_cache(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = lab.folder()?;
    let (compiled, key) = (folder.path().join("compiled"), folder.path().join("key"));
    for mode in [0o777, 0o770, 0o722] {
        fs::create_dir(&compiled)?;
        fs::set_permissions(&compiled, fs::Permissions::from_mode(mode))?;
        let opened = Cache::open(&compiled, &key);
        let refused = opened.is_err_and(|error| error.to_string().contains("0700"));
        ensure(refused, || format!("mode {mode:o} was accepted"))?;
        fs::remove_dir(&compiled)?;
    }
    Cache::open(&compiled, &key)?;
    for (path, mode) in [(&compiled, 0o700), (&key, 0o600)] {
        let found = fs::metadata(path)?.permissions().mode() & 0o777;
        ensure(found == mode, || {
            format!("{} has mode {found:o}", path.display())
        })?;
    }
    Ok("refused, three times; its own is 0700".into())
}

/// Entries are read-only, also for their owner.
fn overwrite(path: &Path, bytes: &[u8]) -> Result<(), AttackFailure> {
    fs::remove_file(path)?;
    Ok(fs::write(path, bytes)?)
}

/// The part of an entry's name that says which component it is.
fn digest(entry: &Path) -> Option<&str> {
    entry.file_name()?.to_str()?.split('-').next()
}
