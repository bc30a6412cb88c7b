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
    let mut field = String::new();
    loop {
        match reader.read_event().map_err(|error| wrong(&error))? {
            Event::Start(tag) => match (&mut entry, tag.local_name().as_ref()) {
                (None, "item" | "entry") => entry = Some(Entry::default()),
                (Some(entry), name) => {
                    name.clone_into(&mut field);
                    link(&tag, entry);
                }
                (None, _) => {}
            },
            Event::Empty(tag) => {
                if let Some(entry) = &mut entry {
                    link(&tag, entry);
                }
            }
            Event::Text(text) => {
                add(entry.as_mut(), &field, &text);
            }
            Event::CData(text) => {
                add(entry.as_mut(), &field, &text);
            }
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().ok().flatten();
                let text = character.map_or_else(|| named(&reference).to_owned(), String::from);
                add(entry.as_mut(), &field, &text);
            }
            Event::End(tag) => {
                field.clear();
                if matches!(tag.local_name().as_ref(), "item" | "entry")
                    && let Some(Entry {
                        title,
                        url,
                        snippet,
                    }) = entry.take()
                    && !url.trim().is_empty()
                {
                    results.push(Found::new(&title, &url, &snippet));
                }
            }
            Event::Eof => return Ok(results),
            _ => {}
        }
    }
}

/// Atom's address is an attribute.
fn link(tag: &BytesStart, entry: &mut Entry) {
    let Ok(Some(address)) = tag.try_get_attribute("href") else {
        return;
    };
    if tag.local_name().as_ref() == "link" && entry.url.is_empty() {
        entry.url = address.value.replace("&amp;", "&");
    }
}

fn add(entry: Option<&mut Entry>, field: &str, text: &str) {
    let Some(entry) = entry else {
        return;
    };
    match field {
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
            [Found::new("A & B", "https://a.example/?x=1&y=2", "It <is>")]
        );
        let atom = r#"<feed xmlns="http://www.w3.org/2005/Atom"><title>Search</title><entry><title>C</title>
            <link href="https://c.example/?x=1&amp;y=2"/><summary>D&#233;</summary></entry></feed>"#;
        assert_eq!(
            results(atom).unwrap(),
            [Found::new("C", "https://c.example/?x=1&y=2", "Dé")]
        );
        let error = results("<html><p>").map(|found| found.len());
        assert_eq!(error.unwrap(), 0, "a page without entries");
        assert!(results("<rss></item>").is_err());
    }
}
