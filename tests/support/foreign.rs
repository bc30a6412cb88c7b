//! Programs that others wrote, in Python and Node, from their registries: installed once, pinned, and
//! absent where there is no way to the registries.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use toolhold_needs::{Need, leave_out};

/// Where pinned tools are kept between runs.
fn tools() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/toolhold-tools"))
}

/// Makes `folder` with `make`, unless it is there already with these pins. An installation that was broken off is made again.
fn installed(
    folder: &str,
    pins: &str,
    make: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let tools = tools().ok_or_else(|| io::Error::other("there is no home folder"))?;
    fs::create_dir_all(&tools)?;
    // Tests run in several processes. The system releases the lock however this one ends.
    let lock = File::create(tools.join(format!("{folder}.lock")))?;
    lock.lock()?;
    let folder = tools.join(folder);
    let done = folder.join("done");
    if fs::read_to_string(&done).is_ok_and(|made| made == pins) && !was_moved(&folder) {
        return Ok(folder);
    }
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    make(&folder)?;
    fs::write(done, pins)?;
    Ok(folder)
}

/// True if the scripts of a Python environment name an interpreter in another folder: they do not start then.
fn was_moved(folder: &Path) -> bool {
    let script = fs::read_to_string(folder.join("bin/pip")).unwrap_or_default();
    !script.is_empty() && !script.contains(&*folder.to_string_lossy())
}

/// Runs a command that has to succeed; an error has the last of what it printed.
fn succeed(command: &mut Command) -> io::Result<()> {
    let done = command.output()?;
    if done.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&done.stderr);
    let last = words.lines().rev().find(|line| !line.trim().is_empty());
    Err(io::Error::other(last.unwrap_or_default().trim().to_owned()))
}

/// An environment of Python's with what these arguments of `pip install` name.
fn make_python(folder: &Path, wanted: &[&str]) -> io::Result<()> {
    let mut venv = Command::new("python3");
    succeed(venv.args(["-m", "venv"]).arg(folder))?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet"])
        .arg("--disable-pip-version-check")
        .args(wanted);
    succeed(&mut pip)
}

/// A folder of Node's with what this command of npm's, with its arguments, installs.
fn make_node(folder: &Path, wanted: &[&str]) -> io::Result<()> {
    let mut npm = Command::new("npm");
    npm.args(wanted)
        .args(["--no-audit", "--no-fund", "--ignore-scripts"])
        .current_dir(folder);
    succeed(&mut npm)?;
    succeed(Command::new("node").arg("--version"))
}

/// The `bin` folder of an environment with these packages, such as `openai==2.1.0`.
pub fn python(folder: &str, packages: &[&str]) -> Option<PathBuf> {
    let folder = installed(folder, "", |folder| make_python(folder, packages));
    missing(
        folder.map(|folder| folder.join("bin")),
        &packages.join(", "),
    )
}

/// The `bin` folder of an environment with exactly the wheels of a lock, which is a file of requirements with hashes.
///
/// # Panics
/// The lock cannot be read.
pub fn locked_python(lock: &Path) -> Option<PathBuf> {
    let name = name_of(lock);
    let file = lock.to_string_lossy();
    let pins = fs::read_to_string(lock).expect("the lock is there");
    let wanted = [
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--requirement",
        &*file,
    ];
    let folder = installed(&name, &pins, |folder| make_python(folder, &wanted));
    missing(folder.map(|folder| folder.join("bin")), &name)
}

/// A folder with these packages, such as `openai@6.0.0`, and a Node that runs.
pub fn node(folder: &str, packages: &[&str]) -> Option<PathBuf> {
    let folder = installed(folder, "", |folder| {
        fs::write(folder.join("package.json"), "{\"private\": true}")?;
        make_node(folder, &[&["install"][..], packages].concat())
    });
    missing(folder, &packages.join(", "))
}

/// A folder with exactly the packages of a lock, which is a folder with `package.json` and `package-lock.json`, and a Node
/// that runs.
///
/// # Panics
/// The lock cannot be read.
pub fn locked_node(lock: &Path) -> Option<PathBuf> {
    let name = name_of(lock);
    let files = ["package.json", "package-lock.json"];
    let texts = files.map(|file| fs::read_to_string(lock.join(file)).expect("the lock is there"));
    let folder = installed(&name, &texts.concat(), |folder| {
        for (file, text) in files.iter().zip(&texts) {
            fs::write(folder.join(file), text)?;
        }
        make_node(folder, &["ci"])
    });
    missing(folder, &name)
}

/// The name of a lock's installation.
fn name_of(lock: &Path) -> String {
    let stem = lock.file_stem().unwrap_or_default();
    format!("client-{}", stem.to_string_lossy())
}

fn missing(found: io::Result<PathBuf>, what: &str) -> Option<PathBuf> {
    match found {
        Ok(found) => Some(found),
        Err(error) => {
            leave_out(
                Need::Registry,
                format_args!(
                    "{what} could not be installed (is there a way to its registry?): {error}"
                ),
            );
            None
        }
    }
}
