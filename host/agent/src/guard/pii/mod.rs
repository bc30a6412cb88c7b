//! The vault that replaces personal data and secrets by placeholders before the model sees a text, and puts them
//! back for tools. `toolhold_policy::pii` finds them.

mod vault;
mod written;

#[cfg(test)]
mod tests;

pub use vault::{GivenPlaceholders, Vault};
