//! Rust: `cargo build` for `wasm32-wasip2` makes a component without further tools.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::command::Tool;
use super::{BuildError, Job, toolchain, zig};

const TARGET: &str = "wasm32-wasip2";

const CARGO: Tool = Tool {
    program: "cargo",
    language: "rust",
    install: "install Rust through rustup, then build again",
};
const RUSTC: Tool = Tool {
    program: "rustc",
    ..CARGO
};
const RUSTUP: Tool = Tool {
    program: "rustup",
    ..CARGO
};

pub fn build(job: &Job<'_>) -> Result<(), BuildError> {
    let advice = "a Rust module is a crate; `toolhold new-module NAME --lang rust` makes one";
    let manifest = job.source("Cargo.toml", advice)?;
    ensure_target(job)?;
    let c_compiler = if job.manifest.c_compiler {
        zig::environment(job)?
    } else {
        Vec::new()
    };
    job.compiling();
    // A step of its own, so that a missing network is not mistaken for broken source.
    job.log.run(
        in_module(job, CARGO).args(["fetch", "--target", TARGET]),
        CARGO,
        "check that cargo reaches its registry (network, proxy, `.cargo/config.toml`)",
    )?;
    let shared = SharedTarget::of(job)?;
    let mut command = in_module(job, CARGO);
    command.arg("build");
    if let Some(shared) = &shared {
        command.arg("--target-dir").arg(&shared.folder);
    }
    let messages = job.log.query(
        command
            .args([
                "--release",
                "--target",
                TARGET,
                "--message-format=json-render-diagnostics",
            ])
            .args(without_local_paths())
            .envs(c_compiler),
        CARGO,
        "mend what the compiler reports, then build again",
    )?;
    let artefact =
        artefact(&messages, &manifest).ok_or(BuildError::NoArtefact { path: manifest })?;
    job.publish(|path| {
        fs::copy(&artefact, path)
            .map(drop)
            .map_err(BuildError::io("copy", &artefact))
    })
}

/// Asks the compiler and not rustup: distributions ship the target too.
fn ensure_target(job: &Job<'_>) -> Result<(), BuildError> {
    let library = job.log.query(
        in_module(job, RUSTC).args(["--print", "target-libdir", "--target", TARGET]),
        RUSTC,
        "update Rust: this compiler does not know wasm32-wasip2, which came with 1.82",
    )?;
    if Path::new(library.trim()).is_dir() {
        return Ok(());
    }
    job.installing(&format!("the Rust target {TARGET}"));
    let added = job.log.run(
        in_module(job, RUSTUP).args(["target", "add", TARGET]),
        RUSTUP,
        "check the network, then run it by hand: `rustup target add wasm32-wasip2`",
    );
    match added {
        Err(BuildError::MissingTool { .. }) => Err(BuildError::MissingTarget),
        other => other,
    }
}

/// Panic messages name source files, and those of dependencies begin with this user's home and
/// cargo's cache: a component that is handed on should not say so, and should be the same bytes on
/// every machine.
fn without_local_paths() -> Option<String> {
    let home = cargo_home()?;
    let sources = fs::read_dir(home.join("registry/src")).ok();
    let sources = sources
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    // The last prefix that fits counts: the home first, then each registry's folder.
    let remaps: Vec<_> = std::iter::once(home.clone())
        .chain(sources)
        .map(|path| format!("--remap-path-prefix={}=cargo", path.display()).into())
        .collect();
    // Through `--config`, which adds to the module's own flags; RUSTFLAGS would replace them.
    Some(format!(
        "--config=target.{TARGET}.rustflags={}",
        toml::Value::Array(remaps)
    ))
}

fn cargo_home() -> Option<PathBuf> {
    std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
}

