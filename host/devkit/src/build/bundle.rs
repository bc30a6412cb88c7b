//! One JavaScript file out of a module's sources and its npm packages: `esbuild`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::npm::{self, NODE};
use super::scratch::Scratch;
use super::{BuildError, Job, Language, toolchain};

/// Pinned: the same bundler makes the same component.
pub const VERSION: &str = "0.28.2";

/// `async` and `await` become generators over the global `Promise`, which is ours: the engine does not run its own
/// queue of promises during a call.
const WITHOUT_ASYNC: [&str; 3] = [
    "--supported:async-await=false",
    "--supported:async-generator=false",
    "--supported:for-await=false",
];
/// What esbuild says of an `await` outside of functions, for which there is no other form.
const HAS_TOP_LEVEL_AWAIT: &str = "Top-level await is not available";

/// Bundles `source` and what it imports as `module.js` in `scratch`; imports from the world stay imports.
pub fn bundle(
    job: &Job<'_>,
    scratch: &Scratch,
    source: &Path,
    advice: &'static str,
) -> Result<PathBuf, BuildError> {
    job.may_run_natively()?;
    let directory = &job.manifest.directory;
    let has_packages = directory.join(npm::PACKAGE).is_file();
    if has_packages {
        npm::packages(job)?;
    }
    let tools = npm::tools(job, &[("esbuild", VERSION)])?;
    let bundle = scratch.path().join("module.js");
    let namespaces = namespaces(&toolchain::wit(job)?);
    let run = |options: &[&str]| {
        let mut outfile = OsString::from("--outfile=");
        outfile.push(&bundle);
        let mut command = NODE.command();
        command
            .current_dir(directory)
            .arg(tools.join("node_modules/esbuild/bin/esbuild"))
            .arg(source)
            // `neutral`: neither a browser's globals nor Node's modules are there.
            .args(["--bundle", "--format=esm", "--platform=neutral"])
            .args([
                "--main-fields=module,main",
                "--conditions=import",
                "--target=es2023",
            ])
            // Errors name functions, not `a` and `b`; comments are licences only.
            .args(["--keep-names", "--legal-comments=none"])
            .arg("--log-level=warning")
            .args(options)
            .args(
                namespaces
                    .iter()
                    .map(|namespace| format!("--external:{namespace}:*")),
            )
            .arg(outfile);
        job.log.run(&mut command, NODE, advice)
    };
    // A module of few files keeps its lines, which errors name.
    let is_small = !has_packages && job.manifest.language == Language::JavaScript;
    let mut options = if is_small {
        Vec::new()
    } else {
        vec!["--minify-syntax", "--minify-whitespace"]
    };
    let shape = options.clone();
    options.extend(WITHOUT_ASYNC);
    match run(&options) {
        // Its top level has been run when a call begins. Only its own asynchronous functions cannot wait in one.
        Err(BuildError::Command(failure)) if failure.tail.contains(HAS_TOP_LEVEL_AWAIT) => {
            run(&shape)?;
        }
        done => done?,
    }
    Ok(bundle)
}

/// The namespaces of the packages that a WIT folder defines or uses: `toolhold`, `wasi`.
fn namespaces(wit: &Path) -> Vec<String> {
    let mut found = vec!["toolhold".to_owned(), "wasi".to_owned()];
    for entry in fs::read_dir(wit).into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        found.extend(text.lines().filter_map(|line| {
            let (namespace, _) = line.trim().strip_prefix("package ")?.split_once(':')?;
            Some(namespace.trim().to_owned())
        }));
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_read_from_package_lines() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("a.wit"),
            "/// package no\npackage local:slug@1.0.0;\nworld w {}",
        )
        .unwrap();
        assert_eq!(namespaces(folder.path()), ["local", "toolhold", "wasi"]);
    }
}
