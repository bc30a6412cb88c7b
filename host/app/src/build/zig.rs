//! Zig as a C compiler, for Rust modules that contain C.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::command::Tool;
use super::{BuildError, Job, toolchain};

/// Pinned: the same compiler makes the same component.
const VERSION: &str = "0.17.0";

const PYTHON: Tool = Tool {
    program: if cfg!(windows) { "python" } else { "python3" },
    language: "rust",
    install: "install Python 3.10 or newer with its venv module, which fetches the C compiler",
};

/// What the module's own compiler wrapper needs to run `"$ZIG_PYTHON" -m ziglang cc`.
pub fn environment(job: &Job<'_>) -> Result<Vec<(&'static str, PathBuf)>, BuildError> {
    let venv = toolchain::folder(job, "ziglang", VERSION, |folder| install(job, folder))?;
    let cache = job.toolchains.join("zig-cache");
    Ok(vec![
        ("ZIG_PYTHON", python(&venv)),
        ("ZIG_GLOBAL_CACHE_DIR", cache.clone()),
        ("ZIG_LOCAL_CACHE_DIR", cache),
    ])
}

fn install(job: &Job<'_>, folder: &Path) -> Result<(), BuildError> {
    job.log.run(
        PYTHON.command().args(["-m", "venv"]).arg(folder),
        PYTHON,
        "install Python's venv module (on Debian the package python3-venv)",
    )?;
    job.log.run(
        Command::new(python(folder))
            .env_remove("PYTHONPATH")
            .env_remove("PYTHONHOME")
            .args(["-m", "pip", "install", "--disable-pip-version-check"])
            .args(["--quiet", "--no-deps", "--only-binary", ":all:"])
            .arg(format!("ziglang=={VERSION}")),
        PYTHON,
        "check that pip reaches its package index (network, proxy, PIP_INDEX_URL)",
    )
}

fn python(venv: &Path) -> PathBuf {
    if cfg!(windows) {
        venv.join("Scripts").join("python.exe")
    } else {
        venv.join("bin").join("python")
    }
}
