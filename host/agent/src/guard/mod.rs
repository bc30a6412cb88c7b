//! What stands between a model's wish and a call: validation, and the guard against repetition.

pub mod coerce;
pub mod gate;
pub mod mend;
pub mod pii;
pub mod repair;
pub mod repeats;
pub mod shield;
pub(crate) mod strict;
pub mod validate;

pub use gate::Gate;
pub use repair::Repair;
pub use repeats::Repeats;
pub use validate::{Fault, Validator};
