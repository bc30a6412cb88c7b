//! Loading: what changed is read and compiled, and takes its place in one step.

use super::folder::{self, CandidateStamp, ModuleCandidate, ModuleFiles};
use super::snapshot::ModuleEntry;
use super::{LoadEvent, Registry, RegistryState, blocking};
use crate::error::LoadError;
use crate::module::{ComponentSource, Module};
use futures_util::stream::{self, StreamExt as _};
use std::io;
use std::path::Path;
use std::sync::Arc;

impl Registry {
    /// Loads every module in `folder`: each `NAME.wasm`, and each sub-folder with a `module.toml` or
    /// a `NAME.wasm` of its own name; `NAME@1.2` in either place is a version beside others. With
    /// `only`, modules of other names are left alone.
    ///
    /// Called again, it loads what changed, and without `only` removes what is gone. A module whose
    /// new form cannot be loaded stays as it was, and the reason is among the failures.
    ///
    /// # Errors
    /// [`LoadError::Read`] if the folder itself cannot be read. What is wrong with single modules is
    /// in [`Self::failures`].
    pub async fn load_folder(
        &self,
        folder: &Path,
        only: Option<&[String]>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<(), LoadError> {
        let shared = &self.shared;
        let _turn = shared.loading.lock().await;
        let root = folder.to_owned();
        let known = shared.snapshot();
        let (found, changed) = blocking(move || {
            let found = folder::find(&root).map_err(|source| LoadError::Read { source })?;
            let origins: Vec<_> = found.iter().map(|c| c.origin.clone()).collect();
            let changed: Vec<_> = found
                .into_iter()
                .filter(|candidate| !known.is_current(&candidate.origin, &candidate.stamp()))
                .collect();
            Ok((origins, changed))
        })
        .await?;
        let wanted = changed.into_iter().filter(|candidate| {
            only.is_none_or(|names| {
                let name = candidate.presumed_name().replace('-', "_");
                names
                    .iter()
                    .any(|wanted| wanted.split('@').next() == Some(name.as_str()))
            })
        });
        let outcomes: Vec<_> = stream::iter(wanted)
            .map(async |candidate| {
                let (slot, origin) = (candidate.slot.clone(), candidate.origin.clone());
                (slot, origin, shared.load(candidate, on_event).await)
            })
            // In order, so that of two claims to a name the same one wins every time.
            .buffered(4)
            .collect()
            .await;

        let mut snapshot = (*shared.snapshot()).clone();
        if only.is_none() {
            for module in snapshot.retain_origins(folder, &found) {
                on_event(LoadEvent::Removed { module });
            }
        }
        for (slot, origin, (stamp, outcome)) in outcomes {
            let was_there = snapshot.holds(&origin);
            match snapshot.put(&slot, &origin, stamp, outcome) {
                Ok(module) if was_there => on_event(LoadEvent::Reloaded { module }),
                Ok(module) => on_event(LoadEvent::Loaded { module }),
                Err(()) => on_event(LoadEvent::Failed { origin }),
            }
        }
        shared.exchange(snapshot).await;
        Ok(())
    }

    /// Loads one component that is already in memory.
    pub async fn load_bytes(&self, name: &str, bytes: Vec<u8>) -> Result<(), LoadError> {
        let origin = format!("memory:{name}");
        let _turn = self.shared.loading.lock().await;
        if self.shared.snapshot().holds(&origin) {
            return Err(LoadError::Duplicate {
                name: name.to_owned(),
                holder: origin,
            });
        }
        let module = self
            .shared
            .load_component(name, &origin, bytes, &|_| ())
            .await?;
        let mut snapshot = (*self.shared.snapshot()).clone();
        snapshot.insert(&origin, ModuleEntry::loaded(Arc::new(module)))?;
        self.shared.exchange(snapshot).await;
        Ok(())
    }

    /// Loads a component that the host got from elsewhere than the folder because the operator asked for it as
    /// `name`, or keeps the reason why it did not get it among [`Self::failures`]. `origin` is shown as where it
    /// came from. What has its name makes room: a file of the folder, and what was fetched for it before.
    pub async fn load_fetched(
        &self,
        name: &str,
        origin: &str,
        bytes: Result<Vec<u8>, LoadError>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) {
        let _turn = self.shared.loading.lock().await;
        let outcome = match bytes {
            Ok(bytes) => {
                self.shared
                    .load_component(name, origin, bytes, on_event)
                    .await
            }
            Err(error) => Err(error),
        };
        let mut snapshot = (*self.shared.snapshot()).clone();
        if outcome.is_ok() {
            snapshot.make_room(name, origin);
        }
        on_event(match snapshot.put(name, origin, None, outcome) {
            Ok(module) => LoadEvent::Loaded { module },
            Err(()) => LoadEvent::Failed {
                origin: origin.to_owned(),
            },
        });
        snapshot.asked(origin, name);
        self.shared.exchange(snapshot).await;
    }

    /// Takes away what [`Self::load_fetched`] was given under other names than these: the operator asks for it no
    /// more. Calls in flight end on it.
    pub async fn retain_fetched(&self, names: &[&str], on_event: &(dyn Fn(LoadEvent) + Sync)) {
        let _turn = self.shared.loading.lock().await;
        let mut snapshot = (*self.shared.snapshot()).clone();
        for module in snapshot.retain_asked(names) {
            on_event(LoadEvent::Removed { module });
        }
        self.shared.exchange(snapshot).await;
    }

    /// Loads the component at `file` below `root`, as the module that it would be in a modules folder,
    /// unless it is there already. Nothing outside of `root` is read, whatever links say.
    ///
    /// # Errors
    /// [`LoadError::Missing`] if there is no such file; why it is no module, or cannot stand beside
    /// those that are there.
    pub async fn load_file(
        &self,
        root: &Path,
        file: &Path,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<Arc<Module>, LoadError> {
        let _turn = self.shared.loading.lock().await;
        let (root, path) = (root.to_owned(), file.to_owned());
        let (candidate, stamp) = blocking(move || {
            let candidate = folder::at(&root, &path)?;
            let stamp = candidate.stamp();
            Ok((candidate, stamp))
        })
        .await
        .map_err(|error| match error {
            LoadError::Read { source } if source.kind() == io::ErrorKind::NotFound => {
                LoadError::Missing {
                    file: file.display().to_string(),
                    language: None,
                }
            }
            error => error,
        })?;
        if let Some(module) = self.shared.snapshot().made_from(&stamp) {
            return Ok(module);
        }
        let origin = candidate.origin.clone();
        let (stamp, outcome) = self.shared.load(candidate, on_event).await;
        let module = Arc::new(outcome?);
        let slot = ModuleEntry::loaded(module.clone()).stamped(stamp);
        self.put(&origin, slot).await?;
        Ok(module)
    }

    /// Loads a component that the host got from elsewhere than the folder, beside what is there, unless
    /// it is there already. `slot` is `NAME` or `NAME@VERSION`.
    ///
    /// # Errors
    /// Why it is no module, or cannot stand beside those that are there.
    pub async fn load_beside(
        &self,
        slot: &str,
        origin: &str,
        component: Vec<u8>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<Arc<Module>, LoadError> {
        let _turn = self.shared.loading.lock().await;
        if let Some(module) = self.shared.snapshot().from(origin) {
            return Ok(module);
        }
        let loaded = self.shared.load_slot(slot, origin, component, on_event);
        let module = loaded.await?;
        self.put(origin, ModuleEntry::loaded(module.clone()))
            .await?;
        Ok(module)
    }

    /// Looks whether `component` could be loaded as `SLOT.wasm` from the folder `root`, beside what is
    /// there or in the place of that file: it is compiled, linked and asked for its tools. `slot` is `NAME`
    /// or `NAME@VERSION`. Nothing that is loaded changes.
    ///
    /// # Errors
    /// Why it is no module, or cannot stand beside those that are there.
    pub async fn examine(
        &self,
        root: &Path,
        slot: &str,
        component: Vec<u8>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<Arc<Module>, LoadError> {
        let _turn = self.shared.loading.lock().await;
        let origin = root.join(format!("{slot}.wasm")).display().to_string();
        let loaded = self.shared.load_slot(slot, &origin, component, on_event);
        let module = loaded.await?;
        // A private copy.
        let mut snapshot = (*self.shared.snapshot()).clone();
        snapshot.insert(&origin, ModuleEntry::loaded(module.clone()))?;
        Ok(module)
    }

    /// The caller has the turn to load.
    async fn put(&self, origin: &str, slot: ModuleEntry) -> Result<(), LoadError> {
        let mut snapshot = (*self.shared.snapshot()).clone();
        snapshot.insert(origin, slot)?;
        self.shared.exchange(snapshot).await;
        Ok(())
    }
}

impl RegistryState {
    async fn load(
        self: &Arc<Self>,
        candidate: ModuleCandidate,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> (Option<CandidateStamp>, Result<Module, LoadError>) {
        let (slot, origin) = (candidate.slot.clone(), candidate.origin.clone());
        let shared = self.clone();
        let read = blocking(move || {
            // A broken file is looked at again when it changes, and not before.
            let stamp = candidate.stamp();
            let read = candidate.read(|name, manifest| {
                let limits = shared.policy().limits_of(name, &manifest.limits);
                limits.component_bytes
            });
            Ok((stamp, read))
        })
        .await;
        let (stamp, files) = match read {
            Err(error) => return (None, Err(error)),
            // Unfinished: look again, even if it changes no more.
            Ok((_, Err(LoadError::Changing))) => return (None, Err(LoadError::Changing)),
            Ok((stamp, Err(error))) => return (Some(stamp), Err(error)),
            Ok((_, Ok((files, stamp)))) => (Some(stamp), files),
        };
        (
            stamp,
            self.load_files(&slot, &origin, files, on_event).await,
        )
    }

    /// A component without a folder of its own, and without a version.
    async fn load_component(
        &self,
        name: &str,
        origin: &str,
        component: Vec<u8>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<Module, LoadError> {
        let files = ModuleFiles::alone(name, None, component);
        self.load_files(name, origin, files, on_event).await
    }

    /// A component without a folder of its own, as `NAME` or `NAME@VERSION`.
    async fn load_slot(
        &self,
        slot: &str,
        origin: &str,
        component: Vec<u8>,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<Arc<Module>, LoadError> {
        let (name, version) = folder::parts(slot).ok_or_else(|| LoadError::Manifest {
            reason: format!("{slot:?} cannot name a module"),
        })?;
        let files = ModuleFiles::alone(name, version, component);
        let module = self.load_files(slot, origin, files, on_event).await?;
        Ok(Arc::new(module))
    }

    async fn load_files(
        &self,
        slot: &str,
        origin: &str,
        files: ModuleFiles,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) -> Result<Module, LoadError> {
        let source = self.source(slot, origin, files)?;
        let (module, bytes) = (source.name.clone(), source.bytes.len() as u64);
        Module::load(&self.engine, self.cache.as_ref(), source, &|| {
            let module = module.clone();
            on_event(LoadEvent::Compiling { module, bytes });
        })
        .await
    }

    fn source(
        &self,
        slot: &str,
        origin: &str,
        files: ModuleFiles,
    ) -> Result<ComponentSource, LoadError> {
        let policy = self.policy();
        if !toolhold_policy::text::is_name(&files.name) {
            return Err(LoadError::Manifest {
                reason: format!("{:?} cannot name a module", files.name),
            });
        }
        let own = policy.modules.get(&files.name).cloned().unwrap_or_default();
        if let Some(reason) = own.fault {
            return Err(LoadError::Grant { reason });
        }
        let limits = policy.limits_of(&files.name, &files.manifest.limits);
        Ok(ComponentSource {
            name: files.name,
            version: files.version,
            slot: slot.to_owned(),
            origin: origin.to_owned(),
            bytes: files.component,
            wit: files.wit,
            manifest: files.manifest,
            limits,
            grant: own.grant,
            storage: policy.storage.clone(),
            resolver: policy.resolver.clone(),
            pins: self.pins.clone(),
        })
    }
}