/// Whether settings of cargo hold for this folder that do not for every folder of the user: they can replace a source
/// (`cargo vendor`), or the compiler.
fn has_settings(module: &Path, cargo_home: Option<&Path>) -> bool {
    let home = cargo_home.and_then(|home| fs::canonicalize(home).ok());
    module
        .ancestors()
        .map(|folder| folder.join(".cargo"))
        .filter(|folder| {
            let folder = fs::canonicalize(folder).ok();
            folder.is_some() && folder != home
        })
        .any(|folder| folder.join("config.toml").exists() || folder.join("config").exists())
}

impl Package {
    /// Whether it lies where cargo puts what it fetches and checks, or is a folder, which [`SharedTarget`] takes care of.
    fn is_known(&self, cargo_home: Option<&Path>) -> bool {
        let lies_below = |part: &str| {
            let folder = cargo_home.map(|home| home.join(part));
            folder.is_some_and(|folder| {
                self.manifest_path.starts_with(&folder)
                    || fs::canonicalize(folder).is_ok_and(|it| self.manifest_path.starts_with(it))
            })
        };
        self.source.is_none() || lies_below("registry/src") || lies_below("git/checkouts")
    }
}

/// One target folder for all modules that have none of their own: what they depend on is compiled once for all of
/// them. It stays locked as long as this lives.
struct SharedTarget {
    folder: PathBuf,
    _lock: File,
}

/// What cargo knows of the module's crate and of what it depends on.
#[derive(Deserialize)]
struct Metadata {
    target_directory: PathBuf,
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    /// None: a folder.
    source: Option<String>,
    manifest_path: PathBuf,
}

impl SharedTarget {
    /// `None` for a crate of a workspace, and where the folder's settings of cargo or its packages could make crates of one
    /// name and version differ between modules: cargo would not compile the second one's.
    fn of(job: &Job<'_>) -> Result<Option<Self>, BuildError> {
        let answer = job.log.query(
            in_module(job, CARGO).args([
                "metadata",
                "--format-version=1",
                "--filter-platform",
                TARGET,
            ]),
            CARGO,
            "mend what cargo reports about `Cargo.toml`, or check that cargo reaches its registry",
        )?;
        let Ok(metadata) = serde_json::from_str::<Metadata>(&answer) else {
            return Ok(None);
        };
        let home = cargo_home();
        let directory = &job.manifest.directory;
        if metadata.target_directory != directory.join("target")
            || has_settings(directory, home.as_deref())
            || !metadata
                .packages
                .iter()
                .all(|it| it.is_known(home.as_deref()))
        {
            return Ok(None);
        }
        // Cargo creates it, with the mark that it is a cache.
        let folder = job.toolchains.join("rust-target");
        // Cargo's own lock ends before the component is copied.
        let lock = toolchain::locked(job, &job.toolchains.join("rust-target.lock"))?;
        toolchain::used(&lock);
        let shared = Self {
            folder,
            _lock: lock,
        };
        shared.take_over(job, &metadata)?;
        Ok(Some(shared))
    }

    /// Cargo knows a crate in a folder by its path from the module's folder, and whether it is current by times alone.
    /// So another module's crates are removed, which may lie at the same path: their helper crate does.
    fn take_over(&self, job: &Job<'_>, metadata: &Metadata) -> Result<(), BuildError> {
        let note = self.folder.with_extension("module");
        let module = job.manifest.directory.display().to_string();
        if fs::read_to_string(&note).is_ok_and(|last| last == module) {
            return Ok(());
        }
        if self.folder.is_dir() {
            let folders = metadata.packages.iter().filter(|it| it.source.is_none());
            job.log.run(
                in_module(job, CARGO)
                    .args(["clean", "--release", "--target", TARGET, "--target-dir"])
                    .arg(&self.folder)
                    .args(folders.flat_map(|package| ["--package", &package.id])),
                CARGO,
                "remove the folder that it names, then build again",
            )?;
        }
        fs::write(&note, module).map_err(BuildError::io("write", &note))
    }
}

