//! Loading: what changed is read, compiled and asked for its tools, and takes its place when that is done.

use super::candidates::{self, NameClaims};
use super::change;
use super::folder::{self, CandidateStamp, ModuleCandidate, ModuleFiles};
use super::snapshot::{ModuleEntry, ModuleSnapshot};
use super::{LoadEvent, Registry, RegistryState};
use crate::error::LoadError;
use crate::module::{ComponentSource, Module, blocking};
use futures_util::future::{BoxFuture, join};
use futures_util::stream::{self, StreamExt as _};
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use tokio::sync::OwnedMutexGuard;

/// A component up to this size is a small one.
const SMALL_BYTES: u64 = 1 << 20;
/// Names of small components that are loaded at a time. Each component is in memory meanwhile, and one that is
/// made to take long takes the place of no other: so they are many.
const SMALL_AT_A_TIME: usize = 64;
/// Names of large components that are loaded at a time; each may hold `component_bytes` of memory.
const LARGE_AT_A_TIME: usize = 4;

impl Registry {
    /// Loads every module in `folder`: each `NAME.wasm`, and each sub-folder with a `module.toml` or
    /// a `NAME.wasm` of its own name; `NAME@1.2` in either place is a version beside others. With
    /// `only`, modules of other names are left alone.
    ///
    /// Each module takes its place when it is ready, whatever is loaded beside it. Of two that claim one name, the
    /// one that was approved under it has it.
    ///
    /// Called again, it loads what changed, and removes what is gone from the folder. A module whose
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
        let (root, only) = (folder.to_owned(), only.map(<[String]>::to_vec));
        let looked = shared.change(move |shared, snapshot| {
            let mut found = folder::find(&root).map_err(|source| LoadError::Read { source })?;
            let origins: Vec<_> = found.iter().map(|own| own.origin.clone()).collect();
            let removed = snapshot.retain_origins(&root, &origins);
            if let Some(only) = &only {
                found.retain(|candidate| is_wanted(candidate, only));
            }
            found.retain(|own| !snapshot.is_current(&own.origin, &own.stamp()));
            Ok((removed, candidates::by_name(found, &shared.policy())))
        });
        let (removed, claims) = looked.await?;
        for module in removed {
            on_event(LoadEvent::Removed { module });
        }
        // What another process approved or revoked meanwhile.
        shared.reconsider().await;
        let (small, large): (Vec<_>, Vec<_>) = claims
            .into_iter()
            .partition(|claims| claims.bytes <= SMALL_BYTES);
        let load = |claims: Vec<NameClaims>| -> Vec<BoxFuture<'_, ()>> {
            let loads = claims.into_iter();
            loads
                .map(|claims| shared.load_claims(claims, on_event))
                .collect()
        };
        let small = stream::iter(load(small)).buffer_unordered(SMALL_AT_A_TIME);
        let large = stream::iter(load(large)).buffer_unordered(LARGE_AT_A_TIME);
        join(small.collect::<()>(), large.collect::<()>()).await;
        Ok(())
    }

    /// Loads one component that is already in memory.
    pub async fn load_bytes(&self, name: &str, bytes: Vec<u8>) -> Result<(), LoadError> {
        let origin = format!("memory:{name}");
        let _turn = self.shared.turn(&origin).await;
        if self.shared.snapshot().holds(&origin) {
            return Err(LoadError::Duplicate {
                name: name.to_owned(),
                holder: origin,
            });
        }
        let loaded = self.shared.load_component(name, &origin, bytes, &|_| ());
        let entry = ModuleEntry::loaded(Arc::new(loaded.await?));
        self.shared.put(&origin, entry).await
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
        let shared = &self.shared;
        let _turn = shared.turn(origin).await;
        let outcome = match bytes {
            Ok(bytes) => shared.load_component(name, origin, bytes, on_event).await,
            Err(error) => Err(error),
        };
        let (name, from) = (name.to_owned(), origin.to_owned());
        let settled = shared.change(move |shared, snapshot| {
            if outcome.is_ok() {
                snapshot.make_room(&name, &from);
            }
            let settled = shared.settle(snapshot, &name, &from, None, outcome);
            snapshot.asked(&from, &name);
            Ok(settled)
        });
        on_event(match settled.await {
            Ok(Some(module)) => LoadEvent::Loaded { module },
            Ok(None) | Err(_) => LoadEvent::Failed {
                origin: origin.to_owned(),
            },
        });
    }

    /// Takes away what [`Self::load_fetched`] was given under other names than these: the operator asks for it no
    /// more. Calls in flight end on it.
    pub async fn retain_fetched(&self, names: &[&str], on_event: &(dyn Fn(LoadEvent) + Sync)) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let removed = self.shared.change(move |_, snapshot| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Ok(snapshot.retain_asked(&names))
        });
        for module in removed.await.unwrap_or_default() {
            on_event(LoadEvent::Removed { module });
        }
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
        let shared = &self.shared;
        let (root, path) = (root.to_owned(), file.to_owned());
        let candidate = blocking(move || folder::at(&root, &path))
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
        let origin = candidate.origin.clone();
        let _turn = shared.turn(&origin).await;
        let (candidate, stamp) = blocking(move || {
            let stamp = candidate.stamp();
            Ok((candidate, stamp))
        })
        .await?;
        if let Some(module) = shared.snapshot().made_from(&stamp) {
            return Ok(module);
        }
        let (stamp, outcome) = shared.load(candidate, on_event).await;
        let module = Arc::new(outcome?);
        let entry = ModuleEntry::loaded(module.clone()).stamped(stamp);
        shared.put(&origin, entry).await?;
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
        let shared = &self.shared;
        let _turn = shared.turn(origin).await;
        if let Some(module) = shared.snapshot().from(origin) {
            return Ok(module);
        }
        let loaded = shared.load_slot(slot, origin, component, on_event);
        let module = loaded.await?;
        shared
            .put(origin, ModuleEntry::loaded(module.clone()))
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
        let shared = self.shared.clone();
        let origin = root.join(format!("{slot}.wasm")).display().to_string();
        let loaded = shared.load_slot(slot, &origin, component, on_event);
        let module = loaded.await?;
        let entry = ModuleEntry::loaded(module.clone());
        blocking(move || {
            // A private copy.
            let mut snapshot = (*shared.snapshot()).clone();
            change::name(&shared.policy(), &mut snapshot, &origin, entry)
        })
        .await?;
        Ok(module)
    }
}

