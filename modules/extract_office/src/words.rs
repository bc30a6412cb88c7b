//! `docx`: paragraphs, headings by their styles, lists, tables and notes.

use crate::package::Package;
use crate::xml::{Text, Token, Xml};
use std::collections::HashMap;
use std::io::BufRead;
use toolhold_guest::extractor::{ExtractError, MarkdownText, table_row};

/// Levels of headings by the id of the style.
type Styles = HashMap<String, usize>;

pub fn convert(package: &mut Package<'_>) -> Result<String, ExtractError> {
    let styles = match package.xml("word/styles.xml")? {
        Some(xml) => heading_styles(xml)?,
        None => Styles::new(),
    };
    let mut text = MarkdownText::default();
    read(package.needed("word/document.xml")?, &styles, &mut text)?;
    for notes in ["word/footnotes.xml", "word/endnotes.xml"] {
        if let Some(xml) = package.xml(notes)? {
            read(xml, &styles, &mut text)?;
        }
    }
    Ok(text.into_text())
}

/// Names of styles are English in every language, and their ids are not.
fn heading_styles(mut xml: Xml<impl BufRead>) -> Result<Styles, ExtractError> {
    let mut styles = Styles::new();
    let mut id = None;
    while let Some(token) = xml.next()? {
        let Token::Start(element) = token else {
            continue;
        };
        match element.name.as_str() {
            "style" => id = element.attribute("styleId").map(str::to_owned),
            "name" => {
                let name = element
                    .attribute("val")
                    .unwrap_or_default()
                    .to_ascii_lowercase();
                let level = match name.strip_prefix("heading ") {
                    Some(level) => level.parse().ok(),
                    None => (name == "title").then_some(1),
                };
                if let (Some(id), Some(level)) = (id.take(), level) {
                    styles.insert(id, level);
                }
            }
            _ => {}
        }
    }
    Ok(styles)
}

/// A table, of which the cells of tables in it are a part.
#[derive(Default)]
struct Table {
    /// Tables in each other.
    depth: usize,
    rows: usize,
    cells: Vec<String>,
    cell: Text,
}

fn read(
    mut xml: Xml<impl BufRead>,
    styles: &Styles,
    text: &mut MarkdownText,
) -> Result<(), ExtractError> {
    let mut table = Table::default();
    let mut paragraph = Text::default();
    let (mut level, mut is_item, mut is_text) = (None, false, false);
    while let Some(token) = xml.next()? {
        match token {
            Token::Start(element) => match element.name.as_str() {
                "p" => (level, is_item) = (None, false),
                "pStyle" => {
                    level = element
                        .attribute("val")
                        .and_then(|id| styles.get(id))
                        .copied();
                }
                "numPr" => is_item = true,
                "t" => is_text = true,
                "tab" => paragraph.push(" "),
                "br" | "cr" => paragraph.push("\n"),
                // The same once more, for older programs; and what was deleted.
                "Fallback" | "del" | "moveFrom" => xml.skip()?,
                "tbl" => table.depth += 1,
                _ => {}
            },
            Token::Text(said) if is_text => paragraph.push(&said),
            Token::Text(_) => {}
            Token::End(name) => match name.as_str() {
                "t" => is_text = false,
                "p" if table.depth > 0 => {
                    table.cell.push(&paragraph.take());
                    table.cell.push(" ");
                }
                "p" => match level {
                    Some(level) => text.heading(level, &paragraph.line())?,
                    None if is_item && !paragraph.is_empty() => {
                        text.push(&format!("- {}\n", paragraph.line()))?;
                    }
                    None => text.block(&paragraph.take())?,
                },
                "tc" if table.depth == 1 => table.cells.push(table.cell.line()),
                "tr" if table.depth == 1 => row(&mut table, text)?,
                "tbl" => {
                    table.depth = table.depth.saturating_sub(1);
                    table.rows = if table.depth == 0 { 0 } else { table.rows };
                }
                _ => {}
            },
        }
    }
    Ok(())
}

fn row(table: &mut Table, text: &mut MarkdownText) -> Result<(), ExtractError> {
    let cells = std::mem::take(&mut table.cells);
    if cells.iter().all(String::is_empty) {
        return Ok(());
    }
    let row = table_row(&cells);
    if table.rows == 0 {
        text.block(&row)?;
        text.push(&format!("|{}\n", "---|".repeat(cells.len())))?;
    } else {
        text.push(&row)?;
    }
    table.rows += 1;
    Ok(())
}
