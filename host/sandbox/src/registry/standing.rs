//! Which modules may run: judged by the approvals, again and again, because another process writes them.

use super::RegistryState;
use crate::module::Module;
use crate::policy::EffectivePolicy;
use crate::policy::Trust;
use std::sync::Arc;
use toolhold_policy::{Approval, ApprovedBy, Grant, Standing};

impl RegistryState {
    pub(super) async fn reconsider(self: &Arc<Self>) {
        self.judge(self.snapshot().modules()).await;
    }

    pub(super) async fn judge(self: &Arc<Self>, modules: Vec<Arc<Module>>) {
        let shared = self.clone();
        // Only a panic could be lost here, and the closure has none.
        let _ = tokio::task::spawn_blocking(move || {
            for module in modules {
                let effective = module.policy();
                // One that has nothing of what it was to have is no new module without grants.
                if effective.check().is_ok() {
                    effective.set_standing(shared.standing(&module, &effective));
                }
            }
        })
        .await;
    }

    /// Whether `module` may run under what was `decided`, from the approvals as they are now. Blocks on the
    /// file system.
    pub(super) fn standing(&self, module: &Module, effective: &EffectivePolicy) -> Standing {
        let policy = self.policy();
        let Trust::Approved {
            approvals,
            first_sight,
        } = &policy.trust
        else {
            return Standing::Trusted;
        };
        let one_off = policy
            .modules
            .get(&module.name)
            .is_some_and(|own| own.one_off);
        let now = approval(module, effective, ApprovedBy::FirstSight);
        match approvals.get(&module.slot) {
            Some(then) => {
                let changes = then.changes(&now, !one_off);
                if changes.is_empty() {
                    Standing::Approved
                } else {
                    Standing::Pending { changes }
                }
            }
            // A new module under the name of an approved one is a change of it, and not a new module.
            None if *first_sight
                && (effective.granted.grant.is_empty() || one_off)
                && !approvals.knows(&module.name) =>
            {
                let pin = Approval {
                    grant: serde_json::to_value(Grant::default()).unwrap_or_default(),
                    ..now
                };
                match approvals.put(&pin) {
                    Ok(()) => Standing::Approved,
                    Err(error) => {
                        tracing::warn!(module = module.slot, %error, "the module could not be pinned");
                        Standing::Pending {
                            changes: Vec::new(),
                        }
                    }
                }
            }
            None => Standing::Pending {
                changes: Vec::new(),
            },
        }
    }
}

pub(super) fn approval(module: &Module, effective: &EffectivePolicy, by: ApprovedBy) -> Approval {
    Approval::of(
        &module.slot,
        module.digest,
        &module.tools,
        &effective.granted.grant,
        by,
    )
}
