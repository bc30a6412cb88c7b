//! Unknown keys: each costs a look into the database, and an address that tries them loses the right to
//! try more. A key that was good before is looked up whatever else comes from its address.

use crate::http::error::ApiError;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use toolhold_admission::KeyedRate;

/// Failed keys of one address in a minute; further ones are answered with 429.
const MAX_FAILURES: u64 = 30;
/// Addresses that are told apart; all others together count as one. And keys that are remembered.
const MAX_ADDRESSES: usize = 8_192;
/// Time between two looks for addresses that may be forgotten: each look goes through all.
const FORGET_INTERVAL: Duration = Duration::from_secs(10);

/// By digests of keys, which are no secrets.
#[derive(Debug)]
pub struct AuthThrottle {
    failures: KeyedRate<IpAddr>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When addresses were last forgotten.
    forgotten: Instant,
    good: HashSet<String>,
}

impl AuthThrottle {
    pub fn new() -> Self {
        Self {
            failures: KeyedRate::per_minute(MAX_FAILURES),
            state: Mutex::new(State {
                forgotten: Instant::now(),
                good: HashSet::new(),
            }),
        }
    }

    /// # Errors
    /// Too many unknown keys came from this address, and this one was never good.
    pub fn admit(&self, peer: IpAddr, digest: &str) -> Result<(), ApiError> {
        let mut state = self.lock();
        match self.failures.check(&self.place(&mut state, peer)) {
            Err(wait) if !state.good.contains(digest) => Err(ApiError::too_many_in_a_minute(
                "too many unknown keys came from your address",
                wait,
            )),
            _ => Ok(()),
        }
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
        let place = self.place(&mut state, peer);
        // Several keys may have been looked up at once; an empty bucket does not get emptier.
        let _ = self.failures.take(&place);
    }

    /// Under what a peer is counted: a client that has one IPv6 address has a network of them. The lock keeps the
    /// number of addresses within its bound.
    fn place(&self, state: &mut State, peer: IpAddr) -> IpAddr {
        let peer = match peer.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                Ipv6Addr::from_bits(network).into()
            }
            address @ IpAddr::V4(_) => address,
        };
        let is_full = || self.failures.len() >= MAX_ADDRESSES && !self.failures.contains(&peer);
        if is_full() && state.forgotten.elapsed() >= FORGET_INTERVAL {
            state.forgotten = Instant::now();
            self.failures.forget_idle();
        }
        if is_full() {
            return Ipv6Addr::UNSPECIFIED.into();
        }
        peer
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::time::advance;

    fn tries(auth_throttle: &AuthThrottle, peer: IpAddr) {
        for _ in 0..MAX_FAILURES {
            assert!(auth_throttle.admit(peer, "unknown").is_ok(), "{peer}");
            auth_throttle.is_unknown(peer, "unknown");
        }
        assert!(auth_throttle.admit(peer, "unknown").is_err(), "{peer}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_may_try_so_many_keys_in_a_minute() {
        let auth_throttle = AuthThrottle::new();
        let (one, other) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::BROADCAST.into());
        auth_throttle.is_known("good");
        tries(&auth_throttle, one);
        assert!(auth_throttle.admit(other, "unknown").is_ok());
        assert!(auth_throttle.admit(one, "good").is_ok());
        // It was revoked.
        auth_throttle.is_unknown(one, "good");
        assert!(auth_throttle.admit(one, "good").is_err());
        advance(Duration::from_secs(65)).await;
        assert!(auth_throttle.admit(one, "unknown").is_ok());
        tries(&auth_throttle, one);
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_are_one() {
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
        assert!(auth_throttle.failures.len() <= MAX_ADDRESSES + 1);
        // Those that try no more are forgotten (a little after their minute), and new ones are told apart again.
        advance(Duration::from_secs(65)).await;
        tries(&auth_throttle, host(1_000_000, 1));
        assert!(auth_throttle.admit(host(2_000_000, 1), "unknown").is_ok());
        assert_eq!(auth_throttle.failures.len(), 1);
    }
}
