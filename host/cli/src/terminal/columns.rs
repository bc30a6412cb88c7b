//! Tables on a terminal, with correct widths of characters that take two cells.

use crate::terminal::style;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, Width};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Spaces before each column.
const GAP_CHARS: u16 = 2;

/// A column: its least width in cells, and where its texts begin.
#[derive(Debug, Clone, Copy)]
pub enum Column {
    Left(u16),
    Right(u16),
}

/// The rows under their headings. The first column begins at the left, numbers end at the right.
pub fn columns<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let mut layout = [Column::Right(0); N];
    if let Some(first) = layout.first_mut() {
        *first = Column::Left(0);
    }
    let headings = headings.map(str::to_owned);
    let rows = std::iter::once(&headings).chain(rows);
    let mut text = String::new();
    for (at, line) in aligned(&layout, GAP_CHARS, rows).iter().enumerate() {
        text.push_str("  ");
        text.push_str(&if at == 0 {
            style::dim(line)
        } else {
            line.clone()
        });
        text.push('\n');
    }
    text
}

/// A line for each row, with `gap` spaces between columns. No cell is cut or wrapped.
pub fn aligned(
    layout: &[Column],
    gap: u16,
    rows: impl IntoIterator<Item = impl Into<Row>>,
) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(NOTHING).add_rows(rows);
    laid_out(table, layout, gap, ColumnConstraint::LowerBoundary)
}

/// One row with cells of exactly these widths, wrapped between words; `gap` spaces between columns.
pub fn wrapped_row<const N: usize>(layout: [Column; N], gap: u16, cells: [&str; N]) -> Vec<String> {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .add_row(cells.map(one_line));
    laid_out(table, &layout, gap, ColumnConstraint::Absolute)
}

/// The lines of a table whose columns are laid out so.
fn laid_out(
    mut table: Table,
    layout: &[Column],
    gap: u16,
    constraint: fn(Width) -> ColumnConstraint,
) -> Vec<String> {
    for (at, (column, wanted)) in table.column_iter_mut().zip(layout).enumerate() {
        let gap = if at == 0 { 0 } else { gap };
        column.set_padding((gap, 0));
        let (Column::Left(width) | Column::Right(width)) = *wanted;
        column.set_constraint(constraint(Width::Fixed(width + gap)));
        if let Column::Right(_) = wanted {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let line = |line: String| line.trim_end().to_owned();
    table.lines().map(line).collect()
}

/// Lines of at most `width` cells, broken between words where there are any.
pub fn wrapped(text: &str, width: u16) -> Vec<String> {
    wrapped_row([Column::Left(width)], 0, [text])
}

/// The text, or its beginning and an ellipsis in at most `most` cells.
pub fn cut(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= most
    };
    text.chars().take_while(fits).collect::<String>() + "…"
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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

    #[test]
    fn columns_are_as_wide_as_asked_for() {
        let rows = [["日本", "1"], ["a longer one", "22"]];
        let layout = [Column::Left(6), Column::Right(3)];
        assert_eq!(
            aligned(&layout, 1, rows),
            ["日本           1", "a longer one  22"]
        );
    }

    #[test]
    fn cells_are_wrapped_between_words() {
        let layout = [Column::Right(3), Column::Left(4), Column::Right(2)];
        assert_eq!(
            wrapped_row(layout, 1, ["1", "a bc def", "x"]),
            ["  1 a bc  x", "    def"]
        );
        assert_eq!(wrapped("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrapped("日本 日本", 5), ["日本", "日本"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn cut_texts_fit() {
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(cut("abcde", 4), "abc…");
        assert_eq!(cut("日本語", 4), "日…");
    }
}
