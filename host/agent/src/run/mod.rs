//! A run: from a task to an output, or to a reason why there is none.
//!
//! [`Machine`] decides and does no I/O; [`Driver`] performs what it asks for, tells it the outcomes,
//! and journals every event before anyone sees it.

mod driver;
mod machine;
mod settings;

pub use driver::{Driver, Run};
pub use machine::{Action, Effects, Input, Machine};
pub use settings::{DEFAULT_INSTRUCTIONS, RunRequest, Settings};