/// Whether `only` names the module that `candidate` presumably is.
fn is_wanted(candidate: &ModuleCandidate, only: &[String]) -> bool {
    let name = candidate.presumed_name().replace('-', "_");
    let mut wanted = only.iter();
    wanted.any(|wanted| wanted.split('@').next() == Some(name.as_str()))
}

/// Counts a load of a module name as pending.
struct PendingName {
    registry: Arc<RegistryState>,
    name: String,
}

impl PendingName {
    fn new(registry: Arc<RegistryState>, name: String) -> Self {
        *registry.pending.lock().entry(name.clone()).or_default() += 1;
        Self { registry, name }
    }
}

impl Drop for PendingName {
    fn drop(&mut self) {
        let mut pending = self.registry.pending.lock();
        let left = pending.get(&self.name).map_or(0, |loads| loads - 1);
        if left == 0 {
            pending.remove(&self.name);
        } else {
            pending.insert(self.name.clone(), left);
        }
    }
}

impl RegistryState {
    /// Waits until nothing else is loaded from `origin`.
    async fn turn(&self, origin: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut loading = self.loading.lock();
            loading.retain(|_, lock| lock.strong_count() > 0);
            match loading.get(origin).and_then(Weak::upgrade) {
                Some(lock) => lock,
                None => {
                    let lock = Arc::default();
                    loading.insert(origin.to_owned(), Arc::downgrade(&lock));
                    lock
                }
            }
        };
        lock.lock_owned().await
    }

    /// Loads what claims one name, one after the other. The name is pending from this call on until the future ends or is
    /// dropped.
    fn load_claims<'a>(
        self: &'a Arc<Self>,
        claims: NameClaims,
        on_event: &'a (dyn Fn(LoadEvent) + Sync),
    ) -> BoxFuture<'a, ()> {
        let NameClaims {
            name, candidates, ..
        } = claims;
        let pending = PendingName::new(self.clone(), name);
        Box::pin(async move {
            for candidate in candidates {
                self.load_candidate(candidate, on_event).await;
            }
            drop(pending);
        })
    }

    /// Loads one file or folder, and puts it or the reason why it is no module into the snapshot.
    async fn load_candidate(
        self: &Arc<Self>,
        candidate: ModuleCandidate,
        on_event: &(dyn Fn(LoadEvent) + Sync),
    ) {
        let (slot, origin) = (candidate.slot.clone(), candidate.origin.clone());
        let _turn = self.turn(&origin).await;
        let known = self.snapshot();
        let looked = blocking(move || {
            // It may have been loaded while this waited.
            let is_current = known.is_current(&candidate.origin, &candidate.stamp());
            Ok((candidate, is_current, known.holds(&origin), origin))
        });
        let Ok((candidate, false, was_there, origin)) = looked.await else {
            return;
        };
        let (stamp, outcome) = self.load(candidate, on_event).await;
        let from = origin.clone();
        let settled = self.change(move |shared, snapshot| {
            Ok(shared.settle(snapshot, &slot, &from, stamp, outcome))
        });
        on_event(match settled.await {
            Ok(Some(module)) if was_there => LoadEvent::Reloaded { module },
            Ok(Some(module)) => LoadEvent::Loaded { module },
            Ok(None) | Err(_) => LoadEvent::Failed { origin },
        });
    }

    /// Notes the outcome of loading `origin`: the module's name, or nothing if it is a failure.
    fn settle(
        &self,
        snapshot: &mut ModuleSnapshot,
        slot: &str,
        origin: &str,
        stamp: Option<CandidateStamp>,
        outcome: Result<Module, LoadError>,
    ) -> Option<String> {
        let admitted = outcome.and_then(|module| {
            let name = module.name.clone();
            let entry = ModuleEntry::loaded(Arc::new(module)).stamped(stamp);
            self.admit(snapshot, origin, entry)?;
            Ok(name)
        });
        admitted
            .map_err(|error| snapshot.fail(slot, origin, stamp, error))
            .ok()
    }

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
        let (name, version) = folder::parts(slot).ok_or_else(|| LoadError::Name {
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
            return Err(LoadError::Name {
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
            directories: self.directories.clone(),
        })
    }
}
