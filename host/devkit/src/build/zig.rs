//! Zig as a C compiler, for Rust modules that contain C.

use std::path::PathBuf;

use super::venv::{self, PinnedPackage};
use super::{BuildError, Job, c};

/// What the module's own compiler wrapper needs to run `"$ZIG_PYTHON" -m ziglang cc`.
pub fn environment(job: &Job<'_>) -> Result<Vec<(&'static str, PathBuf)>, BuildError> {
    let zig = PinnedPackage {
        language: "rust",
        ..c::ZIG
    };
    let venv = zig.installed(job)?;
    let cache = job.toolchains.join("zig-cache");
    Ok(vec![
        ("ZIG_PYTHON", venv::program(&venv, "python")),
        ("ZIG_GLOBAL_CACHE_DIR", cache.clone()),
        ("ZIG_LOCAL_CACHE_DIR", cache),
    ])
}
