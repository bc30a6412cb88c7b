//! The lines that a change added, and the revision at which the change begins.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::files::{git, git_if_known};

/// Numbers of added lines, by file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AddedLines(BTreeMap<PathBuf, BTreeSet<usize>>);

impl AddedLines {
    /// The lines that the working tree has and `base` has not; files that git does not know yet are new as a whole.
    ///
    /// # Errors
    /// git has no revision `base`.
    pub fn since(root: &Path, base: &str) -> Result<Self> {
        let difference = git(
            root,
            &[
                "-c",
                "core.quotePath=false",
                "diff",
                "--unified=0",
                "--no-color",
                "--no-ext-diff",
                "--src-prefix=a/",
                "--dst-prefix=b/",
                "--end-of-options",
                base,
                "--",
                "*.rs",
                "*.md",
            ],
        )
        .with_context(|| format!("git knows no revision {base:?}"))?;
        let mut added = Self::of_difference(&difference);
        let untracked = git(root, &["ls-files", "-z", "--others", "--exclude-standard"])?;
        for path in untracked.split('\0').filter(|path| !path.is_empty()) {
            let path = PathBuf::from(path);
            let text = std::fs::read(root.join(&path)).unwrap_or_default();
            let lines = text.split(|byte| *byte == b'\n').count();
            added.0.insert(path, (1..=lines).collect());
        }
        Ok(added)
    }

    fn of_difference(difference: &str) -> Self {
        let mut added: BTreeMap<PathBuf, BTreeSet<usize>> = BTreeMap::new();
        let mut lines = None;
        // Lines of the hunk that follow: one of them may begin as a header does.
        let mut inside = 0;
        for line in difference.lines() {
            if inside > 0 {
                inside -= usize::from(line.starts_with(['+', '-']));
            } else if let Some(path) = line.strip_prefix("+++ ") {
                // A tab follows a path with a space.
                let path = path.trim_end_matches('\t');
                let path = path.strip_prefix("b/").unwrap_or(path);
                lines = Some(added.entry(PathBuf::from(path)).or_default());
            } else if let Some((removed, new)) = hunk(line) {
                inside = removed + new.len();
                if let Some(lines) = lines.as_mut() {
                    lines.extend(new);
                }
            }
        }
        Self(added)
    }

    pub fn has_file(&self, path: &Path) -> bool {
        self.0.contains_key(path)
    }

    /// True if one of these lines was added.
    pub fn has(&self, path: &Path, first_line: usize, last_line: usize) -> bool {
        self.0
            .get(path)
            .is_some_and(|lines| lines.range(first_line..=last_line).next().is_some())
    }
}

/// Number of removed lines and numbers of added ones, of `@@ -12,2 +14,3 @@`.
fn hunk(line: &str) -> Option<(usize, std::ops::Range<usize>)> {
    let (removed, added) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let numbers = |range: &str| -> Option<(usize, usize)> {
        let (first, count) = range.split_once(',').unwrap_or((range, "1"));
        Some((first.parse().ok()?, count.parse().ok()?))
    };
    let (_, removed) = numbers(removed)?;
    let (first, count) = numbers(added.split_once(" @@")?.0)?;
    Some((removed, first..first + count))
}

/// Branches that changes are made against, the first that exists.
const MAIN: [&str; 2] = ["origin/main", "main"];

/// The commit at which this branch left the main one, or the commit before the last on the main branch itself. Nothing
/// where git cannot tell: a shallow clone, a first commit.
pub fn base(root: &Path) -> Option<String> {
    let head = git_if_known(root, &["rev-parse", "--verify", "--quiet", "HEAD"])?;
    let merge_base = MAIN
        .iter()
        .find_map(|main| git_if_known(root, &["merge-base", "HEAD", main]));
    let base = match merge_base {
        Some(base) if base != head => base,
        _ => git_if_known(root, &["rev-parse", "--verify", "--quiet", "HEAD^"])?,
    };
    Some(base.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose::files::tests::{commit, repository};

    #[test]
    fn added_lines_are_those_of_commits_and_of_new_files() {
        let folder = repository();
        let folder = folder.path();
        assert_eq!(base(folder), None, "no commit");
        commit(
            folder,
            &[("a.rs", "1\n2\n3\n"), ("b ü.md", "1\n"), ("c.txt", "1\n")],
        );
        assert_eq!(base(folder), None, "the first commit");
        commit(
            folder,
            &[
                ("a.rs", "1\n++ x\n2\n"),
                ("b ü.md", "1\n2\n"),
                ("c.txt", "2\n"),
            ],
        );
        std::fs::write(folder.join("new.rs"), "1\n2\n").unwrap();
        let first = base(folder).unwrap();
        let added = AddedLines::since(folder, &first).unwrap();
        let has = |path: &str, line| added.has(Path::new(path), line, line);
        assert!(!has("a.rs", 1) && has("a.rs", 2) && !has("a.rs", 3));
        assert!(!has("b ü.md", 1) && has("b ü.md", 2));
        assert!(has("new.rs", 1) && has("new.rs", 2));
        assert!(!added.has_file(Path::new("c.txt")));
        assert!(added.has(Path::new("a.rs"), 1, 5), "one of several lines");
        assert!(AddedLines::since(folder, "gone").is_err());
    }

    #[test]
    fn branches_begin_where_they_left_the_main_one() {
        let folder = repository();
        let folder = folder.path();
        commit(folder, &[("a.rs", "1\n")]);
        let main = git(folder, &["rev-parse", "HEAD"]).unwrap();
        git(folder, &["checkout", "--quiet", "-b", "work"]).unwrap();
        commit(folder, &[("a.rs", "2\n")]);
        commit(folder, &[("a.rs", "3\n")]);
        assert_eq!(base(folder).as_deref(), Some(main.trim()));
    }
}
