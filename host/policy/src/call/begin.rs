//! Whether a call that waits for its turn may still begin.

use std::fmt::Debug;

/// What a call is part of: a run, the right of a key. A call asks it each time that it got what it waited for, and
/// last before its guest begins.
///
/// What ends says so here first, and drops its calls after that. So a place that one of them frees begins none of the
/// others.
pub trait BeginCheck: Send + Sync + Debug {
    /// Whether the call may begin. Once `false`, always `false`.
    fn may_begin(&self) -> bool;
}
