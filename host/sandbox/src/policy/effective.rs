//! What the operator's policy means for one module now: its limits, its grant, whether it may run.
//!
//! It is replaced as a whole when the policy changes. A call keeps the one it began with, and is ended if a part
//! of that is taken back (`revocation`); a holder of the module, such as a shield's binding, gets the new one
//! with its next call.

use super::recent::Recent;
use crate::disk::same_directory;
use crate::grant::PreparedGrant;
use crate::revocation::Revocation;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use toolhold_admission::{FairRate, WorkKind};
use toolhold_policy::AllowingRule;
use toolhold_policy::CallError;
use toolhold_policy::CallReport;
use toolhold_policy::Capability;
use toolhold_policy::limits::Limits;
use toolhold_policy::restrictions::{GrantRestrictions, NarrowedGrant};
use toolhold_policy::{EarlierPinDecision, Grant, Pin, PinState};

/// Grants that are narrowed for agents and keys: directories are compared and opened.
const NARROWINGS: WorkKind = WorkKind::new("narrowed grants", 16);

#[derive(Debug)]
pub(crate) struct EffectivePolicy {
    pub limits: Limits,
    pub granted: PreparedGrant,
    /// Of the module's calls, which tenants share.
    pub rate: Arc<FairRate<String>>,
    /// Narrowed grants, by [`GrantRestrictions::key`].
    narrowed: Mutex<Recent<Arc<NarrowedPolicy>>>,
    /// Why the module cannot be given its grant. It then does not run, neither with less nor with its old grant.
    fault: Option<String>,
    judgement: Mutex<Judgement>,
    /// `judgement.pin_state.may_run()`, without the lock.
    may_run: AtomicBool,
    /// One judgement at a time, so that none of an earlier look at the pins is written last.
    judging: Mutex<()>,
    /// A part of it was taken back: it is to be replaced, and no call begins under it any more.
    is_withdrawn: AtomicBool,
    /// The revocation of calls that began under the present `judgement`.
    revocation: Mutex<Arc<Revocation>>,
}

/// Whether a module may run, and the record that says so.
#[derive(Debug, Clone)]
pub(crate) struct Judgement {
    pub pin_state: PinState,
    /// [`Pin::record_digest`] of its record. `None`: there is none.
    pub record: Option<String>,
    /// The decision that the record holds.
    pub decision: EarlierPinDecision,
}

impl Judgement {
    pub fn of(pin_state: PinState, record: Option<&Pin>) -> Self {
        Self {
            pin_state,
            record: record.map(Pin::record_digest),
            decision: EarlierPinDecision::of(record),
        }
    }
}

/// The part of a grant that restrictions leave to a call.
#[derive(Debug)]
pub(crate) struct NarrowedPolicy {
    pub granted: PreparedGrant,
    withheld: Vec<String>,
}

/// The policy of one call.
#[derive(Clone, Copy)]
pub(crate) struct CallPolicy<'a> {
    pub effective: &'a EffectivePolicy,
    pub narrow: Option<&'a NarrowedPolicy>,
}

impl<'a> CallPolicy<'a> {
    pub fn granted(self) -> &'a PreparedGrant {
        self.narrow
            .map_or(&self.effective.granted, |narrow| &narrow.granted)
    }
}

/// Maximum narrowed grants (agents times keys) that are kept ready for one module. Beyond it, the one that was used
/// longest ago is made again with its next call.
const MAX_CACHED_NARROWED: usize = 256;

impl NarrowedPolicy {
    /// Adds to the error of a call, and to what it was denied, what was withheld from it and by which restriction: the
    /// module itself cannot know that.
    pub fn explain(&self, report: &mut CallReport) {
        if let Err(
            CallError::Tool { message: said, .. }
            | CallError::Denied { reason: said }
            | CallError::Trap { reason: said },
        ) = &mut report.result
            && !self.withheld.is_empty()
        {
            said.push_str(" (of what the module may reach: ");
            said.push_str(&self.withheld.join("; "));
            said.push(')');
        }
        for denial in &mut report.denials.kept {
            let Some(capability) = denial.capability else {
                continue;
            };
            let is_of = |phrase: &&String| {
                let rest = phrase.strip_prefix(capability.name());
                rest.is_some_and(|rest| rest.starts_with(' '))
            };
            let withheld: Vec<&str> = self
                .withheld
                .iter()
                .filter(is_of)
                .map(String::as_str)
                .collect();
            if withheld.is_empty() {
                continue;
            }
            // Of these the module has one or none, and what was withheld is that one.
            let is_one = matches!(
                capability,
                Capability::Scratch | Capability::KeyValue | Capability::Clocks
            );
            let rule = std::mem::replace(&mut denial.rule, AllowingRule::None(""));
            denial.rule = AllowingRule::Withheld {
                by: withheld.join("; ").into(),
                otherwise: (!is_one).then(|| Box::new(rule)),
            };
        }
    }
}

