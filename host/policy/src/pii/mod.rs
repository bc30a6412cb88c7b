//! Personal data and secrets in texts.
//!
//! [`find`] is pure and takes time linear in the text. A number counts only if its checksum, its issuer or its
//! written form supports it: a text in which every other number is hidden would be useless.

mod bounds;
mod checks;
mod detect;
mod wide;

#[cfg(any(test, feature = "samples"))]
pub mod samples;
#[cfg(test)]
mod tests;

pub use detect::{Finding, find};

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// A kind of personal data, or of secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
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
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The name in the configuration and in placeholders.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// True if its values are numbers, which may look like parts of each other.
    fn is_number(self) -> bool {
        self.has_proof() || self == Self::Phone
    }

    /// True if a checksum, an issuer or a name proves a number to be of this kind.
    fn has_proof(self) -> bool {
        matches!(self, Self::Card | Self::Iban | Self::NationalId)
    }

    /// Whether it is a credential: its holder can act with it, and not only know it.
    pub fn is_secret(self) -> bool {
        matches!(
            self,
            Self::ApiKey | Self::Jwt | Self::PrivateKey | Self::Authorization
        )
    }
}
