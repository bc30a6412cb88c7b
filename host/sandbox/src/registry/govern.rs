//! Changing the policy while modules are loaded and run.

use super::{Registry, RegistryState};
use crate::error::LoadError;
use crate::module::Module;
use crate::policy::Policy;
use std::sync::Arc;
use toolhold_policy::Grant;

impl Registry {
    /// Replaces the policy. Every call that begins after this returns is under the new one, also calls of
    /// modules that were unloaded but are still held. A running call ends under the old one, unless the new one
    /// gives its module less: then it is ended at its next host call, or within milliseconds if it makes none.
    /// Loads in progress are not waited for; what they load comes under the new policy.
    ///
    /// A module whose new grant cannot be prepared loses its old one and is among [`Self::failures`]. The next
    /// [`Self::load_folder`] looks at all files again, and loads what can be loaded only now and what must be
    /// compiled for other limits.
    pub async fn govern(&self, policy: Policy) {
        let shared = &self.shared;
        let policy = Arc::new(policy);
        *shared.policy.write() = policy.clone();
        shared
            .directories
            .govern(policy.places(), policy.reserved.clone());
        // First of all, and without a look at any file: what is taken back.
        for module in shared.held() {
            module.withdraw_unless_covered_by(&policy);
        }
        let changed = shared.change(|shared, snapshot| {
            // Of several changes of the policy, the last one holds.
            let policy = shared.policy();
            snapshot.look_again(|module| !module.is_compiled_for(&policy));
            for module in shared.held() {
                match shared.apply(&policy, &module) {
                    // Its pin may count differently now.
                    Ok(()) => shared.judge_one(&module),
                    Err(reason) => {
                        tracing::warn!(
                            module = module.slot,
                            reason,
                            "the grant cannot be prepared"
                        );
                        let held = module.policy();
                        // Its calls, too: they may reach what is refused.
                        held.withdraw();
                        let nothing = held.refused(reason.clone());
                        module.set_policy(Arc::new(nothing));
                        snapshot.refuse(&module, LoadError::Grant { reason });
                    }
                }
            }
            Ok(())
        });
        if let Err(error) = changed.await {
            tracing::error!(%error, "the policy was not applied to every module");
        }
    }

    /// Takes back at once what `now` does not give any more, and gives nothing more: for a policy that is still
    /// made ready. Says whether it took anything.
    pub async fn withdraw(&self, now: &Policy) -> bool {
        let left = self.policy().without_what_is_taken(now);
        match left {
            Some(left) => {
                self.govern(left).await;
                true
            }
            None => false,
        }
    }
}

impl RegistryState {
    /// Puts `module` under `policy`. Blocks on the file system.
    ///
    /// # Errors
    /// Why it cannot be given what `policy` gives it.
    pub(super) fn apply(&self, policy: &Policy, module: &Arc<Module>) -> Result<(), String> {
        if let Some(effective) = module.effective_policy(policy, &self.directories)? {
            // Judged before it holds: an unapproved grant is never in effect.
            effective.judged(|| self.judgement(module, &effective));
            module.set_policy(Arc::new(effective));
        }
        Ok(())
    }

    /// Every module that is still held.
    fn held(&self) -> Vec<Arc<Module>> {
        let known = self.known.lock();
        known
            .values()
            .filter_map(std::sync::Weak::upgrade)
            .collect()
    }
}

impl Module {
    /// Ends its calls and lets none begin if `policy` does not give all that it has. It gets what `policy` gives
    /// it when that is ready.
    fn withdraw_unless_covered_by(&self, policy: &Policy) {
        let nothing = Grant::default();
        let own = policy.modules.get(&self.name);
        let given = own.map_or(&nothing, |own| &own.grant);
        let held = self.policy();
        let is_covered = given.covers(&held.granted.configured)
            && own.is_none_or(|own| own.fault.is_none())
            && held.granted.spares(&policy.reserved);
        if !is_covered {
            held.withdraw();
        }
    }
}
