//! Builds a module's component from its source: `toolhold build DIR`.
//!
//! The language's own tools do the work. This module finds or installs them, logs their output, and puts the
//! component in its place atomically, so that a watcher of the folder never sees a partial file. `rust`, `c`,
//! `go`, `python`, `javascript` and `typescript` each know one language; `wasi` makes a component from the
//! output of compilers that stop at a core module, `bundle` makes one file of a script with packages; `web` is HTTP
//! in them; `command` runs processes, and `control` ends them; `debug_info` keeps what a crash tells an author;
//! `docs` keeps the author's doc comments; `error` names the next step.
//!
//! Everything blocks: call [`build`] on a thread that may wait.

mod bundle;
mod c;
mod command;
mod control;
mod core_module;
mod debug_info;
mod docs;
mod error;
mod go;
mod inputs;
mod javascript;
mod manifest;
mod mention;
mod npm;
mod python;
mod python_dev;
mod requirements;
mod rust;
mod scratch;
mod sources;
mod stamp;
mod supervisor;
mod toolchain;
mod typescript;
mod venv;
mod wasi;
mod web;
mod zig;

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use c::SUPPORT as C_SUPPORT;
use command::Log;
pub use control::{BuildControl, CancelOnDrop, DEFAULT_BUILD_TIMEOUT, Stopped};
pub use error::{BuildError, Failure};
pub use go::SUPPORT as GO_SUPPORT;
pub use inputs::inputs;
pub use javascript::SUPPORT as JAVASCRIPT_SUPPORT;
use manifest::BuildManifest;
pub use python::SUPPORT as PYTHON_SUPPORT;
pub use stamp::SourceStamp;
pub use supervisor::{Supervisor, supervise};
pub use toolchain::{OutdatedTools, remove_outdated};
use toolhold_files::temporary_name;
use toolhold_sandbox::base::BaseRunner;
pub use typescript::DECLARATIONS;
pub use web::DECLARATIONS as WEB_DECLARATIONS;

/// The contract that a module implements, as text: builds and templates write it where a toolchain
/// looks for it.
pub const WIT: &str = include_str!("../../../../wit/toolhold.wit");

/// The world of [`WIT`] that a module implements, unless it brings its own.
const WORLD: &str = "tool-module";

/// A language that `[build]` in `module.toml` can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Rust,
    C,
    Go,
    Python,
    JavaScript,
    TypeScript,
}

/// The current step of a build, for a progress line. Each takes seconds to minutes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildStep {
    /// A toolchain is fetched; happens once per machine and version.
    Install { tool: String },
    /// The source is compiled.
    Compile { module: String, language: Language },
    /// What dev builds of the module are made from; happens once for what it imports.
    Base { module: String },
}

/// A finished build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedBuild {
    /// The module's name.
    pub module: String,
    /// The component, in place.
    pub component: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Output of the tools.
    pub log: PathBuf,
    /// It was made from a base, which only dev builds are.
    pub is_dev: bool,
}

/// Builds the component of the module in `module_dir`, as `[build]` of its `module.toml` says.
///
/// `toolchains` is a cache directory: compilers are installed there once, logs are kept there, and
/// it may be deleted at any time between builds. `control` ends the build early. `progress` hears of each step as it
/// begins. With `dev`, the build may be a dev build, for an author's next call: what it makes behaves as what a whole build
/// makes, and is not the same bytes.
pub fn build(
    module_dir: &Path,
    toolchains: &Path,
    control: &BuildControl,
    dev: Option<&BaseRunner>,
    progress: &dyn Fn(BuildStep),
) -> Result<FinishedBuild, BuildError> {
    let manifest = BuildManifest::read(module_dir)?;
    // The tools run in other working directories than ours.
    let toolchains = &toolchain::prepare(toolchains)?;
    let job = Job {
        log: Log::create(
            toolchains,
            &manifest.name,
            &manifest.directory,
            control.clone(),
        )?,
        manifest,
        control,
        toolchains,
        progress,
        dev,
        is_dev: Cell::new(false),
    };
    if !job
        .manifest
        .language
        .builds_in_sandbox(&job.manifest.directory)
    {
        job.may_run_natively()?;
    }
    match job.manifest.language {
        Language::Rust => rust::build(&job)?,
        Language::C => c::build(&job)?,
        Language::Go => go::build(&job)?,
        Language::Python => python::build(&job)?,
        Language::JavaScript => javascript::build(&job)?,
        Language::TypeScript => typescript::build(&job)?,
    }
    let component = job.manifest.component;
    let metadata = fs::metadata(&component).map_err(BuildError::io("read", &component))?;
    Ok(FinishedBuild {
        module: job.manifest.name,
        bytes: metadata.len(),
        component,
        log: job.log.path,
        is_dev: job.is_dev.get(),
    })
}

