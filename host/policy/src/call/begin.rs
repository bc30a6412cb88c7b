//! The question of a call that waited for its turn: may it still begin?

use std::fmt::Debug;

/// A run, the right of a key, or a client's request, to which a call belongs. The call asks it when it has a place, and last
/// before its guest begins.
///
/// What ends says so here first, and drops its calls after that. So a place that one of them frees begins none of the
/// others.
pub trait BeginCheck: Send + Sync + Debug {
    /// Whether the call may begin. Once `false`, always `false`.
    fn may_begin(&self) -> bool;
}
