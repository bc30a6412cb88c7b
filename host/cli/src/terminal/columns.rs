//! Tables on a terminal, with correct widths of characters that take two cells.

use crate::terminal::style;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// Spaces before each column.
const GAP_CHARS: u16 = 2;

/// The rows with headings. The first column is left-aligned, numbers right-aligned.
pub fn columns<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_header(headings)
        .add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((GAP_CHARS, 0));
        if at > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    for (at, line) in table.lines().enumerate() {
        let line = line.trim();
        text.push_str("  ");
        text.push_str(&if at == 0 {
            style::dim(line)
        } else {
            line.to_owned()
        });
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [
            ["a".to_owned(), "1 µs".to_owned()],
            ["longer".to_owned(), "12 µs".to_owned()],
        ];
        assert_eq!(
            columns(["name", "time"], &rows),
            "  name     time\n  a        1 µs\n  longer  12 µs\n"
        );
    }

    #[test]
    fn wide_characters_take_two_cells() {
        let rows = [
            ["日本".to_owned(), "1".to_owned()],
            ["🦀 crab".to_owned(), "2".to_owned()],
        ];
        assert_eq!(
            columns(["name", "n"], &rows),
            "  name     n\n  日本     1\n  🦀 crab  2\n"
        );
    }
}