/// In the module's folder, so that its `rust-toolchain.toml` and `.cargo/config.toml` count.
fn in_module(job: &Job<'_>, tool: Tool) -> Command {
    let mut command = tool.command();
    command.current_dir(&job.manifest.directory);
    // Cargo includes it in its fingerprint: with the user's linter the component would have other bytes.
    command.env_remove("RUSTC_WORKSPACE_WRAPPER");
    command
}

/// One line of cargo's answer, as far as it matters here.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum CargoMessage {
    CompilerArtifact {
        manifest_path: PathBuf,
        target: ArtifactTarget,
        filenames: Vec<PathBuf>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct ArtifactTarget {
    crate_types: Vec<String>,
}

/// The component among what cargo made: the `cdylib` of this very package, not of a dependency.
fn artefact(messages: &str, manifest: &Path) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .find_map(|message| {
            let CargoMessage::CompilerArtifact {
                manifest_path,
                target,
                filenames,
            } = message
            else {
                return None;
            };
            let ours = fs::canonicalize(manifest_path).is_ok_and(|path| path == manifest);
            if !ours || !target.crate_types.iter().any(|kind| kind == "cdylib") {
                return None;
            }
            filenames
                .into_iter()
                .find(|path| path.extension().is_some_and(|found| found == "wasm"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_share_only_what_cannot_differ_between_them() {
        let home = tempfile::tempdir().unwrap();
        let package = |source: Option<&str>, path: PathBuf| Package {
            id: "x".to_owned(),
            source: source.map(str::to_owned),
            manifest_path: path,
        };
        let registry = Some("registry+https://github.com/rust-lang/crates.io-index");
        let fetched = home
            .path()
            .join("registry/src/index/serde-1.0.0/Cargo.toml");
        assert!(package(registry, fetched.clone()).is_known(Some(home.path())));
        assert!(!package(registry, fetched).is_known(None));
        // As `cargo vendor` does it.
        let vendored = PathBuf::from("/modules/words/vendor/serde/Cargo.toml");
        assert!(!package(registry, vendored.clone()).is_known(Some(home.path())));
        assert!(package(None, vendored).is_known(Some(home.path())));
    }

    #[test]
    fn settings_of_a_folder_count_and_those_of_the_user_do_not() {
        let home = tempfile::tempdir().unwrap();
        let module = home.path().join("modules/words");
        fs::create_dir_all(&module).unwrap();
        let user = home.path().join(".cargo");
        fs::create_dir(&user).unwrap();
        fs::write(user.join("config.toml"), "").unwrap();
        assert!(!has_settings(&module, Some(&user)));
        assert!(has_settings(&module, None));
        let own = home.path().join("modules/.cargo");
        fs::create_dir(&own).unwrap();
        assert!(!has_settings(&module, Some(&user)));
        fs::write(own.join("config"), "").unwrap();
        assert!(has_settings(&module, Some(&user)));
    }

    #[test]
    fn the_artefact_is_the_cdylib_of_the_package_itself() {
        let directory = tempfile::tempdir().unwrap();
        let manifest = fs::canonicalize(directory.path())
            .unwrap()
            .join("Cargo.toml");
        fs::write(&manifest, "").unwrap();
        let line = |manifest: &Path, kind: &str, file: &str| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "manifest_path": manifest,
                "target": { "crate_types": [kind], "name": "x" },
                "filenames": ["x.d", file],
            })
            .to_string()
        };
        let messages = [
            "a line of something else".to_owned(),
            line(
                Path::new("elsewhere/Cargo.toml"),
                "cdylib",
                "dependency.wasm",
            ),
            line(&manifest, "lib", "x.rlib"),
            line(&manifest, "cdylib", "x.wasm"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        assert_eq!(
            artefact(&messages.join("\n"), &manifest),
            Some(PathBuf::from("x.wasm"))
        );
        assert_eq!(artefact(&messages[..3].join("\n"), &manifest), None);
    }
}
