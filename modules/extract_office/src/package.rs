//! The zip file that an office document is, with bounds on what comes out of it.

use crate::xml::{Text, Token, Xml};
use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, BufReader, Cursor, Read};
use std::rc::Rc;
use toolhold_guest::extractor::ExtractError;
use zip::ZipArchive;
use zip::result::ZipError;

/// Bytes that are unpacked and read here of a document, all of its parts together. One text may be all of it, which the
/// parser keeps twice while its memory grows.
const MAX_READ_BYTES: u64 = 64 << 20;
/// Bytes that all parts say that they unpack to, pictures among them.
const MAX_UNPACKED_BYTES: u64 = 256 << 20;
/// Files in the package.
const MAX_FILES: usize = 20_000;
/// How a file begins that an older program, or one with a password, wrote.
const COMPOUND_FILE: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";

pub struct Package<'a> {
    archive: ZipArchive<Cursor<&'a [u8]>>,
    left: Rc<Cell<u64>>,
}

/// A part of the package, which says so where more is unpacked than may be.
pub struct Part<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Part<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let left = self.left.get().checked_sub(count as u64);
        let left = left.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
        self.left.set(left);
        Ok(count)
    }
}

/// Its text, unpacked, has more than is read.
pub fn too_large() -> ExtractError {
    larger_than(MAX_READ_BYTES)
}

fn larger_than(most: u64) -> ExtractError {
    ExtractError::TooLarge(format!("unpacked it has more than {} MiB", most >> 20))
}

fn fault(error: ZipError) -> ExtractError {
    match error {
        ZipError::Io(error) if error.kind() == io::ErrorKind::FileTooLarge => too_large(),
        other => ExtractError::Damaged(format!("it is no whole zip file: {other}")),
    }
}

impl<'a> Package<'a> {
    pub fn open(bytes: &'a [u8]) -> Result<Self, ExtractError> {
        if bytes.starts_with(COMPOUND_FILE) {
            return Err(ExtractError::Encrypted);
        }
        let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(fault)?;
        if archive.len() > MAX_FILES {
            return Err(ExtractError::TooLarge(format!(
                "it is a package of more than {MAX_FILES} files"
            )));
        }
        // What it says; what it does is counted while it is read.
        let mut declared = 0_u64;
        for index in 0..archive.len() {
            let file = archive.by_index_raw(index).map_err(fault)?;
            if file.encrypted() {
                return Err(ExtractError::Encrypted);
            }
            declared = declared.saturating_add(file.size());
        }
        if declared > MAX_UNPACKED_BYTES {
            return Err(larger_than(MAX_UNPACKED_BYTES));
        }
        Ok(Self {
            archive,
            left: Rc::new(Cell::new(MAX_READ_BYTES)),
        })
    }

    pub fn names(&self) -> Vec<String> {
        let names = self.archive.file_names().filter_map(Result::ok);
        names.map(Cow::into_owned).collect()
    }

    /// A part as XML; absent if there is none of this name.
    pub fn xml(&mut self, name: &str) -> Result<Option<Xml<impl io::BufRead + '_>>, ExtractError> {
        let left = self.left.clone();
        match self.archive.by_name(name) {
            Ok(inner) => Ok(Some(Xml::new(BufReader::new(Part { inner, left })))),
            Err(ZipError::FileNotFound) => Ok(None),
            Err(error) => Err(fault(error)),
        }
    }

    /// A part that must be there.
    pub fn needed(&mut self, name: &str) -> Result<Xml<impl io::BufRead + '_>, ExtractError> {
        let missing = || ExtractError::Damaged(format!("it has no {name}"));
        self.xml(name)?.ok_or_else(missing)
    }

    /// What the document says that it is called.
    pub fn title(&mut self) -> Result<Option<String>, ExtractError> {
        for name in ["docProps/core.xml", "meta.xml"] {
            let Some(mut xml) = self.xml(name)? else {
                continue;
            };
            let mut title = Text::default();
            let mut is_title = false;
            while let Some(token) = xml.next()? {
                match token {
                    Token::Start(element) => is_title = element.name == "title",
                    Token::End(_) => is_title = false,
                    Token::Text(text) if is_title => title.push(&text),
                    Token::Text(_) => {}
                }
            }
            let title = title.line();
            return Ok((!title.is_empty()).then_some(title));
        }
        Ok(None)
    }
}
