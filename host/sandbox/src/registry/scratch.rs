//! Scratch files of sessions, all modules' together.

use super::Registry;
use crate::disk::SessionFiles;
use std::io;
use toolhold_policy::Caller;
use toolhold_policy::Keep;

impl Registry {
    /// The session `to` of `tenant` begins with copies of the scratch files that `from` left. No call may be made
    /// in either meanwhile.
    ///
    /// # Errors
    /// What the file system says. What was copied until then is gone again.
    pub async fn carry_scratch(&self, tenant: &str, from: &str, to: &str) -> io::Result<()> {
        let (before, after) = (self.files_of(tenant, from), self.files_of(tenant, to));
        blocking(move || {
            let copied = before
                .iter()
                .zip(&after)
                .try_for_each(|(before, after)| before.copy(after));
            if copied.is_err() {
                // The reason is that of the copy.
                let _ = after.iter().try_for_each(SessionFiles::remove);
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
        let files = self.files_of(tenant, session);
        blocking(move || files.iter().try_for_each(SessionFiles::remove)).await
    }

    /// In the order of the modules' names.
    fn files_of(&self, tenant: &str, session: &str) -> Vec<SessionFiles> {
        let policy = self.shared.policy();
        let Some(root) = &policy.storage.scratch else {
            return Vec::new();
        };
        let kept = policy.modules.iter().filter(|(_, own)| {
            let scratch = own.grant.scratch.as_ref();
            scratch.is_some_and(|scratch| scratch.keep == Keep::Session)
        });
        let mut names: Vec<&String> = kept.map(|(name, _)| name).collect();
        names.sort();
        let caller = Caller { tenant, session };
        let files = names
            .into_iter()
            .map(|name| SessionFiles::of(root, name, caller));
        files.collect()
    }
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::other)?
}
