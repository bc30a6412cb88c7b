//! The rights of work that outlives the check of its request: streams, WebSockets, requests that wait, and runs.
//!
//! A request is admitted once, and its stream or run may last for hours. So each of them holds a [`Right`], which it
//! looks at with every event, page and step. All holders of a key's right share one value, and one query in
//! [`LOOK_INTERVAL`] reads the states of the keys whose rights are held ([`Rights::look`]); a step reads the state of its
//! key anew ([`Right::look`]).
//!
//! A run has the right of its owner's key. A request and its stream have that of the secret that they came with, which
//! ends before the key where another secret takes its place.

use futures_util::future::BoxFuture;
use std::collections::{BTreeSet, HashMap};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::sync::watch;
use toolhold_policy::BeginCheck;
use toolhold_storage::{KeyStanding, KeyState, Store, StoreError};

/// Time between two looks at all rights: how long a stream may go on after its key was revoked.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time during which a step trusts the last look at its key. Many runs of one key ask the database ten times a second
/// at most.
const STEP_TRUST: Duration = Duration::from_millis(100);

/// The rights that are held in this process. Clones share them.
#[derive(Debug, Clone)]
pub struct Rights {
    store: Store,
    held: Arc<Mutex<HashMap<RightSource, Weak<HeldRight>>>>,
}

/// The reason for which a request was admitted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RightSource {
    /// The key of this name: for what belongs to its owner.
    Key(Arc<str>),
    /// A secret of a key, by its hash: for what came with it.
    Secret { key: Arc<str>, hash: Arc<str> },
    /// There was no key yet: the first one that is made ends the right.
    NoKeyYet,
}

/// The right of a request, or of the run that it began. Clones share it.
#[derive(Debug, Clone)]
pub struct Right(
    /// Absent for this machine's operator, whose right has no end.
    Option<Arc<HeldRight>>,
);

#[derive(Debug)]
struct HeldRight {
    source: RightSource,
    store: Store,
    end: watch::Sender<Option<RightEnd>>,
    looked: Mutex<Option<Instant>>,
}

/// The reason why a right has ended. It ends once: what it was of ends, too, if the key is valid again later because it
/// has another secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RightEnd {
    #[error(
        "the key {key:?} was revoked; the operator of this server can make another: `toolhold keys create`"
    )]
    Revoked { key: Arc<str> },
    #[error(
        "the key {key:?} has expired; the operator of this server can renew it: `toolhold keys rotate`"
    )]
    Expired { key: Arc<str> },
    #[error(
        "the secret of the key {key:?} was replaced and is accepted no more; the operator of this server has the new one"
    )]
    Replaced { key: Arc<str> },
    #[error("this server needs a key since one was made: Authorization: Bearer KEY")]
    KeyNeeded,
}

impl RightSource {
    /// The name of the key.
    fn key(&self) -> Option<&str> {
        match self {
            Self::Key(key) | Self::Secret { key, .. } => Some(key),
            Self::NoKeyYet => None,
        }
    }
}

