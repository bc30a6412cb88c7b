//! PDF as text: each page under a heading of its own, so that a passage tells its page.

mod forms;

use pdf_extract::{
    Document as Pdf, Error, MediaBox, Object, OutputDev, OutputError, PlainTextOutput, Transform,
    decode_text_string, output_doc,
};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use toolhold_guest::extractor::{
    Document, ExtractError, Extracted, Format, MAX_TEXT_BYTES, MarkdownText,
};

toolhold_guest::export_extractor!(formats, extract);

const MAX_PAGES: usize = 20_000;

fn formats() -> Vec<Format> {
    vec![Format {
        media_type: "application/pdf".to_owned(),
        endings: vec!["pdf".to_owned()],
    }]
}

fn extract(document: Document, _: &str) -> Result<Extracted, ExtractError> {
    convert(&document.bytes())
}

fn convert(bytes: &[u8]) -> Result<Extracted, ExtractError> {
    let mut pdf = Pdf::load_mem(bytes).map_err(fault)?;
    if pdf.is_encrypted() {
        // Many forbid printing and can be read without a password.
        pdf.decrypt("").map_err(|_| ExtractError::Encrypted)?;
    }
    let pages = pdf.get_pages().len();
    if pages == 0 {
        return Err(ExtractError::Damaged("it has no pages".to_owned()));
    }
    if pages > MAX_PAGES {
        return Err(ExtractError::TooLarge(format!(
            "it has more than {MAX_PAGES} pages"
        )));
    }
    forms::check(&pdf)?;
    give_pages_a_size(&mut pdf);
    let page = Rc::new(RefCell::new(Vec::new()));
    let mut writer = PageWriter(page.clone());
    let mut pages = Pages {
        plain: PlainTextOutput::new(&mut writer as &mut dyn io::Write),
        page,
        number: 0,
        text: MarkdownText::default(),
        full: None,
    };
    let read = output_doc(&pdf, &mut pages);
    if let Some(full) = pages.full {
        return Err(full);
    }
    match read {
        Ok(()) => {}
        Err(OutputError::PdfError(error)) => return Err(fault(error)),
        Err(OutputError::IoError(error)) => return Err(ExtractError::Damaged(error.to_string())),
        // The writer takes no more.
        Err(OutputError::FormatError(_)) => {
            let most = MAX_TEXT_BYTES >> 20;
            return Err(ExtractError::TooLarge(format!(
                "its text has more than {most} MiB"
            )));
        }
    }
    Ok(Extracted {
        title: title(&pdf),
        text: pages.text.into_text(),
    })
}

/// The text of the page that is read.
struct PageWriter(Rc<RefCell<Vec<u8>>>);

impl io::Write for PageWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut page = self.0.borrow_mut();
        if page.len() + bytes.len() > MAX_TEXT_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        page.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Puts each page under its heading.
struct Pages<'a> {
    plain: PlainTextOutput<&'a mut dyn io::Write>,
    page: Rc<RefCell<Vec<u8>>>,
    number: u32,
    text: MarkdownText,
    full: Option<ExtractError>,
}

type Box4 = (f64, f64, f64, f64);

impl OutputDev for Pages<'_> {
    fn begin_page(
        &mut self,
        number: u32,
        media: &MediaBox,
        art: Option<Box4>,
    ) -> Result<(), OutputError> {
        self.number = number;
        self.plain.begin_page(number, media, art)
    }

    fn end_page(&mut self) -> Result<(), OutputError> {
        let bytes = std::mem::take(&mut *self.page.borrow_mut());
        let page = tidy(&String::from_utf8_lossy(&bytes));
        if page.is_empty() {
            return Ok(());
        }
        let heading = format!("Page {}", self.number);
        let added = self
            .text
            .heading(2, &heading)
            .and_then(|()| self.text.block(&page));
        added.map_err(|full| {
            self.full = Some(full);
            OutputError::FormatError(std::fmt::Error)
        })
    }

    fn output_character(
        &mut self,
        place: &Transform,
        width: f64,
        spacing: f64,
        size: f64,
        character: &str,
    ) -> Result<(), OutputError> {
        self.plain
            .output_character(place, width, spacing, size, character)
    }

    fn begin_word(&mut self) -> Result<(), OutputError> {
        self.plain.begin_word()
    }

    fn end_word(&mut self) -> Result<(), OutputError> {
        self.plain.end_word()
    }

    fn end_line(&mut self) -> Result<(), OutputError> {
        self.plain.end_line()
    }
}

/// The page without empty lines at its ends, spaces at the ends of its lines, and what no text has.
fn tidy(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    for line in page.lines() {
        let line: String = line
            .chars()
            .filter(|c| !c.is_control() || *c == '\t')
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.trim().to_owned()
}

/// A page without a size, which is against the format and happens, has that of a letter.
fn give_pages_a_size(pdf: &mut Pdf) {
    let root = pdf.catalog().and_then(|catalog| catalog.get(b"Pages"));
    let Ok(root) = root.and_then(Object::as_reference) else {
        return;
    };
    if let Ok(root) = pdf.get_object_mut(root).and_then(Object::as_dict_mut)
        && !root.has(b"MediaBox")
    {
        let size = [0, 0, 612, 792].map(Object::Integer);
        root.set("MediaBox", Object::Array(size.to_vec()));
    }
}

fn title(pdf: &Pdf) -> Option<String> {
    let info = pdf.trailer.get(b"Info").ok()?;
    let (_, info) = pdf.dereference(info).ok()?;
    let title = decode_text_string(info.as_dict().ok()?.get(b"Title").ok()?).ok()?;
    let words: Vec<&str> = title.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

fn fault(error: Error) -> ExtractError {
    match error {
        Error::Decryption(_) | Error::InvalidPassword => ExtractError::Encrypted,
        Error::Unimplemented(what) => ExtractError::Unsupported(what.to_owned()),
        other => ExtractError::Damaged(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
