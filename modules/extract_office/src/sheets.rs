//! `xlsx`, `xls` and `ods`: each sheet under a heading of its own, as a table.

use calamine::{Data, Error, Ods, OdsError, Reader as _, Sheets, Xls, XlsError, Xlsx, XlsxError};
use std::io::Cursor;
use toolhold_guest::extractor::{ExtractError, MarkdownText, table_row};

/// Columns that keep their place in a row with gaps.
const MAX_COLUMNS: usize = 256;

#[derive(Clone, Copy)]
pub enum Form {
    Xlsx,
    Xls,
    Ods,
}

pub fn convert(bytes: &[u8], form: Form) -> Result<String, ExtractError> {
    let bytes = Cursor::new(bytes);
    let mut book = match form {
        Form::Xlsx => Sheets::Xlsx(Xlsx::new(bytes).map_err(|error| fault(error.into()))?),
        Form::Xls => Sheets::Xls(Xls::new(bytes).map_err(|error| fault(error.into()))?),
        Form::Ods => Sheets::Ods(Ods::new(bytes).map_err(|error| fault(error.into()))?),
    };
    let mut text = MarkdownText::default();
    for name in book.sheet_names() {
        text.heading(2, &name)?;
        let mut table = Table::new(&mut text);
        match &mut book {
            // Cell by cell: a sheet may have two cells that are a million rows apart.
            Sheets::Xlsx(book) => {
                let Ok(mut cells) = book.worksheet_cells_reader(&name) else {
                    // A sheet of another kind: a chart.
                    continue;
                };
                while let Some(cell) = cells.next_cell().map_err(|error| fault(error.into()))? {
                    let (row, column) = cell.get_position();
                    table.cell(row, column, &Data::from(cell.get_value().clone()))?;
                }
            }
            other => {
                let range = other.worksheet_range(&name).map_err(fault)?;
                let (first_row, first_column) = range.start().unwrap_or_default();
                for (row, column, value) in range.used_cells() {
                    let row = first_row.saturating_add(u32::try_from(row).unwrap_or(u32::MAX));
                    let column =
                        first_column.saturating_add(u32::try_from(column).unwrap_or(u32::MAX));
                    table.cell(row, column, value)?;
                }
            }
        }
        table.end_row()?;
    }
    Ok(text.into_text())
}

struct Table<'a> {
    text: &'a mut MarkdownText,
    row: Option<u32>,
    cells: Vec<String>,
    rows: usize,
}

impl<'a> Table<'a> {
    fn new(text: &'a mut MarkdownText) -> Self {
        Self {
            text,
            row: None,
            cells: Vec::new(),
            rows: 0,
        }
    }

    fn cell(&mut self, row: u32, column: u32, value: &Data) -> Result<(), ExtractError> {
        if self.row != Some(row) {
            self.end_row()?;
            self.row = Some(row);
        }
        let said = shown(value);
        if said.is_empty() {
            return Ok(());
        }
        let column = usize::try_from(column).unwrap_or(usize::MAX);
        if column < MAX_COLUMNS && column > self.cells.len() {
            self.cells.resize(column, String::new());
        }
        self.cells.push(said);
        Ok(())
    }

    fn end_row(&mut self) -> Result<(), ExtractError> {
        let cells = std::mem::take(&mut self.cells);
        if cells.is_empty() {
            return Ok(());
        }
        let row = table_row(&cells);
        if self.rows == 0 {
            self.text.block(&row)?;
            self.text
                .push(&format!("|{}\n", "---|".repeat(cells.len())))?;
        } else {
            self.text.push(&row)?;
        }
        self.rows += 1;
        Ok(())
    }
}

fn shown(value: &Data) -> String {
    match value {
        Data::DateTime(date) if date.is_datetime() => {
            let (year, month, day, hour, minute, second, _) = date.to_ymd_hms_milli();
            let day = format!("{year:04}-{month:02}-{day:02}");
            if (hour, minute, second) == (0, 0, 0) {
                day
            } else {
                format!("{day} {hour:02}:{minute:02}:{second:02}")
            }
        }
        other => other.to_string(),
    }
}

fn fault(error: Error) -> ExtractError {
    match error {
        Error::Xlsx(XlsxError::Password)
        | Error::Xls(XlsError::Password)
        | Error::Ods(OdsError::Password) => ExtractError::Encrypted,
        other => ExtractError::Damaged(other.to_string()),
    }
}
