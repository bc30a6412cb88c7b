//! Python: `componentize-py` links the source, its imports and CPython into one component.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use toolhold_policy::Digest;

use super::manifest::read_text;
use super::mention::{has_word, mention};
use super::requirements::requirements;
use super::scratch::Scratch;
use super::venv::{self, PinnedPackage};
use super::web::{self, Extension};
use super::{BuildError, Job, python_dev, toolchain};

/// Pinned: the generated bindings that `app.py` imports are this version's.
pub const COMPONENTIZE: PinnedPackage = PinnedPackage {
    name: "componentize-py",
    version: "0.25.1",
    language: "python",
};

/// What a module in Python is written with; templates copy it.
pub const SUPPORT: &[(&str, &str)] = &[("__init__.py", template!("python/toolhold/__init__.py"))];

/// The Python that is in the components which [`COMPONENTIZE`] makes.
const PYTHON: &str = "3.14";

/// The packages that a module needs, one a line ([`requirements`]).
pub const REQUIREMENTS: &str = "requirements.txt";

pub fn build(job: &Job<'_>) -> Result<(), BuildError> {
    let advice = "a Python module is a file `app.py` with a class `Tools`; \
                  `toolhold new-module NAME --lang python` makes one";
    job.source("app.py", advice)?;
    let venv = COMPONENTIZE.installed(job)?;
    let scratch = Scratch::create(job)?;
    let packages = packages(job, &venv, &scratch)?;
    // A world of its own says itself what it imports.
    let has_own_world = job.manifest.world.is_some();
    let has_http = !has_own_world && mention(&job.manifest.directory, &["py"], &opens_urls);
    let (wit, world, http, app) = if has_http {
        let wit = web::wit(job, &scratch, Extension::Python)?;
        let http = toolchain::shared(job, "python", web::PYTHON)?;
        (wit, web::WORLD, Some(http), "toolhold_main")
    } else {
        (toolchain::wit(job)?, job.world(), None, "app")
    };
    // Without a copy of its own, a module has that of this binary.
    let has_own_support = has_own_world || job.manifest.directory.join("toolhold").is_dir();
    let support = if has_own_support {
        None
    } else {
        toolchain::shared(job, "python-support/toolhold", SUPPORT)?;
        Some(job.toolchains.join("python-support"))
    };
    let folders: Vec<PathBuf> = [
        Some(job.manifest.directory.clone()),
        packages.clone(),
        support.clone(),
        http.clone(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let componentize = |wit: &Path, world: &str, further: Option<&Path>, app: &str, to: &Path| {
        let mut command = Command::new(venv::program(&venv, COMPONENTIZE.name));
        command
            // Packages come from the module's folder alone, not from the user's environment.
            .env("VIRTUAL_ENV", &venv)
            .env_remove("PYTHONPATH")
            .env_remove("PYTHONHOME")
            // It unpacks its library there, and one that is killed does not remove it.
            .env("TMPDIR", scratch.path())
            .current_dir(&job.manifest.directory)
            .arg("--wit-path")
            .arg(wit)
            .args(["--world", world, "componentize"]);
        for folder in folders.iter().map(PathBuf::as_path).chain(further) {
            command.arg("--python-path").arg(folder);
        }
        command.args([app, "--output"]).arg(to);
        job.log.run(
            &mut command,
            COMPONENTIZE.python(),
            "mend what the log says about `app.py`: it is imported once during the build, so an \
             exception at its top level ends it",
        )
    };
    let finish = |component: &Path| {
        if has_http {
            web::finish(component)?;
        }
        Ok(())
    };
    // A world of its own may export anything, and a base has the tools of ours.
    if let Some(runner) = job.dev.filter(|_| !has_own_world) {
        let edited = folders
            .iter()
            .map(|folder| (folder.clone(), Some(folder) != packages.as_ref()));
        let sources = python_dev::DevSources {
            folders: &edited.collect::<Vec<_>>(),
            wit: &wit,
            world,
        };
        let base = |wit: &Path, shim: &Path, to: &Path| {
            let world = python_dev::WORLD;
            componentize(wit, world, Some(shim), python_dev::SHIM_MODULE, to)
        };
        if let Some(made) = python_dev::component(job, runner, &sources, &scratch, &base)? {
            job.is_dev.set(true);
            return job.publish(|component| {
                fs::write(component, &made).map_err(BuildError::io("write", component))?;
                finish(component)
            });
        }
    }
    if job.dev.is_none() {
        python_dev::forget(job)?;
    }
    job.compiling();
    job.publish(|component| {
        componentize(&wit, world, None, app, component)?;
        finish(component)
    })
}

/// The folder of the packages in [`REQUIREMENTS`], which are installed once for each list of requirements: as they come from
/// the index alone, modules with the same list have the same packages.
fn packages(job: &Job<'_>, venv: &Path, scratch: &Scratch) -> Result<Option<PathBuf>, BuildError> {
    let path = job.manifest.directory.join(REQUIREMENTS);
    if !path.is_file() {
        return Ok(None);
    }
    job.may_run_natively()?;
    let text = read_text(&path)?;
    let wanted = requirements(&text).map_err(|refused| BuildError::Requirement {
        path: path.clone(),
        line: refused.number,
        text: refused.text,
        reason: refused.reason,
    })?;
    let of = format!("{PYTHON} {}\n{wanted}", COMPONENTIZE.version);
    let digest = Digest::of(of.as_bytes()).to_string();
    let key: String = digest
        .trim_start_matches("sha256:")
        .chars()
        .take(32)
        .collect();
    let install = |folder: &Path| {
        // In a folder with nothing else in it, so that no name is taken for a file of the module.
        let list = scratch.write(&format!("packages/{REQUIREMENTS}"), &wanted)?;
        job.log.run(
            venv::interpreter(venv)
                .current_dir(scratch.path().join("packages"))
                .args(["-m", "pip", "install", "--disable-pip-version-check"])
                .args(["--quiet", "--no-compile", "--target"])
                .arg(folder)
                // Wheels that run anywhere: what has native code has none for Wasm, and a source package would run its
                // own code to build itself.
                .args(["--only-binary", ":all:", "--platform", "any"])
                .args(["--implementation", "py", "--abi", "none"])
                .args(["--python-version", PYTHON, "--requirement"])
                .arg(list),
            COMPONENTIZE.python(),
            "a component takes packages that are pure Python (a wheel `py3-none-any`): choose such versions in \
             requirements.txt, and check that pip reaches its package index (network, proxy, PIP_INDEX_URL)",
        )
    };
    toolchain::folder(job, "python-packages", &key, install).map(Some)
}

/// Whether a source opens URLs, and does not only take them apart.
fn opens_urls(text: &str) -> bool {
    text.contains("urllib.request")
        || text.contains("from urllib import") && has_word(text, &["request"])
}
