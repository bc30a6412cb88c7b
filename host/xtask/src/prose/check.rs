//! The numbers of the tree beside the accepted ones.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::accepted::{self, CountChange, SignCounts};
use super::added::{self, AddedLines};
use super::files;
use super::sign::ProseFinding;
use crate::narrate;

/// Prints the numbers of all crates, and the findings of those that rose.
///
/// # Errors
/// A number is not the accepted one, or an accepted one is higher than before this change.
pub fn check(root: &Path, counts: &SignCounts, findings: &[ProseFinding]) -> Result<()> {
    let accepted = read(root)?.unwrap_or_default();
    let accepted = &accepted;
    let base = added::base(root);
    let changes = counts.changes(accepted);
    let (risen, sunk): (Vec<_>, Vec<_>) = changes
        .iter()
        .partition(|change| change.found > change.accepted);
    for krate in counts.crates() {
        let (found, accepted) = (counts.total(krate), accepted.total(krate));
        narrate::answer(&format!(
            "{krate:<12}{found:>6} found{accepted:>6} accepted"
        ));
    }
    if !risen.is_empty() {
        let added = base
            .as_deref()
            .map(|base| AddedLines::since(root, base))
            .transpose()?;
        for change in &risen {
            narrate::line(&describe(change));
            super::print(&new_findings(change, findings, added.as_ref()));
        }
    }
    for change in &sunk {
        narrate::line(&describe(change));
    }
    let raised = base
        .as_deref()
        .map_or_else(Vec::new, |base| raised(root, base, accepted));
    for number in &raised {
        narrate::line(&format!("{} raises {number}", accepted::PATH));
    }
    if !risen.is_empty() {
        bail!("more findings than accepted: mend those that are new");
    }
    if !raised.is_empty() {
        bail!(
            "accepted numbers only sink: take back those of {}",
            accepted::PATH
        );
    }
    if !sunk.is_empty() {
        bail!(
            "fewer findings than accepted: run `cargo xtask prose --accept` and commit {}",
            accepted::PATH
        );
    }
    Ok(())
}

/// Writes the numbers that are lower than accepted.
///
/// # Errors
/// A number is higher than accepted: it stays as it was.
pub fn accept(root: &Path, counts: &SignCounts) -> Result<()> {
    let lowered = match read(root)? {
        Some(accepted) => counts.lowering(&accepted),
        // The first file has nothing to be lower than.
        None => counts.clone(),
    };
    let path = root.join(accepted::PATH);
    fs::write(&path, lowered.text())
        .with_context(|| format!("could not write {}", accepted::PATH))?;
    narrate::line(&format!("wrote {}", accepted::PATH));
    let risen = counts.changes(&lowered);
    for change in &risen {
        narrate::line(&describe(change));
    }
    if risen.is_empty() {
        return Ok(());
    }
    bail!(
        "{} of the numbers higher than accepted; `cargo xtask prose` lists the findings",
        risen.len()
    )
}

/// The committed numbers, or nothing where there is no file.
fn read(root: &Path) -> Result<Option<SignCounts>> {
    match fs::read_to_string(root.join(accepted::PATH)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => {
            let text = read.with_context(|| format!("could not read {}", accepted::PATH))?;
            SignCounts::parse(&text).map(Some)
        }
    }
}

fn describe(change: &CountChange) -> String {
    let CountChange {
        krate,
        sign,
        found,
        accepted,
    } = change;
    format!("{krate}: {found} of sign {sign}, and {accepted} are accepted")
}

/// The findings of a number that rose: those in changed files, or all where git tells of none.
fn new_findings<'a>(
    change: &CountChange,
    findings: &'a [ProseFinding],
    added: Option<&AddedLines>,
) -> Vec<&'a ProseFinding> {
    let counted = findings.iter().filter(|finding| {
        finding.sign == change.sign && files::crate_of(&finding.path) == change.krate
    });
    let all: Vec<_> = counted.collect();
    let Some(added) = added else {
        return all;
    };
    let is_changed = |finding: &&ProseFinding| added.has_file(&finding.path);
    let changed: Vec<_> = all.iter().copied().filter(is_changed).collect();
    if changed.is_empty() { all } else { changed }
}

/// The accepted numbers that are higher than at the base of this change.
fn raised(root: &Path, base: &str, accepted: &SignCounts) -> Vec<String> {
    let object = format!("{base}:{}", accepted::PATH);
    let text = files::git_if_known(root, &["show", &object]);
    // A file with a sign that was removed since cannot be read, and says nothing about the others.
    let before = text.and_then(|text| SignCounts::parse(&text).ok());
    before.map_or_else(Vec::new, |before| accepted.raised(&before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose::files::tests::{commit, repository};
    use crate::prose::find;

    const FILE: &str = "host/json/src/lib.rs";

    /// Counts the findings of the tree as the command does.
    fn found(root: &Path) -> (SignCounts, Vec<ProseFinding>) {
        let files = files::all(root).unwrap();
        let findings = find::all(root, &files).unwrap();
        let crates = files.iter().map(|file| files::crate_of(&file.path));
        (SignCounts::of(crates, &findings), findings)
    }

    fn fault(root: &Path) -> Option<String> {
        let (counts, findings) = found(root);
        let error = check(root, &counts, &findings).err();
        error.map(|error| error.to_string())
    }

    #[test]
    fn counts_must_be_exact_and_accepted_ones_sink() {
        let folder = repository();
        let root = folder.path();
        let write = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
        let two = "/// What a.\nfn a() {}\n/// What b.\nfn b() {}\n";
        commit(root, &[(FILE, two), ("host/xtask/a", "")]);
        accept(root, &found(root).0).unwrap();
        assert_eq!(fault(root), None);
        commit(root, &[]);
        commit(root, &[("host/xtask/a", "the next commit")]);

        write(FILE, &format!("{two}/// What c.\nfn c() {{}}\n"));
        assert!(fault(root).unwrap().contains("more findings"));
        let refused = accept(root, &found(root).0).unwrap_err().to_string();
        assert!(refused.contains("higher than accepted"), "{refused}");
        assert!(fault(root).unwrap().contains("more findings"));

        write(accepted::PATH, "json = { opening = 3 }\n");
        let fault_by_hand = fault(root).unwrap();
        assert!(fault_by_hand.contains("only sink"), "{fault_by_hand}");

        write(accepted::PATH, "json = { opening = 2 }\n");
        write(FILE, "/// What a.\nfn a() {}\n");
        assert!(fault(root).unwrap().contains("--accept"));
        accept(root, &found(root).0).unwrap();
        assert_eq!(fault(root), None);
    }

    #[test]
    fn findings_of_a_rise_are_those_of_changed_files() {
        let folder = repository();
        let root = folder.path();
        commit(root, &[("host/json/a.rs", "/// What a.\nfn a() {}\n")]);
        commit(root, &[(FILE, "/// What b.\nfn b() {}\n")]);
        let (counts, findings) = found(root);
        let changes = counts.changes(&SignCounts::default());
        let added = AddedLines::since(root, "HEAD^").unwrap();
        let paths = |added| {
            let new = new_findings(&changes[0], &findings, added).into_iter();
            new.map(|each| each.path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(paths(Some(&added)), [Path::new(FILE)]);
        assert_eq!(paths(None).len(), 2);
        assert_eq!(
            paths(Some(&AddedLines::default())).len(),
            2,
            "no changed file"
        );
    }
}
