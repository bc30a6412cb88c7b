//! Python: `componentize-py` links the source, its imports and CPython into one component.

use std::process::Command;

use super::mention::{has_word, mention};
use super::scratch::Scratch;
use super::venv::{self, PinnedPackage};
use super::web::{self, Extension};
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
    let scratch = Scratch::create(job)?;
    // A world of its own says itself what it imports.
    let has_http =
        job.manifest.world.is_none() && mention(&job.manifest.directory, &["py"], &opens_urls);
    let (wit, world, support, app) = if has_http {
        let wit = web::wit(job, &scratch, Extension::Python)?;
        let support = toolchain::shared(job, "python", web::PYTHON)?;
        (wit, web::WORLD, Some(support), "toolhold_main")
    } else {
        (toolchain::wit(job)?, job.world(), None, "app")
    };
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
            .args(["--world", world, "componentize", "--python-path"])
            .arg(&job.manifest.directory);
        if let Some(support) = &support {
            command.arg("--python-path").arg(support);
        }
        command.args([app, "--output"]).arg(component);
        job.log.run(
            &mut command,
            COMPONENTIZE.python(),
            "mend what the log says about `app.py`: it is imported once during the build, so an \
             exception at its top level ends it",
        )?;
        if has_http {
            web::finish(component)?;
        }
        Ok(())
    })
}

/// Whether a source opens URLs, and does not only take them apart.
fn opens_urls(text: &str) -> bool {
    text.contains("urllib.request")
        || text.contains("from urllib import") && has_word(text, &["request"])
}
