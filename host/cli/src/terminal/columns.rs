//! Tables on a terminal: columns as wide as what is in them.

use crate::terminal::style;
use std::fmt::Write as _;

/// The rows under their headings. The first column begins at the left, numbers end at the right.
pub fn columns<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let heading = headings.get(column).map_or(0, |text| text.chars().count());
        cells
            .map(|cell| cell.chars().count())
            .fold(heading, usize::max)
    });
    let line = |cells: &[String]| -> String {
        let padded = cells
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(at, (cell, width))| {
                if at == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("  {cell:>width$}")
                }
            });
        padded.collect::<String>().trim_end().to_owned()
    };
    let mut text = format!("  {}\n", style::dim(&line(&headings.map(str::to_owned))));
    for row in rows {
        let _ = writeln!(text, "  {}", line(row));
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
}
