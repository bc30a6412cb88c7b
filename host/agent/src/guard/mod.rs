//! What a call is checked by: schemas, repairs, data that is hidden, shields.

pub mod coerce;
pub mod mend;
pub mod pii;
pub mod repair;
pub mod shield;
pub(crate) mod strict;
pub mod validate;

pub use repair::Repair;
pub use validate::{Fault, Validator};