impl EffectivePolicy {
    pub fn new(limits: Limits, granted: PreparedGrant) -> Self {
        Self {
            rate: Arc::new(FairRate::per_minute(limits.calls_per_minute)),
            limits,
            granted,
            narrowed: Mutex::new(Recent::new(MAX_CACHED_NARROWED)),
            fault: None,
            // Until the pins were read.
            judgement: Mutex::new(Judgement::of(
                PinState::Pending {
                    changes: Vec::new(),
                },
                None,
            )),
            may_run: AtomicBool::new(false),
            judging: Mutex::default(),
            is_withdrawn: AtomicBool::new(false),
            revocation: Mutex::default(),
        }
    }

    /// A policy with another grant or other limits. Calls of this minute still count against the rate.
    pub fn with(&self, limits: Limits, granted: PreparedGrant) -> Self {
        let new = Self::new(limits, granted);
        if new.limits.calls_per_minute == self.limits.calls_per_minute {
            return Self {
                rate: self.rate.clone(),
                ..new
            };
        }
        new
    }

    /// A policy that gives nothing and allows no call.
    pub fn refused(&self, reason: String) -> Self {
        Self {
            fault: Some(reason),
            ..self.with(self.limits.clone(), PreparedGrant::default())
        }
    }

    /// What `restrictions` leave of the grant of `module`; absent if the module has no grant.
    ///
    /// # Errors
    /// The narrowed grant cannot be prepared.
    pub async fn narrowed(
        self: &Arc<Self>,
        module: &str,
        restrictions: &Arc<GrantRestrictions>,
    ) -> Result<Option<Arc<NarrowedPolicy>>, CallError> {
        if self.granted.grant.is_empty() {
            return Ok(None);
        }
        if let Some(known) = self.narrowed.lock().get(restrictions.key()) {
            return Ok(Some(known));
        }
        let (this, restrictions, module) = (self.clone(), restrictions.clone(), module.to_owned());
        // Compares and opens directories, which blocks.
        let made = NARROWINGS.run(None, move || {
            let NarrowedGrant { grant, withheld } =
                restrictions.narrow(&module, &this.granted.grant, &same_directory);
            let granted = this
                .granted
                .narrowed(grant)
                .map_err(|error| CallError::Grant {
                    reason: error.to_string(),
                })?;
            let narrow = Arc::new(NarrowedPolicy { granted, withheld });
            let mut known = this.narrowed.lock();
            known.put(restrictions.key(), narrow.clone());
            Ok(narrow)
        });
        let made = made.await.map_err(|error| CallError::Host {
            reason: error.to_string(),
        })?;
        made.map(Some)
    }

    /// Whether the module has its grant.
    ///
    /// # Errors
    /// Why it does not, for the caller.
    pub fn check(&self) -> Result<(), CallError> {
        match &self.fault {
            None if self.is_withdrawn() => Err(CallError::Grant {
                reason: "it is being changed at this moment; call it again".into(),
            }),
            None => Ok(()),
            Some(reason) => Err(CallError::Grant {
                reason: reason.clone(),
            }),
        }
    }

    /// Whether a policy of these limits and this grant would be the same.
    pub fn is_same(&self, limits: &Limits, grant: &Grant) -> bool {
        self.fault.is_none()
            && !self.is_withdrawn()
            && self.limits == *limits
            && self.granted.configured.is_same(grant)
    }

    pub fn pin_state(&self) -> PinState {
        self.judgement.lock().pin_state.clone()
    }

    /// The last judgement.
    pub fn judgement(&self) -> Judgement {
        self.judgement.lock().clone()
    }

    pub fn may_run(&self) -> bool {
        self.may_run.load(Ordering::Acquire) && !self.is_withdrawn()
    }

    fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::Acquire)
    }

    /// Keeps the judgement of `judge`. Running calls are ended if the module might run until now and may
    /// not any more, and if its pin was revoked.
    pub fn judged(&self, judge: impl FnOnce() -> Judgement) {
        let _one = self.judging.lock();
        let judgement = judge();
        let pin_state = &judgement.pin_state;
        let (may_run, is_revoked) = (pin_state.may_run(), pin_state.is_revoked());
        let might_run = self.may_run.swap(may_run, Ordering::AcqRel);
        *self.judgement.lock() = judgement;
        if is_revoked || (might_run && !may_run) {
            self.end_calls();
        }
    }

    /// Puts this in the place of `old`. Calls that began under `old` and go on are ended with those of this.
    pub fn succeed(&self, old: &Self) {
        if !old.is_withdrawn() {
            *self.revocation.lock() = old.revocation();
        }
    }

    /// Takes it back: no call begins under it any more, and those that run are ended. Returns at once.
    pub fn withdraw(&self) {
        self.is_withdrawn.store(true, Ordering::Release);
        self.end_calls();
    }

    /// For a call that begins: taken before [`Self::may_run`] is asked, so that a revocation between the two is
    /// seen by one of them.
    pub fn revocation(&self) -> Arc<Revocation> {
        self.revocation.lock().clone()
    }

    fn end_calls(&self) {
        let running = std::mem::take(&mut *self.revocation.lock());
        running.revoke();
    }
}
