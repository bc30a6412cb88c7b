//! Personal data and secrets in texts.
//!
//! [`find`] is pure and takes time linear in the text. A number counts only if its checksum, its issuer or its
//! written form supports it: a text in which every other number is hidden would be useless.

mod checks;
mod detect;

#[cfg(any(test, feature = "samples"))]
pub mod samples;
#[cfg(test)]
mod tests;

pub use detect::{Finding, find};

use serde::{Deserialize, Serialize};

/// A kind of personal data, or of secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Mail addresses.
    Email,
    /// Phone numbers in an international or a common national form.
    Phone,
    /// Payment card numbers that pass their checksum.
    Card,
    /// International bank account numbers that pass their checksum.
    Iban,
    /// Numbers that states issue to persons.
    NationalId,
    /// API keys and tokens of known services.
    ApiKey,
    /// JSON Web Tokens.
    Jwt,
    /// PEM private keys.
    PrivateKey,
    /// The value of an `Authorization:` header.
    Authorization,
}

impl Kind {
    /// All kinds.
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

    /// The name in the configuration and in placeholders.
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

    /// Whether it is a credential: its holder can act with it, and not only know it.
    pub fn is_secret(self) -> bool {
        matches!(
            self,
            Self::ApiKey | Self::Jwt | Self::PrivateKey | Self::Authorization
        )
    }
}
