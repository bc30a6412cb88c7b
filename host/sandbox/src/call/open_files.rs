//! The open descriptors of one call, and the quotas that they count against.

use crate::disk::quota::Quota;
use std::collections::HashMap;
use std::sync::Arc;
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;

/// Which open descriptors belong to a directory with a quota. A number is used again after its
/// descriptor was closed, and then overwritten here: every way to get a descriptor passes by.
#[derive(Debug, Default)]
pub struct OpenFiles {
    quotas: HashMap<u32, Arc<Quota>>,
}

impl OpenFiles {
    /// The quota of the directory that `fd` belongs to.
    pub fn quota(&self, fd: &Resource<Descriptor>) -> Option<Arc<Quota>> {
        self.quotas.get(&fd.rep()).cloned()
    }

    /// Notes the quota of a descriptor that was opened now.
    pub fn set(&mut self, fd: &Resource<Descriptor>, quota: Option<Arc<Quota>>) {
        match quota {
            Some(quota) => drop(self.quotas.insert(fd.rep(), quota)),
            None => drop(self.quotas.remove(&fd.rep())),
        }
    }
}
