//! The tables of crates, each between two marks: what they do, in `host/ARCHITECTURE.md`, and where their tests are, in
//! `CONTRIBUTING.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{CrateRooms, order};
use crate::narrate;

const MAP: &str = "host/ARCHITECTURE.md";
const MAP_HEAD: &str = "| | crate | what it does | rooms | lines |\n|---|---|---|---|---|\n";
const TESTS: &str = "CONTRIBUTING.md";
const TESTS_HEAD: &str = "| crate | its tests |\n|---|---|\n";
const BEGIN: &str = "<!-- The table below is written by `cargo xtask rooms --write`. -->";
const END: &str = "<!-- End of the written table. -->";

/// How far a written number of lines may be from the true one, as a share and in lines: with exact numbers every
/// change would rewrite the table, and concurrent changes would conflict.
const STALE_SHARE: usize = 10;
const STALE_LINES: usize = 300;

/// Checks that the tables are fresh; with `write`, writes them.
pub fn check(root: &Path, plans: &[CrateRooms], write: bool) -> Result<Vec<String>> {
    let mut plans: Vec<_> = plans.iter().collect();
    let last = order::ORDER.len();
    plans.sort_by_key(|plan| order::position(&plan.krate.name).unwrap_or(last));
    let tables = [
        (MAP, MAP_HEAD, rows(&plans)?),
        (TESTS, TESTS_HEAD, places_of_tests(root, &plans)),
    ];
    let mut problems = Vec::new();
    for (document, head, rows) in tables {
        problems.extend(check_one(root, document, head, &rows, write)?);
    }
    Ok(problems)
}

fn check_one(
    root: &Path,
    document: &str,
    head: &str,
    rows: &[CrateRow],
    write: bool,
) -> Result<Option<String>> {
    let path = root.join(document);
    let text =
        fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    let Some((before, written, after)) = split(&text) else {
        return Ok(Some(format!(
            "{document} has no place for the table of crates: put these two lines where it shall stand\n{BEGIN}\n{END}"
        )));
    };
    if is_fresh(rows, written) {
        return Ok(None);
    }
    if !write {
        return Ok(Some(format!(
            "the table of crates in {document} is not what is there: cargo xtask rooms --write"
        )));
    }
    let table = render(head, rows);
    fs::write(&path, format!("{before}{BEGIN}\n{table}{END}{after}"))
        .with_context(|| format!("could not write {}", path.display()))?;
    narrate::line(&format!("wrote the table of crates into {document}"));
    Ok(None)
}

/// The text before the table, the table, and the text after it.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (table, after) = rest.split_once(END)?;
    Some((before, table, after))
}

/// One crate.
struct CrateRow {
    /// The row without its number of lines.
    fixed: String,
    /// Absent where the table does not tell it.
    lines: Option<usize>,
}

/// Places of each crate's tests, by the folders that exist.
fn places_of_tests(root: &Path, plans: &[&CrateRooms]) -> Vec<CrateRow> {
    let row = |plan: &&CrateRooms| {
        let name = &plan.krate.name;
        let mut places = vec!["beside the code".to_owned()];
        for folder in ["tests", "fuzz_targets", "benches"] {
            if root.join("host").join(name).join(folder).is_dir() {
                places.push(format!("`host/{name}/{folder}`"));
            }
        }
        CrateRow {
            fixed: format!("| `{}` | {}", plan.krate.package, places.join("; ")),
            lines: None,
        }
    };
    plans.iter().map(row).collect()
}

fn rows(plans: &[&CrateRooms]) -> Result<Vec<CrateRow>> {
    let mut number = 0;
    let mut rows = Vec::new();
    for plan in plans {
        let krate = &plan.krate;
        if krate.description.trim().is_empty() {
            bail!("host/{}/Cargo.toml has no description", krate.name);
        }
        let place = if order::position(&krate.name).is_some() {
            number += 1;
            number.to_string()
        } else {
            String::new()
        };
        rows.push(CrateRow {
            fixed: format!(
                "| {place} | `{}` | {} | {}",
                krate.name,
                krate.description.replace('|', "\\|"),
                plan.arrows.rooms.len()
            ),
            lines: Some(plan.lines),
        });
    }
    Ok(rows)
}

