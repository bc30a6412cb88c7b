//! Changes of the snapshot: one at a time, each in a moment, whatever is loaded meanwhile.

use super::RegistryState;
use super::pin_state::Claim;
use super::snapshot::{ModuleEntry, ModuleSnapshot};
use crate::error::LoadError;
use crate::module::{Module, blocking};
use crate::policy::Policy;
use std::sync::Arc;

impl RegistryState {
    /// Changes a copy of the snapshot and puts it in the old one's place. A change that began ends, even if its
    /// caller is gone. Blocks on the file system in `change`, and on nothing else.
    pub(super) async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&Self, &mut ModuleSnapshot) -> Result<T, LoadError> + Send + 'static,
    ) -> Result<T, LoadError> {
        let shared = self.clone();
        blocking(move || {
            let _one = shared.changing.lock();
            let mut snapshot = (*shared.snapshot()).clone();
            let changed = change(&shared, &mut snapshot)?;
            *shared.snapshot.write() = Arc::new(snapshot.indexed());
            shared.changes.send_replace(());
            Ok(changed)
        })
        .await
    }

    /// Puts a module that was loaded into `snapshot`: under the present policy, which may be another than when
    /// its load began, and judged.
    pub(super) fn admit(
        &self,
        snapshot: &mut ModuleSnapshot,
        origin: &str,
        entry: ModuleEntry,
    ) -> Result<(), LoadError> {
        let Some(module) = entry.module().cloned() else {
            return Ok(());
        };
        // From here on, a change of the policy reaches it.
        self.remember(&module);
        let policy = self.policy();
        let effective = module.effective_policy(&policy, &self.directories);
        if let Some(effective) = effective.map_err(|reason| LoadError::Grant { reason })? {
            module.set_policy(Arc::new(effective));
        }
        // Made for other limits: the next load makes it anew.
        let entry = if module.is_compiled_for(&policy) {
            entry
        } else {
            entry.stamped(None)
        };
        name(&policy, snapshot, origin, entry)?;
        // Last, because a module that is first seen is pinned: it has its name.
        self.judge_one(&module);
        Ok(())
    }

    /// Puts it beside what is there.
    pub(super) async fn put(
        self: &Arc<Self>,
        origin: &str,
        entry: ModuleEntry,
    ) -> Result<(), LoadError> {
        let origin = origin.to_owned();
        self.change(move |shared, snapshot| shared.admit(snapshot, &origin, entry))
            .await
    }

    fn remember(&self, module: &Arc<Module>) {
        let mut known = self.known.lock();
        known.retain(|_, module| module.strong_count() > 0);
        known
            .entry(module.number)
            .or_insert_with(|| Arc::downgrade(module));
    }
}

/// Gives the module of `entry` its name in `snapshot`, if no other module and no server has a better claim to it.
/// Blocks on the file system.
pub(super) fn name(
    policy: &Policy,
    snapshot: &mut ModuleSnapshot,
    origin: &str,
    entry: ModuleEntry,
) -> Result<(), LoadError> {
    let Some(module) = entry.module() else {
        return Ok(());
    };
    let claim = Claim::of(policy, module);
    if claim == Claim::New && policy.servers.hold(&module.name) {
        return Err(LoadError::Duplicate {
            name: module.name.clone(),
            holder: format!("the MCP server [mcp.{}], which was approved", module.name),
        });
    }
    snapshot.insert(origin, entry, |holder| Claim::of(policy, holder) < claim)
}
