//! Scratch files of sessions, all modules' together.

use super::Registry;
use crate::blocking::Stop;
use crate::disk::SessionFiles;
use std::io;
use toolhold_admission::WorkKind;
use toolhold_policy::Caller;

/// Scratch files of sessions that are copied and removed, at requests of keys.
const SESSIONS: WorkKind = WorkKind::new("scratch files of sessions", 16);

impl Registry {
    /// The session `to` of `tenant` begins with copies of the scratch files that `from` left. No call may be made
    /// in either meanwhile. Dropped, the copy ends, too.
    ///
    /// # Errors
    /// What the file system says. What was copied until then is gone again.
    pub async fn carry_scratch(&self, tenant: &str, from: &str, to: &str) -> io::Result<()> {
        let files = self.files_of(tenant, from).zip(self.files_of(tenant, to));
        let Some((before, after)) = files else {
            return Ok(());
        };
        let mut carried = SESSIONS.start(Some(tenant), move |stop| {
            let copied = before.copy(&after, &Stop::of(stop));
            if copied.is_err() {
                // The reason is that of the copy.
                let _ = after.remove();
            }
            copied
        });
        carried.done().await.map_err(io::Error::from)?
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Scratch, Storage};
    use crate::engine::{Engine, EngineConfig};
    use crate::policy::Policy;
    use std::time::Duration;
    use toolhold_policy::Keep;

    /// Number of files: more than a copy makes between two looks of this test.
    const FILES: usize = 5_000;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_copy_of_scratch_files_ends_with_its_request() {
        let root = tempfile::tempdir().unwrap();
        let caller = |session| Caller {
            tenant: "ada",
            session,
        };
        let before = Scratch::make(root.path(), "m", caller("1"), Keep::Session).unwrap();
        for number in 0..FILES {
            std::fs::write(before.path.join(number.to_string()), "x").unwrap();
        }
        let policy = Policy {
            storage: Storage {
                scratch: Some(root.path().to_owned()),
                ..Storage::default()
            },
            ..Policy::default()
        };
        let engine = Engine::new(EngineConfig::default()).unwrap();
        let registry = Registry::new(engine, None, policy);
        let count = |kind: &str| {
            let entries = std::fs::read_dir(root.path()).unwrap().flatten();
            let names = entries.map(|entry| entry.file_name());
            names
                .filter(|name| name.as_encoded_bytes().starts_with(kind.as_bytes()))
                .count()
        };
        let request = tokio::spawn({
            let registry = registry.clone();
            async move { registry.carry_scratch("ada", "1", "2").await }
        });
        while count("call-") == 0 {
            assert!(!request.is_finished(), "the copy was faster than this test");
            tokio::task::yield_now().await;
        }
        request.abort();
        assert!(request.await.is_err(), "the copy was faster than this test");
        while count("call-") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(count("session-"), 1, "the copy went on to its end");
        // It is made where its request waits for it.
        registry.carry_scratch("ada", "1", "2").await.unwrap();
        assert_eq!(count("session-"), 2);
    }
}
