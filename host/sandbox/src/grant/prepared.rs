//! A grant made ready for calls.

use super::clocks;
use super::open_directories::{OpenDirectories, OpenDirectory};
use super::reserved::{ReservedNames, ReservedPath};
use crate::blocking::CallWork;
use crate::disk::key_value::Namespace;
use crate::disk::quota::Quota;
use crate::disk::{Scratch, Storage, private_folder};
use crate::egress::{Egress, Resolve};
use crate::error::LoadError;
use crate::hold::ExclusivePlace;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use toolhold_admission::WorkParty;
use toolhold_policy::Caller;
use toolhold_policy::manifest::DirectoryRequest;
use toolhold_policy::{Access, DirectoryGrant, Grant};
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::filesystem::Dir;

/// The budgets of directories, by guest path.
pub(crate) type Quotas = HashMap<String, Arc<Quota>>;

/// What all calls of one module share: its directories, opened once, and their quotas.
#[derive(Debug, Default)]
pub(crate) struct PreparedGrant {
    /// As it holds: directories by their paths without links. This is what people approve.
    pub grant: Arc<Grant>,
    /// As the operator wrote it.
    pub configured: Grant,
    module: String,
    pub egress: Arc<Egress>,
    directories: Vec<PreparedDirectory>,
    /// Where this module's scratch directories are made, and the folder that was there when the grant was prepared.
    scratch_root: Option<(PathBuf, Arc<OpenDirectory>)>,
    /// One budget for each session directory in use; a call's own directory has its own.
    scratch_quotas: Arc<ScratchQuotas>,
    key_value_root: Option<PathBuf>,
    /// The reserved paths that its directories were compared with.
    pub reserved: Arc<[ReservedPath]>,
    /// Absent: there is nothing to send.
    resolver: Option<Arc<dyn Resolve>>,
}

/// The budgets of scratch directories in use, by path.
type ScratchQuotas = Mutex<HashMap<PathBuf, Arc<Quota>>>;

/// A directory of the grant.
#[derive(Debug, Clone)]
struct PreparedDirectory {
    /// As it holds.
    grant: DirectoryGrant,
    open: Arc<OpenDirectory>,
    quota: Option<Arc<Quota>>,
    /// Absent: it may only be read.
    reserved: Option<Arc<ReservedNames>>,
}

impl PreparedDirectory {
    fn new(
        grant: DirectoryGrant,
        open: Arc<OpenDirectory>,
        reserved: Option<Arc<ReservedNames>>,
    ) -> Self {
        let quota = grant.quota_bytes.map(|limit| {
            let root = open.file().clone();
            Arc::new(Quota::new(&grant.host, root, limit))
        });
        Self {
            reserved: reserved.filter(|_| grant.access == Access::ReadWrite),
            grant,
            open,
            quota,
        }
    }
}

/// What a call sees of the file system.
#[derive(Default)]
pub(crate) struct GrantedFiles {
    /// By guest path.
    pub directories: Vec<(Dir, String)>,
    pub quotas: Quotas,
    /// Reserved names of the directories that may be written, by guest path.
    pub reserved: HashMap<String, Arc<ReservedNames>>,
    /// Its files go with it.
    pub scratch: Option<Scratch>,
}

/// A call's scratch directory, made and opened for it.
pub(crate) struct OpenScratch {
    directory: Dir,
    guest: String,
    quota: Arc<Quota>,
    reserved: Arc<ReservedNames>,
    files: Scratch,
}

