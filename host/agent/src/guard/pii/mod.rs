//! Personal data and secrets in texts: what they look like, and the vault that stands placeholders in
//! their place at the border to the model.
//!
//! [`find`] is pure and takes time linear in the text. A number counts only where its own checksum, its
//! issuer or its written form speaks for it: a text in which every other number is hidden is of no use
//! to anybody.

mod checks;
mod detect;
mod privacy;
mod vault;
mod written;

#[cfg(test)]
mod tests;

pub use detect::{Finding, find};
pub use privacy::Privacy;
pub use vault::{Masked, Vault};

use serde::{Deserialize, Serialize};

/// A kind of data that is nobody else's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Email,
    Phone,
    /// Payment card numbers that pass their checksum.
    Card,
    Iban,
    /// Numbers that states give to people.
    NationalId,
    /// Keys and tokens by which services know their callers.
    ApiKey,
    Jwt,
    /// PEM private keys.
    PrivateKey,
    /// What stands after `Authorization:`.
    Authorization,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Email,
        Self::Phone,
        Self::Card,
        Self::Iban,
        Self::NationalId,
        Self::ApiKey,
        Self::Jwt,
        Self::PrivateKey,
        Self::Authorization,
    ];

    /// As in the configuration, and in placeholders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Phone => "phone",
            Self::Card => "card",
            Self::Iban => "iban",
            Self::NationalId => "national_id",
            Self::ApiKey => "api_key",
            Self::Jwt => "jwt",
            Self::PrivateKey => "private_key",
            Self::Authorization => "authorization",
        }
    }

    /// Whether whoever has it can act with it, and not only know it.
    pub fn is_secret(self) -> bool {
        matches!(
            self,
            Self::ApiKey | Self::Jwt | Self::PrivateKey | Self::Authorization
        )
    }
}
