//! What stands between a model's wish and a call: validation, and the guard against repetition.

pub mod repeats;
pub mod validate;

pub use repeats::Repeats;
pub use validate::Validator;