impl PreparedGrant {
    /// Opens what is granted, so that a wrong path is reported when the module is loaded and not in the middle of a
    /// run. Blocks on the file system.
    pub fn new(
        module: &str,
        configured: Grant,
        storage: &Storage,
        resolver: Arc<dyn Resolve>,
        handles: &OpenDirectories,
    ) -> Result<Self, LoadError> {
        let refused = |reason: String| LoadError::Grant { reason };
        if let Some(reason) = handles.conflict(module) {
            return Err(refused(reason));
        }
        let reserved = handles.reserved();
        let mut directories = Vec::new();
        for directory in &configured.directories {
            let open = handles.open(&directory.host).map_err(|error| {
                refused(format!(
                    "the directory {} cannot be opened: {error}",
                    directory.host.display()
                ))
            })?;
            if !directory.guest.starts_with('/') {
                return Err(refused(format!(
                    "the guest path {:?} must begin with /",
                    directory.guest
                )));
            }
            let held = DirectoryGrant {
                host: open.path.clone(),
                ..directory.clone()
            };
            let names = ReservedNames::new(&open, &reserved);
            directories.push(PreparedDirectory::new(held, open, Some(Arc::new(names))));
        }
        let mut scratch_root = None;
        if let Some(scratch) = &configured.scratch {
            let Some(root) = &storage.scratch else {
                return Err(refused("this host has no place for scratch files".into()));
            };
            if configured
                .directories
                .iter()
                .any(|d| d.guest == scratch.guest)
            {
                return Err(refused(format!(
                    "{} cannot be a directory and the scratch directory at once",
                    scratch.guest
                )));
            }
            let open = private_folder(root).and_then(|()| handles.open(root));
            let open = open.map_err(|error| {
                refused(format!(
                    "the folder {} for scratch files cannot be opened: {error}",
                    root.display()
                ))
            })?;
            scratch_root = Some((root.clone(), open));
        }
        if configured.key_value.is_some() && storage.key_value.is_none() {
            return Err(refused("this host has no place for keys and values".into()));
        }
        let key_value_root = storage.key_value.clone();
        let held = Grant {
            directories: granted(&directories),
            ..configured.clone()
        };
        Self::assembled(module, held, directories, resolver).map(|prepared| Self {
            configured,
            scratch_root,
            key_value_root,
            reserved,
            ..prepared
        })
    }

    /// The same module with less. Its directories and their quotas are those of the whole grant.
    pub fn narrowed(&self, grant: Grant) -> Result<Self, LoadError> {
        let Some(resolver) = &self.resolver else {
            return Ok(Self::default());
        };
        let left = grant.directories.iter().filter_map(|left| {
            let mut whole = self.directories.iter();
            let is_it = |whole: &&PreparedDirectory| {
                (&whole.grant.guest, &whole.grant.host) == (&left.guest, &left.host)
            };
            let whole = whole.find(is_it)?;
            let (open, reserved) = (whole.open.clone(), whole.reserved.clone());
            Some(PreparedDirectory::new(left.clone(), open, reserved))
        });
        let (directories, configured) = (left.collect(), grant.clone());
        Self::assembled(&self.module, grant, directories, resolver.clone()).map(|prepared| Self {
            configured,
            scratch_root: self.scratch_root.clone(),
            key_value_root: self.key_value_root.clone(),
            reserved: self.reserved.clone(),
            ..prepared
        })
    }

    /// True if its directories were compared with all of these paths, or cannot be written.
    pub fn spares(&self, reserved: &[ReservedPath]) -> bool {
        let is_written = |it: &PreparedDirectory| it.grant.access == Access::ReadWrite;
        !self.directories.iter().any(is_written)
            || reserved.iter().all(|path| self.reserved.contains(path))
    }

