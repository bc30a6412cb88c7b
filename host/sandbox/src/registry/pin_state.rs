//! State of each module's pin, which is judged again and again, because another process writes pins; and the right to
//! a name, which a pinned module keeps.

use super::RegistryState;
use crate::module::{Module, blocking};
use crate::policy::{EffectivePolicy, Pinning, Policy};
use std::path::Path;
use std::sync::Arc;
use toolhold_policy::{Grant, GrantChange, Pin, PinState, PinnedBy};

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
        let now = pin(module, &module.policy(), PinnedBy::Person);
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
            effective.judged(|| self.pin_state(module, &effective));
        }
    }

    /// Whether `module` may run under what was `decided`, from the pins as they are now. Blocks on the
    /// file system.
    pub(super) fn pin_state(&self, module: &Module, effective: &EffectivePolicy) -> PinState {
        let policy = self.policy();
        let Pinning::Required { pins, first_sight } = &policy.pinning else {
            return PinState::Trusted;
        };
        let one_off = policy
            .modules
            .get(&module.name)
            .is_some_and(|own| own.one_off);
        let is_given_nothing = effective.granted.grant.is_empty() || one_off;
        let shipped = (policy.shipped)(&module.name);
        let is_trusted = *first_sight && is_given_nothing && shipped == Some(module.digest);
        let now = pin(module, effective, PinnedBy::FirstSight);
        let pin = || Pin {
            grant: serde_json::to_value(Grant::default()).unwrap_or_default(),
            ..now.clone()
        };
        match pins.get(&module.slot) {
            recorded if is_trusted && recorded.as_ref().is_none_or(|then| !then.is_revoked()) => {
                // Another component in its place is then a change of it. What a person approved stays on record.
                let is_pinned = recorded.is_some_and(|then| {
                    then.by == PinnedBy::Person || then.changes(&pin(), true).is_empty()
                });
                // Without a pin, too, nothing else has the name without a person.
                if !is_pinned && let Err(error) = pins.put(&pin()) {
                    tracing::warn!(module = module.slot, %error, "the module could not be pinned");
                }
                PinState::Approved
            }
            Some(then) => {
                let mut changes = then.changes(&now, !one_off);
                if changes.is_empty() {
                    changes.extend(foreign(&policy, module, &then));
                }
                if changes.is_empty() {
                    PinState::Approved
                } else {
                    PinState::Pending { changes }
                }
            }
            // A new module under the name of an approved one, or of one that comes with the program, is a change of it,
            // and not a new module.
            None if *first_sight
                && is_given_nothing
                && shipped.is_none()
                && !pins.knows(&module.name)
                && !may_be_written(&policy, module) =>
            {
                match pins.put(&pin()) {
                    Ok(()) => PinState::Approved,
                    Err(error) => {
                        tracing::warn!(module = module.slot, %error, "the module could not be pinned");
                        PinState::Pending {
                            changes: Vec::new(),
                        }
                    }
                }
            }
            None => PinState::Pending {
                changes: Vec::new(),
            },
        }
    }
}

/// The change that a person has to see, where a component was pinned at first sight under the name of another one that
/// comes with the program.
fn foreign(policy: &Policy, module: &Module, then: &Pin) -> Option<GrantChange> {
    let shipped = (policy.shipped)(&module.name)?;
    let is_foreign = shipped != module.digest && then.by == PinnedBy::FirstSight;
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
pub(super) fn recorded(policy: &Policy, slot: &str, name: &str) -> Option<Pin> {
    let Pinning::Required { pins, .. } = &policy.pinning else {
        return None;
    };
    pins.get(slot).filter(|then| then.is_of(name))
}

pub(super) fn pin(module: &Module, effective: &EffectivePolicy, by: PinnedBy) -> Pin {
    Pin::of(
        &module.slot,
        &module.name,
        module.digest,
        &module.tools,
        &effective.granted.grant,
        by,
    )
}
