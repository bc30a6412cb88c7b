//! Python: `componentize-py` links the source, its imports and CPython into one component.

use std::process::Command;

use super::venv::{self, PinnedPackage};
use super::{BuildError, Job, toolchain};

/// Pinned: the generated bindings that `app.py` imports are this version's.
pub const COMPONENTIZE: PinnedPackage = PinnedPackage {
    name: "componentize-py",
    version: "0.25.1",
    language: "python",
};

pub fn build(job: &Job<'_>) -> Result<(), BuildError> {
    let advice = "a Python module is a file `app.py` with a class `Tools`; \
                  `toolhold new-module NAME --lang python` makes one";
    job.source("app.py", advice)?;
    let venv = COMPONENTIZE.installed(job)?;
    let wit = toolchain::wit(job)?;
    job.compiling();
    job.publish(|component| {
        let mut command = Command::new(venv::program(&venv, COMPONENTIZE.name));
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
            COMPONENTIZE.python(),
            "mend what the log says about `app.py`: it is imported once during the build, so an \
             exception at its top level ends it",
        )
    })
}
