//! What a call is checked by: data that is hidden, shields.

pub mod pii;
pub mod shield;

// Where these were before they had a crate of their own.
pub use toolhold_json::coerce;
pub use toolhold_json::repair::{self, Repair};
pub use toolhold_json::validate::{self, Fault, Validator};
pub mod mend {
    pub use toolhold_json::repair::{End, Repaired as Mended, repair as mend};
}
