//! State of each module's pin, which is judged again and again, because another process writes pins; and the right to
//! a name, which a pinned module keeps.

use super::RegistryState;
use crate::module::{Module, blocking};
use crate::policy::{EffectivePolicy, Judgement, Pinning, Policy};
use std::path::Path;
use std::sync::Arc;
use toolhold_policy::{Grant, GrantChange, Pin, PinState, PinStore, PinWriteError, PinnedBy};

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
            effective.judged(|| self.judgement(module, &effective));
        }
    }

    /// Whether `module` may run under what was decided, from the pins as they are now. Blocks on the
    /// file system.
    pub(super) fn judgement(&self, module: &Module, effective: &EffectivePolicy) -> Judgement {
        let policy = self.policy();
        let Pinning::Required { pins, first_sight } = &policy.pinning else {
            return Judgement::of(PinState::Trusted, None);
        };
        let case = PinCase {
            policy: &policy,
            pins: &**pins,
            first_sight: *first_sight,
            module,
            now: pin(module, effective, PinnedBy::FirstSight),
            grant: &effective.granted.grant,
            might_run: effective.may_run(),
        };
        for _ in 0..MAX_JUDGE_ATTEMPTS {
            let recorded = pins.get(&module.slot);
            let unpinned = match case.verdict(recorded.as_ref()) {
                PinVerdict::State(pin_state) => return Judgement::of(pin_state, recorded.as_ref()),
                PinVerdict::PinNow { unpinned } => unpinned,
            };
            let bare = case.without_grant();
            match pins.replace(recorded.as_ref(), &bare) {
                Ok(()) => return Judgement::of(PinState::Approved, Some(&bare)),
                // Another process or a person decided about it meanwhile, which holds.
                Err(PinWriteError::Decided(_)) => {}
                Err(PinWriteError::Io(error)) => {
                    tracing::warn!(module = module.slot, %error, "the module could not be pinned");
                    return Judgement::of(unpinned, recorded.as_ref());
                }
            }
        }
        // It is judged again at its next call.
        Judgement::of(never_approved(), None)
    }
}

/// Maximum attempts to judge a module while other processes change its pin.
const MAX_JUDGE_ATTEMPTS: usize = 8;

/// A module that is compared with its record.
struct PinCase<'a> {
    policy: &'a Policy,
    pins: &'a dyn PinStore,
    first_sight: bool,
    module: &'a Module,
    /// The module as it is now.
    now: Pin,
    /// Granted to it now.
    grant: &'a Grant,
    /// By the judgement before, with that grant.
    might_run: bool,
}

/// The state of a module beside its record, or that the host is to pin it.
enum PinVerdict {
    State(PinState),
    /// The host pins it, without a person. `unpinned` is its state if that fails.
    PinNow {
        unpinned: PinState,
    },
}

impl PinCase<'_> {
    /// Blocks on the file system.
    fn verdict(&self, recorded: Option<&Pin>) -> PinVerdict {
        let (policy, module) = (self.policy, self.module);
        let one_off = policy
            .modules
            .get(&module.name)
            .is_some_and(|own| own.one_off);
        let is_given_nothing = self.grant.is_empty() || one_off;
        let shipped = (policy.shipped)(&module.name);
        let is_trusted = self.first_sight && is_given_nothing && shipped == Some(module.digest);
        match recorded {
            recorded if is_trusted && recorded.is_none_or(|then| !then.is_revoked()) => {
                // Another component in its place is then a change of it. What a person approved stays on record.
                let is_pinned = recorded.is_some_and(|then| {
                    then.by == PinnedBy::Person
                        || then.changes(&self.without_grant(), true).is_empty()
                });
                if is_pinned {
                    PinVerdict::State(PinState::Approved)
                } else {
                    // Without a pin, too, nothing else has the name without a person.
                    PinVerdict::PinNow {
                        unpinned: PinState::Approved,
                    }
                }
            }
            Some(then) => {
                // A person who approves more takes nothing back: what runs goes on with what it has, until the process that
                // it runs in gives it more. What does not run yet needs the grant that was approved.
                let has_less = self.might_run && then.approves(self.grant);
                let mut changes = then.changes(&self.now, !one_off && !has_less);
                if changes.is_empty() {
                    changes.extend(foreign(policy, module, then));
                }
                PinVerdict::State(if changes.is_empty() {
                    PinState::Approved
                } else {
                    PinState::Pending { changes }
                })
            }
            // A new module under the name of an approved one, or of one that comes with the program, is a change of it,
            // and not a new module.
            None if self.first_sight
                && is_given_nothing
                && shipped.is_none()
                && !self.pins.knows(&module.name)
                && !may_be_written(policy, module) =>
            {
                PinVerdict::PinNow {
                    unpinned: never_approved(),
                }
            }
            None => PinVerdict::State(never_approved()),
        }
    }

    /// The pin of the module as it is now, with nothing that it is granted.
    fn without_grant(&self) -> Pin {
        Pin {
            grant: serde_json::to_value(Grant::default()).unwrap_or_default(),
            ..self.now.clone()
        }
    }
}

fn never_approved() -> PinState {
    PinState::Pending {
        changes: Vec::new(),
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
