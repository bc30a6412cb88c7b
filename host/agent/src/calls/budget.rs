//! What calls count in.

use std::fmt::Debug;
use std::sync::Arc;
use toolhold_protocol::failure::ToolFailure;

/// Held while a call is made.
pub type CallPermit = Box<dyn Send + Sync>;

/// Why there is no room for a call.
#[derive(Debug)]
pub enum NoBudget {
    /// It is refused, and that is recorded.
    Refused(ToolFailure),
    /// There is none now; the call is as if it had not been asked for.
    Busy(String),
}

/// What the calls of one caller may take together.
pub trait CallBudget: Send + Sync + Debug {
    /// Takes one call.
    ///
    /// # Errors
    /// Why it is not made.
    fn take(&self) -> Result<CallPermit, NoBudget>;

    /// What the calls count in that a call makes.
    fn within(&self) -> Arc<dyn CallBudget>;
}

/// No bound but those that every module has: its rate, its concurrency, its time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl CallBudget for Unlimited {
    fn take(&self) -> Result<CallPermit, NoBudget> {
        Ok(Box::new(()))
    }

    fn within(&self) -> Arc<dyn CallBudget> {
        Arc::new(Self)
    }
}