/// One build under way, as the languages see it.
struct Job<'a> {
    manifest: BuildManifest,
    control: &'a BuildControl,
    /// Absolute.
    toolchains: &'a Path,
    log: Log,
    progress: &'a dyn Fn(BuildStep),
    dev: Option<&'a BaseRunner>,
    /// Whether it became a dev build.
    is_dev: Cell<bool>,
}

impl Job<'_> {
    /// Refuses to start a native program that takes orders from the author's folder, if no person has read the folder. A
    /// build asks right before each such program, because the folder may have changed.
    ///
    /// # Errors
    /// A module may write the folder, and no person has read what it holds now.
    fn may_run_natively(&self) -> Result<(), BuildError> {
        match self.control.unread() {
            Some(writer) => Err(BuildError::Unread {
                writer: writer.to_owned(),
                language: self.manifest.language,
                path: self.manifest.directory.clone(),
            }),
            None => Ok(()),
        }
    }

    fn installing(&self, tool: &str) {
        let tool = tool.to_owned();
        (self.progress)(BuildStep::Install { tool });
    }

    fn world(&self) -> &str {
        self.manifest.world.as_deref().unwrap_or(WORLD)
    }

    /// Folder of intermediate files: within the cache, because the module's folder may be watched.
    fn core_module(&self) -> Result<PathBuf, BuildError> {
        let folder = self.toolchains.join("logs");
        let name = temporary_name(&format!("{}.", self.manifest.name), ".core.wasm");
        Ok(folder.join(name.map_err(BuildError::io("name", &folder))?))
    }

    /// A file of the module's folder, without which there is nothing to build.
    fn source(&self, name: &str, advice: &'static str) -> Result<PathBuf, BuildError> {
        let path = self.manifest.directory.join(name);
        if path.is_file() {
            return Ok(path);
        }
        Err(BuildError::NoSource { path, advice })
    }

    /// The paths in a folder with this end, sorted.
    fn listed(folder: &Path, end: &str) -> Result<Vec<PathBuf>, BuildError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).map_err(BuildError::io("list", folder))? {
            let path = entry.map_err(BuildError::io("list", folder))?.path();
            if path.to_string_lossy().ends_with(end) {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }

    fn compiling(&self) {
        let (module, language) = (self.manifest.name.clone(), self.manifest.language);
        (self.progress)(BuildStep::Compile { module, language });
    }

    /// Lets `make` write the component beside its place, then renames it.
    fn publish(
        &self,
        make: impl FnOnce(&Path) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        let target = &self.manifest.component;
        let name = temporary_name("wasm.", ".part").map_err(BuildError::io("name", target))?;
        let unfinished = target.with_extension(name);
        let result = make(&unfinished).and_then(|()| {
            for note in docs::append(&self.manifest.directory, &unfinished)? {
                self.log.note(&note)?;
            }
            fs::rename(&unfinished, target).map_err(BuildError::io("write", target))
        });
        if result.is_err() {
            // The build's own error is more useful than this one's.
            let _ = fs::remove_file(&unfinished);
        }
        result
    }
}

