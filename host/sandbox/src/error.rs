//! Why a file or folder is not a module. The operator of the host reads it.

use thiserror::Error;
use toolhold_policy::{CallError, ManifestError};

/// Why a file or folder is not a module. The message names what to do; the file's name is kept by
/// [`crate::FailedModule`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error("it cannot be read: {source}")]
    Read {
        #[source]
        source: std::io::Error,
    },
    #[error("it changed while it was read; it will be read again when it is finished")]
    Changing,
    /// It is to come from elsewhere, and did not.
    #[error("it cannot be fetched: {reason}")]
    Fetch { reason: String },
    /// The component's file is absent. With a language it can be built from the source beside it.
    #[error("the component {file:?} is not there{}", if language.is_some() { "; `toolhold build` and the folder's name make it from its source" } else { "" })]
    Missing {
        file: String,
        language: Option<String>,
    },
    #[error(
        "it has {size} bytes, more than the {limit} that a component may have; raise component_bytes under [limits] or [module.NAME.limits] if it should be that large"
    )]
    TooLarge { size: u64, limit: u64 },
    #[error("it is not a WebAssembly component: {reason}")]
    NotAComponent { reason: String },
    #[error(
        "precompiled code is never loaded from a modules folder, because it would run unchecked; drop the .wasm component here instead"
    )]
    Precompiled,
    #[error("it does not compile: {reason}")]
    Compile { reason: String },
    /// The compiler was stopped at the module's limit `compile_ms`.
    #[error(
        "compiling it was stopped after {limit} ms; raise compile_ms under [limits] or [module.NAME.limits] if it is only large"
    )]
    CompileTime { limit: u64 },
    /// The compiler broke off at the module's limit `compile_memory_bytes`.
    #[error(
        "compiling it needed more than {limit} bytes of memory ({ended}); raise compile_memory_bytes under [limits] or [module.NAME.limits] if it is only large"
    )]
    CompileMemory {
        limit: u64,
        /// How the compiler's process ended.
        ended: String,
    },
    /// The compiler was stopped at the bound of its answer.
    #[error(
        "its compiled code has more than the {limit} bytes that are kept for a component of its size; split functions and data that the compiler makes so large"
    )]
    CompiledSize { limit: u64 },
    #[error("it needs something this host does not offer: {reason}")]
    Link { reason: String },
    #[error("it needs more than its limits allow at start: {reason}")]
    Limits { reason: String },
    #[error("its module.toml is wrong: {reason}")]
    Manifest { reason: String },
    /// The name of a component without a module.toml, or of its file.
    #[error("its name is wrong: {reason}")]
    Name { reason: String },
    #[error("it could not say what tools it has: {source}")]
    ListTools {
        #[source]
        source: CallError,
    },
    #[error("its tool {tool:?} is refused: {reason}")]
    Tool { tool: String, reason: String },
    #[error("it exports no function that can be a tool{detail}")]
    NoTools { detail: String },
    #[error("the name {name:?} is already taken by {holder}; rename one of them")]
    Duplicate { name: String, holder: String },
    #[error("the grant for it cannot be given: {reason}")]
    Grant { reason: String },
}

impl From<ManifestError> for LoadError {
    fn from(error: ManifestError) -> Self {
        Self::Manifest {
            reason: error.reason,
        }
    }
}

impl From<std::io::Error> for LoadError {
    fn from(source: std::io::Error) -> Self {
        Self::Read { source }
    }
}
