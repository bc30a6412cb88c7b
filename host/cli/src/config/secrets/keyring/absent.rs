//! No keyring: what a build without the feature `keyring` has in its place.

use super::KeyringError;
use secrecy::SecretString;
use std::time::Duration;

#[derive(Default)]
pub struct NoKeyring {}

#[expect(
    clippy::unused_self,
    reason = "called as those that have a keyring are"
)]
impl NoKeyring {
    pub fn get(&mut self, _: &str, _: Duration) -> Result<Option<SecretString>, KeyringError> {
        Err(KeyringError::NotBuilt)
    }

    pub fn set(&mut self, _: &str, _: &SecretString, _: Duration) -> Result<(), KeyringError> {
        Err(KeyringError::NotBuilt)
    }

    pub fn remove(&mut self, _: &str, _: Duration) -> Result<bool, KeyringError> {
        Err(KeyringError::NotBuilt)
    }

    pub fn names(&mut self, _: Duration) -> Result<Vec<String>, KeyringError> {
        Err(KeyringError::NotBuilt)
    }

    pub fn is_locked(&mut self, _: Duration) -> Result<bool, KeyringError> {
        Err(KeyringError::NotBuilt)
    }

    pub fn unlock(&mut self, _: &str, _: Duration) -> Result<(), KeyringError> {
        Err(KeyringError::NotBuilt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new secret goes into the file, and one that the file says lies in a keyring is an error.
    #[test]
    fn a_build_without_keyrings_answers_as_a_machine_without_one() {
        let mut backend = NoKeyring::default();
        let patience = Duration::ZERO;
        let errors = [
            backend.get("A", patience).unwrap_err(),
            backend.set("A", &"x".into(), patience).unwrap_err(),
            backend.remove("A", patience).unwrap_err(),
            backend.names(patience).unwrap_err(),
            backend.is_locked(patience).unwrap_err(),
            backend.unlock("A", patience).unwrap_err(),
        ];
        for error in errors {
            assert!(error.is_absent() && !error.is_of_secret(), "{error}");
            assert!(error.leaves_the_file(false) && error.leaves_the_file(true));
            assert_eq!(error.to_string(), "this toolhold is built without keyrings");
        }
    }
}
