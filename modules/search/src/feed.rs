//! Results as RSS 2.0 or Atom, the formats of OpenSearch 1.1's responses.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use toolhold_guest::Error;

use crate::results::Found;

/// What an entry consists of, while it is read.
#[derive(Default)]
struct Entry {
    title: String,
    url: String,
    snippet: String,
    /// The element of the entry that is open, with its prefix: `media:title` is none of the entry's own.
    field: String,
    /// Elements of the entry that are open, one in another.
    depth: usize,
}

/// The entries of a feed.
///
/// # Errors
/// It is no well-formed XML.
pub fn results(xml: &str) -> Result<Vec<Found>, Error> {
    let wrong = |error: &dyn std::fmt::Display| {
        Error::fatal(format!(
            "the search engine's answer is no feed that can be read: {error}"
        ))
    };
    let mut reader = Reader::from_str(xml);
    let mut results = Vec::new();
    let mut entry: Option<Entry> = None;
    loop {
        match reader.read_event().map_err(|error| wrong(&error))? {
            Event::Start(tag) => {
                let name = tag.name();
                match &mut entry {
                    None if matches!(name.as_ref(), "item" | "entry") => {
                        entry = Some(Entry::default());
                    }
                    None => {}
                    Some(entry) => {
                        if entry.depth == 0 {
                            name.as_ref().clone_into(&mut entry.field);
                            link(&tag, entry);
                        }
                        entry.depth += 1;
                    }
                }
            }
            Event::Empty(tag) => {
                if let Some(entry) = &mut entry
                    && entry.depth == 0
                {
                    link(&tag, entry);
                }
            }
            Event::Text(text) => add(entry.as_mut(), &text),
            Event::CData(text) => add(entry.as_mut(), &text),
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().ok().flatten();
                let text = character.map_or_else(|| named(&reference).to_owned(), String::from);
                add(entry.as_mut(), &text);
            }
            Event::End(_) => match &mut entry {
                Some(inside) if inside.depth > 0 => inside.depth -= 1,
                _ => results.extend(entry.take().and_then(Entry::found)),
            },
            Event::Eof => return Ok(results),
            _ => {}
        }
    }
}

impl Entry {
    fn found(self) -> Option<Found> {
        Found::new(&self.title, &self.url, &self.snippet)
    }
}

/// Atom's address is an attribute; an entry may have links to other things than its page.
fn link(tag: &BytesStart, entry: &mut Entry) {
    let attribute = |name| {
        let value = tag.try_get_attribute(name).ok().flatten();
        value.map(|value| value.value.replace("&amp;", "&"))
    };
    let is_page = attribute("rel").is_none_or(|rel| rel == "alternate");
    if tag.name().as_ref() == "link"
        && is_page
        && entry.url.is_empty()
        && let Some(address) = attribute("href")
    {
        entry.url = address;
    }
}

fn add(entry: Option<&mut Entry>, text: &str) {
    let Some(entry) = entry.filter(|entry| entry.depth > 0) else {
        return;
    };
    match entry.field.as_str() {
        "title" => entry.title.push_str(text),
        "link" => entry.url.push_str(text),
        "description" | "summary" | "content" => entry.snippet.push_str(text),
        _ => {}
    }
}

/// The entities that XML itself has.
fn named(name: &str) -> &'static str {
    match name {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rss_and_atom_are_read() {
        let rss = r#"<?xml version="1.0"?><rss version="2.0"><channel><title>Search</title><link>https://e.x</link>
            <item><title>A &amp; B</title><link>https://a.example/?x=1&amp;y=2</link><description><![CDATA[It <is>]]></description></item>
            <item><title>no address</title></item></channel></rss>"#;
        assert_eq!(
            results(rss).unwrap(),
            Vec::from_iter(Found::new("A & B", "https://a.example/?x=1&y=2", "It <is>"))
        );
        let atom = r#"<feed xmlns="http://www.w3.org/2005/Atom"><title>Search</title><entry><title>C</title>
            <link href="https://c.example/?x=1&amp;y=2"/><summary>D&#233;</summary></entry></feed>"#;
        assert_eq!(
            results(atom).unwrap(),
            Vec::from_iter(Found::new("C", "https://c.example/?x=1&y=2", "Dé"))
        );
        let prefixed = r#"<rss><item><media:title>no</media:title><title>A <b>b</b> c</title>
            <atom:link href="https://no.example" rel="self"/><link>https://d.example</link></item></rss>"#;
        assert_eq!(
            results(prefixed).unwrap(),
            Vec::from_iter(Found::new("A b c", "https://d.example", ""))
        );
        let linked = r#"<feed><entry><title>E</title><link rel="self" href="https://no.example"/>
            <link rel="alternate" href="https://e.example"/></entry></feed>"#;
        assert_eq!(
            results(linked).unwrap(),
            Vec::from_iter(Found::new("E", "https://e.example", ""))
        );
        let error = results("<html><p>").map(|found| found.len());
        assert_eq!(error.unwrap(), 0, "a page without entries");
        assert!(results("<rss></item>").is_err());
    }
}
