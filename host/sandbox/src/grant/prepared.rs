//! A grant made ready for calls.

use super::clocks;
use crate::disk::key_value::Namespace;
use crate::disk::quota::Quota;
use crate::disk::{Scratch, Storage};
use crate::egress::{Egress, Resolve};
use crate::error::LoadError;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toolhold_policy::Caller;
use toolhold_policy::{Access, Grant};
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

/// The budgets of directories, by guest path.
pub(crate) type Quotas = HashMap<String, Arc<Quota>>;

/// What all calls of one module share: checked directories and their quotas.
#[derive(Debug, Default)]
pub(crate) struct PreparedGrant {
    pub grant: Arc<Grant>,
    module: String,
    pub egress: Arc<Egress>,
    quotas: Quotas,
    scratch_root: Option<PathBuf>,
    /// One budget for each session directory in use; a call's own directory has its own.
    scratch_quotas: Mutex<HashMap<PathBuf, Arc<Quota>>>,
    key_value_root: Option<PathBuf>,
    /// Absent: there is nothing to send.
    resolver: Option<Arc<dyn Resolve>>,
}

impl PreparedGrant {
    /// Checks that everything granted is there, so that a wrong path is reported when the module is
    /// loaded and not in the middle of a run.
    pub fn new(
        module: &str,
        grant: Grant,
        storage: &Storage,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, LoadError> {
        let refused = |reason: String| LoadError::Grant { reason };
        let mut quotas = HashMap::new();
        for directory in &grant.directories {
            Dir::open_ambient_dir(&directory.host, ambient_authority()).map_err(|error| {
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
            if let Some(limit) = directory.quota_bytes {
                let quota = Arc::new(Quota::new(&directory.host, limit));
                quotas.insert(directory.guest.clone(), quota);
            }
        }
        if let Some(scratch) = &grant.scratch {
            if storage.scratch.is_none() {
                return Err(refused("this host has no place for scratch files".into()));
            }
            if grant.directories.iter().any(|d| d.guest == scratch.guest) {
                return Err(refused(format!(
                    "{} cannot be a directory and the scratch directory at once",
                    scratch.guest
                )));
            }
        }
        if grant.key_value.is_some() && storage.key_value.is_none() {
            return Err(refused("this host has no place for keys and values".into()));
        }
        let egress = Egress::new(grant.http.clone(), grant.secrets.clone(), resolver.clone())
            .map_err(|error| refused(error.to_string()))?;
        Ok(Self {
            module: module.to_owned(),
            grant: Arc::new(grant),
            egress: Arc::new(egress),
            quotas,
            scratch_root: storage.scratch.clone(),
            scratch_quotas: Mutex::default(),
            key_value_root: storage.key_value.clone(),
            resolver: Some(resolver),
        })
    }

    /// The same module with less. Quotas of directories are shared with the whole grant.
    pub fn narrowed(&self, grant: Grant) -> Result<Self, LoadError> {
        let Some(resolver) = &self.resolver else {
            return Ok(Self::default());
        };
        let storage = Storage {
            scratch: self.scratch_root.clone(),
            key_value: self.key_value_root.clone(),
        };
        Self::new(&self.module, grant, &storage, resolver.clone())
    }

    /// Gives a call what was granted: the WASI context, the quotas by guest path, and the scratch
    /// directory, which lives as long as the call.
    pub fn apply(
        &self,
        caller: Caller<'_>,
        wasi: &mut WasiCtxBuilder,
    ) -> wasmtime::Result<(Quotas, Option<Scratch>)> {
        clocks::apply(self.grant.clocks, self.grant.randomness, wasi);
        for (name, value) in &self.grant.environment {
            wasi.env(name, value);
        }
        for directory in &self.grant.directories {
            let permissions = match directory.access {
                Access::Read => FsPerms::ReadOnly,
                Access::ReadWrite => FsPerms::ReadWrite,
            };
            wasi.preopened_dir(&directory.host, &directory.guest, permissions)?;
        }
        let mut quotas = self.quotas.clone();
        let scratch = match (&self.grant.scratch, &self.scratch_root) {
            (Some(grant), Some(root)) => {
                let scratch = Scratch::make(root, &self.module, caller, grant.keep)?;
                wasi.preopened_dir(&scratch.path, &grant.guest, FsPerms::ReadWrite)?;
                let quota = self.scratch_quota(&scratch.path, grant.quota_bytes);
                quotas.insert(grant.guest.clone(), quota);
                Some(scratch)
            }
            _ => None,
        };
        Ok((quotas, scratch))
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

    fn scratch_quota(&self, path: &Path, limit: u64) -> Arc<Quota> {
        let mut quotas = self.scratch_quotas.lock();
        // Budgets that only this map still knows belong to calls that are over; measuring anew is
        // cheap, remembering every session for ever is not.
        quotas.retain(|_, quota| Arc::strong_count(quota) > 1);
        quotas
            .entry(path.to_owned())
            .or_insert_with(|| Arc::new(Quota::new(path, limit)))
            .clone()
    }
}
