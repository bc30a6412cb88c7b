//! Changing what is kept: a secret has one place, and an older copy in the other one goes.

use super::file::{self, SecretEntry, SecretsFile};
use super::{Asks, ConfigError, Keyring, KeyringError, SecretPlace, StoreChoice};
use secrecy::{ExposeSecret as _, SecretString};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where this user's secrets lie.
#[derive(Debug, Clone)]
pub struct SecretStore {
    store: StoreChoice,
    file: PathBuf,
}

/// What became of a secret that was to be kept.
#[derive(Debug)]
pub struct KeptSecret {
    pub place: SecretPlace,
    pub is_replaced: bool,
    /// Why it is not in the keyring, where that was tried first.
    pub instead: Option<KeyringError>,
    /// Why an older copy may still be in the keyring. It is not used.
    pub left_over: Option<KeyringError>,
    /// Why it is in the keyring and cannot be read from there as commands read it.
    pub unreadable: Option<KeyringError>,
}

/// What became of a secret that was to be forgotten.
#[derive(Debug)]
pub struct ForgottenSecret {
    pub was_kept: bool,
    /// Why a copy may still be in the keyring. It is not used.
    pub left_over: Option<KeyringError>,
}

impl SecretStore {
    pub fn new(store: StoreChoice, file: PathBuf) -> Self {
        Self { store, file }
    }

    pub fn store(&self) -> StoreChoice {
        self.store
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Keeps a secret.
    ///
    /// # Errors
    /// The file cannot be read or written. The keyring cannot be used, and nothing else may be.
    pub fn keep(
        &self,
        name: &str,
        value: &SecretString,
        asks: Asks,
    ) -> Result<KeptSecret, ConfigError> {
        let keyring = Keyring::new();
        // A damaged file is told before anything is put anywhere.
        let is_marked = matches!(self.entry(name)?, Some(SecretEntry::InKeyring));
        let put = match self.store {
            StoreChoice::File => None,
            StoreChoice::Auto | StoreChoice::Keyring => {
                Some(unlocked(&keyring, name, asks, || {
                    keyring.set(name, value, asks)
                }))
            }
        };
        let instead = match put {
            None => None,
            Some(Ok(())) => {
                let before = file::change(&self.file, name, Some(SecretEntry::InKeyring))?;
                return Ok(KeptSecret {
                    place: SecretPlace::Keyring,
                    is_replaced: before.is_some(),
                    instead: None,
                    left_over: None,
                    unreadable: read_back(name, value).err(),
                });
            }
            Some(Err(error))
                if self.store == StoreChoice::Auto && error.leaves_the_file(is_marked) =>
            {
                Some(error)
            }
            Some(Err(source)) => return Err(ConfigError::KeyringUnusable { source }),
        };
        let entry = SecretEntry::Value(value.clone());
        let before = file::change(&self.file, name, Some(entry))?;
        // One that failed late has the new value, too.
        let left_over = match &instead {
            Some(error) if !error.is_absent() => keyring.remove(name, None).err(),
            _ if matches!(before, Some(SecretEntry::InKeyring)) => {
                unlocked(&keyring, name, asks, || keyring.remove(name, asks)).err()
            }
            _ => None,
        };
        Ok(KeptSecret {
            place: SecretPlace::File,
            is_replaced: before.is_some(),
            instead,
            left_over,
            unreadable: None,
        })
    }

    /// Forgets a secret, wherever it is.
    ///
    /// # Errors
    /// The file cannot be read or written. It may be in the keyring, which cannot be used.
    pub fn forget(&self, name: &str, asks: Asks) -> Result<ForgottenSecret, ConfigError> {
        let is_marked = matches!(self.entry(name)?, Some(SecretEntry::InKeyring));
        let mut left_over = None;
        let mut was_kept = false;
        if is_marked || self.store != StoreChoice::File {
            let keyring = Keyring::new();
            match unlocked(&keyring, name, asks, || keyring.remove(name, asks)) {
                Ok(was_there) => was_kept = was_there,
                Err(source) if is_needed(self.store, is_marked) => {
                    return Err(ConfigError::KeyringUnusable { source });
                }
                // Without any keyring there is none in it.
                Err(error) if is_marked || !error.is_absent() => left_over = Some(error),
                Err(_) => {}
            }
        }
        let before = file::change(&self.file, name, None)?;
        Ok(ForgottenSecret {
            was_kept: was_kept || before.is_some(),
            left_over,
        })
    }

    /// The names with their places, and why the keyring could not be asked for those that are in it alone.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn list(
        &self,
    ) -> Result<(BTreeMap<String, SecretPlace>, Option<KeyringError>), ConfigError> {
        let kept = SecretsFile::read(&self.file)?;
        let place = |entry: &SecretEntry| match entry {
            SecretEntry::Value(_) => SecretPlace::File,
            SecretEntry::InKeyring => SecretPlace::Keyring,
        };
        let entries = kept.entries();
        let mut places: BTreeMap<_, _> = entries
            .map(|(name, entry)| (name.to_owned(), place(entry)))
            .collect();
        if self.store != StoreChoice::Keyring {
            return Ok((places, None));
        }
        // Only then those count that other programs, or another machine's file, have put there.
        match Keyring::new().names() {
            Ok(names) => {
                for name in names {
                    places.entry(name).or_insert(SecretPlace::Keyring);
                }
                Ok((places, None))
            }
            Err(error) => Ok((places, Some(error))),
        }
    }

    /// Where a new secret would be kept.
    ///
    /// # Errors
    /// Why not in the keyring, where that would be tried.
    pub fn next(&self) -> Result<SecretPlace, KeyringError> {
        match self.store {
            StoreChoice::File => Ok(SecretPlace::File),
            StoreChoice::Auto | StoreChoice::Keyring if Keyring::new().is_locked()? => {
                Err(KeyringError::Locked)
            }
            StoreChoice::Auto | StoreChoice::Keyring => Ok(SecretPlace::Keyring),
        }
    }

    fn entry(&self, name: &str) -> Result<Option<SecretEntry>, ConfigError> {
        Ok(SecretsFile::read(&self.file)?.get(name).cloned())
    }
}

/// Whether nothing is forgotten while the keyring cannot be used. With "file" it may be gone for good.
fn is_needed(store: StoreChoice, is_marked: bool) -> bool {
    match store {
        StoreChoice::Auto => is_marked,
        StoreChoice::Keyring => true,
        StoreChoice::File => false,
    }
}

/// Reads it as a command does that begins now: some keyrings give a secret only to the connection that put it there.
fn read_back(name: &str, value: &SecretString) -> Result<(), KeyringError> {
    match Keyring::new().get(name)? {
        Some(found) if found.expose_secret() == value.expose_secret() => Ok(()),
        _ => Err(KeyringError::Gone),
    }
}

/// Does it, again after the keyring was unlocked if it is locked and somebody is there.
fn unlocked<T>(
    keyring: &Keyring,
    name: &str,
    asks: Asks,
    work: impl Fn() -> Result<T, KeyringError>,
) -> Result<T, KeyringError> {
    let Some(asks) = asks else { return work() };
    // One that hangs is given up before a person's answer is waited for.
    keyring.is_locked()?;
    match work() {
        Err(KeyringError::Locked) => {
            keyring.unlock(name, asks)?;
            work()
        }
        done => done,
    }
}
