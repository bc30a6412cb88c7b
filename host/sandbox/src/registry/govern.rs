//! Changing the policy while modules are loaded and run.

use super::{Registry, RegistryState};
use crate::error::LoadError;
use crate::module::Module;
use crate::policy::Policy;
use std::sync::Arc;

impl Registry {
    /// Replaces the policy. Every call that begins after this returns is under the new one, also calls of
    /// modules that were unloaded but are still held; running calls end under the old one.
    ///
    /// A module whose new grant cannot be prepared loses its old one and is among [`Self::failures`]. The next
    /// [`Self::load_folder`] looks at all files again, and loads what can be loaded only now and what must be
    /// compiled for other limits.
    pub async fn govern(&self, policy: Policy) {
        let shared = &self.shared;
        // A load in progress ends first, under the old policy.
        let _turn = shared.loading.lock().await;
        let policy = Arc::new(policy);
        *shared.policy.write() = policy.clone();
        shared.pins.govern(policy.places());
        let mut snapshot = (*shared.snapshot()).clone();
        snapshot.look_again(|module| !module.is_compiled_for(&policy));
        for (module, reason) in shared.apply_policy(policy).await {
            tracing::warn!(module = module.slot, reason, "the grant cannot be prepared");
            snapshot.refuse(&module, LoadError::Grant { reason });
        }
        shared.exchange(snapshot).await;
    }
}

impl RegistryState {
    /// Applies `policy` to every module that is still held. Returns those whose grant cannot be prepared.
    async fn apply_policy(self: &Arc<Self>, policy: Arc<Policy>) -> Vec<(Arc<Module>, String)> {
        let shared = self.clone();
        let modules = self.held();
        let refused = tokio::task::spawn_blocking(move || {
            let mut refused = Vec::new();
            for module in modules {
                let effective = match module.effective_policy(&policy, &shared.pins) {
                    Ok(None) => {
                        // Its approval may count differently now.
                        let held = module.policy();
                        held.set_standing(shared.standing(&module, &held));
                        continue;
                    }
                    Ok(Some(effective)) => effective,
                    Err(reason) => {
                        let nothing = module.policy().refused(reason.clone());
                        module.set_policy(Arc::new(nothing));
                        refused.push((module, reason));
                        continue;
                    }
                };
                // Judged before it holds: an unapproved grant is never in effect.
                effective.set_standing(shared.standing(&module, &effective));
                module.set_policy(Arc::new(effective));
            }
            refused
        });
        refused.await.unwrap_or_default()
    }

    /// Every module that is still held.
    fn held(&self) -> Vec<Arc<Module>> {
        let known = self.known.lock();
        known
            .values()
            .filter_map(std::sync::Weak::upgrade)
            .collect()
    }

    pub(super) fn remember(&self, modules: &[Arc<Module>]) {
        let mut known = self.known.lock();
        known.retain(|_, module| module.strong_count() > 0);
        for module in modules {
            known
                .entry(module.number)
                .or_insert_with(|| Arc::downgrade(module));
        }
    }
}
