//! What stands between a model's wish and a call: validation, and the guard against repetition.

pub mod gate;
pub mod pii;
pub mod repeats;
pub mod shield;

pub use gate::Gate;
pub use repeats::Repeats;
// Where these were before they had a crate of their own.
pub use toolhold_json::coerce;
pub use toolhold_json::repair::{self, Repair};
pub use toolhold_json::validate::{self, Fault, Validator};
pub mod mend {
    pub use toolhold_json::repair::{End, Repaired as Mended, repair as mend};
}
