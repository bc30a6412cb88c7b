//! The operator changes what was decided, while modules are loaded and run.

use super::{Registry, Shared};
use crate::error::LoadError;
use crate::module::Module;
use crate::policy::Policy;
use std::sync::{Arc, PoisonError};

impl Registry {
    /// Puts `policy` in the place of the one that holds. When this returns, every call that begins is under
    /// it, whoever holds the module; calls that began before end as they began.
    ///
    /// A module that cannot be given what it is to have keeps nothing of what it had: it is among
    /// [`Self::failures`] until it can. Files are looked at again by the next [`Self::load_folder`], which
    /// loads what can be loaded only now, and what has to be compiled for other limits.
    pub async fn govern(&self, policy: Policy) {
        let shared = &self.shared;
        // What is being loaded is loaded under the old one, and decided about after that.
        let _turn = shared.loading.lock().await;
        let policy = Arc::new(policy);
        *shared
            .policy
            .write()
            .unwrap_or_else(PoisonError::into_inner) = policy.clone();
        let mut snapshot = (*shared.snapshot()).clone();
        snapshot.look_again(|module| !module.is_compiled_for(&policy));
        for (module, reason) in shared.decide_anew(policy).await {
            tracing::warn!(module = module.slot, reason, "it cannot be given its grant");
            snapshot.refuse(&module, LoadError::Grant { reason });
        }
        shared.exchange(snapshot).await;
    }
}

impl Shared {
    /// Has every module follow `policy` that anybody holds. Returns those that cannot.
    async fn decide_anew(self: &Arc<Self>, policy: Arc<Policy>) -> Vec<(Arc<Module>, String)> {
        let shared = self.clone();
        let modules = self.held();
        let decided = tokio::task::spawn_blocking(move || {
            let mut refused = Vec::new();
            for module in modules {
                let decided = match module.effective_policy(&policy) {
                    Ok(None) => {
                        // Whether it may run can be another matter now.
                        let held = module.policy();
                        held.stand(shared.standing(&module, &held));
                        continue;
                    }
                    Ok(Some(decided)) => decided,
                    Err(reason) => {
                        let nothing = module.policy().refused(reason.clone());
                        module.set_policy(Arc::new(nothing));
                        refused.push((module, reason));
                        continue;
                    }
                };
                // Judged before it holds: a grant that nobody approved is not there for a moment.
                decided.stand(shared.standing(&module, &decided));
                module.set_policy(Arc::new(decided));
            }
            refused
        });
        decided.await.unwrap_or_default()
    }

    /// Every module that somebody still holds.
    fn held(&self) -> Vec<Arc<Module>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .values()
            .filter_map(std::sync::Weak::upgrade)
            .collect()
    }

    pub(super) fn remember(&self, modules: &[Arc<Module>]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, module| module.strong_count() > 0);
        for module in modules {
            known
                .entry(module.number)
                .or_insert_with(|| Arc::downgrade(module));
        }
    }
}
