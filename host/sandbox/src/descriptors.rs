//! The process's file descriptors that guests may hold.
//!
//! A process that has none left cannot accept a connection, write its journal or read a file. So guests share a half of
//! the limit that the process started with; one module has at most a half of that, and one call an eighth. Keys share
//! it, with a floor for those that hold few.
//! `docs/security.md`, "How they are kept", has all shares.

use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use toolhold_admission::{MemoryCeiling, MemoryReservation, MemoryShare};

/// The share of one call is not smaller than this: an interpreter opens a few files at a time.
const LEAST_OF_A_CALL: usize = 16;

/// A number of descriptors that may be held at a time.
#[derive(Debug)]
pub struct DescriptorShare {
    most: usize,
    held: AtomicUsize,
}

impl DescriptorShare {
    pub fn new(most: usize) -> Self {
        Self {
            most,
            held: AtomicUsize::new(0),
        }
    }

    /// What the calls of one module share.
    pub fn of_module(guests: &GuestDescriptors) -> Arc<Self> {
        Arc::new(Self::new((guests.most / 2).max(LEAST_OF_A_CALL)))
    }

    fn take(&self) -> bool {
        let taken = self
            .held
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                (held < self.most).then_some(held + 1)
            });
        taken.is_ok()
    }

    fn give_back(&self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }

    fn hold(self: &Arc<Self>) -> Option<Held> {
        self.take().then(|| Held(self.clone()))
    }
}

/// What all guests of a process share, and among them the keys that they are called for.
#[derive(Debug)]
pub struct GuestDescriptors {
    most: usize,
    /// Of descriptors, not of bytes: what is kept and cannot be taken back is shared by the same rule.
    held: MemoryCeiling,
}

impl GuestDescriptors {
    fn new(most: usize) -> Self {
        Self {
            most,
            held: MemoryCeiling::new(most as u64),
        }
    }

    /// By the limit that holds now.
    pub fn of_process() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::new(usize::try_from(limit).unwrap_or(usize::MAX) / 2)
    }
}

/// One descriptor of a share, until it is dropped.
#[derive(Debug)]
struct Held(Arc<DescriptorShare>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// A descriptor that a call may have open.
#[derive(Debug)]
pub struct DescriptorPermit {
    _held: (Held, MemoryReservation),
    call: CallDescriptors,
}

impl Drop for DescriptorPermit {
    fn drop(&mut self) {
        self.call.0.call.give_back();
    }
}

/// What one call may have open. Clones share the count.
#[derive(Debug, Clone)]
pub struct CallDescriptors(Arc<CallShares>);

#[derive(Debug)]
struct CallShares {
    guests: MemoryShare,
    module: Arc<DescriptorShare>,
    call: DescriptorShare,
}

impl CallDescriptors {
    /// For a call of `module` that is made for the key `key`.
    pub fn new(guests: &GuestDescriptors, module: Arc<DescriptorShare>, key: Arc<str>) -> Self {
        let call = DescriptorShare::new((guests.most / 8).max(LEAST_OF_A_CALL));
        Self(Arc::new(CallShares {
            guests: guests.held.of(key),
            module,
            call,
        }))
    }

    /// As many as the test says.
    #[cfg(test)]
    pub fn at_most(most: usize) -> Self {
        Self(Arc::new(CallShares {
            guests: MemoryCeiling::new(u64::MAX).of(""),
            module: Arc::new(DescriptorShare::new(most)),
            call: DescriptorShare::new(most),
        }))
    }

    /// One more, or nothing if the call, its module or all guests together have no more.
    pub fn take(&self) -> Option<DescriptorPermit> {
        let CallShares {
            guests,
            module,
            call,
        } = &*self.0;
        if !call.take() {
            return None;
        }
        let Some(held) = module.hold().zip(guests.reserve(1).ok()) else {
            call.give_back();
            return None;
        };
        Some(DescriptorPermit {
            _held: held,
            call: self.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(call: &CallDescriptors) -> Vec<DescriptorPermit> {
        std::iter::from_fn(|| call.take()).collect()
    }

    #[test]
    fn a_call_a_module_and_all_guests_have_shares() {
        let guests = GuestDescriptors::new(400);
        let module = DescriptorShare::of_module(&guests);
        let call = || CallDescriptors::new(&guests, module.clone(), "key".into());
        let first = count(&call());
        assert_eq!(first.len(), 50);
        let of_module: Vec<_> = (0..10).map(|_| count(&call())).collect();
        assert_eq!(of_module.iter().map(Vec::len).sum::<usize>(), 150);
        // Another module still has its own.
        let other = DescriptorShare::of_module(&guests);
        let others = count(&CallDescriptors::new(&guests, other, "key".into()));
        assert_eq!(others.len(), 50);
        drop((first, of_module, others));
        assert_eq!(guests.held.taken(), 0);
        assert_eq!(count(&call()).len(), 50, "what was closed is free again");
    }

    #[test]
    fn a_key_that_holds_all_it_may_by_many_modules_leaves_some_to_others() {
        let guests = GuestDescriptors::new(400);
        let call = |key: &str| {
            let module = DescriptorShare::of_module(&guests);
            CallDescriptors::new(&guests, module, key.into())
        };
        let greedy: Vec<_> = (0..20).map(|_| count(&call("greedy"))).collect();
        assert_eq!(greedy.iter().map(Vec::len).sum::<usize>(), 350);
        assert_eq!(count(&call("other")).len(), 25);
    }
}
