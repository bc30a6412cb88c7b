//! The question of a call that waited for its turn: may it still begin?

use futures_util::future::BoxFuture;
use std::fmt::Debug;
use std::future::ready;

/// A run, the right of a key, or a client's request, to which a call belongs. The call asks it when it has a place, and last
/// before its guest begins.
///
/// What ends says so here first, and drops its calls after that. So a place that one of them frees begins none of the
/// others.
pub trait BeginCheck: Send + Sync + Debug {
    /// Whether the call may begin. Once `false`, always `false`.
    fn may_begin(&self) -> bool;

    /// Looks anew why nothing begins any more. Returns the reason in words for the readers of a run, if there is one.
    fn why_not(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(ready(None))
    }
}
