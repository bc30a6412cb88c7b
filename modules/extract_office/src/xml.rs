//! XML as a row of tokens, without namespaces and without entities of its own.

use crate::package::too_large;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Error, Reader, XmlVersion};
use std::io::{self, BufRead};
use toolhold_guest::extractor::{ExtractError, MAX_TEXT_BYTES};

/// Elements in each other.
const MAX_DEPTH: usize = 1_000;

pub struct Xml<R> {
    reader: Reader<R>,
    buffer: Vec<u8>,
    depth: usize,
    /// Of an element that is empty.
    ends: Option<String>,
}

pub enum Token {
    Start(Element),
    /// Its name.
    End(String),
    Text(String),
}

pub struct Element {
    /// Without its namespace.
    pub name: String,
    attributes: Vec<(String, String)>,
}

impl Element {
    /// An attribute by its name without the namespace.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl<R: BufRead> Xml<R> {
    pub fn new(reader: R) -> Self {
        Self {
            reader: Reader::from_reader(reader),
            buffer: Vec::new(),
            depth: 0,
            ends: None,
        }
    }

    /// The next token; absent at the end.
    pub fn next(&mut self) -> Result<Option<Token>, ExtractError> {
        if let Some(name) = self.ends.take() {
            return Ok(Some(Token::End(name)));
        }
        loop {
            self.buffer.clear();
            let event = self
                .reader
                .read_event_into(&mut self.buffer)
                .map_err(fault)?;
            let token = match event {
                Event::Start(start) => {
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        return Err(ExtractError::TooLarge(format!(
                            "its elements stand in each other more than {MAX_DEPTH} deep"
                        )));
                    }
                    Token::Start(element(&start)?)
                }
                Event::Empty(start) => {
                    let element = element(&start)?;
                    self.ends = Some(element.name.clone());
                    Token::Start(element)
                }
                Event::End(end) => {
                    self.depth = self.depth.saturating_sub(1);
                    Token::End(end.local_name().as_ref().to_owned())
                }
                Event::Text(text) => Token::Text(text.xml10_content().into_owned()),
                Event::CData(text) => Token::Text(text.xml10_content().into_owned()),
                Event::GeneralRef(reference) => {
                    let character = reference.resolve_char_ref().map_err(fault)?;
                    let text = match character {
                        Some(character) => character.to_string(),
                        None => quick_xml::escape::resolve_predefined_entity(&reference)
                            .ok_or_else(|| {
                                ExtractError::Damaged(
                                    "it has entities of its own, which are not read".to_owned(),
                                )
                            })?
                            .to_owned(),
                    };
                    Token::Text(text)
                }
                Event::Eof if self.depth > 0 => {
                    return Err(ExtractError::Damaged("it ends too early".to_owned()));
                }
                Event::Eof => return Ok(None),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => continue,
            };
            return Ok(Some(token));
        }
    }

    /// Passes over what is in the element that began last.
    pub fn skip(&mut self) -> Result<(), ExtractError> {
        let mut open = 1_usize;
        while open > 0 {
            match self.next()? {
                Some(Token::Start(_)) => open += 1,
                Some(Token::End(_)) => open -= 1,
                Some(Token::Text(_)) => {}
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

fn element(start: &BytesStart<'_>) -> Result<Element, ExtractError> {
    let mut attributes = Vec::new();
    for attribute in start.attributes().with_checks(false) {
        let attribute = attribute.map_err(|error| ExtractError::Damaged(error.to_string()))?;
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(fault)?;
        let name = attribute.key.local_name().as_ref().to_owned();
        attributes.push((name, value.into_owned()));
    }
    Ok(Element {
        name: start.local_name().as_ref().to_owned(),
        attributes,
    })
}

fn fault(error: Error) -> ExtractError {
    match &error {
        Error::Io(io) if io.kind() == io::ErrorKind::FileTooLarge => too_large(),
        _ => ExtractError::Damaged(format!("its XML: {error}")),
    }
}

/// The text of a paragraph.
#[derive(Default)]
pub struct Text(String);

impl Text {
    /// Goes a little beyond what a document may have, which is then refused as too long.
    pub fn push(&mut self, text: &str) {
        if self.0.len() <= MAX_TEXT_BYTES {
            self.0.push_str(text);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.trim().is_empty()
    }

    /// In one line, and empty from now on.
    pub fn line(&mut self) -> String {
        let words: Vec<&str> = self.0.split_whitespace().collect();
        let line = words.join(" ");
        self.0.clear();
        line
    }

    /// With its lines, and empty from now on.
    pub fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.0);
        text.trim().to_owned()
    }
}
