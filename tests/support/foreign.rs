//! Programs that others wrote, in Python and Node, from their registries: installed once, pinned, and
//! absent where there is no way to the registries.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use toolhold_needs::{Need, leave_out};

/// Where pinned tools are kept between runs.
fn tools() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/toolhold-tools"))
}

/// Makes `folder` with `make`, unless it is there already. An installation that was broken off is made again.
fn installed(folder: &str, make: impl Fn(&Path) -> std::io::Result<bool>) -> Option<PathBuf> {
    let tools = tools()?;
    std::fs::create_dir_all(&tools).ok()?;
    // Tests run in several processes. The system releases the lock however this one ends.
    let lock = File::create(tools.join(format!("{folder}.lock"))).ok()?;
    lock.lock().ok()?;
    let folder = tools.join(folder);
    if folder.join("done").exists() && !was_moved(&folder) {
        return Some(folder);
    }
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).ok()?;
    make(&folder).ok().filter(|made| *made)?;
    std::fs::write(folder.join("done"), "").ok()?;
    Some(folder)
}

/// True if the scripts of a Python environment name an interpreter in another folder: they do not start then.
fn was_moved(folder: &Path) -> bool {
    let script = std::fs::read_to_string(folder.join("bin/pip")).unwrap_or_default();
    !script.is_empty() && !script.contains(&*folder.to_string_lossy())
}

/// The `bin` folder of an environment with these packages, such as `openai==2.1.0`.
pub fn python(folder: &str, packages: &[&str]) -> Option<PathBuf> {
    let folder = installed(folder, |folder| {
        let venv = Command::new("python3")
            .args(["-m", "venv"])
            .arg(folder)
            .output()?;
        let pip = Command::new(folder.join("bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args(packages)
            .output()?;
        Ok(venv.status.success() && pip.status.success())
    });
    missing(folder.map(|folder| folder.join("bin")), packages)
}

/// A folder with these packages, such as `openai@6.0.0`, and a Node that runs.
pub fn node(folder: &str, packages: &[&str]) -> Option<PathBuf> {
    let folder = installed(folder, |folder| {
        std::fs::write(folder.join("package.json"), "{\"private\": true}")?;
        let npm = Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--ignore-scripts"])
            .args(packages)
            .current_dir(folder)
            .output()?;
        let node = Command::new("node").arg("--version").output()?;
        Ok(npm.status.success() && node.status.success())
    });
    missing(folder, packages)
}

fn missing(found: Option<PathBuf>, packages: &[&str]) -> Option<PathBuf> {
    if found.is_none() {
        let what = packages.join(", ");
        leave_out(
            Need::Registry,
            format_args!("{what} could not be installed (is there a way to its registry?)"),
        );
    }
    found
}