impl Rights {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            held: Arc::default(),
        }
    }

    /// The right of what belongs to the key of this name, whichever secret it has.
    pub fn of_key(&self, name: &str) -> Right {
        self.hold(RightSource::Key(name.into()))
    }

    /// The right of requests that come with the secret of this hash, which the key of this name accepts.
    pub fn of_secret(&self, name: &str, hash: &str) -> Right {
        let (key, hash) = (name.into(), hash.into());
        self.hold(RightSource::Secret { key, hash })
    }

    /// The right of requests without a key, where a server needs none until one is made.
    pub fn until_keys(&self) -> Right {
        self.hold(RightSource::NoKeyYet)
    }

    /// The right of a run of `owner`: of the key of that name, or of this machine's operator if `owner` is empty or an MCP
    /// client, whose name has a colon.
    pub fn of_owner(&self, owner: &str) -> Right {
        if owner.is_empty() || owner.contains(':') {
            Right::of_operator()
        } else {
            self.of_key(owner)
        }
    }

    fn hold(&self, source: RightSource) -> Right {
        let mut all = self.lock();
        // An expired key that has another secret since is valid again, and what ended is not.
        if let Some(held) = all.get(&source).and_then(Weak::upgrade)
            && held.end.borrow().is_none()
        {
            return Right(Some(held));
        }
        let held = Arc::new(HeldRight {
            source: source.clone(),
            store: self.store.clone(),
            end: watch::Sender::default(),
            looked: Mutex::default(),
        });
        all.insert(source, Arc::downgrade(&held));
        Right(Some(held))
    }

    /// Reads the states of the keys whose rights are held and have not ended, and ends the rights of those that are not
    /// valid. While the database cannot be read, rights stay as they were: nothing can be recorded then, and so no run
    /// makes a step.
    pub async fn look(&self) {
        let held: Vec<_> = {
            let mut all = self.lock();
            all.retain(|_, held| held.strong_count() > 0);
            let held = all.values().filter_map(Weak::upgrade);
            held.filter(|held| held.end.borrow().is_none()).collect()
        };
        if let Err(error) = self.read(&held).await
            && error.outage().is_none()
        {
            tracing::warn!(%error, "revoked keys cannot be looked up");
        }
    }

    async fn read(&self, held: &[Arc<HeldRight>]) -> Result<(), StoreError> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let mut until_keys = None;
        for right in held {
            match right.source.key() {
                Some(name) => drop(names.insert(name)),
                None => until_keys = Some(right),
            }
        }
        if let Some(right) = until_keys
            && self.store.has_keys().await?
        {
            right.finish(RightEnd::KeyNeeded);
        }
        let names = Vec::from_iter(names);
        let standings = self.store.key_standings(&names).await?;
        for right in held {
            right.note(&standings);
        }
        Ok(())
    }

    /// Looks at all rights until this one has ended: for a process in which nothing else looks.
    pub async fn wait_for_end(&self, right: &Right) -> RightEnd {
        loop {
            if let Err(end) = right.check() {
                return end;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
            self.look().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RightSource, Weak<HeldRight>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Right {
    /// The right of this machine's operator, who needs no key: it has no end.
    pub fn of_operator() -> Self {
        Self(None)
    }

    /// Checks the right as it was last read.
    ///
    /// # Errors
    /// [`RightEnd`]: the right has ended.
    pub fn check(&self) -> Result<(), RightEnd> {
        let end = self.0.as_ref().and_then(|held| held.end.borrow().clone());
        end.map_or(Ok(()), Err)
    }

    /// Reads the right anew, and checks it. While the database cannot be read, the last look counts.
    ///
    /// # Errors
    /// [`RightEnd`]: the right has ended.
    pub async fn look(&self) -> Result<(), RightEnd> {
        self.check()?;
        if let Some(held) = &self.0
            && held.is_due()
        {
            held.read().await;
        }
        self.check()
    }

    /// Waits until the right has ended.
    pub async fn ended(&self) -> RightEnd {
        let Some(held) = &self.0 else {
            return pending().await;
        };
        let mut ends = held.end.subscribe();
        let end = ends.wait_for(Option::is_some).await;
        match end.map(|end| end.clone()) {
            Ok(Some(end)) => end,
            // The sender lives as long as this right.
            Ok(None) | Err(_) => pending().await,
        }
    }
}

impl BeginCheck for Right {
    /// A right ends before the runs that hold it are cancelled.
    fn may_begin(&self) -> bool {
        self.check().is_ok()
    }

    /// The end of the right. It may be newer than the last look.
    fn why_not(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async move {
            if let (Ok(()), Some(held)) = (self.check(), &self.0) {
                held.read().await;
            }
            self.check().err().as_ref().map(RightEnd::to_string)
        })
    }
}

impl HeldRight {
    /// Reads the state of the key.
    async fn read(&self) {
        let Some(name) = self.source.key() else {
            return;
        };
        match self.store.key_standings(&[name]).await {
            Ok(standings) => self.note(&standings),
            Err(error) => tracing::debug!(%error, "a key cannot be looked up"),
        }
    }

    /// True if the last look of a step is too long ago; the caller looks then.
    fn is_due(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = looked.is_none_or(|at| at.elapsed() >= STEP_TRUST);
        if is_due {
            *looked = Some(Instant::now());
        }
        is_due
    }

    /// Ends the right unless its key is valid and accepts its secret. Keys are never deleted, so one that is missing has
    /// no right.
    fn note(&self, standings: &HashMap<String, KeyStanding>) {
        let (name, hash) = match &self.source {
            RightSource::Key(name) => (name, None),
            RightSource::Secret { key, hash } => (key, Some(hash)),
            RightSource::NoKeyYet => return,
        };
        let key = name.clone();
        let standing = standings.get(&**name);
        match standing.map(|standing| standing.state) {
            Some(KeyState::Expired) => self.finish(RightEnd::Expired { key }),
            Some(KeyState::Revoked) | None => self.finish(RightEnd::Revoked { key }),
            Some(KeyState::Valid) => {
                let is_accepted = |hash: &Arc<str>| standing.is_some_and(|it| it.accepts(hash));
                if !hash.is_none_or(is_accepted) {
                    self.finish(RightEnd::Replaced { key });
                }
            }
        }
    }

    fn finish(&self, end: RightEnd) {
        self.end.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(end);
            is_first
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_storage::{Location, NewSecret, Permits, now_ms};

    async fn store(folder: &tempfile::TempDir) -> Store {
        let location = Location::File(folder.path().join("toolhold.db"));
        let store = Store::open(&location, Duration::from_secs(30)).await;
        store.unwrap()
    }

    async fn make(store: &Store, name: &str, expires_ms: Option<u64>) {
        let permits = Permits::default();
        let added = store.add_key(name, name, &permits, expires_ms).await;
        assert!(added.unwrap());
    }

    #[tokio::test]
    async fn a_right_ends_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let (store, other) = (store(&folder).await, store(&folder).await);
        make(&store, "ann", None).await;
        make(&store, "bob", None).await;
        let rights = Rights::new(store);
        let (ann, bob) = (rights.of_key("ann"), rights.of_owner("bob"));
        let operator = rights.of_owner("");
        let waiting = tokio::spawn({
            let ann = rights.of_key("ann");
            async move { ann.ended().await }
        });
        rights.look().await;
        assert_eq!((ann.check(), ann.look().await), (Ok(()), Ok(())));
        // By another process.
        assert!(other.revoke_key("ann").await.unwrap());
        rights.look().await;
        let end = RightEnd::Revoked { key: "ann".into() };
        assert_eq!(ann.check(), Err(end.clone()));
        assert_eq!(waiting.await.unwrap(), end);
        assert_eq!(rights.of_owner("ann").look().await, Err(end));
        assert_eq!((bob.check(), operator.look().await), (Ok(()), Ok(())));
    }

    #[tokio::test]
    async fn a_step_sees_a_revocation_before_the_next_look_at_all_keys() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder).await;
        make(&store, "ann", None).await;
        make(&store, "bob", None).await;
        let rights = Rights::new(store.clone());
        let (ann, bob) = (rights.of_key("ann"), rights.of_key("bob"));
        assert_eq!((ann.look().await, bob.look().await), (Ok(()), Ok(())));
        // As soon as its run is cancelled.
        assert_eq!(bob.why_not().await, None);
        assert!(store.revoke_key("bob").await.unwrap());
        let end = RightEnd::Revoked { key: "bob".into() };
        assert_eq!(bob.why_not().await, Some(end.to_string()));
        assert!(store.revoke_key("ann").await.unwrap());
        tokio::time::sleep(STEP_TRUST * 2).await;
        assert!(ann.look().await.is_err());
    }

    #[tokio::test]
    async fn a_right_ends_when_its_key_expires() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder).await;
        make(&store, "old", Some(1)).await;
        make(&store, "ann", Some(now_ms() + 3_600_000)).await;
        let rights = Rights::new(store);
        let (old, ann) = (rights.of_key("old"), rights.of_key("ann"));
        assert_eq!(old.check(), Ok(()));
        rights.look().await;
        let expired = |key: &str| Err(RightEnd::Expired { key: key.into() });
        assert_eq!((old.check(), ann.check()), (expired("old"), Ok(())));
        // A look finds this once the time of the key has passed.
        let renewed = NewSecret {
            hash: "of ann",
            overlap: Duration::ZERO,
            expires_ms: Some(now_ms() + 50),
        };
        rights.store.rotate_key("ann", renewed).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        rights.look().await;
        assert_eq!(ann.check(), expired("ann"));
        // What ended stays ended when the key is renewed, and what begins then has a right.
        let renewed = NewSecret {
            hash: "of ann again",
            overlap: Duration::ZERO,
            expires_ms: Some(now_ms() + 3_600_000),
        };
        rights.store.rotate_key("ann", renewed).await.unwrap();
        let again = rights.of_key("ann");
        rights.look().await;
        assert_eq!((ann.check(), again.check()), (expired("ann"), Ok(())));
    }

    #[tokio::test]
    async fn a_request_has_a_right_as_long_as_its_secret_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder).await;
        make(&store, "ann", None).await;
        let rights = Rights::new(store.clone());
        let (of_key, first) = (rights.of_key("ann"), rights.of_secret("ann", "ann"));
        let second = || rights.of_secret("ann", "second");
        let rotated = |hash, overlap| {
            let secret = NewSecret {
                hash,
                overlap,
                expires_ms: None,
            };
            store.rotate_key("ann", secret)
        };
        rotated("second", Duration::from_hours(1)).await.unwrap();
        let asked = second();
        rights.look().await;
        assert_eq!(
            [&of_key, &first, &asked].map(Right::check),
            [Ok(()), Ok(()), Ok(())]
        );
        // Ends both secrets before.
        rotated("third", Duration::ZERO).await.unwrap();
        let third = rights.of_secret("ann", "third");
        rights.look().await;
        let replaced = Err(RightEnd::Replaced { key: "ann".into() });
        assert_eq!(
            [&first, &asked].map(Right::check),
            [replaced.clone(), replaced]
        );
        assert_eq!([&of_key, &third].map(Right::check), [Ok(()), Ok(())]);
    }

    #[tokio::test]
    async fn the_first_key_ends_the_right_of_requests_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder).await;
        let rights = Rights::new(store.clone());
        let (open, operator) = (rights.until_keys(), Right::of_operator());
        rights.look().await;
        assert_eq!(open.check(), Ok(()));
        make(&store, "ann", None).await;
        rights.look().await;
        assert_eq!(open.check(), Err(RightEnd::KeyNeeded));
        assert_eq!(operator.check(), Ok(()));
    }

    #[tokio::test]
    async fn a_right_is_forgotten_when_nothing_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let rights = Rights::new(store(&folder).await);
        drop(rights.of_key("ann"));
        rights.look().await;
        assert!(rights.lock().is_empty());
    }
}
