//! Operator's decisions: limits, pins, grants. [`Policy`] is the decision for all modules,
//! `EffectivePolicy` what it means for one loaded module.

mod effective;
mod pins;
mod recent;

pub(crate) use effective::{CallPolicy, EffectivePolicy, Judgement};
pub use pins::PinFolder;

use crate::disk::{Storage, same_directory};
use crate::egress::{Resolve, SystemResolver};
use crate::grant::{Place, ReservedPath};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;
use toolhold_files::{Location, passes};
use toolhold_policy::limits::{Limits, LimitsRequest};
use toolhold_policy::{Access, Digest, EarlierPinDecision, Grant, PinStore, PinWriteError, Share};

/// What the operator decided about modules.
#[derive(Debug, Clone)]
pub struct Policy {
    /// What a module gets that asks for nothing.
    pub limits: Limits,
    /// The most a module can get by asking.
    pub ceiling: Limits,
    /// Whether modules are pinned.
    pub pinning: Pinning,
    /// The digest of the component that comes with this program under a module's name. Where first sight is enough,
    /// it is as trusted as the program, also when another version of it was pinned; another component under the name
    /// is approved by a person alone.
    pub shipped: fn(&str) -> Option<Digest>,
    pub storage: Storage,
    /// Resolves the names of the hosts that modules send to.
    pub resolver: Arc<dyn Resolve>,
    /// Decisions for single modules, by name.
    pub modules: HashMap<String, ModulePolicy>,
    /// The MCP servers that offer their tools under their names, which no new module may take.
    pub servers: ServerNames,
    /// Files and folders that the host takes decisions from, or runs. No module may write them.
    pub reserved: Arc<[ReservedPath]>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            ceiling: Limits::default_ceiling(),
            pinning: Pinning::Off,
            shipped: |_| None,
            storage: Storage::default(),
            resolver: Arc::new(SystemResolver),
            modules: HashMap::new(),
            servers: ServerNames::default(),
            reserved: Arc::default(),
        }
    }
}

impl Policy {
    /// Whether anything was given to modules of this name, or should have been.
    pub fn grants(&self, name: &str) -> bool {
        let own = self.modules.get(name);
        own.is_some_and(|own| own.fault.is_some() || !own.grant.is_empty())
    }

    /// The most bytes that a component may have which becomes the module `name` and asks for nothing.
    pub fn component_bytes(&self, name: &str) -> u64 {
        self.limits_of(name, &LimitsRequest::default())
            .component_bytes
    }

    /// Reserved paths that lie in directories which modules may write: their names cannot be changed there. Blocks on the
    /// file system.
    pub fn reserved_in_grants(&self) -> Vec<ReservedInGrant<'_>> {
        let mut all = Vec::new();
        for (module, own) in &self.modules {
            for directory in &own.grant.directories {
                let entry = Location::of(&directory.host).ok().and_then(|it| it.entry);
                let Some(entry) = entry.filter(|_| directory.access == Access::ReadWrite) else {
                    continue;
                };
                let is_inside = |path: &&ReservedPath| {
                    Location::of(&path.path).is_ok_and(|it| passes(&it.way, entry))
                };
                let inside = self.reserved.iter().filter(is_inside);
                all.extend(inside.map(|reserved| ReservedInGrant {
                    module,
                    directory: &directory.host,
                    reserved,
                }));
            }
        }
        all.sort_by_key(|it| (it.module, it.directory, &it.reserved.path));
        all
    }

    /// A module that may write files in a directory through which this path leads. Blocks on the file system.
    pub fn writer_of(&self, path: &Path) -> Option<&str> {
        let way = Location::of(path).ok()?.way;
        let may_write = |own: &ModulePolicy| {
            let mut directories = own.grant.directories.iter();
            directories.any(|directory| {
                directory.access == Access::ReadWrite
                    && Location::of(&directory.host)
                        .is_ok_and(|it| it.entry.is_some_and(|entry| passes(&way, entry)))
            })
        };
        let mut modules = self.modules.iter();
        let writer = modules.find(|(_, own)| may_write(own));
        writer.map(|(name, _)| name.as_str())
    }

    /// A module that may write the folder, something in it, or a directory through which its path leads. Blocks on the
    /// file system.
    pub fn writer_within(&self, folder: &Path) -> Option<&str> {
        let here = Location::of(folder).ok()?.entry;
        let leads_inside = |own: &ModulePolicy| {
            let mut directories = own.grant.directories.iter();
            directories.any(|directory| {
                directory.access == Access::ReadWrite
                    && here.is_some_and(|here| {
                        Location::of(&directory.host).is_ok_and(|it| passes(&it.way, here))
                    })
            })
        };
        self.writer_of(folder).or_else(|| {
            let mut modules = self.modules.iter();
            let writer = modules.find(|(_, own)| leads_inside(own));
            writer.map(|(name, _)| name.as_str())
        })
    }

    /// The directories that modules are granted and that this host keeps their files in.
    pub(crate) fn places(&self) -> Vec<Place> {
        let granted = self.modules.iter().flat_map(|(module, own)| {
            own.grant.directories.iter().map(|directory| Place {
                module: Some(module.clone()),
                path: directory.host.clone(),
                access: directory.access,
            })
        });
        let kept = [&self.storage.scratch, &self.storage.key_value];
        let kept = kept.into_iter().flatten().map(|path| Place {
            module: None,
            path: path.clone(),
            access: Access::ReadWrite,
        });
        granted.chain(kept).collect()
    }

    /// These decisions with what `now` gives less taken away from the grants, and nothing added: what holds
    /// while `now` is made ready. `None` if `now` takes nothing away.
    #[must_use]
    pub fn without_what_is_taken(&self, now: &Self) -> Option<Self> {
        let nothing = Grant::default();
        let mut left = self.clone();
        let mut is_less = false;
        for (name, own) in &mut left.modules {
            let given = now.modules.get(name).map_or(&nothing, |now| &now.grant);
            if !given.covers(&own.grant) {
                own.grant = Share::all_of(given).of(&own.grant, &same_directory);
                is_less = true;
            }
        }
        is_less.then_some(left)
    }

    /// What the module of this name gets that asks for `request`.
    pub(crate) fn limits_of(&self, name: &str, request: &LimitsRequest) -> Limits {
        let granted = self.limits.granted(request, &self.ceiling);
        match self.modules.get(name) {
            Some(own) => granted.overridden(&own.limits),
            None => granted,
        }
    }
}

