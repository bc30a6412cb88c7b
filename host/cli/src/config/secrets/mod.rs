//! Keys and passwords that `toolhold secrets` keeps: in the system's keyring, or in a file of the user's.
//!
//! They stand in for environment variables that are not set: wherever the configuration names a variable that holds a
//! secret, the secret of that name is taken. [`StoredSecrets`] reads them, [`SecretStore`] changes them.
//!
//! The file says of each name where it lies: it has the value, or a mark that the keyring has it. So a name has one
//! place, a machine without a keyring is never asked for one, and a keyring that does not answer is an error for the
//! secrets that lie in it, and for nothing else.

mod file;
mod keyring;
mod store;

pub use keyring::{Asks, KeyringError, KeyringQuestion, PROMPT_PATIENCE};
pub use store::SecretStore;

use super::files;
use super::layers::ConfigError;
use file::{SecretEntry, SecretsFile};
use keyring::Keyring;
use secrecy::SecretString;
use serde::Deserialize;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Most bytes of one secret: a key has a hundred, a certificate some thousands.
pub const MAX_SECRET_BYTES: u64 = 64 << 10;
/// Most characters of a name.
const MAX_NAME_CHARS: usize = 128;

/// `secrets.store`: where new secrets are kept, and where they are looked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreChoice {
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
    pub store: StoreChoice,
}

/// Where one secret lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretPlace {
    Keyring,
    File,
}

impl SecretPlace {
    pub fn name(self) -> &'static str {
        match self {
            Self::Keyring => "keyring",
            Self::File => "file",
        }
    }
}

/// What a command does with secrets, and so what becomes of one that cannot be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Needs {
    /// It uses them: nothing is done without one. Where a server's token is missing, everybody would be let in.
    #[default]
    All,
    /// It uses that of the database alone. Others are looked for, because records must not have them, and may be
    /// missing.
    Database,
    /// It uses none, so the keyring is not asked.
    None,
}

/// Why a secret could not be read.
#[derive(Debug, Clone, Error)]
pub enum UnreadSecret {
    #[error(
        "the secret {name} cannot be read from the keyring: {source}. Unlock or repair it, set the variable {name}, or \
         keep the secret anew: toolhold secrets set {name}"
    )]
    InKeyring {
        name: String,
        #[source]
        source: Arc<KeyringError>,
    },
    /// No secret is known to lie there, and with this store each may.
    #[error(
        "the keyring cannot be used: {source}, and secrets.store = \"keyring\" has every secret read from it. Choose \
         another store, such as TOOLHOLD_SECRETS__STORE=auto, unlock or repair it, or set the variables"
    )]
    NoKeyring {
        #[source]
        source: Arc<KeyringError>,
    },
    #[error("the secret {name} may lie in the keyring, which was not asked")]
    Unasked { name: String },
    #[error("the secret {name} may be kept, and the file that says so cannot be used: {source}")]
    NoFile {
        name: String,
        #[source]
        source: Arc<ConfigError>,
    },
    #[error(
        "the secret {name} is kept in the {place}, and secrets.store is {other:?}: it is not read from there. Keep it \
         anew, which moves it: toolhold secrets set {name}"
    )]
    Misplaced {
        name: String,
        place: &'static str,
        other: &'static str,
    },
}

type SecretAnswer = Result<Option<SecretString>, UnreadSecret>;

/// Stands for a module's secret that was not read, where only what modules are granted counts: nobody gets it. A grant
/// without its secrets would be another grant, as if a person had taken it back.
const STAND_IN: &str = "a-secret-that-was-not-read";

/// What became of the secrets of one configuration.
#[derive(Debug, Clone, Default)]
pub struct ReadSecrets {
    /// Those that the keyring gave.
    of_keyring: BTreeMap<String, SecretString>,
    unread: BTreeMap<String, UnreadSecret>,
}

impl ReadSecrets {
    /// One that could not be read and without which a command cannot begin. `database`: the variable of its URL.
    pub fn lacking(&self, needs: Needs, database: &str) -> Option<&UnreadSecret> {
        match needs {
            Needs::All => self.unread(),
            Needs::Database => self.unread.get(database),
            Needs::None => None,
        }
    }

    /// One that could not be read: of those that are known to be there, if any is.
    pub fn unread(&self) -> Option<&UnreadSecret> {
        let is_known = |unread: &&UnreadSecret| {
            !matches!(
                unread,
                UnreadSecret::NoKeyring { .. } | UnreadSecret::NoFile { .. }
            )
        };
        let mut all = self.unread.values();
        all.clone().find(is_known).or_else(|| all.next())
    }
}

/// The secrets as they are read for one configuration. The keyring is asked when the first one of it is needed.
#[derive(Debug, Default)]
pub struct StoredSecrets {
    store: StoreChoice,
    needs: Needs,
    /// The variables of modules' secrets.
    of_modules: BTreeSet<String>,
    /// What the process read before, if this is not the first time.
    before: ReadSecrets,
    file: SecretsFile,
    /// Why there is nothing in `file`, which was to be read.
    no_file: Option<Arc<ConfigError>>,
    keyring: OnceCell<Keyring>,
    /// Those that were asked for.
    answers: RefCell<BTreeMap<String, SecretAnswer>>,
}

