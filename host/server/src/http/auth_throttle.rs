//! Unknown keys: each costs a look into the database, and an address that tries them loses the right to
//! try more. A key that was good before is looked up whatever else comes from its address.

use crate::http::error::ApiError;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Failed keys of one address in [`WINDOW`]; further ones are answered with 429.
const MAX_FAILURES: u32 = 30;
/// How long failures of an address are counted.
const WINDOW: Duration = Duration::from_mins(1);
/// Addresses that are told apart; all others together count as one. And keys that are remembered.
const MAX_ADDRESSES: usize = 8_192;

/// By digests of keys, which are no secrets.
#[derive(Debug)]
pub struct AuthThrottle {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    since: Instant,
    failures: HashMap<IpAddr, u32>,
    good: HashSet<String>,
}

impl AuthThrottle {
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State {
                since: Instant::now(),
                failures: HashMap::new(),
                good: HashSet::new(),
            }),
        }
    }

    /// # Errors
    /// Too many unknown keys came from this address, and this one was never good.
    pub fn admit(&self, peer: IpAddr, digest: &str) -> Result<(), ApiError> {
        self.admit_at(Instant::now(), peer, digest)
    }

    fn admit_at(&self, now: Instant, peer: IpAddr, digest: &str) -> Result<(), ApiError> {
        let mut state = self.lock();
        let mut age = now.saturating_duration_since(state.since);
        if age >= WINDOW {
            state.since = now;
            state.failures.clear();
            age = Duration::ZERO;
        }
        let place = state.place(peer);
        let failures = state.failures.get(&place).copied().unwrap_or(0);
        if failures < MAX_FAILURES || state.good.contains(digest) {
            return Ok(());
        }
        let seconds = WINDOW.saturating_sub(age).as_secs() + 1;
        let seconds = u32::try_from(seconds).unwrap_or(60);
        Err(ApiError::too_many(
            format!("too many unknown keys came from your address; try again in {seconds} s"),
            seconds,
        ))
    }

    pub fn is_known(&self, digest: &str) {
        let mut state = self.lock();
        if state.good.contains(digest) {
            return;
        }
        if state.good.len() >= MAX_ADDRESSES {
            state.good.clear();
        }
        state.good.insert(digest.to_owned());
    }

    pub fn is_unknown(&self, peer: IpAddr, digest: &str) {
        let mut state = self.lock();
        state.good.remove(digest);
        let place = state.place(peer);
        *state.failures.entry(place).or_default() += 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Under what a peer is counted: whoever has one IPv6 address has a network of them.
    fn place(&self, peer: IpAddr) -> IpAddr {
        let peer = match peer.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                Ipv6Addr::from_bits(network).into()
            }
            address @ IpAddr::V4(_) => address,
        };
        if self.failures.len() < MAX_ADDRESSES || self.failures.contains_key(&peer) {
            return peer;
        }
        Ipv6Addr::UNSPECIFIED.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn tries(auth_throttle: &AuthThrottle, peer: IpAddr) {
        for _ in 0..MAX_FAILURES {
            assert!(auth_throttle.admit(peer, "unknown").is_ok(), "{peer}");
            auth_throttle.is_unknown(peer, "unknown");
        }
        assert!(auth_throttle.admit(peer, "unknown").is_err(), "{peer}");
    }

    #[test]
    fn who_tries_keys_may_try_so_many_in_a_while() {
        let auth_throttle = AuthThrottle::new();
        let (one, other) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::BROADCAST.into());
        auth_throttle.is_known("good");
        tries(&auth_throttle, one);
        assert!(auth_throttle.admit(other, "unknown").is_ok());
        assert!(auth_throttle.admit(one, "good").is_ok());
        // It was revoked.
        auth_throttle.is_unknown(one, "good");
        assert!(auth_throttle.admit(one, "good").is_err());
        let later = Instant::now() + WINDOW;
        assert!(auth_throttle.admit_at(later, one, "unknown").is_ok());
    }

    #[test]
    fn many_addresses_are_one() {
        let auth_throttle = AuthThrottle::new();
        let host = |network: u128, host: u128| Ipv6Addr::from_bits(network << 64 | host).into();
        tries(&auth_throttle, host(1, 1));
        assert!(auth_throttle.admit(host(1, 2), "unknown").is_err());
        assert!(auth_throttle.admit(host(2, 1), "unknown").is_ok());
        for network in 2..=MAX_ADDRESSES as u128 {
            auth_throttle.is_unknown(host(network, 1), "unknown");
        }
        tries(&auth_throttle, host(1_000_000, 1));
        assert!(auth_throttle.admit(host(2_000_000, 1), "unknown").is_err());
        assert!(auth_throttle.admit(host(2, 1), "unknown").is_ok());
        assert!(auth_throttle.lock().failures.len() <= MAX_ADDRESSES + 1);
    }
}
