//! npm packages: the tools of JavaScript and TypeScript builds, and a module's own packages.

use std::fs;
use std::path::{Path, PathBuf};

use super::command::Tool;
use super::{BuildError, Job, toolchain};

/// The file of a module with npm packages.
pub const PACKAGE: &str = "package.json";

/// The folder that npm installs packages into.
pub const INSTALLED: &str = "node_modules";

pub const NODE: Tool = Tool {
    program: "node",
    language: "javascript",
    install: "install Node.js 20 or newer, then build again",
};
const NPM: Tool = Tool {
    program: if cfg!(windows) { "npm.cmd" } else { "npm" },
    ..NODE
};

/// Installs `requirements` into a folder of the toolchain cache that is named by the first of them,
/// once. Each is a name and an exact version.
pub fn tools(job: &Job<'_>, requirements: &[(&str, &str)]) -> Result<PathBuf, BuildError> {
    let Some((name, version)) = requirements.first() else {
        return Ok(job.toolchains.to_owned());
    };
    toolchain::folder(job, name, version, |folder| {
        // Without a package of its own, npm would install into the nearest folder above that is one.
        let package = folder.join(PACKAGE);
        fs::write(&package, "{ \"private\": true }\n")
            .map_err(BuildError::io("write", &package))?;
        job.log.run(
            NPM.command()
                .current_dir(folder)
                // The packages need no install scripts, so none are run.
                .args(["install", "--ignore-scripts", "--no-audit", "--no-fund"])
                .arg("--save-exact")
                .args(
                    requirements
                        .iter()
                        .map(|(name, version)| format!("{name}@{version}")),
                ),
            NPM,
            "check that npm reaches its registry (network, proxy, `npm config get registry`)",
        )
    })
}

/// Installs the packages of the module's own `package.json`, exactly as its lock says if it has one.
pub fn packages(job: &Job<'_>) -> Result<(), BuildError> {
    job.may_run_natively()?;
    let directory = &job.manifest.directory;
    let lock = directory.join("package-lock.json");
    // npm writes this file last. It is as new as the installation.
    let installed = directory.join("node_modules/.package-lock.json");
    let current = modified(&installed);
    if current.is_some() && current >= modified(&lock).max(modified(&directory.join(PACKAGE))) {
        return Ok(());
    }
    job.installing("the module's npm packages");
    job.log.run(
        NPM.command()
            .current_dir(directory)
            .arg(if lock.is_file() { "ci" } else { "install" })
            .args(["--ignore-scripts", "--no-audit", "--no-fund"]),
        NPM,
        "check `package.json`, and that npm reaches its registry (network, proxy, `npm config get \
         registry`)",
    )
}

fn modified(path: &Path) -> Option<std::time::SystemTime> {
    path.metadata().and_then(|file| file.modified()).ok()
}
