//! Python: `componentize-py` links the source, its imports and CPython into one component.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::command::Tool;
use super::venv::ALONE;
use super::{BuildError, Job, toolchain};

/// Pinned: the generated bindings that `app.py` imports are this version's.
const VERSION: &str = "0.25.1";

const PYTHON: Tool = Tool {
    program: if cfg!(windows) { "python" } else { "python3" },
    language: "python",
    install: "install Python 3.10 or newer with its venv module, then build again",
};

pub fn build(job: &Job<'_>) -> Result<(), BuildError> {
    let source = job.manifest.directory.join("app.py");
    if !source.is_file() {
        let advice = "a Python module is a file `app.py` with a class `Tools`; \
                      `toolhold new-module NAME --lang python` makes one";
        return Err(BuildError::NoSource {
            path: source,
            advice,
        });
    }
    let venv = toolchain::folder(job, "componentize-py", VERSION, |folder| {
        install(job, folder)
    })?;
    let wit = toolchain::wit(job)?;
    job.compiling();
    job.publish(|component| {
        let mut command = Command::new(script(&venv, "componentize-py"));
        command
            // Packages come from the module's folder alone, not from the user's environment.
            .env("VIRTUAL_ENV", &venv)
            .env_remove("PYTHONPATH")
            .env_remove("PYTHONHOME")
            .current_dir(&job.manifest.directory)
            .arg("--wit-path")
            .arg(&wit)
            .args(["--world", job.world(), "componentize", "--python-path"])
            .arg(&job.manifest.directory)
            .arg("app")
            .arg("--output")
            .arg(component);
        job.log.run(
            &mut command,
            PYTHON,
            "mend what the log says about `app.py`: it is imported once during the build, so an \
             exception at its top level ends it",
        )
    })
}

fn install(job: &Job<'_>, folder: &Path) -> Result<(), BuildError> {
    job.log.run(
        PYTHON.command().args([ALONE, "-m", "venv"]).arg(folder),
        PYTHON,
        "install Python's venv module (on Debian the package python3-venv)",
    )?;
    let requirement = format!("componentize-py=={VERSION}");
    job.log.run(
        Command::new(script(folder, "python"))
            .args([
                ALONE,
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--quiet",
            ])
            .arg(requirement),
        PYTHON,
        "check that pip reaches its package index (network, proxy, PIP_INDEX_URL)",
    )
}

/// A program of a virtual environment.
fn script(venv: &Path, name: &str) -> PathBuf {
    if cfg!(windows) {
        venv.join("Scripts").join(name).with_extension("exe")
    } else {
        venv.join("bin").join(name)
    }
}