    fn assembled(
        module: &str,
        grant: Grant,
        directories: Vec<PreparedDirectory>,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, LoadError> {
        let party = WorkParty::Module(module.into());
        let (http, secrets) = (grant.http.clone(), grant.secrets.clone());
        let egress = Egress::new(&party, http, secrets, resolver.clone());
        let egress = egress.map_err(|error| LoadError::Grant {
            reason: error.to_string(),
        })?;
        Ok(Self {
            module: module.to_owned(),
            grant: Arc::new(grant),
            egress: Arc::new(egress),
            directories,
            resolver: Some(resolver),
            ..Self::default()
        })
    }

    /// True if calls have a scratch directory.
    pub fn has_scratch(&self) -> bool {
        self.grant.scratch.is_some() && self.scratch_root.is_some()
    }

    /// Makes and opens the scratch directory of a call; absent if it is granted none.
    ///
    /// # Errors
    /// What the file system says; those of [`CallWork::run`].
    pub async fn open_scratch(
        &self,
        caller: Caller<'_>,
        work: &CallWork,
    ) -> io::Result<Option<OpenScratch>> {
        let (Some(grant), Some((root, open))) = (&self.grant.scratch, &self.scratch_root) else {
            return Ok(None);
        };
        let (grant, root, open) = (grant.clone(), root.clone(), open.clone());
        let (tenant, session) = (caller.tenant.to_owned(), caller.session.to_owned());
        let (module, quotas) = (self.module.clone(), self.scratch_quotas.clone());
        let host_paths = self.reserved.clone();
        let opened = work.run(move |_| {
            let caller = Caller {
                tenant: &tenant,
                session: &session,
            };
            let files = Scratch::make(&root, &module, caller, grant.keep)?;
            let directory = open.folder(&files.path)?;
            let quota = scratch_quota(&quotas, &files.path, &directory.dir, grant.quota_bytes);
            let reserved = Arc::new(ReservedNames::of_own(&directory.dir, &host_paths)?);
            io::Result::Ok(OpenScratch {
                directory,
                guest: grant.guest,
                quota,
                reserved,
                files,
            })
        });
        opened.await.map(Some)
    }

    /// Gives a call that began at `started` what was granted: the WASI context, and its files, which live as long as
    /// the call.
    pub fn apply(
        &self,
        started: Instant,
        scratch: Option<OpenScratch>,
        wasi: &mut WasiCtxBuilder,
    ) -> GrantedFiles {
        clocks::apply(self.grant.clocks, self.grant.randomness, started, wasi);
        for (name, value) in &self.grant.environment {
            wasi.env(name, value);
        }
        let mut files = GrantedFiles::default();
        for directory in &self.directories {
            let PreparedDirectory {
                grant, open, quota, ..
            } = directory;
            let dir = open.with(grant.access);
            files.directories.push((dir, grant.guest.clone()));
            if let Some(names) = &directory.reserved {
                files.reserved.insert(grant.guest.clone(), names.clone());
            }
            if let Some(quota) = quota {
                files.quotas.insert(grant.guest.clone(), quota.clone());
            }
        }
        if let Some(scratch) = scratch {
            files.quotas.insert(scratch.guest.clone(), scratch.quota);
            files
                .reserved
                .insert(scratch.guest.clone(), scratch.reserved);
            files.directories.push((scratch.directory, scratch.guest));
            files.scratch = Some(scratch.files);
        }
        files
    }

    /// The granted directories that a call is to have to itself, as the module wishes.
    pub fn exclusive(&self, wishes: &[DirectoryRequest]) -> Vec<ExclusivePlace> {
        let wishes = wishes.iter().filter(|wish| wish.exclusive);
        let granted = wishes.flat_map(|wish| {
            let all = self.directories.iter();
            all.filter(|granted| granted.grant.guest == wish.guest)
        });
        let places = granted.map(|granted| ExclusivePlace {
            id: granted.open.id(),
            directory: granted.open.file().clone(),
            guest: granted.grant.guest.clone(),
        });
        places.collect()
    }

    /// The module's keys and values, as `tenant` sees them.
    pub fn namespace(&self, tenant: &str) -> Option<Namespace> {
        let grant = self.grant.key_value.as_ref()?;
        let root = self.key_value_root.as_ref()?;
        let name = if grant.namespace.is_empty() {
            &self.module
        } else {
            &grant.namespace
        };
        Some(Namespace::new(root, tenant, name, grant.quota_bytes))
    }
}

/// The budget of a scratch directory: one for all calls that use it. Blocks on the file system.
fn scratch_quota(
    quotas: &ScratchQuotas,
    path: &Path,
    folder: &Arc<File>,
    limit: u64,
) -> Arc<Quota> {
    let mut quotas = quotas.lock();
    // Budgets that only this map still knows belong to calls that are over; measuring anew is
    // cheap, remembering every session for ever is not.
    quotas.retain(|_, quota| Arc::strong_count(quota) > 1);
    quotas
        .entry(path.to_owned())
        .or_insert_with(|| Arc::new(Quota::new(path, folder.clone(), limit)))
        .clone()
}

fn granted(directories: &[PreparedDirectory]) -> Vec<DirectoryGrant> {
    directories.iter().map(|it| it.grant.clone()).collect()
}
