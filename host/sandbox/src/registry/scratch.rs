//! Scratch files of sessions, all modules' together.

use super::Registry;
use crate::blocking::blocking;
use crate::disk::SessionFiles;
use std::io;
use toolhold_policy::Caller;

impl Registry {
    /// The session `to` of `tenant` begins with copies of the scratch files that `from` left. No call may be made
    /// in either meanwhile.
    ///
    /// # Errors
    /// What the file system says. What was copied until then is gone again.
    pub async fn carry_scratch(&self, tenant: &str, from: &str, to: &str) -> io::Result<()> {
        let files = self.files_of(tenant, from).zip(self.files_of(tenant, to));
        let Some((before, after)) = files else {
            return Ok(());
        };
        blocking(move || {
            let copied = before.copy(&after);
            if copied.is_err() {
                // The reason is that of the copy.
                let _ = after.remove();
            }
            copied
        })
        .await
    }

    /// Removes the scratch files of a session in which no call is made any more.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn remove_scratch(&self, tenant: &str, session: &str) -> io::Result<()> {
        match self.files_of(tenant, session) {
            Some(files) => blocking(move || files.remove()).await,
            None => Ok(()),
        }
    }

    fn files_of(&self, tenant: &str, session: &str) -> Option<SessionFiles> {
        let policy = self.shared.policy();
        let root = policy.storage.scratch.as_ref()?;
        Some(SessionFiles::of(root, Caller { tenant, session }))
    }
}
