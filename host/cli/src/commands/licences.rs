//! `toolhold licences`: the notices of what is in the program by others.

use crate::exit::Exit;
use crate::terminal::columns::{Column, aligned};
use clap::Args;

#[derive(Debug, Args)]
pub struct LicencesArgs {
    /// Print one line per package: name, version, licence.
    #[arg(long)]
    list: bool,
}

/// The text that `cargo xtask licences` writes.
const NOTICES: &str = include_str!("../../../../docs/third-party-notices.txt");

/// Spaces between the columns of the list.
const GAP_CHARS: u16 = 2;

pub fn licences(args: &LicencesArgs) -> Exit {
    if args.list {
        for line in aligned(&[Column::Left(0); 3], GAP_CHARS, packages(NOTICES)) {
            println!("{line}");
        }
    } else {
        print!("{NOTICES}");
    }
    Exit::Ok
}

/// Name, version and licence of each package: the lines with tabs, which no text of a licence has.
fn packages(notices: &str) -> impl Iterator<Item = [&str; 3]> {
    notices.lines().filter_map(|line| {
        let mut cells = line.split('\t');
        let row = [cells.next()?, cells.next()?, cells.next()?];
        cells.next().is_some().then_some(row)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_what_is_in_the_program() {
        let listed: Vec<_> = packages(NOTICES).collect();
        let of = |name: &str| listed.iter().find(|[own, ..]| *own == name);
        for (name, licence) in [
            ("wasmtime", "Apache-2.0 WITH LLVM-exception"),
            ("SQLite", "blessing"),
            ("QuickJS-ng", "MIT"),
        ] {
            let found = of(name).unwrap_or_else(|| panic!("{name} in {listed:?}"));
            assert_eq!(found[2], licence, "{found:?}");
            let label = format!("\n{} {}\n", found[0], found[1]);
            assert!(NOTICES.contains(&label), "{name} has no text");
        }
        assert!(listed.len() > 100, "{listed:?}");
    }

    #[test]
    fn a_line_without_four_cells_is_no_package() {
        let rows: Vec<_> = packages("a\tb\tc\td\na\tb\tc\n\ntext").collect();
        assert_eq!(rows, [["a", "b", "c"]]);
    }
}
