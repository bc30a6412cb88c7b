//! Where a JSON value ends, in text that arrives in pieces.

use crate::strict;
use serde_json::Value;

/// Brackets within brackets that `serde_json` reads. A value that it would refuse in the complete
/// reply is refused here too.
const MAX_DEPTH: usize = 127;

/// White space between tokens (RFC 8259, 2).
pub const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Gathers the text of one value. It knows strings, escapes and brackets and nothing else of JSON:
/// what it cuts out, [`strict`] judges. Each byte is looked at once, however small the pieces.
#[derive(Debug)]
pub struct Scan {
    text: String,
    /// Brackets that are open, of the value and around it.
    depth: usize,
    outside: usize,
    inside: Inside,
}

/// The token that the next character belongs to.
#[derive(Debug, Clone, Copy)]
enum Inside {
    Value,
    String,
    Escape,
}

impl Scan {
    /// `outside`: brackets that are open around the value.
    pub fn new(outside: usize) -> Self {
        Self {
            text: String::new(),
            depth: outside,
            outside,
            inside: Inside::Value,
        }
    }

    /// Takes the next piece. When the value ends in it: the value, and the rest of the piece. After
    /// that nothing more may be pushed.
    ///
    /// # Errors
    /// The fault in the value.
    pub fn push<'t>(&mut self, piece: &'t str) -> Result<Option<(Value, &'t str)>, String> {
        let piece = if self.text.is_empty() {
            piece.trim_start_matches(SPACE)
        } else {
            piece
        };
        let Some(end) = self.end(piece)? else {
            self.text.push_str(piece);
            return Ok(None);
        };
        // Every end is beside an ASCII character, so it is none inside a character.
        let (last, rest) = piece.split_at(end);
        self.text.push_str(last);
        Ok(Some((parse(&self.text)?, rest)))
    }

    /// The text has ended: a number or a literal has no other end, and what else was begun is cut.
    /// Without a value: none.
    pub fn finish(&self) -> Result<Option<Value>, String> {
        if self.text.is_empty() {
            return Ok(None);
        }
        parse(&self.text).map(Some)
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Bytes of the value that are held so far.
    pub fn held(&self) -> usize {
        self.text.len()
    }

    /// The number of bytes of `piece` that end the value.
    fn end(&mut self, piece: &str) -> Result<Option<usize>, String> {
        for (at, byte) in piece.bytes().enumerate() {
            let is_outermost = self.depth == self.outside;
            match (self.inside, byte) {
                (Inside::Escape, _) | (Inside::Value, b'"') => self.inside = Inside::String,
                (Inside::String, b'\\') => self.inside = Inside::Escape,
                (Inside::String, b'"') => {
                    self.inside = Inside::Value;
                    if is_outermost {
                        return Ok(Some(at + 1));
                    }
                }
                (Inside::Value, b'{' | b'[') => {
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        return Err(format!(
                            "values are nested more than {MAX_DEPTH} deep; write it flatter"
                        ));
                    }
                }
                // What follows a number or a literal.
                (Inside::Value, b'}' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r')
                    if is_outermost =>
                {
                    return Ok(Some(at));
                }
                (Inside::Value, b'}' | b']') => {
                    self.depth -= 1;
                    if self.depth == self.outside {
                        return Ok(Some(at + 1));
                    }
                }
                (Inside::String | Inside::Value, _) => {}
            }
        }
        Ok(None)
    }
}

fn parse(text: &str) -> Result<Value, String> {
    strict::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value and the rest, with the text pushed in one piece and in pieces of one character.
    fn scan(text: &str) -> Option<(String, String)> {
        let (value, rest) = Scan::new(0).push(text).unwrap()?;
        let mut scan = Scan::new(0);
        let (again, end) = text
            .char_indices()
            .find_map(|(at, c)| {
                let end = at + c.len_utf8();
                let (value, unused) = scan.push(&text[at..end]).unwrap()?;
                Some((value, end - unused.len()))
            })
            .unwrap();
        assert_eq!((&again, &text[end..]), (&value, rest), "{text}");
        Some((value.to_string(), rest.to_owned()))
    }

    #[test]
    fn a_value_ends_where_it_ends() {
        for (text, value, rest) in [
            ("{}x", "{}", "x"),
            (" \n[1,[2],{\"a\":{}}] ]", "[1,[2],{\"a\":{}}]", " ]"),
            (r#""a}]\"\\"}"#, r#""a}]\"\\""#, "}"),
            (
                r#"{"a\\":"{\"[","†":"\u007d"}}"#,
                r#"{"a\\":"{\"[","†":"}"}"#,
                "}",
            ),
            ("17,", "17", ","),
            ("null}", "null", "}"),
            ("-1.5e3\t", "-1500.0", "\t"),
        ] {
            assert_eq!(scan(text), Some((value.into(), rest.into())));
        }
    }

    #[test]
    fn what_goes_on_is_no_value_yet() {
        for text in ["", " ", "{", "[1", "\"a\\\"", "12", "nul", "{\"a\":\"}"] {
            assert_eq!(scan(text), None, "{text}");
        }
    }

    #[test]
    fn at_the_end_a_number_or_a_literal_is_outermost() {
        for (text, expected) in [
            ("", Ok(None)),
            (" 12", Ok(Some("12"))),
            ("null", Ok(Some("null"))),
            ("nul", Err(())),
            ("{", Err(())),
        ] {
            let mut scan = Scan::new(0);
            scan.push(text).unwrap();
            let found = scan.finish().map(|value| value.map(|v| v.to_string()));
            let found = found.as_ref().map(Option::as_deref).map_err(drop);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn what_only_looks_whole_is_refused() {
        for text in [
            "{\"a\":[}]",
            "{]",
            "[1 2]",
            "01,",
            "}",
            ",",
            "tru ",
            "1\"a\" ",
            "{'a'}",
        ] {
            assert!(Scan::new(0).push(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_nest_as_deep_as_in_the_complete_reply() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        for depth in [1, MAX_DEPTH, MAX_DEPTH + 1, 10_000] {
            let text = nested(depth);
            let expected = serde_json::from_str::<Value>(&text).is_ok();
            assert_eq!(Scan::new(0).push(&text).is_ok(), expected, "{depth}");
            let inner = &text[2..];
            assert_eq!(Scan::new(2).push(inner).is_ok(), expected);
        }
    }
}
