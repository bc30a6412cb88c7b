//! Keys that nobody knows: each costs a look into the database, and whoever tries them pays with the right to
//! try more. A key that was good before is looked up whatever else comes from its address.

use crate::serve::http::error::ApiError;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Failures of one address in a while; more are answered with 429.
const MOST: u32 = 30;
const WHILE: Duration = Duration::from_mins(1);
/// Addresses that are told apart; all others together count as one. And keys that are remembered.
const ROOM: usize = 8_192;

/// By digests of keys, which are no secrets.
#[derive(Debug)]
pub struct Strangers {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    since: Instant,
    failures: HashMap<IpAddr, u32>,
    good: HashSet<String>,
}

impl Strangers {
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
        if age >= WHILE {
            state.since = now;
            state.failures.clear();
            age = Duration::ZERO;
        }
        let place = state.place(peer);
        let failures = state.failures.get(&place).copied().unwrap_or(0);
        if failures < MOST || state.good.contains(digest) {
            return Ok(());
        }
        let seconds = WHILE.saturating_sub(age).as_secs() + 1;
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
        if state.good.len() >= ROOM {
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
        if self.failures.len() < ROOM || self.failures.contains_key(&peer) {
            return peer;
        }
        Ipv6Addr::UNSPECIFIED.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn tries(strangers: &Strangers, peer: IpAddr) {
        for _ in 0..MOST {
            assert!(strangers.admit(peer, "unknown").is_ok(), "{peer}");
            strangers.is_unknown(peer, "unknown");
        }
        assert!(strangers.admit(peer, "unknown").is_err(), "{peer}");
    }

    #[test]
    fn who_tries_keys_may_try_so_many_in_a_while() {
        let strangers = Strangers::new();
        let (one, other) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::BROADCAST.into());
        strangers.is_known("good");
        tries(&strangers, one);
        assert!(strangers.admit(other, "unknown").is_ok());
        assert!(strangers.admit(one, "good").is_ok());
        // It was revoked.
        strangers.is_unknown(one, "good");
        assert!(strangers.admit(one, "good").is_err());
        let later = Instant::now() + WHILE;
        assert!(strangers.admit_at(later, one, "unknown").is_ok());
    }

    #[test]
    fn many_addresses_are_one() {
        let strangers = Strangers::new();
        let host = |network: u128, host: u128| Ipv6Addr::from_bits(network << 64 | host).into();
        tries(&strangers, host(1, 1));
        assert!(strangers.admit(host(1, 2), "unknown").is_err());
        assert!(strangers.admit(host(2, 1), "unknown").is_ok());
        for network in 2..=ROOM as u128 {
            strangers.is_unknown(host(network, 1), "unknown");
        }
        tries(&strangers, host(1_000_000, 1));
        assert!(strangers.admit(host(2_000_000, 1), "unknown").is_err());
        assert!(strangers.admit(host(2, 1), "unknown").is_ok());
        assert!(strangers.lock().failures.len() <= ROOM + 1);
    }
}
