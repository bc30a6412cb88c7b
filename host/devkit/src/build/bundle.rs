//! One JavaScript file out of a module's sources and its npm packages: `esbuild`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use toolhold_files::temporary_folder;

use super::npm::{self, NODE};
use super::{BuildError, Job, toolchain};

/// Pinned: the same bundler makes the same component.
pub const VERSION: &str = "0.28.2";

/// A bundle in the toolchain cache, removed when the build is over.
pub struct Bundle {
    folder: PathBuf,
    pub file: PathBuf,
}

impl Drop for Bundle {
    fn drop(&mut self) {
        // It is a cache: what stays is removed with it.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Bundle {
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Bundles `source` and what it imports; imports from the world stay imports.
pub fn bundle(job: &Job<'_>, source: &Path, advice: &'static str) -> Result<Bundle, BuildError> {
    if job.manifest.directory.join(npm::PACKAGE).is_file() {
        npm::packages(job)?;
    }
    let tools = npm::tools(job, &[("esbuild", VERSION)])?;
    let bundles = job.toolchains.join("bundles");
    fs::create_dir_all(&bundles).map_err(BuildError::io("create", &bundles))?;
    let folder = temporary_folder(&bundles, &format!("{}.", job.manifest.name));
    let folder = folder.map_err(BuildError::io("create", &bundles))?;
    let bundle = Bundle {
        file: folder.join("module.js"),
        folder,
    };
    let mut outfile = OsString::from("--outfile=");
    outfile.push(&bundle.file);
    let mut command = NODE.command();
    command
        .current_dir(&job.manifest.directory)
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
        .args(["--minify-syntax", "--minify-whitespace", "--keep-names"])
        .args(["--legal-comments=none", "--log-level=warning"])
        .args(
            namespaces(&toolchain::wit(job)?)
                .iter()
                .map(|namespace| format!("--external:{namespace}:*")),
        )
        .arg(outfile);
    job.log.run(&mut command, NODE, advice)?;
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
