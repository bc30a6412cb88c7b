//! `pptx`: each slide under a heading of its own.

use crate::package::Package;
use crate::xml::{Text, Token, Xml};
use std::io::BufRead;
use toolhold_guest::extractor::{ExtractError, MarkdownText};

pub fn convert(package: &mut Package<'_>) -> Result<String, ExtractError> {
    let number = |name: &String| -> Option<u32> {
        let number = name
            .strip_prefix("ppt/slides/slide")?
            .strip_suffix(".xml")?;
        number.parse().ok()
    };
    let mut slides: Vec<u32> = package.names().iter().filter_map(number).collect();
    slides.sort_unstable();
    slides.dedup();
    if slides.is_empty() {
        return Err(ExtractError::Damaged("it has no slides".to_owned()));
    }
    let mut text = MarkdownText::default();
    for slide in slides {
        let (title, said) = read(package.needed(&format!("ppt/slides/slide{slide}.xml"))?)?;
        text.heading(2, &format!("Slide {slide} {title}"))?;
        for paragraph in said {
            text.block(&paragraph)?;
        }
    }
    Ok(text.into_text())
}

/// The title of a slide, and its paragraphs.
fn read(mut xml: Xml<impl BufRead>) -> Result<(String, Vec<String>), ExtractError> {
    let (mut title, mut said) = (String::new(), Vec::new());
    let (mut is_title, mut is_text) = (false, false);
    let mut paragraph = Text::default();
    while let Some(token) = xml.next()? {
        match token {
            Token::Start(element) => match element.name.as_str() {
                "sp" => is_title = false,
                "ph" => is_title = matches!(element.attribute("type"), Some("title" | "ctrTitle")),
                "t" => is_text = true,
                "br" => paragraph.push("\n"),
                "Fallback" => xml.skip()?,
                _ => {}
            },
            Token::Text(text) if is_text => paragraph.push(&text),
            Token::Text(_) => {}
            Token::End(name) => match name.as_str() {
                "t" => is_text = false,
                "p" if paragraph.is_empty() => {}
                "p" if is_title => {
                    title.push_str(&paragraph.line());
                    title.push(' ');
                }
                "p" => said.push(paragraph.take()),
                // Cells of a row are paragraphs, and stand in one line.
                "sp" => is_title = false,
                _ => {}
            },
        }
    }
    Ok((title, said))
}
