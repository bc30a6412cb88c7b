//! Grants made ready for calls: [`PreparedGrant`] checks a [`Grant`](toolhold_policy::Grant) once per module and
//! gives each call what was granted.

mod clocks;
mod open_directories;
mod prepared;
mod reserved;

pub(crate) use open_directories::{OpenDirectories, Place};
pub(crate) use prepared::{GrantedFiles, OpenScratch, PreparedGrant};
pub use reserved::ReservedPath;
pub(crate) use reserved::{LocatedNames, Reservation, ReservedNames};
