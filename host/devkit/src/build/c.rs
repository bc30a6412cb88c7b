//! C: `zig cc` compiles for WASI preview 1; `wasi` makes the component.
//!
//! A module is the `.c` files of its folder, the flags in `compile_flags.txt` (one a line, as clangd
//! reads it) and, unless it has a world of its own, the support in `toolhold/`: its own copy of that
//! folder, or else the one in this binary.

use std::fs;
use std::path::{Path, PathBuf};

use super::venv::{self, PinnedPackage};
use super::wasi;
use super::{BuildError, Job, core_module, debug_info, sources, toolchain};

/// Pinned: the same compiler makes the same component.
pub const ZIG: PinnedPackage = PinnedPackage {
    name: "ziglang",
    version: "0.17.0",
    language: "c",
};

/// What a module in C is written with; templates copy it.
pub const SUPPORT: &[(&str, &str)] = &[
    ("http.c", template!("c/toolhold/http.c")),
    ("http.h", template!("c/toolhold/http.h")),
    ("json.c", template!("c/toolhold/json.c")),
    ("json.h", template!("c/toolhold/json.h")),
    ("schema.c", template!("c/toolhold/schema.c")),
    ("schema.h", template!("c/toolhold/schema.h")),
    ("tool_module.c", template!("c/toolhold/tool_module.c")),
    ("tool_module.h", template!("c/toolhold/tool_module.h")),
    ("toolhold.c", template!("c/toolhold/toolhold.c")),
    ("toolhold.h", template!("c/toolhold/toolhold.h")),
];

pub fn build(job: &Job<'_>) -> Result<(), BuildError> {
    let directory = &job.manifest.directory;
    let mut files = Job::listed(directory, ".c")?;
    if files.is_empty() {
        let path = directory.join("module.c");
        let advice =
            "a C module is one or more `.c` files; `toolhold new-module NAME --lang c` makes one";
        return Err(BuildError::NoSource { path, advice });
    }
    let mut include = vec![directory.clone()];
    if job.manifest.world.is_none() {
        let support = toolchain::support(job, "toolhold", SUPPORT)?;
        files.extend(Job::listed(&support, ".c")?);
        include.push(support);
    }
    if let Some(sources) = &job.manifest.sources {
        let folder = sources::fetched(job, sources)?;
        let is_c = |path: &PathBuf| path.extension().is_some_and(|found| found == "c");
        files.extend(sources.files(&folder).filter(is_c));
        include.push(folder);
    }

    let venv = ZIG.installed(job)?;
    job.compiling();
    let core = job.core_module()?;
    let mut command = venv::interpreter(&venv);
    command
        .current_dir(directory)
        .env("ZIG_GLOBAL_CACHE_DIR", job.toolchains.join("zig-cache"))
        .env("ZIG_LOCAL_CACHE_DIR", job.toolchains.join("zig-cache"))
        // `_GNU_SOURCE`: all that the C library has. A reactor has functions to call and no `main`. `-g`: with the
        // names of functions, which a trap tells, and with the lines that it tells an author.
        .args([
            "-m",
            "ziglang",
            "cc",
            "-target",
            "wasm32-wasi",
            "-mexec-model=reactor",
        ])
        .args(["-Os", "-D_GNU_SOURCE", "-g", "-Wl,-z,stack-size=1048576"])
        .args(flags(directory)?)
        .args(include.iter().map(|path| format!("-I{}", path.display())))
        .args(&files)
        .arg("-o")
        .arg(&core);
    let component = job
        .log
        .run(
            &mut command,
            ZIG.python(),
            "mend what the compiler reports, then build again; flags go into `compile_flags.txt`, \
             one a line",
        )
        .and_then(|()| core_module::keep_names(&core))
        .and_then(|whole| {
            wasi::publish(job, &core)?;
            let kept = debug_info::keep(&job.manifest.component, job.toolchains, &whole);
            kept.map_or(Ok(()), |failed| job.log.note(&failed))
        });
    // A leftover; the build's own error is more useful than this one's.
    let _ = fs::remove_file(&core);
    component
}

fn flags(directory: &Path) -> Result<Vec<String>, BuildError> {
    let path = directory.join("compile_flags.txt");
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).map_err(BuildError::io("read", &path))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(lines.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_in_order_and_flags_by_line() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.c", "a.c", "a.h", "notes.txt"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = Job::listed(folder.path(), ".c").unwrap();
        assert_eq!(
            found,
            [folder.path().join("a.c"), folder.path().join("b.c")]
        );
        assert_eq!(flags(folder.path()).unwrap(), Vec::<String>::new());
        fs::write(
            folder.path().join("compile_flags.txt"),
            "-Wall\n\n -DX=a b\n",
        )
        .unwrap();
        assert_eq!(flags(folder.path()).unwrap(), ["-Wall", "-DX=a b"]);
    }
}
