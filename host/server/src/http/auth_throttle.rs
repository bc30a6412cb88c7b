//! Unknown keys: each costs a look into the database, so an address, and all addresses together, may have only so many
//! looked up in a minute. A valid key is never refused for that: beyond the rate, keys are compared with the digests of
//! all valid keys, which are read from the database once in a while, whatever comes.

use crate::http::error::ApiError;
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use toolhold_admission::KeyedRate;
use toolhold_storage::{Store, StoreError};

/// Unknown keys of one address in a minute that are looked up; further ones are answered with 429.
const MAX_FAILURES: u64 = 30;
/// The same of all addresses together: someone may have many.
const MAX_FAILURES_OF_ALL: u64 = 6_000;
/// The valid keys are read at most so often, and for at most a tenth of the time. A key that was made since waits as
/// long, where too many unknown ones came.
const READ_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct AuthThrottle {
    failures: KeyedRate<IpAddr>,
    failures_of_all: KeyedRate<()>,
    valid: Mutex<ValidKeys>,
}

/// The beginnings of the digests of all valid keys. What begins alike is looked up.
#[derive(Debug)]
struct ValidKeys {
    digests: HashSet<u64>,
    /// Not before they are read again.
    until: Instant,
}

impl AuthThrottle {
    pub fn new() -> Self {
        Self {
            failures: KeyedRate::per_minute(MAX_FAILURES),
            failures_of_all: KeyedRate::per_minute(MAX_FAILURES_OF_ALL),
            valid: Mutex::new(ValidKeys {
                digests: HashSet::new(),
                until: Instant::now(),
            }),
        }
    }

    /// Whether the key with this digest may be looked up.
    ///
    /// # Errors
    /// Too many unknown keys came, and this one is unknown, too; or the database cannot be read.
    pub async fn admit(&self, store: &Store, source: IpAddr, digest: &str) -> Result<(), ApiError> {
        let (what, wait) = match (
            self.failures.check(&source),
            self.failures_of_all.check(&()),
        ) {
            (Ok(()), Ok(())) => return Ok(()),
            (Err(wait), _) => ("too many unknown keys came from your address", wait),
            (_, Err(wait)) => ("too many unknown keys came, and yours is new here", wait),
        };
        if self.is_valid(store, digest).await? {
            return Ok(());
        }
        Err(ApiError::too_many_in_a_minute(what, wait))
    }

    /// The key was looked up, and there is none.
    pub fn is_unknown(&self, source: IpAddr) {
        // Several keys may have been looked up at once; an empty bucket does not get emptier.
        let _ = self.failures.take(&source);
        let _ = self.failures_of_all.take(&());
    }

    async fn is_valid(&self, store: &Store, digest: &str) -> Result<bool, StoreError> {
        let beginning = beginning(digest);
        // Those that come while the keys are read wait for them here.
        let mut valid = self.valid.lock().await;
        if valid.digests.contains(&beginning) {
            return Ok(true);
        }
        if valid.until <= Instant::now() {
            let started = Instant::now();
            let digests = store.digests_of_valid_keys().await;
            valid.until = Instant::now() + READ_INTERVAL.max(started.elapsed() * 10);
            valid.digests = digests?
                .iter()
                .map(|digest| self::beginning(digest))
                .collect();
        }
        Ok(valid.digests.contains(&beginning))
    }
}

/// A part of a digest: digests are no secrets, and few begin alike.
fn beginning(digest: &str) -> u64 {
    let digits = digest.get(..16).unwrap_or(digest);
    u64::from_str_radix(digits, 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use toolhold_storage::{Location, Permits};

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);

    async fn store(folder: &tempfile::TempDir) -> Store {
        let location = Location::File(folder.path().join("toolhold.db"));
        let store = Store::open(&location, Duration::from_secs(30)).await;
        store.unwrap()
    }

    fn digest(key: &str) -> String {
        crate::http::digest(key.as_bytes())
    }

    async fn make(store: &Store, key: &str) {
        let (digest, permits) = (digest(key), Permits::default());
        let made = store.add_key(key, &digest, &permits, None);
        assert!(made.await.unwrap());
    }

    impl AuthThrottle {
        async fn tries(&self, store: &Store, source: IpAddr, key: &str) -> bool {
            let digest = digest(key);
            let may_look = self.admit(store, source, &digest).await.is_ok();
            if may_look && store.key(&digest).await.unwrap().is_none() {
                self.is_unknown(source);
            }
            may_look
        }
    }

    #[tokio::test]
    async fn wrong_keys_lock_no_good_key_out() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder).await;
        // It was never used here, as after a restart.
        make(&store, "good").await;
        let throttle = AuthThrottle::new();
        let mut looked_up = 0;
        for n in 0..2_000 {
            let key = format!("wrong {n}");
            looked_up += u64::from(throttle.tries(&store, ONE, &key).await);
        }
        assert!((30..40).contains(&looked_up), "{looked_up}");
        assert!(throttle.tries(&store, ONE, "good").await);
        assert!(!throttle.tries(&store, ONE, "wrong").await);
        assert!(throttle.tries(&store, OTHER, "wrong").await);
        // One that is made later is known in a moment, and one that was revoked is not looked up for ever.
        make(&store, "new").await;
        assert!(store.revoke_key("good").await.unwrap());
        tokio::time::sleep(READ_INTERVAL * 2).await;
        // What was refilled meanwhile.
        while throttle.tries(&store, ONE, "wrong").await {}
        assert!(throttle.tries(&store, ONE, "new").await);
        assert!(!throttle.tries(&store, ONE, "good").await);
    }

    #[tokio::test]
    async fn wrong_keys_of_many_addresses_are_bounded_together() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder).await;
        make(&store, "good").await;
        let throttle = AuthThrottle::new();
        for n in 0..MAX_FAILURES_OF_ALL * 2 {
            throttle.is_unknown(Ipv6Addr::from_bits(u128::from(n) << 64).into());
        }
        assert!(!throttle.tries(&store, ONE, "wrong").await);
        assert!(throttle.tries(&store, ONE, "good").await);
        assert!(throttle.tries(&store, OTHER, "good").await);
    }
}
