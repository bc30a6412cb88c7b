//! `odt` and `odp`: paragraphs, headings, lists, tables and slides of `OpenDocument`.

use crate::package::Package;
use crate::xml::{Text, Token};
use toolhold_guest::extractor::{ExtractError, MarkdownText, table_row};

/// Spaces that one element may stand for.
const MAX_SPACES: usize = 100;

pub fn convert(package: &mut Package<'_>) -> Result<String, ExtractError> {
    if is_encrypted(package)? {
        return Err(ExtractError::Encrypted);
    }
    let mut text = MarkdownText::default();
    let mut xml = package.needed("content.xml")?;
    let mut paragraph = Text::default();
    // Paragraphs in each other: those in frames.
    let mut open = 0_usize;
    let (mut level, mut is_item, mut tables, mut rows, mut slide) =
        (1, false, 0_usize, 0_usize, 0_u32);
    let (mut cells, mut cell) = (Vec::new(), Text::default());
    while let Some(token) = xml.next()? {
        match token {
            Token::Start(element) => match element.name.as_str() {
                "annotation" | "tracked-changes" | "notes" | "forms" => xml.skip()?,
                "page" => {
                    slide += 1;
                    text.heading(2, &format!("Slide {slide}"))?;
                }
                "h" | "p" => {
                    open += 1;
                    let said = element
                        .attribute("outline-level")
                        .and_then(|level| level.parse().ok());
                    level = said.unwrap_or(1);
                }
                "list-item" => is_item = true,
                "tab" => paragraph.push(" "),
                "line-break" => paragraph.push("\n"),
                "s" => {
                    let count = element.attribute("c").and_then(|count| count.parse().ok());
                    paragraph.push(&" ".repeat(count.unwrap_or(1).min(MAX_SPACES)));
                }
                "table" => tables += 1,
                _ => {}
            },
            Token::Text(said) if open > 0 => paragraph.push(&said),
            Token::Text(_) => {}
            Token::End(name) => match name.as_str() {
                "h" | "p" => {
                    open = open.saturating_sub(1);
                    if tables > 0 {
                        cell.push(&paragraph.take());
                        cell.push(" ");
                    } else if name == "h" {
                        text.heading(level, &paragraph.line())?;
                    } else if is_item && !paragraph.is_empty() {
                        text.push(&format!("- {}\n", paragraph.line()))?;
                    } else {
                        text.block(&paragraph.take())?;
                    }
                }
                "list-item" => is_item = false,
                "table-cell" if tables == 1 => cells.push(cell.line()),
                "table-row" if tables == 1 => {
                    let cells: Vec<String> = std::mem::take(&mut cells);
                    if cells.iter().any(|cell| !cell.is_empty()) {
                        let row = table_row(&cells);
                        if rows == 0 {
                            text.block(&row)?;
                            text.push(&format!("|{}\n", "---|".repeat(cells.len())))?;
                        } else {
                            text.push(&row)?;
                        }
                        rows += 1;
                    }
                }
                "table" => {
                    tables = tables.saturating_sub(1);
                    if tables == 0 {
                        rows = 0;
                    }
                }
                _ => {}
            },
        }
    }
    Ok(text.into_text())
}

/// Parts are encrypted each, and the manifest says which.
fn is_encrypted(package: &mut Package<'_>) -> Result<bool, ExtractError> {
    let Some(mut xml) = package.xml("META-INF/manifest.xml")? else {
        return Ok(false);
    };
    while let Some(token) = xml.next()? {
        if let Token::Start(element) = token
            && element.name == "encryption-data"
        {
            return Ok(true);
        }
    }
    Ok(false)
}