/// A reserved path in a directory that a module may write.
#[derive(Debug, Clone, Copy)]
pub struct ReservedInGrant<'p> {
    pub module: &'p str,
    pub directory: &'p Path,
    pub reserved: &'p ReservedPath,
}

impl std::fmt::Display for ReservedInGrant<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} in {}: it is {}, so the module {} cannot change it, although it may write the folder",
            self.reserved.path.display(),
            self.directory.display(),
            self.reserved.what,
            self.module
        )
    }
}

/// MCP servers whose names are taken, because what they offer was approved.
#[derive(Debug, Clone, Default)]
pub struct ServerNames {
    /// Those that are configured.
    pub names: BTreeSet<String>,
    /// Their pins; absent: none is kept.
    pub pins: Option<Arc<dyn PinStore>>,
}

impl ServerNames {
    /// Whether a server of this name is configured and was approved. Blocks on the file system.
    pub(crate) fn hold(&self, name: &str) -> bool {
        self.names.contains(name)
            && self
                .pins
                .as_ref()
                .is_some_and(|pins| pins.get(name).is_some())
    }
}

/// What the operator decided about one module.
#[derive(Debug, Clone, Default)]
pub struct ModulePolicy {
    /// Limits that replace the defaults and what the module asked for; not bound by the ceiling.
    pub limits: LimitsRequest,
    pub grant: Grant,
    /// The grant was given for this process only, by the person who started it: it is not compared
    /// with what was approved.
    pub one_off: bool,
    /// Why what was granted cannot be given, such as a secret that is not there. The module is then
    /// refused with this reason; the others are not affected.
    pub fault: Option<String>,
}

/// Whether modules are pinned.
#[derive(Debug, Clone, Default)]
pub enum Pinning {
    /// Every module in the folder runs: for authors, and for embedders with checks of their own.
    #[default]
    Off,
    /// Only what is pinned runs.
    Required {
        /// Store of the pins.
        pins: Arc<dyn PinStore>,
        /// Whether a new module without grants is pinned as it is when it is first seen.
        first_sight: bool,
    },
}

/// Why a module was not approved.
#[derive(Debug, Error)]
pub enum PinError {
    #[error(
        "it is another than the one that was shown, or is given something else; look at it again"
    )]
    Changed,
    #[error("every module is trusted here, so there is nothing to approve")]
    Trusted,
    /// Another decision about it came first, and holds.
    #[error("{}; look at it again", .0.in_words())]
    Decided(EarlierPinDecision),
    #[error("the pin cannot be kept: {0}")]
    Kept(#[source] io::Error),
}

impl From<PinWriteError> for PinError {
    fn from(error: PinWriteError) -> Self {
        match error {
            PinWriteError::Decided(decided) => Self::Decided(decided),
            PinWriteError::Io(error) => Self::Kept(error),
        }
    }
}
