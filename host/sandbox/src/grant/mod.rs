//! Grants made ready for calls: [`PreparedGrant`] checks a [`Grant`](toolhold_policy::Grant) once per module and
//! gives each call what was granted.

mod clocks;
mod pins;
mod prepared;
mod reserved;

pub(crate) use pins::{Pins, Place};
pub(crate) use prepared::{GrantedFiles, PreparedGrant};
pub use reserved::ReservedPath;
pub(crate) use reserved::{LocatedNames, Reservation, ReservedNames};
