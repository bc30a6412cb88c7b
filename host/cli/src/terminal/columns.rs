//! Tables on a terminal, with correct widths of characters that take two cells.

use crate::terminal::style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Spaces before each column.
const GAP_CHARS: u16 = 2;
/// Cells of the widest text that its column is made as wide as. A longer one stands out, instead of filling all other
/// rows with as many spaces.
const MAX_ALIGNED_CELLS: usize = 160;

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
pub fn aligned<T: AsRef<str>>(
    layout: &[Column],
    gap: u16,
    rows: impl IntoIterator<Item = impl AsRef<[T]>>,
) -> Vec<String> {
    let rows: Vec<_> = rows.into_iter().collect();
    let widths = layout.iter().enumerate().map(|(at, column)| {
        let (Column::Left(least) | Column::Right(least)) = *column;
        let cells = rows.iter().filter_map(|row| row.as_ref().get(at));
        let widths = cells.map(|cell| cell.as_ref().width());
        let aligned = widths.filter(|width| *width <= MAX_ALIGNED_CELLS).max();
        aligned.unwrap_or(0).max(least.into())
    });
    let widths: Vec<usize> = widths.collect();
    let row = |row: &[T]| laid_out(layout, &widths, gap, row.iter().map(AsRef::as_ref));
    rows.iter().map(|cells| row(cells.as_ref())).collect()
}

/// One row with cells of exactly these widths, wrapped between words; `gap` spaces between columns.
pub fn wrapped_row<const N: usize>(layout: [Column; N], gap: u16, cells: [&str; N]) -> Vec<String> {
    let widths = layout.map(|column| {
        let (Column::Left(width) | Column::Right(width)) = column;
        usize::from(width)
    });
    let wrapped: Vec<_> = cells
        .iter()
        .zip(widths)
        .map(|(cell, width)| lines_of(cell, width))
        .collect();
    let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
    let line = |at: usize| {
        let parts = wrapped
            .iter()
            .map(|cell| cell.get(at).map_or("", String::as_str));
        laid_out(&layout, &widths, gap, parts)
    };
    (0..height).map(line).collect()
}

/// A line of cells in columns of these widths, without spaces at its end.
fn laid_out<'t>(
    layout: &[Column],
    widths: &[usize],
    gap: u16,
    cells: impl Iterator<Item = &'t str>,
) -> String {
    let mut line = String::new();
    for (at, ((cell, column), width)) in cells.zip(layout).zip(widths).enumerate() {
        if at > 0 {
            line.extend(std::iter::repeat_n(' ', gap.into()));
        }
        let padding = std::iter::repeat_n(' ', width.saturating_sub(cell.width()));
        match column {
            Column::Left(_) => {
                line.push_str(cell);
                line.extend(padding);
            }
            Column::Right(_) => {
                line.extend(padding);
                line.push_str(cell);
            }
        }
    }
    line.truncate(line.trim_end().len());
    line
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
        used += cells_of(*c);
        used <= most
    };
    text.chars().take_while(fits).collect::<String>() + "…"
}

/// The words of a text in lines of at most `width` cells, and at least one line. A word that is longer than a line is
/// broken where the line is full.
fn lines_of(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let cells: usize = word.chars().map(cells_of).sum();
        let is_first = line.is_empty();
        if !is_first && used + 1 + cells <= width {
            line.push(' ');
            used += 1;
        } else if !is_first {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        for c in word.chars() {
            let takes = cells_of(c);
            if !line.is_empty() && used + takes > width {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push(c);
            used += takes;
        }
    }
    lines.push(line);
    lines
}

fn cells_of(c: char) -> usize {
    c.width().unwrap_or(0)
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
        assert_eq!(wrapped(" a\n\tb ", 4), ["a b"]);
        assert_eq!(wrapped("a abcdefgh b", 4), ["a", "abcd", "efgh", "b"]);
        assert_eq!(wrapped("日本語", 1), ["日", "本", "語"]);
    }

    /// Texts of others are among the cells: values and keys of a file that was found.
    #[test]
    fn a_long_cell_adds_its_own_length_only() {
        let long = "x".repeat(1 << 20);
        let layout = [Column::Left(0); 2];
        for place in 0..2 {
            let mut rows = vec![["key", "value"]; 1_000];
            rows[500][place] = &long;
            let lines = aligned(&layout, 1, &rows);
            let bytes: usize = lines.iter().map(String::len).sum();
            assert!(bytes < long.len() + 1_000 * 20, "{place}: {bytes}");
            assert_eq!(lines[0], lines[999]);
        }
        let lines = wrapped(&long, 80);
        assert_eq!(lines.len(), (1_usize << 20).div_ceil(80));
        assert_eq!(cut(&long, 80).width(), 80);
    }

    #[test]
    fn cut_texts_fit() {
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(cut("abcde", 4), "abc…");
        assert_eq!(cut("日本語", 4), "日…");
    }
}
