//! Row 31: a FIFO, or a file without end, where the host looks for one of its own: opening it blocks in the
//! kernel, where no deadline reaches.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, invoke};
use crate::measure::{Baseline, Released, fifo, in_time};
use serde_json::json;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toolhold_policy::{Grant, KeyValueGrant};
use toolhold_sandbox::compile::cache::Cache;
use toolhold_sandbox::{Engine, ModulePolicy, PinFolder, Pinning, Policy, Registry, Storage};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 31,
        name: "fifo_where_the_host_looks",
        attack: "a FIFO as cache entry, key, pin, module, its texts, its values",
        must: "answered in time; no thread blocked",
        company: Company::Others,
        tries: |lab| Box::pin(fifo_where_the_host_looks(lab)),
    },
    Attack {
        row: 31,
        name: "cache_entry_without_end",
        attack: "a cache entry, and a key, of a gigabyte",
        must: "compiled again, or refused; memory bounded",
        company: Company::Others,
        tries: |lab| Box::pin(cache_entry_without_end(lab)),
    },
];

/// Starting and loading a small component, compiled anew, takes a fraction of it. What hangs on a FIFO hangs for ever,
/// so a machine with other work may take longer.
fn prompt(lab: &Lab) -> Duration {
    lab.times(Duration::from_secs(20), Duration::from_secs(3))
}

/// A host's own files: modules, compiled code, pins, values.
#[derive(Clone)]
struct Files(PathBuf);

impl Files {
    fn new(root: &Path) -> Result<Self, AttackFailure> {
        let files = Self(root.to_owned());
        fs::create_dir(files.at("modules"))?;
        fs::write(files.at("modules/m.wasm"), components::PROBE)?;
        Ok(files)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Starts a host: it reads its key, loads its modules by its cache, looks at the pins, and calls one.
    async fn start(&self, engine: &Engine) -> Result<(), AttackFailure> {
        // That it cannot be opened is an answer.
        let cache = Cache::open(&self.at("compiled"), &self.at("key")).ok();
        let mut policy = Policy {
            pinning: Pinning::Required {
                pins: Arc::new(PinFolder::new(self.at("approvals"))),
                first_sight: true,
            },
            storage: Storage {
                scratch: None,
                key_value: Some(self.at("values")),
            },
            ..Policy::default()
        };
        let module = ModulePolicy {
            grant: Grant {
                key_value: Some(KeyValueGrant::default()),
                ..Grant::default()
            },
            one_off: true,
            ..ModulePolicy::default()
        };
        policy.modules.insert("m".into(), module);
        let registry = Registry::new(engine.clone(), cache, policy);
        registry
            .load_folder(&self.at("modules"), None, &|_| ())
            .await?;
        let remember = json!({"key": "k", "value": "v"});
        for (tool, arguments) in [("m.recall", json!({"key": "k"})), ("m.remember", remember)] {
            let _ = invoke(&registry, tool, &arguments, None).await;
        }
        Ok(())
    }

    /// Copies the files of a host that ran into another folder, which is not there yet. Their module need not be
    /// compiled again.
    fn copied(&self, root: &Path) -> Result<Self, AttackFailure> {
        copy(&self.0, root)?;
        Ok(Self(root.to_owned()))
    }

    /// The files below a folder, which must be there.
    fn below(&self, folder: &str) -> Result<Vec<PathBuf>, AttackFailure> {
        let (mut found, mut pending) = (Vec::new(), vec![self.at(folder)]);
        while let Some(path) = pending.pop() {
            for entry in fs::read_dir(path)? {
                let path = entry?.path();
                if path.is_dir() {
                    pending.push(path);
                } else {
                    found.push(path);
                }
            }
        }
        ensure(!found.is_empty(), || {
            format!("the host left nothing in {folder}")
        })?;
        Ok(found)
    }
}

/// Copies a folder and all that is below it. Only this user may write to what it makes, as a cache must be.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to)?;
        }
    }
    Ok(())
}

async fn fifo_where_the_host_looks(lab: &Lab) -> Result<String, AttackFailure> {
    let (mut places, mut broke) = (0, Vec::new());
    let first = lab.folder()?;
    let template = Files::new(first.path())?;
    template.start(&lab.engine()?).await?;
    for place in [
        "compiled",
        "key",
        "approvals",
        "values",
        "modules/m.wasm",
        "modules/m.wit",
    ] {
        let folder = lab.folder()?;
        let files = template.copied(&folder.path().join("host"))?;
        let engine = lab.engine()?;
        // What a host keeps under the path of its folder is there, too.
        files.start(&engine).await?;
        let replaced = match place {
            "compiled" | "approvals" | "values" => files.below(place)?,
            one => vec![files.at(one)],
        };
        broke.extend(hang(&files, &engine, &replaced, place, prompt(lab))?);
        places += 1;
    }
    for place in ["module.toml", "m.wasm", "wit/m.wit"] {
        let folder = lab.folder()?;
        let files = template.copied(&folder.path().join("host"))?;
        let engine = lab.engine()?;
        let own = files.at("modules/own");
        fs::create_dir_all(own.join("wit"))?;
        fs::write(own.join("own.wasm"), components::PROBE)?;
        broke.extend(hang(
            &files,
            &engine,
            &[own.join(place)],
            place,
            prompt(lab),
        )?);
        places += 1;
    }
    ensure(broke.is_empty(), || broke.join("; "))?;
    Ok(format!("{places} places, each answered in time"))
}

/// The host starts with FIFOs at these paths; what it does, if it hangs.
fn hang(
    files: &Files,
    engine: &Engine,
    replaced: &[PathBuf],
    place: &str,
    within: Duration,
) -> Result<Option<String>, AttackFailure> {
    let mut fifos = Vec::new();
    for path in replaced {
        let _ = fs::remove_file(path);
        fifo(path)?;
        fifos.push(Released(path.clone()));
    }
    let (files, engine) = (files.clone(), engine.clone());
    let what = format!("a FIFO at {place}");
    match in_time(within, &what, async move || files.start(&engine).await) {
        Ok(()) => Ok(None),
        Err(AttackFailure::Broke(what)) => Ok(Some(what)),
        Err(other) => Err(other),
    }
}

async fn cache_entry_without_end(lab: &Lab) -> Result<String, AttackFailure> {
    /// A sparse file of this size takes no disk.
    const HUGE: u64 = 1 << 30;
    /// What compiling the module again takes of the host.
    const BOUND: u64 = 192 << 20;
    let folder = lab.folder()?;
    let files = Files::new(folder.path())?;
    let engine = lab.engine()?;
    files.start(&engine).await?;
    let (mut most, mut broke) = (0, Vec::new());
    for place in ["compiled", "approvals", "values", "key"] {
        let replaced = match place {
            "key" => vec![files.at(place)],
            _ => files.below(place)?,
        };
        for path in replaced {
            let _ = fs::remove_file(&path);
            fs::File::create(&path)?.set_len(HUGE)?;
            let baseline = Baseline::now()?;
            files.start(&engine).await?;
            let what = format!("a file of 1 GiB in {place}");
            match baseline.ensure_peak(BOUND, &what) {
                Ok(more) => most = most.max(more),
                Err(fault) => broke.push(fault.to_string()),
            }
            let _ = fs::remove_file(&path);
        }
    }
    ensure(broke.is_empty(), || broke.join("; "))?;
    Ok(format!("at most {} MiB", most >> 20))
}
