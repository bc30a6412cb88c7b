//! The settings of the engine, and what differs between sibling engines.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use toolhold_policy::limits::Limits;

/// What the process as a whole allows.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Calls that may run at the same time. More wait, with their deadline running. Each one
    /// reserves address space, not memory.
    pub concurrent_calls: u32,
    /// Calls that may wait for a permit. More are refused at once.
    pub waiting_calls: u32,
    /// Calls of all modules in a minute. 0: not limited.
    pub calls_per_minute: u32,
    /// Bytes of memory that the host may keep for all running calls together. A call that needs more is refused.
    pub kept_bytes: u64,
    /// The largest linear memory any module may be given, in bytes.
    pub max_memory_bytes: usize,
    /// Where components are compiled.
    pub compiler: Compiler,
    /// The folder of toolchains, in which builds keep debug information ([`crate::debug_file`]), for a crash to name lines of
    /// the source. For authors: each crash starts a process that reads it. Absent, or without [`Compiler::Process`]: a
    /// crash names functions.
    pub debug_info: Option<PathBuf>,
}

/// What differs between sibling engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Variant {
    /// Bytes of Wasm stack: one of [`STACK_SIZES`].
    pub stack_bytes: usize,
    /// Whether instructions are counted.
    pub metered: bool,
}

impl Variant {
    /// The variant that serves a module with these limits.
    pub fn of(limits: &Limits) -> Self {
        let [sizes @ .., largest] = STACK_SIZES;
        let fits = |bytes: &usize| *bytes as u64 >= limits.stack_bytes;
        Self {
            stack_bytes: sizes.into_iter().find(fits).unwrap_or(largest),
            metered: limits.metered(),
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            concurrent_calls: 64,
            // Each costs a few hundred bytes; a call behind so many will not meet its deadline.
            waiting_calls: 4_096,
            calls_per_minute: 0,
            kept_bytes: 1 << 30,
            max_memory_bytes: 512 << 20,
            compiler: Compiler::InProcess,
            debug_info: None,
        }
    }
}

/// Where components are compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compiler {
    /// On a blocking thread of this process: nothing can stop it, so its input should be trusted or
    /// small.
    InProcess,
    /// In a process of its own.
    Process(CompilerProcess),
}

/// How to start the process. What it may use are limits of the module that it compiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerProcess {
    /// A program whose `main` calls [`crate::compiler_process`].
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// True if an author waits for it. Then it may use all cores, of which half are otherwise left to running calls, and
    /// of a module that is built where it lies the cache keeps the components of the last two edits only.
    pub serves_author: bool,
}

/// Sizes of a call's stack in bytes. A wish is rounded up to the next one: each size has an engine of its own, with
/// addresses for the instances of all calls. Modules may ask for the first three, and an operator may set the last.
const STACK_SIZES: [usize; 4] = [256 << 10, 512 << 10, 4 << 20, 8 << 20];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn wishes_for_stacks_share_a_few_engines() {
        let of = |stack_bytes| {
            let limits = Limits {
                stack_bytes,
                ..Limits::default()
            };
            Variant::of(&limits)
        };
        let bytes = |wish| of(wish).stack_bytes as u64;
        assert_eq!(bytes(256 << 10), 256 << 10);
        assert_eq!(bytes((256 << 10) + 1), 512 << 10);
        assert_eq!(bytes(3 << 20), 4 << 20);
        assert_eq!((bytes(0), bytes(u64::MAX)), (256 << 10, 8 << 20));
        // Whatever modules ask for, within what they may.
        let wishes = (0..=4 << 20).step_by(10_000);
        let engines: HashSet<_> = wishes.map(of).collect();
        assert_eq!(engines.len(), 3);
        let default = Limits::default();
        assert_eq!(bytes(default.stack_bytes), default.stack_bytes);
    }
}
