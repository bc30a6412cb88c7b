//! Findings of a change.

use std::path::Path;

use anyhow::Result;

use super::added::AddedLines;
use super::files::{ProseFile, ProseKind, git_if_known};
use super::find;
use super::sign::ProseFinding;

/// The findings of `files` on lines that were added since `base`.
///
/// # Errors
/// git has no revision `base`, or a file is not Rust as it stands.
pub fn findings(root: &Path, files: &[ProseFile], base: &str) -> Result<Vec<ProseFinding>> {
    let added = AddedLines::since(root, base)?;
    let changed = files.iter().filter(|file| added.has_file(&file.path));
    let changed: Vec<_> = changed.cloned().collect();
    let mut findings = find::all(root, &changed)?;
    findings.retain(|each| added.has(&each.path, each.first_line, each.last_line));
    for file in changed
        .iter()
        .filter(|file| file.kind == ProseKind::Markdown)
    {
        leave_out_old_sentences(root, base, file, &mut findings)?;
    }
    Ok(findings)
}

/// Takes out the sentences that the document had at `base`: a paragraph of a document is one line, which is new as a whole
/// when one of its sentences is.
fn leave_out_old_sentences(
    root: &Path,
    base: &str,
    file: &ProseFile,
    findings: &mut Vec<ProseFinding>,
) -> Result<()> {
    let object = format!("{base}:{}", file.path.display());
    let Some(before) = git_if_known(root, &["show", "--end-of-options", &object]) else {
        return Ok(());
    };
    let before = find::in_file(file, &before)?;
    findings.retain(|finding| {
        finding.path != file.path || !before.iter().any(|old| old.text == finding.text)
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose::files;
    use crate::prose::files::tests::{commit, repository};

    #[test]
    fn findings_of_a_change_are_on_its_lines_and_in_its_sentences() {
        let folder = repository();
        let root = folder.path();
        let long = |word: &str| format!("{}.", vec![word; find::MAX_WORDS + 1].join(" "));
        let (old, new) = (long("old"), long("new"));
        commit(
            root,
            &[("a.rs", "/// What a.\nfn a() {}\n"), ("b.md", &old)],
        );
        commit(
            root,
            &[
                ("a.rs", "/// What a.\nfn a() {}\n/// What b.\nfn b() {}\n"),
                ("b.md", &format!("{old} {new}")),
            ],
        );
        let found = findings(root, &files::all(root).unwrap(), "HEAD^").unwrap();
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "a.rs:3: opening: What b.");
        assert!(found[1].starts_with("b.md:1: long_sentence: 31 words: new new"));
    }
}
