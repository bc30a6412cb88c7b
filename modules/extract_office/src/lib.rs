//! Office documents as Markdown: texts, slides and tables of Microsoft's and of the open formats.

mod open;
mod package;
mod sheets;
mod slides;
mod words;
mod xml;

use package::Package;
use sheets::Form;
use toolhold_guest::extractor::{Document, ExtractError, Extracted, Format};

toolhold_guest::export_extractor!(formats, extract);

/// Media type and ending of what is read, and what reads it.
const KINDS: [(&str, &str, Kind); 8] = [
    (
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "docx",
        Kind::Words,
    ),
    (
        "application/vnd.openxmlformats-officedocument.wordprocessingml.template",
        "dotx",
        Kind::Words,
    ),
    (
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "pptx",
        Kind::Slides,
    ),
    (
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "xlsx",
        Kind::Sheets(Form::Xlsx),
    ),
    ("application/vnd.ms-excel", "xls", Kind::Sheets(Form::Xls)),
    ("application/vnd.oasis.opendocument.text", "odt", Kind::Open),
    (
        "application/vnd.oasis.opendocument.presentation",
        "odp",
        Kind::Open,
    ),
    (
        "application/vnd.oasis.opendocument.spreadsheet",
        "ods",
        Kind::Sheets(Form::Ods),
    ),
];

#[derive(Clone, Copy)]
enum Kind {
    Words,
    Slides,
    Sheets(Form),
    Open,
}

fn formats() -> Vec<Format> {
    let format = |&(media_type, ending, _): &(&str, &str, Kind)| Format {
        media_type: media_type.to_owned(),
        endings: vec![ending.to_owned()],
    };
    KINDS.iter().map(format).collect()
}

fn extract(document: Document, media_type: &str) -> Result<Extracted, ExtractError> {
    convert(&document.bytes(), media_type)
}

fn convert(bytes: &[u8], media_type: &str) -> Result<Extracted, ExtractError> {
    let kind = KINDS.iter().find(|(own, ..)| *own == media_type);
    let Some(&(.., kind)) = kind else {
        return Err(ExtractError::Unsupported(media_type.to_owned()));
    };
    // The one form that is no package.
    if let Kind::Sheets(form @ Form::Xls) = kind {
        return Ok(Extracted {
            title: None,
            text: sheets::convert(bytes, form)?,
        });
    }
    let mut package = Package::open(bytes)?;
    let text = match kind {
        Kind::Words => words::convert(&mut package)?,
        Kind::Slides => slides::convert(&mut package)?,
        Kind::Open => open::convert(&mut package)?,
        Kind::Sheets(form) => sheets::convert(bytes, form)?,
    };
    Ok(Extracted {
        title: package.title()?,
        text,
    })
}

#[cfg(test)]
mod tests;