fn render(head: &str, rows: &[CrateRow]) -> String {
    let mut table = format!("\n{head}");
    for row in rows {
        let _ = match row.lines {
            // Rounded to hundreds for readers.
            Some(lines) => writeln!(table, "{} | {} |", row.fixed, lines.div_ceil(100) * 100),
            None => writeln!(table, "{} |", row.fixed),
        };
    }
    table.push('\n');
    table
}

fn is_fresh(rows: &[CrateRow], written: &str) -> bool {
    let mut lines = written
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1);
    let same = rows.iter().all(|row| {
        let lines = lines.next().and_then(|line| line.strip_prefix(&row.fixed));
        let written = lines.map(|rest| rest.trim_matches([' ', '|']));
        match (written, row.lines) {
            (Some(written), None) => written.is_empty(),
            (Some(written), Some(true_lines)) => written.parse().is_ok_and(|lines: usize| {
                lines.abs_diff(true_lines) <= (true_lines / STALE_SHARE).max(STALE_LINES)
            }),
            (None, _) => false,
        }
    });
    same && lines.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fixed: &str, lines: usize) -> CrateRow {
        CrateRow {
            fixed: fixed.to_owned(),
            lines: Some(lines),
        }
    }

    #[test]
    fn a_table_is_stale_when_it_differs() {
        let rows = [
            row("| 1 | `json` | Strict JSON | 4", 8123),
            row("| 2 | `cli` | The binary | 2", 90),
        ];
        let table = render(MAP_HEAD, &rows);
        assert!(
            table.contains("| 1 | `json` | Strict JSON | 4 | 8200 |"),
            "{table}"
        );
        assert!(is_fresh(&rows, &table));
        let stale: [&[CrateRow]; 4] = [
            &rows[..1],
            &[
                row("| 1 | `json` | Strict JSON | 5", 8123),
                row("| 2 | `cli` | The binary | 2", 90),
            ],
            &[
                row("| 1 | `json` | Strict JSON | 4", 9500),
                row("| 2 | `cli` | The binary | 2", 90),
            ],
            &[
                row("| 1 | `json` | Strict JSON | 4", 8123),
                row("| 2 | `cli` | The binary | 2", 900),
            ],
        ];
        for rows in stale {
            assert!(!is_fresh(rows, &table));
        }
        let grown = [
            row("| 1 | `json` | Strict JSON | 4", 8900),
            row("| 2 | `cli` | The binary | 2", 390),
        ];
        assert!(is_fresh(&grown, &table));
    }

    #[test]
    fn a_table_without_lines_is_stale_when_a_crate_or_a_place_is_missing() {
        let of = |fixed: &str| CrateRow {
            fixed: fixed.to_owned(),
            lines: None,
        };
        let rows = [
            of("| `toolhold-json` | beside the code"),
            of("| `xtask` | beside the code"),
        ];
        let table = render(TESTS_HEAD, &rows);
        assert!(is_fresh(&rows, &table), "{table}");
        assert!(!is_fresh(&rows[..1], &table));
        let moved = of("| `toolhold-json` | beside the code; `host/json/tests`");
        assert!(!is_fresh(
            &[moved, of("| `xtask` | beside the code")],
            &table
        ));
    }

    #[test]
    fn text_around_the_table_is_kept() {
        let text = format!("head\n{BEGIN}\nold\n{END}\ntail\n");
        let (before, table, after) = split(&text).unwrap();
        assert_eq!((before, table, after), ("head\n", "\nold\n", "\ntail\n"));
        assert_eq!(split("head\n"), None);
    }
}
