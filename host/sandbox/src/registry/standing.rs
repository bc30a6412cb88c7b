//! Which modules may run: judged by the approvals, again and again, because another process writes them. And
//! whose a name is: what was approved keeps it.

use super::RegistryState;
use crate::module::{Module, blocking};
use crate::policy::{EffectivePolicy, Policy, Trust};
use std::path::Path;
use std::sync::Arc;
use toolhold_policy::{Approval, ApprovedBy, Grant, GrantChange, Standing};

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
        let is_foreign = foreign(policy, module, &then).is_some();
        if !is_foreign && then.changes(&now, false).is_empty() {
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
        let shipped = (policy.shipped)(&module.name);
        let is_trusted = *first_sight && is_given_nothing && shipped == Some(module.digest);
        let now = approval(module, effective, ApprovedBy::FirstSight);
        let pin = || Approval {
            grant: serde_json::to_value(Grant::default()).unwrap_or_default(),
            ..now.clone()
        };
        match approvals.get(&module.slot) {
            recorded if is_trusted && recorded.as_ref().is_none_or(|then| !then.is_revoked()) => {
                // Another component in its place is then a change of it. What a person approved stays on record.
                let is_pinned = recorded.is_some_and(|then| {
                    then.by == ApprovedBy::Person || then.changes(&pin(), true).is_empty()
                });
                // Without a pin, too, nothing else has the name without a person.
                if !is_pinned && let Err(error) = approvals.put(&pin()) {
                    tracing::warn!(module = module.slot, %error, "the module could not be pinned");
                }
                Standing::Approved
            }
            Some(then) => {
                let mut changes = then.changes(&now, !one_off);
                if changes.is_empty() {
                    changes.extend(foreign(&policy, module, &then));
                }
                if changes.is_empty() {
                    Standing::Approved
                } else {
                    Standing::Pending { changes }
                }
            }
            // A new module under the name of an approved one, or of one that comes with the program, is a change of it,
            // and not a new module.
            None if *first_sight
                && is_given_nothing
                && shipped.is_none()
                && !approvals.knows(&module.name)
                && !may_be_written(&policy, module) =>
            {
                match approvals.put(&pin()) {
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

/// The change that a person has to see, where a component was pinned at first sight under the name of another one that
/// comes with the program.
fn foreign(policy: &Policy, module: &Module, then: &Approval) -> Option<GrantChange> {
    let shipped = (policy.shipped)(&module.name)?;
    let is_foreign = shipped != module.digest && then.by == ApprovedBy::FirstSight;
    is_foreign.then(|| GrantChange {
        what: "the component, which is not the one that comes with Toolhold".into(),
        before: Some(format!("{shipped:?}").into()),
        after: Some(format!("{:?}", module.digest).into()),
    })
}

/// Whether the component lies where a module may write, and so may be of that module. Blocks on the file system.
fn may_be_written(policy: &Policy, module: &Module) -> bool {
    policy
        .writer_within(Path::new(module.origin.raw()))
        .is_some()
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
