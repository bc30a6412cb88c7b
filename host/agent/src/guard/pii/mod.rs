//! Personal data and secrets in texts: what they look like, and the vault that stands placeholders in
//! their place at the border to the model.
//!
//! [`find`] is pure and takes time linear in the text. A number counts only where its own checksum, its
//! issuer or its written form speaks for it: a text in which every other number is hidden is of no use
//! to anybody.

mod checks;
mod detect;
mod vault;
mod written;

#[cfg(test)]
mod tests;

pub use detect::{Finding, find};
pub use toolhold_protocol::privacy::{Kind, Privacy};
pub use vault::{Masked, Vault};