impl StoredSecrets {
    /// Reads the user's file, if there is one. `is_named`: somebody named the configuration's file, as a service
    /// manager does. A service may not look into the home folder of its user, and has its secrets in its environment.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or others may read it, and secrets are needed. Without need, what is wrong with it
    /// must not prevent that something is taken back, and is among the [outcomes](Self::outcome).
    pub fn read(store: StoreChoice, needs: Needs, is_named: bool) -> Result<Self, ConfigError> {
        let Some(path) = path() else {
            return Ok(Self::of(store, needs, SecretsFile::default()));
        };
        Self::of_read(store, needs, is_named, SecretsFile::read(&path))
    }

    fn of_read(
        store: StoreChoice,
        needs: Needs,
        is_named: bool,
        read: Result<SecretsFile, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let is_denied = |error: &ConfigError| {
            matches!(error, ConfigError::Read { source, .. }
                if source.kind() == std::io::ErrorKind::PermissionDenied)
        };
        match read {
            Ok(file) => Ok(Self::of(store, needs, file)),
            Err(error) if is_named && is_denied(&error) => {
                Ok(Self::of(store, needs, SecretsFile::default()))
            }
            Err(error) if needs == Needs::All => Err(error),
            Err(error) => Ok(Self {
                no_file: Some(Arc::new(error)),
                ..Self::of(store, needs, SecretsFile::default())
            }),
        }
    }

    fn of(store: StoreChoice, needs: Needs, file: SecretsFile) -> Self {
        Self {
            store,
            needs,
            file,
            ..Self::default()
        }
    }

    /// The same, knowing the variables of modules' secrets.
    #[must_use]
    pub fn of_modules(self, of_modules: BTreeSet<String>) -> Self {
        Self { of_modules, ..self }
    }

    /// The same, for a process that read them before. What it has holds on while the keyring cannot be used.
    #[must_use]
    pub fn after(self, before: ReadSecrets) -> Self {
        Self { before, ..self }
    }

    /// The secret of this name. One that cannot be read is none, and is among the [outcomes](Self::outcome).
    pub fn get(&self, name: &str) -> Option<SecretString> {
        let known = self.answers.borrow().get(name).cloned();
        let answer = known.unwrap_or_else(|| {
            let found = self.look_up(name);
            let mut answers = self.answers.borrow_mut();
            answers.insert(name.to_owned(), found.clone());
            found
        });
        let stands_in = || self.needs != Needs::All && self.of_modules.contains(name);
        answer.unwrap_or_else(|_| stands_in().then(|| STAND_IN.into()))
    }

    /// Whether the command uses secrets.
    pub fn are_needed(&self) -> bool {
        self.needs == Needs::All
    }

    /// What became of those that were asked for.
    pub fn outcome(&self) -> ReadSecrets {
        let mut outcome = ReadSecrets::default();
        for (name, answer) in &*self.answers.borrow() {
            match answer {
                Ok(Some(value)) if self.is_marked(name) => {
                    outcome.of_keyring.insert(name.clone(), value.clone());
                }
                Ok(_) => {}
                Err(unread) => {
                    outcome.unread.insert(name.clone(), unread.clone());
                }
            }
        }
        outcome
    }

    fn is_marked(&self, name: &str) -> bool {
        matches!(self.file.get(name), Some(SecretEntry::InKeyring))
    }

    fn look_up(&self, name: &str) -> SecretAnswer {
        let misplaced = |place: SecretPlace, other: SecretPlace| UnreadSecret::Misplaced {
            name: name.to_owned(),
            place: place.name(),
            other: other.name(),
        };
        if let Some(source) = self.no_file.clone().filter(|_| is_valid_name(name)) {
            let name = name.to_owned();
            return Err(UnreadSecret::NoFile { name, source });
        }
        match (self.store, self.file.get(name)) {
            (StoreChoice::Auto | StoreChoice::File, Some(SecretEntry::Value(value))) => {
                Ok(Some(value.clone()))
            }
            (StoreChoice::Auto | StoreChoice::File, None) => Ok(None),
            (StoreChoice::Keyring, Some(SecretEntry::Value(_))) => {
                Err(misplaced(SecretPlace::File, SecretPlace::Keyring))
            }
            (StoreChoice::File, Some(SecretEntry::InKeyring)) => {
                Err(misplaced(SecretPlace::Keyring, SecretPlace::File))
            }
            (StoreChoice::Keyring, None) if !is_valid_name(name) => Ok(None),
            (StoreChoice::Auto | StoreChoice::Keyring, Some(SecretEntry::InKeyring))
            | (StoreChoice::Keyring, None) => self.of_keyring(name),
        }
    }

    fn of_keyring(&self, name: &str) -> SecretAnswer {
        let name = name.to_owned();
        if self.needs == Needs::None {
            return Err(UnreadSecret::Unasked { name });
        }
        let is_marked = self.is_marked(&name);
        let error = match self.keyring.get_or_init(Keyring::new).get(&name) {
            Ok(None) if is_marked => KeyringError::Gone,
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        // Only what is still said to lie there: a person may have had it forgotten.
        let before = self.before.of_keyring.get(&name);
        if let Some(before) = before.filter(|_| is_marked && !error.is_of_secret()) {
            tracing::warn!(
                secret = %name, %error,
                "the keyring cannot be used: the secret that was read before stays in use"
            );
            return Ok(Some(before.clone()));
        }
        let source = Arc::new(error);
        if !is_marked && !source.is_of_secret() {
            return Err(UnreadSecret::NoKeyring { source });
        }
        Err(UnreadSecret::InKeyring { name, source })
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
