//! Keys and passwords that `toolhold secrets` keeps: in the system's keyring, or in a file of the user's.
//!
//! They stand in for environment variables that are not set: wherever the configuration names a variable that holds a
//! secret, the secret of that name is taken. [`StoredSecrets`] reads them, [`SecretsPlace`] changes them.
//!
//! The file says of each name where it lies: it has the value, or a mark that the keyring has it. So a name has one
//! place, a machine without a keyring is never asked for one, and a keyring that does not answer is an error for the
//! secrets that lie in it, and for nothing else.

mod file;
mod keyring;
mod place;

pub use keyring::{KeyringError, PROMPT_PATIENCE};
pub use place::{Asks, SecretsPlace};

use super::files;
use super::layers::ConfigError;
use file::{Entry, SecretsFile};
use keyring::Keyring;
use secrecy::SecretString;
use serde::Deserialize;
use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;

/// Most bytes of one secret: a key has a hundred, a certificate some thousands.
pub const MAX_SECRET_BYTES: u64 = 64 << 10;
/// Most characters of a name.
const MAX_NAME_CHARS: usize = 128;

/// `secrets.store`: where new secrets are kept, and where they are looked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    /// The keyring, where one can be used, else the file.
    #[default]
    Auto,
    /// The keyring alone.
    Keyring,
    /// The file alone.
    File,
}

/// `[secrets]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretsTable {
    pub store: Store,
}

/// Where one secret lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Keyring,
    File,
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Self::Keyring => "keyring",
            Self::File => "file",
        }
    }
}

/// The secrets as they are read for one configuration. The keyring is asked when the first one of it is needed.
#[derive(Debug, Default)]
pub struct StoredSecrets {
    store: Store,
    file: SecretsFile,
    keyring: OnceCell<Keyring>,
    /// The first secret that could not be read.
    fault: RefCell<Option<ConfigError>>,
}

impl StoredSecrets {
    /// Reads the user's file, if there is one. `is_named`: somebody named the configuration's file, as a service
    /// manager does. A service may not look into the home folder of its user, and has its secrets in its environment.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or others may read it.
    pub fn read(store: Store, is_named: bool) -> Result<Self, ConfigError> {
        let file = match path() {
            Some(path) => match SecretsFile::read(&path) {
                Err(ConfigError::Read { source, .. })
                    if is_named && source.kind() == std::io::ErrorKind::PermissionDenied =>
                {
                    SecretsFile::default()
                }
                read => read?,
            },
            None => SecretsFile::default(),
        };
        Ok(Self::of(store, file))
    }

    fn of(store: Store, file: SecretsFile) -> Self {
        Self {
            store,
            file,
            ..Self::default()
        }
    }

    /// The secret of this name. One that cannot be read is none, and is told by [`fault`](Self::fault).
    pub fn get(&self, name: &str) -> Option<SecretString> {
        match self.look_up(name) {
            Ok(found) => found,
            Err(error) => {
                self.fault.borrow_mut().get_or_insert(error);
                None
            }
        }
    }

    /// Why a secret that was asked for could not be read. Nothing may be done without it: where a server's token is
    /// missing, everybody would be let in.
    pub fn fault(&self) -> Option<ConfigError> {
        self.fault.take()
    }

    fn look_up(&self, name: &str) -> Result<Option<SecretString>, ConfigError> {
        let misplaced = |place: Place, other: Place| ConfigError::SecretMisplaced {
            name: name.to_owned(),
            place: place.name(),
            other: other.name(),
        };
        match (self.store, self.file.get(name)) {
            (Store::Auto | Store::File, Some(Entry::Value(value))) => Ok(Some(value.clone())),
            (Store::Auto | Store::File, None) => Ok(None),
            (Store::Keyring, Some(Entry::Value(_))) => Err(misplaced(Place::File, Place::Keyring)),
            (Store::File, Some(Entry::InKeyring)) => Err(misplaced(Place::Keyring, Place::File)),
            (Store::Keyring, None) if !is_valid_name(name) => Ok(None),
            (Store::Auto | Store::Keyring, Some(Entry::InKeyring)) | (Store::Keyring, None) => {
                self.of_keyring(name)
            }
        }
    }

    fn of_keyring(&self, name: &str) -> Result<Option<SecretString>, ConfigError> {
        let is_marked = self.file.get(name).is_some();
        let found = self.keyring.get_or_init(Keyring::new).get(name);
        let found = match found {
            Ok(None) if is_marked => Err(KeyringError::Gone),
            found => found,
        };
        found.map_err(|source| ConfigError::Keyring {
            name: name.to_owned(),
            source,
        })
    }
}

/// The file of the secrets, if there is a home folder.
pub fn path() -> Option<PathBuf> {
    Some(files::users_folder()?.join("secrets.toml"))
}

/// Whether a variable may have this name, and so a secret.
pub fn is_valid_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (1..=MAX_NAME_CHARS).contains(&name.len())
        && name.chars().all(is_part)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests;
