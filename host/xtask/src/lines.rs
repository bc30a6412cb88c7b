//! `cargo xtask lines`: how much product code there is, by crate.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::source::{self, SourceFile};
use crate::{narrate, project};

#[derive(Args, Debug)]
#[command(
    after_help = "Counted are the lines of host/*/src that hold code: no blank lines, no comments, nothing that \
    is compiled for tests only. The sizes of files are in such lines, too."
)]
pub struct LinesArguments {
    /// Git revision to compare with: main, HEAD~20, a commit's id
    #[arg(long)]
    against: Option<String>,
}

/// Crates that are not the product: the hostile suite, fuzzing, needs of tests, and developer commands.
const NO_PRODUCT: [&str; 4] = ["fuzz", "hostile", "needs", "xtask"];

/// Files of more lines than this are listed.
const LONG_FILE_LINES: usize = 500;

pub fn run(arguments: &LinesArguments) -> Result<ExitCode> {
    let now = count(&project::root())?;
    let text = match &arguments.against {
        None => sizes(&now),
        Some(revision) => {
            let then = Checkout::of(revision)?;
            differences(&count(&then.0)?, &now)
        }
    };
    narrate::answer(text.trim_end());
    Ok(ExitCode::SUCCESS)
}

/// The lines of each file, by crate.
type LinesByCrate = BTreeMap<String, Vec<usize>>;

fn count(root: &Path) -> Result<LinesByCrate> {
    let host = root.join("host");
    let mut count = LinesByCrate::new();
    let entries =
        fs::read_dir(&host).with_context(|| format!("could not list {}", host.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("could not list {}", host.display()))?;
        let src = entry.path().join("src");
        // Cargo's rule for the root files of a crate.
        let roots: Vec<_> = ["lib.rs", "main.rs"]
            .iter()
            .map(|name| src.join(name))
            .filter(|root| root.is_file())
            .collect();
        if !roots.is_empty() {
            let sources = source::of_crate(&roots)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            count.insert(name, sources.iter().map(SourceFile::lines).collect());
        }
    }
    Ok(count)
}

/// The files of a revision, in a temporary folder that is removed when dropped.
struct Checkout(PathBuf);

impl Checkout {
    fn of(revision: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("toolhold-lines-{}", std::process::id()));
        // What a killed process of the same number left there would be counted, too.
        fs::create_dir(&folder).with_context(|| format!("could not make {}", folder.display()))?;
        let checkout = Self(folder);
        let mut archive = Command::new("git")
            .args([
                "archive",
                "--format=tar",
                "--end-of-options",
                revision,
                "host",
            ])
            .current_dir(project::root())
            .stdout(Stdio::piped())
            .spawn()
            .context("could not run git")?;
        let tar = archive.stdout.take().context("git has no output")?;
        let unpacked = Command::new("tar")
            .arg("--extract")
            .current_dir(&checkout.0)
            .stdin(tar)
            .status()
            .context("could not run tar")?;
        let archived = archive.wait().context("could not wait for git")?;
        if !archived.success() || !unpacked.success() {
            bail!("git has no files of revision {revision:?} under host/");
        }
        Ok(checkout)
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_product(name: &str) -> bool {
    !NO_PRODUCT.contains(&name)
}

fn sizes(count: &LinesByCrate) -> String {
    let mut text = header(&["files", "lines", "median", "p90", "longest", "over 500"]);
    let mut row = |name: &str, files: &[usize]| {
        let mut files = files.to_vec();
        files.sort_unstable();
        let at = |part: usize| files.get(files.len() * part / 100).copied().unwrap_or(0);
        let long = files
            .iter()
            .filter(|lines| **lines > LONG_FILE_LINES)
            .count();
        let longest = files.last().copied().unwrap_or(0);
        let numbers = [
            files.len(),
            files.iter().sum(),
            at(50),
            at(90),
            longest,
            long,
        ];
        let _ = writeln!(text, "{name:<12}{}", cells(numbers));
    };
    let (product, others): (Vec<_>, Vec<_>) = count.iter().partition(|(name, _)| is_product(name));
    for (name, files) in &product {
        row(name, files);
    }
    let all: Vec<_> = product
        .iter()
        .flat_map(|(_, files)| *files)
        .copied()
        .collect();
    row("PRODUCT", &all);
    for (name, files) in others {
        row(name, files);
    }
    text
}

fn differences(then: &LinesByCrate, now: &LinesByCrate) -> String {
    let mut text = header(&["before", "after", "change"]);
    let lines =
        |count: &LinesByCrate, name: &str| count.get(name).map_or(0, |files| files.iter().sum());
    let mut row = |name: &str, before: usize, after: usize| {
        let change = after.cast_signed() - before.cast_signed();
        let change = format!("{change:+}");
        let _ = writeln!(
            text,
            "{name:<12}{}",
            cells([before.to_string(), after.to_string(), change])
        );
    };
    let mut names: Vec<_> = then.keys().chain(now.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let (product, others): (Vec<&String>, Vec<_>) =
        names.into_iter().partition(|name| is_product(name));
    let mut total = (0, 0);
    for name in product {
        let (before, after) = (lines(then, name), lines(now, name));
        row(name, before, after);
        total = (total.0 + before, total.1 + after);
    }
    row("PRODUCT", total.0, total.1);
    for name in others {
        row(name, lines(then, name), lines(now, name));
    }
    text
}

fn header(columns: &[&str]) -> String {
    format!("{:<12}{}\n", "crate", cells(columns.iter()))
}

fn cells<T: ToString>(cells: impl IntoIterator<Item = T>) -> String {
    let cells = cells
        .into_iter()
        .map(|cell| format!("{:>10}", cell.to_string()));
    cells.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_of(crates: &[(&str, &[usize])]) -> LinesByCrate {
        let crates = crates.iter();
        crates
            .map(|(name, files)| ((*name).to_owned(), files.to_vec()))
            .collect()
    }

    fn words(text: &str) -> Vec<String> {
        let lines = text.lines();
        lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn other_crates_are_listed_below_the_sum() {
        let text = sizes(&count_of(&[
            ("agent", &[10, 700, 20]),
            ("cli", &[1]),
            ("fuzz", &[5]),
        ]));
        assert_eq!(
            words(&text)[1..],
            [
                "agent 3 730 20 700 700 1",
                "cli 1 1 1 1 1 0",
                "PRODUCT 4 731 20 700 700 1",
                "fuzz 1 5 5 5 5 0"
            ]
        );
    }

    #[test]
    fn a_crate_may_come_and_go() {
        let then = count_of(&[("app", &[100]), ("xtask", &[3])]);
        let now = count_of(&[("cli", &[30]), ("server", &[50]), ("xtask", &[4])]);
        assert_eq!(
            words(&differences(&then, &now))[1..],
            [
                "app 100 0 -100",
                "cli 0 30 +30",
                "server 0 50 +50",
                "PRODUCT 100 80 -20",
                "xtask 3 4 +1"
            ]
        );
    }
}
