//! Why an attack did not end as it must.

use thiserror::Error;
use toolhold_policy::CallError;
use toolhold_sandbox::{LoadError, PinError};

/// Why an attack did not end as it must.
#[derive(Debug, Error)]
pub enum AttackFailure {
    /// The sandbox did not hold.
    #[error("{0}")]
    Broke(String),
    /// This machine lacks what the attack needs, so nothing is known.
    #[error("{0}")]
    Unable(String),
    #[error("a component that must load was refused: {0}")]
    Load(#[from] LoadError),
    #[error("a call that must work failed: {0}")]
    Call(#[from] CallError),
    #[error("the attack could not be prepared: {0}")]
    Io(#[from] std::io::Error),
    #[error("a module that must be approved was not: {0}")]
    Approve(#[from] PinError),
    #[error("the hostile component is not valid: {0}")]
    Wat(#[from] wat::Error),
}

/// `Err(AttackFailure::Broke(…))` unless `holds`.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), AttackFailure> {
    if holds {
        Ok(())
    } else {
        Err(AttackFailure::Broke(otherwise()))
    }
}
