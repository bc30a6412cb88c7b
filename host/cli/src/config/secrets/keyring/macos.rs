//! The login keychain of macOS: generic passwords of the service `toolhold`, by the names of variables.

use super::{KeyringError, SERVICE, secret};
use secrecy::{ExposeSecret as _, SecretString};
use security_framework::base::Error;
use security_framework::os::macos::keychain::SecKeychain;
use security_framework::passwords::{
    PasswordOptions, delete_generic_password, generic_password, set_generic_password,
};
use std::time::Duration;

/// `errSecItemNotFound` of Security/SecBase.h.
const NOT_FOUND: i32 = -25300;
/// `errSecInteractionNotAllowed`: it would ask for a password or for leave.
const WOULD_ASK: i32 = -25308;
/// `errSecUserCanceled`.
const DISMISSED: i32 = -128;
/// `errSecNoDefaultKeychain`.
const NO_DEFAULT: i32 = -25307;

#[derive(Default)]
pub struct Keychain {}

// These calls have no time of their own: who asks gives up on the thread.
impl Keychain {
    pub fn get(&mut self, name: &str, _: Duration) -> Result<Option<SecretString>, KeyringError> {
        let _quiet = SecKeychain::disable_user_interaction().map_err(failed)?;
        let found = generic_password(PasswordOptions::new_generic_password(SERVICE, name));
        found_or_none(found)?.map(secret).transpose()
    }

    pub fn set(
        &mut self,
        name: &str,
        value: &SecretString,
        _: Duration,
    ) -> Result<(), KeyringError> {
        let _quiet = SecKeychain::disable_user_interaction().map_err(failed)?;
        set_generic_password(SERVICE, name, value.expose_secret().as_bytes()).map_err(failed)
    }

    pub fn remove(&mut self, name: &str, _: Duration) -> Result<bool, KeyringError> {
        let _quiet = SecKeychain::disable_user_interaction().map_err(failed)?;
        let removed = delete_generic_password(SERVICE, name);
        Ok(found_or_none(removed)?.is_some())
    }

    /// None: what lies there is known from our marks.
    pub fn names(&mut self, _: Duration) -> Result<Vec<String>, KeyringError> {
        Ok(Vec::new())
    }

    /// Whether there is one: whether it is locked is only known when it is used.
    pub fn is_locked(&mut self, _: Duration) -> Result<bool, KeyringError> {
        SecKeychain::default().map(|_| false).map_err(failed)
    }

    /// The system asks by itself.
    pub fn unlock(&mut self, _: &str, _: Duration) -> Result<(), KeyringError> {
        let mut keychain = SecKeychain::default().map_err(failed)?;
        keychain.unlock(None).map_err(failed)
    }
}

fn found_or_none<T>(found: Result<T, Error>) -> Result<Option<T>, KeyringError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code() == NOT_FOUND => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: Error) -> KeyringError {
    match error.code() {
        WOULD_ASK => KeyringError::Locked,
        DISMISSED => KeyringError::Dismissed,
        NO_DEFAULT => KeyringError::NoCollection,
        _ => KeyringError::Failed(error.into()),
    }
}
