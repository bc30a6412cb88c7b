//! Which modules may run: judged by the approvals, again and again, because another process writes them. And
//! whose a name is: what was approved keeps it.

use super::RegistryState;
use crate::module::{Module, blocking};
use crate::policy::{EffectivePolicy, Policy, Trust};
use std::sync::Arc;
use toolhold_policy::{Approval, ApprovedBy, Grant, Standing};

/// How well founded a module's claim to its name is. Of two modules of one name, the better founded has it;
/// between equals, the one that is there keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    /// There is no record of its slot under this name.
    New,
    /// There is a record of its slot under this name, and it changed since.
    Recorded,
    /// It is what was approved.
    Approved,
}

impl Claim {
    /// How well founded the claim of `module` to its name is. Blocks on the file system.
    pub fn of(policy: &Policy, module: &Module) -> Self {
        let Some(then) = recorded(policy, &module.slot, &module.name) else {
            return Self::New;
        };
        let now = approval(module, &module.policy(), ApprovedBy::Person);
        if then.changes(&now, false).is_empty() {
            Self::Approved
        } else {
            Self::Recorded
        }
    }
}

impl RegistryState {
    pub(super) async fn reconsider(self: &Arc<Self>) {
        self.judge(self.snapshot().modules()).await;
    }

    pub(super) async fn judge(self: &Arc<Self>, modules: Vec<Arc<Module>>) {
        let shared = self.clone();
        // Only a panic could be lost here, and the closure has none.
        let _ = blocking(move || {
            for module in modules {
                shared.judge_one(&module);
            }
            Ok(())
        })
        .await;
    }

    /// Blocks on the file system.
    pub(super) fn judge_one(&self, module: &Module) {
        let effective = module.policy();
        // One that has nothing of what it was to have is no new module without grants.
        if effective.check().is_ok() {
            effective.judged(|| self.standing(module, &effective));
        }
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
        let is_given_nothing = effective.granted.grant.is_empty() || one_off;
        let is_trusted = *first_sight && is_given_nothing && (policy.is_shipped)(&module.digest);
        let now = approval(module, effective, ApprovedBy::FirstSight);
        match approvals.get(&module.slot) {
            recorded if is_trusted && recorded.as_ref().is_none_or(|then| !then.is_revoked()) => {
                Standing::Approved
            }
            Some(then) => {
                let changes = then.changes(&now, !one_off);
                if changes.is_empty() {
                    Standing::Approved
                } else {
                    Standing::Pending { changes }
                }
            }
            // A new module under the name of an approved one is a change of it, and not a new module.
            None if *first_sight && is_given_nothing && !approvals.knows(&module.name) => {
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

/// The record of `slot` under `name`, whatever the component is now. Blocks on the file system.
pub(super) fn recorded(policy: &Policy, slot: &str, name: &str) -> Option<Approval> {
    let Trust::Approved { approvals, .. } = &policy.trust else {
        return None;
    };
    approvals.get(slot).filter(|then| then.is_of(name))
}

pub(super) fn approval(module: &Module, effective: &EffectivePolicy, by: ApprovedBy) -> Approval {
    Approval::of(
        &module.slot,
        &module.name,
        module.digest,
        &module.tools,
        &effective.granted.grant,
        by,
    )
}
