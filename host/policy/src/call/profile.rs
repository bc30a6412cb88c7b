//! Where the processor time of one call went, by the functions of its module.

use crate::text::UntrustedText;
use serde::Serialize;
use std::sync::{Mutex, PoisonError};

/// Takes the profile of the call that has it in its [`Invocation`](super::Invocation). Calls that it makes of other
/// modules' tools are not profiled.
#[derive(Debug, Default)]
pub struct ProfileSlot(Mutex<Option<Result<CallProfile, String>>>);

impl ProfileSlot {
    /// Leaves the profile, or why there is none.
    pub fn put(&self, profile: Result<CallProfile, String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(profile);
    }

    /// What was left. `None` if the module's code did not begin to run.
    pub fn take(&self) -> Option<Result<CallProfile, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The samples of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallProfile {
    /// For the Firefox Profiler: JSON in its "processed profile format". Names in it are the module's.
    pub firefox_json: Vec<u8>,
    pub summary: ProfileSummary,
}

/// What a person needs without a browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfileSummary {
    pub samples: u64,
    /// Whether sampling ended before the call did, at its own bound.
    pub is_cut: bool,
    /// The functions with most samples of their own, the first one most.
    pub functions: Vec<ProfiledFunction>,
}

/// One function's part of the samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfiledFunction {
    /// As the module names it.
    pub name: UntrustedText,
    /// Samples in which it was the innermost function.
    #[serde(rename = "self")]
    pub own: u64,
    /// Samples in which it ran, itself or a function that it called.
    pub total: u64,
}
