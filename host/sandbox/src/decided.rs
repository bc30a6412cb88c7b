//! What the operator decided about a module, as it holds now: its limits, its grant, whether it may run.
//!
//! It is exchanged as a whole when the operator decides anew. A call keeps what it began with; whoever
//! holds the module for longer, as a shield's post does, has the new from its next call on.

use crate::grant::{Prepared, same_directory};
use crate::rate::Rate;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolhold_policy::CallError;
use toolhold_policy::CallReport;
use toolhold_policy::limits::Limits;
use toolhold_policy::restrictions::{GrantRestrictions, NarrowedGrant};
use toolhold_policy::{Grant, Standing};

#[derive(Debug)]
pub(crate) struct Decided {
    pub limits: Limits,
    pub granted: Prepared,
    pub rate: Arc<Rate>,
    /// The grant as it is narrowed, by [`GrantRestrictions::key`].
    narrowed: Mutex<HashMap<String, Arc<Narrow>>>,
    /// Why it cannot be given what was decided: then it does not run with less, or with what it had.
    fault: Option<String>,
    standing: Mutex<Standing>,
    /// What `standing` says, for every call.
    may_run: AtomicBool,
}

/// A grant of which only a part is left for a call.
#[derive(Debug)]
pub(crate) struct Narrow {
    pub granted: Prepared,
    withheld: Vec<String>,
}

/// What one call is given.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub decided: &'a Decided,
    pub narrow: Option<&'a Narrow>,
}

impl<'a> Given<'a> {
    pub fn granted(self) -> &'a Prepared {
        self.narrow
            .map_or(&self.decided.granted, |narrow| &narrow.granted)
    }
}

/// Agents times keys whose narrowed grants are kept ready. Of more, they are made anew.
const MOST_NARROWED: usize = 256;

impl Narrow {
    /// A module says in its own words that something was denied to it. Who has it in hand, it cannot say.
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
    }
}

impl Decided {
    pub fn new(limits: Limits, granted: Prepared) -> Self {
        Self {
            rate: Arc::new(Rate::per_minute(limits.calls_per_minute)),
            limits,
            granted,
            narrowed: Mutex::default(),
            fault: None,
            // Until the approvals have been looked at.
            standing: Mutex::new(Standing::Pending {
                changes: Vec::new(),
            }),
            may_run: AtomicBool::new(false),
        }
    }

    /// The same rules with another grant or other limits. What calls of this minute took still counts.
    pub fn anew(&self, limits: Limits, granted: Prepared) -> Self {
        let new = Self::new(limits, granted);
        if new.limits.calls_per_minute == self.limits.calls_per_minute {
            return Self {
                rate: self.rate.clone(),
                ..new
            };
        }
        new
    }

    /// Nothing is given, and no call is made.
    pub fn refused(&self, reason: String) -> Self {
        Self {
            fault: Some(reason),
            ..self.anew(self.limits.clone(), Prepared::default())
        }
    }

    /// What `bounds` leave of the grant of `module`; nothing if that is all of it.
    ///
    /// # Errors
    /// It cannot be given in this form.
    pub async fn narrowed(
        self: &Arc<Self>,
        module: &str,
        bounds: &Arc<GrantRestrictions>,
    ) -> Result<Option<Arc<Narrow>>, CallError> {
        if self.granted.grant.is_empty() {
            return Ok(None);
        }
        if let Some(known) = self.narrows().get(bounds.key()) {
            return Ok(Some(known.clone()));
        }
        let (this, bounds, module) = (self.clone(), bounds.clone(), module.to_owned());
        // Directories are looked at.
        let made = tokio::task::spawn_blocking(move || {
            let NarrowedGrant { grant, withheld } =
                bounds.narrow(&module, &this.granted.grant, &same_directory);
            let granted = this
                .granted
                .narrowed(grant)
                .map_err(|error| CallError::Grant {
                    reason: error.to_string(),
                })?;
            let narrow = Arc::new(Narrow { granted, withheld });
            let mut known = this.narrows();
            if known.len() >= MOST_NARROWED {
                known.clear();
            }
            known.insert(bounds.key().to_owned(), narrow.clone());
            Ok(narrow)
        });
        let made = made.await.map_err(|error| CallError::Host {
            reason: error.to_string(),
        })?;
        made.map(Some)
    }

    fn narrows(&self) -> MutexGuard<'_, HashMap<String, Arc<Narrow>>> {
        self.narrowed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it gives what it is to give.
    ///
    /// # Errors
    /// Why it does not, for whoever made the call.
    pub fn check(&self) -> Result<(), CallError> {
        match &self.fault {
            None => Ok(()),
            Some(reason) => Err(CallError::Grant {
                reason: reason.clone(),
            }),
        }
    }

    /// Whether it says the same as these would.
    pub fn is_same(&self, limits: &Limits, grant: &Grant) -> bool {
        self.fault.is_none() && self.limits == *limits && self.granted.grant.is_same(grant)
    }

    pub fn standing(&self) -> Standing {
        self.standing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn may_run(&self) -> bool {
        self.may_run.load(Ordering::Acquire)
    }

    pub fn stand(&self, standing: Standing) {
        self.may_run.store(standing.may_run(), Ordering::Release);
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }
}
