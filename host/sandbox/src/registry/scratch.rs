//! Scratch files of sessions, all modules' together.

use super::Registry;
use crate::disk::SessionFiles;
use std::io;
use toolhold_admission::WorkKind;
use toolhold_policy::Caller;

/// Scratch files of sessions that are copied and removed, at requests of keys.
const SESSIONS: WorkKind = WorkKind::new("scratch files of sessions", 16);

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
        let carried = SESSIONS.run(Some(tenant), move || {
            let copied = before.copy(&after);
            if copied.is_err() {
                // The reason is that of the copy.
                let _ = after.remove();
            }
            copied
        });
        carried.await.map_err(io::Error::from)?
    }

    /// Removes the scratch files of a session in which no call is made any more.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn remove_scratch(&self, tenant: &str, session: &str) -> io::Result<()> {
        match self.files_of(tenant, session) {
            Some(files) => {
                // Also if the request ends meanwhile: nothing else removes them for days.
                let removed = SESSIONS.start(Some(tenant), move |_| files.remove());
                removed
                    .even_if_left()
                    .done()
                    .await
                    .map_err(io::Error::from)?
            }
            None => Ok(()),
        }
    }

    fn files_of(&self, tenant: &str, session: &str) -> Option<SessionFiles> {
        let policy = self.shared.policy();
        let root = policy.storage.scratch.as_ref()?;
        Some(SessionFiles::of(root, Caller { tenant, session }))
    }
}
