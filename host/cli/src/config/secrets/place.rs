//! Changing what is kept: a secret has one place, and an older copy in the other one goes.

use super::file::{self, Entry, SecretsFile};
use super::{Asks, ConfigError, Keyring, KeyringError, Place, Store};
use secrecy::{ExposeSecret as _, SecretString};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where this user's secrets lie.
#[derive(Debug, Clone)]
pub struct SecretsPlace {
    store: Store,
    file: PathBuf,
}

/// What became of a secret that was to be kept.
#[derive(Debug)]
pub struct Kept {
    pub place: Place,
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
pub struct Forgotten {
    pub was_kept: bool,
    /// Why a copy may still be in the keyring. It is not used.
    pub left_over: Option<KeyringError>,
}

impl SecretsPlace {
    pub fn new(store: Store, file: PathBuf) -> Self {
        Self { store, file }
    }

    pub fn store(&self) -> Store {
        self.store
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Keeps a secret.
    ///
    /// # Errors
    /// The file cannot be read or written. The keyring cannot be used, and nothing else may be.
    pub fn keep(&self, name: &str, value: &SecretString, asks: Asks) -> Result<Kept, ConfigError> {
        let keyring = Keyring::new();
        // A damaged file is told before anything is put anywhere.
        let is_marked = matches!(self.entry(name)?, Some(Entry::InKeyring));
        let put = match self.store {
            Store::File => None,
            Store::Auto | Store::Keyring => Some(unlocked(&keyring, name, asks, || {
                keyring.set(name, value, asks)
            })),
        };
        let instead = match put {
            None => None,
            Some(Ok(())) => {
                let before = file::change(&self.file, name, Some(Entry::InKeyring))?;
                return Ok(Kept {
                    place: Place::Keyring,
                    is_replaced: before.is_some(),
                    instead: None,
                    left_over: None,
                    unreadable: read_back(name, value).err(),
                });
            }
            Some(Err(error)) if self.store == Store::Auto && error.leaves_the_file(is_marked) => {
                Some(error)
            }
            Some(Err(source)) => return Err(ConfigError::KeyringUnusable { source }),
        };
        let entry = Entry::Value(value.clone());
        let before = file::change(&self.file, name, Some(entry))?;
        // One that failed late has the new value, too.
        let left_over = match &instead {
            Some(error) if !error.is_absent() => keyring.remove(name, None).err(),
            _ if matches!(before, Some(Entry::InKeyring)) => {
                unlocked(&keyring, name, asks, || keyring.remove(name, asks)).err()
            }
            _ => None,
        };
        Ok(Kept {
            place: Place::File,
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
    pub fn forget(&self, name: &str, asks: Asks) -> Result<Forgotten, ConfigError> {
        let is_marked = matches!(self.entry(name)?, Some(Entry::InKeyring));
        let mut left_over = None;
        let mut was_kept = false;
        if is_marked || self.store != Store::File {
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
        Ok(Forgotten {
            was_kept: was_kept || before.is_some(),
            left_over,
        })
    }

    /// The names with their places, and why the keyring could not be asked for those that are in it alone.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn list(&self) -> Result<(BTreeMap<String, Place>, Option<KeyringError>), ConfigError> {
        let kept = SecretsFile::read(&self.file)?;
        let place = |entry: &Entry| match entry {
            Entry::Value(_) => Place::File,
            Entry::InKeyring => Place::Keyring,
        };
        let entries = kept.entries();
        let mut places: BTreeMap<_, _> = entries
            .map(|(name, entry)| (name.to_owned(), place(entry)))
            .collect();
        if self.store != Store::Keyring {
            return Ok((places, None));
        }
        // Only then those count that other programs, or another machine's file, have put there.
        match Keyring::new().names() {
            Ok(names) => {
                for name in names {
                    places.entry(name).or_insert(Place::Keyring);
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
    pub fn next(&self) -> Result<Place, KeyringError> {
        match self.store {
            Store::File => Ok(Place::File),
            Store::Auto | Store::Keyring if Keyring::new().is_locked()? => {
                Err(KeyringError::Locked)
            }
            Store::Auto | Store::Keyring => Ok(Place::Keyring),
        }
    }

    fn entry(&self, name: &str) -> Result<Option<Entry>, ConfigError> {
        Ok(SecretsFile::read(&self.file)?.get(name).cloned())
    }
}

/// Whether nothing is forgotten while the keyring cannot be used. With "file" it may be gone for good.
fn is_needed(store: Store, is_marked: bool) -> bool {
    match store {
        Store::Auto => is_marked,
        Store::Keyring => true,
        Store::File => false,
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
