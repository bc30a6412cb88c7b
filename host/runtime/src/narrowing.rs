//! The restrictions of the calls of one run: an agent's, which may change while it runs, and a key's.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use toolhold_policy::{GrantRestrictions, Permit, Restriction};

/// Restrictions that may be replaced while calls run: the next call uses the new ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveBounds(Arc<RwLock<Arc<GrantRestrictions>>>);

impl LiveBounds {
    pub fn set(&self, bounds: GrantRestrictions) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(bounds);
    }

    pub fn now(&self) -> Arc<GrantRestrictions> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The restrictions of a call: an agent's, which may change, and a key's, which do not.
#[derive(Debug, Default)]
pub(crate) struct Narrowing {
    live: LiveBounds,
    permits: Option<Vec<Permit>>,
    /// The agent's restrictions at the last call, and both together: to combine them serialises them.
    combined: Mutex<Option<CombinedRestrictions>>,
}

#[derive(Debug)]
struct CombinedRestrictions {
    own: Arc<GrantRestrictions>,
    both: Arc<GrantRestrictions>,
}

impl Narrowing {
    pub fn new(live: LiveBounds, permits: Option<Vec<Permit>>) -> Self {
        Self {
            live,
            permits,
            combined: Mutex::default(),
        }
    }

    /// The restrictions of a call that begins now. Absent: none.
    pub fn now(&self) -> Option<Arc<GrantRestrictions>> {
        let own = self.live.now();
        match &self.permits {
            None if own.is_empty() => None,
            None => Some(own),
            Some(permits) => Some(self.combined(own, permits)),
        }
    }

    fn combined(&self, own: Arc<GrantRestrictions>, permits: &[Permit]) -> Arc<GrantRestrictions> {
        let mut combined = self.combined.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*combined
            && Arc::ptr_eq(&known.own, &own)
        {
            return known.both.clone();
        }
        let permits = Restriction::Permits(permits.to_vec());
        let both = Arc::new(GrantRestrictions::clone(&own).with("this key", permits));
        *combined = Some(CombinedRestrictions {
            own,
            both: both.clone(),
        });
        both
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_keys_permits_are_combined_once_for_each_change_of_the_agent() {
        let live = LiveBounds::default();
        let permits: Permit = "http".parse().unwrap();
        let narrowing = Narrowing::new(live.clone(), Some(vec![permits]));
        let first = narrowing.now().unwrap();
        assert!(Arc::ptr_eq(&first, &narrowing.now().unwrap()));
        let shares = Restriction::Shares(BTreeMap::new());
        live.set(GrantRestrictions::default().with("this agent", shares));
        let second = narrowing.now().unwrap();
        assert_ne!(first.key(), second.key());
        assert!(Arc::ptr_eq(&second, &narrowing.now().unwrap()));
        assert!(Narrowing::default().now().is_none());
    }
}
