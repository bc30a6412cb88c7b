//! The table of crates in `host/ARCHITECTURE.md`, between two marks.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{CrateRooms, order};
use crate::narrate;

const DOCUMENT: &str = "host/ARCHITECTURE.md";
const BEGIN: &str = "<!-- The table below is written by `cargo xtask rooms --write`. -->";
const END: &str = "<!-- End of the written table. -->";

/// How far a written number of lines may be from the true one, as a share and in lines: with exact numbers every
/// change would rewrite the table, and concurrent changes would conflict.
const STALE_SHARE: usize = 10;
const STALE_LINES: usize = 300;

/// Checks that the table is fresh; with `write`, writes it.
pub fn check(root: &Path, plans: &[CrateRooms], write: bool) -> Result<Option<String>> {
    let path = root.join(DOCUMENT);
    let text =
        fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    let Some((before, written, after)) = split(&text) else {
        return Ok(Some(format!(
            "{DOCUMENT} has no place for the table of crates: put these two lines where it shall stand\n{BEGIN}\n{END}"
        )));
    };
    let rows = rows(plans)?;
    if is_fresh(&rows, written) {
        return Ok(None);
    }
    if !write {
        return Ok(Some(format!(
            "the table of crates in {DOCUMENT} is not what is there: cargo xtask rooms --write"
        )));
    }
    let table = render(&rows);
    fs::write(&path, format!("{before}{BEGIN}\n{table}{END}{after}"))
        .with_context(|| format!("could not write {}", path.display()))?;
    narrate::line(&format!("wrote the table of crates into {DOCUMENT}"));
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
    lines: usize,
}

fn rows(plans: &[CrateRooms]) -> Result<Vec<CrateRow>> {
    let last = order::ORDER.len();
    let mut plans: Vec<_> = plans.iter().collect();
    plans.sort_by_key(|plan| order::position(&plan.krate.name).unwrap_or(last));
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
                "| {place} | `{}` | {} | {} |",
                krate.name,
                krate.description.replace('|', "\\|"),
                plan.arrows.rooms.len()
            ),
            lines: plan.lines,
        });
    }
    Ok(rows)
}

fn render(rows: &[CrateRow]) -> String {
    let mut table =
        "\n| | crate | what it does | rooms | lines |\n|---|---|---|---|---|\n".to_owned();
    for row in rows {
        // Rounded to hundreds for readers.
        let lines = row.lines.div_ceil(100) * 100;
        let _ = writeln!(table, "{} {lines} |", row.fixed);
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
        let lines = lines.and_then(|lines| lines.trim_matches([' ', '|']).parse().ok());
        lines.is_some_and(|lines: usize| {
            lines.abs_diff(row.lines) <= (row.lines / STALE_SHARE).max(STALE_LINES)
        })
    });
    same && lines.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fixed: &str, lines: usize) -> CrateRow {
        let fixed = fixed.to_owned();
        CrateRow { fixed, lines }
    }

    #[test]
    fn a_table_is_stale_when_it_differs() {
        let rows = [
            row("| 1 | `json` | Strict JSON | 4 |", 8123),
            row("| 2 | `cli` | The binary | 2 |", 90),
        ];
        let table = render(&rows);
        assert!(
            table.contains("| 1 | `json` | Strict JSON | 4 | 8200 |"),
            "{table}"
        );
        assert!(is_fresh(&rows, &table));
        let stale: [&[CrateRow]; 4] = [
            &rows[..1],
            &[
                row("| 1 | `json` | Strict JSON | 5 |", 8123),
                row("| 2 | `cli` | The binary | 2 |", 90),
            ],
            &[
                row("| 1 | `json` | Strict JSON | 4 |", 9500),
                row("| 2 | `cli` | The binary | 2 |", 90),
            ],
            &[
                row("| 1 | `json` | Strict JSON | 4 |", 8123),
                row("| 2 | `cli` | The binary | 2 |", 900),
            ],
        ];
        for rows in stale {
            assert!(!is_fresh(rows, &table));
        }
        let grown = [
            row("| 1 | `json` | Strict JSON | 4 |", 8900),
            row("| 2 | `cli` | The binary | 2 |", 390),
        ];
        assert!(is_fresh(&grown, &table));
    }

    #[test]
    fn text_around_the_table_is_kept() {
        let text = format!("head\n{BEGIN}\nold\n{END}\ntail\n");
        let (before, table, after) = split(&text).unwrap();
        assert_eq!((before, table, after), ("head\n", "\nold\n", "\ntail\n"));
        assert_eq!(split("head\n"), None);
    }
}