impl Language {
    /// As `module.toml` and the command line write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::C => "c",
            Self::Go => "go",
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
        }
    }

    /// Whether building the module in this folder runs none of the author's code outside of a sandbox:
    /// `componentize-py` and `componentize-qjs` run the source in Wasm.
    ///
    /// What the others start takes orders from the folder: cargo its build scripts and `.cargo/config.toml`,
    /// `zig cc` its `compile_flags.txt` (`-fplugin`), and npm, which a `package.json` calls for, the programs
    /// that its `.npmrc` names; pip, which a `requirements.txt` calls for, builds what that file has it build. Go,
    /// TypeScript and asynchronous JavaScript are compiled by tools that read foreign sources natively.
    pub fn builds_in_sandbox(self, folder: &Path) -> bool {
        match self {
            Self::Python => !folder.join(python::REQUIREMENTS).exists(),
            Self::JavaScript => !javascript::is_bundled(folder),
            Self::Rust | Self::C | Self::Go | Self::TypeScript => false,
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Language {
    type Err = UnknownLanguage;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "rust" => Ok(Self::Rust),
            "c" => Ok(Self::C),
            "go" => Ok(Self::Go),
            "python" => Ok(Self::Python),
            "javascript" | "js" => Ok(Self::JavaScript),
            "typescript" | "ts" => Ok(Self::TypeScript),
            _ => Err(UnknownLanguage {
                found: text.to_owned(),
            }),
        }
    }
}

/// The language is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{found}` is not a language that can be built here: use rust, c, go, python, javascript or typescript"
)]
pub struct UnknownLanguage {
    found: String,
}

impl fmt::Display for BuildStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Install { tool } => write!(formatter, "installing {tool} (once)"),
            Self::Compile { module, language } => {
                write!(formatter, "compiling {module} ({language})")
            }
            Self::Base { module } => {
                write!(
                    formatter,
                    "preparing dev builds of {module} (once for what it imports)"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_parse_by_their_names() {
        for language in [
            Language::Rust,
            Language::C,
            Language::Go,
            Language::Python,
            Language::JavaScript,
            Language::TypeScript,
        ] {
            assert_eq!(language.name().parse(), Ok(language));
        }
        assert_eq!("js".parse(), Ok(Language::JavaScript));
        assert_eq!("ts".parse(), Ok(Language::TypeScript));
        let error = "cobol".parse::<Language>().unwrap_err();
        assert!(
            error
                .to_string()
                .contains("use rust, c, go, python, javascript or typescript")
        );
    }

    #[test]
    fn only_what_runs_in_wasm_is_built_in_a_sandbox() {
        let folder = tempfile::tempdir().unwrap();
        for (language, alone, packages) in [
            (Language::Rust, false, npm::PACKAGE),
            (Language::C, false, npm::PACKAGE),
            (Language::Go, false, npm::PACKAGE),
            (Language::Python, true, python::REQUIREMENTS),
            (Language::JavaScript, true, npm::PACKAGE),
            (Language::TypeScript, false, npm::PACKAGE),
        ] {
            let source = folder.path().join("module.js");
            fs::write(&source, "export const tools = {};").unwrap();
            let package = folder.path().join(packages);
            assert_eq!(
                language.builds_in_sandbox(folder.path()),
                alone,
                "{language}"
            );
            fs::write(&source, "await 1").unwrap();
            assert_eq!(
                language.builds_in_sandbox(folder.path()),
                alone && language != Language::JavaScript,
                "{language}"
            );
            fs::write(&source, "").unwrap();
            fs::write(&package, "{}").unwrap();
            assert!(
                !language.builds_in_sandbox(folder.path()),
                "{language} with {packages}"
            );
            fs::remove_file(&package).unwrap();
        }
    }

    #[test]
    fn the_embedded_contract_has_the_world_that_builds_ask_for() {
        assert!(WIT.contains(&format!("world {WORLD} {{")));
    }
}
