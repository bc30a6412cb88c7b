//! The files that are read, and the crate for which each counts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::workspace;

/// A file with prose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProseFile {
    /// Path below the repository's root.
    pub path: PathBuf,
    pub kind: ProseKind,
}

impl ProseFile {
    /// Returns the file at `path`, or nothing for another kind of file.
    pub fn at(path: &Path) -> Option<Self> {
        let kind = match path.extension()?.to_str()? {
            "rs" => ProseKind::Rust,
            "md" => ProseKind::Markdown,
            _ => return None,
        };
        let path = path.to_path_buf();
        Some(Self { path, kind })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProseKind {
    Rust,
    Markdown,
}

/// The Rust and markdown files that git has, or would add.
///
/// # Errors
/// `root` is no repository of git.
pub fn all(root: &Path) -> Result<Vec<ProseFile>> {
    let listed = git(
        root,
        &[
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ],
    )?;
    let mut files: Vec<_> = listed
        .split('\0')
        .filter_map(|path| ProseFile::at(Path::new(path)))
        // A file that was removed is listed until the removal is committed.
        .filter(|file| root.join(&file.path).is_file())
        .collect();
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// The name under which findings of a file are counted: the folder below `host/`, `tests`, `modules`, or `docs`.
pub fn crate_of(path: &Path) -> String {
    let mut names = path
        .components()
        .map(|name| name.as_os_str().to_string_lossy());
    let first = names.next().unwrap_or_default();
    let second = names.next().unwrap_or_default();
    let is_inside = names.next().is_some();
    match (first.as_ref(), is_inside) {
        ("host", true) => second.into_owned(),
        ("modules" | "tests", _) => first.into_owned(),
        _ => "docs".to_owned(),
    }
}

/// The output of git in `root`.
///
/// # Errors
/// git cannot be run, or fails.
pub fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = workspace::output(&mut git_command(root, arguments))?;
    String::from_utf8(output).context("git printed what is not UTF-8")
}

/// The output of git, or nothing where it fails: for an unknown revision, or a file that the revision lacks.
pub fn git_if_known(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = git_command(root, arguments);
    let output = command.stderr(Stdio::null()).output().ok()?;
    let is_success = output.status.success();
    is_success.then(|| String::from_utf8(output.stdout).ok())?
}

fn git_command(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(root);
    // A hook of git has these, and they would lead from `root` to the repository of the hook.
    for name in ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"] {
        command.env_remove(name);
    }
    command
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An empty repository with the branch `main`.
    pub fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "--quiet", "--initial-branch=main"]).unwrap();
        folder
    }

    /// Writes these files, and commits all that is in the folder.
    pub fn commit(folder: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let name = ["-c", "user.name=t", "-c", "user.email=t@t"];
        for arguments in [&["add", "."][..], &["commit", "--quiet", "--message", "m"]] {
            git(folder, &[&name[..], arguments].concat()).unwrap();
        }
    }

    #[test]
    fn files_count_for_their_crate_or_for_the_documents() {
        let cases = [
            ("host/agent/tests/scripted_runs/a.rs", "agent"),
            ("host/fuzz/smith/src/main.rs", "fuzz"),
            ("host/ARCHITECTURE.md", "docs"),
            ("modules/text/src/lib.rs", "modules"),
            ("tests/fixtures/README.md", "tests"),
            ("docs/runs.md", "docs"),
            ("README.md", "docs"),
        ];
        for (path, krate) in cases {
            assert_eq!(crate_of(Path::new(path)), krate, "{path}");
        }
    }

    #[test]
    fn files_are_those_that_git_has_or_would_add() {
        let folder = repository();
        let folder = folder.path();
        for name in ["a.rs", "b ü.md", "c.txt", "gone.rs", "ignored.rs"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        std::fs::write(folder.join(".gitignore"), "ignored.rs").unwrap();
        git(folder, &["add", "gone.rs", "a.rs"]).unwrap();
        std::fs::remove_file(folder.join("gone.rs")).unwrap();
        let files = all(folder).unwrap();
        let found: Vec<_> = files.iter().map(|file| (&file.path, file.kind)).collect();
        assert_eq!(
            found,
            [
                (&PathBuf::from("a.rs"), ProseKind::Rust),
                (&PathBuf::from("b ü.md"), ProseKind::Markdown),
            ]
        );
    }
}
