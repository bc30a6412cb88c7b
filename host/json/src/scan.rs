//! JSON text that arrives in pieces: strings apart from what stands between them ([`JsonLexer`]), and where
//! a value ends ([`Scan`]).

use crate::depth::MAX_DEPTH;
use crate::rules::ReadingRules;
use crate::strict;
use crate::string::{StringDecoder, StringPart};
use serde_json::Value;

/// White space between tokens (RFC 8259, 2).
pub const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Reads text character by character, in the same way wherever it is cut into pieces. It knows strings
/// and nothing else of JSON.
#[derive(Debug, Clone, Default)]
pub struct JsonLexer {
    string: Option<StringDecoder>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonToken {
    /// A character outside of strings that is no quote.
    Between(char),
    /// The quote before a string.
    Begin,
    Inside(StringPart),
    /// The quote after a string.
    End,
}

impl JsonLexer {
    /// Takes the next token from the beginning of `text`. `None`: the text is used up.
    pub fn next(&mut self, text: &mut &str) -> Option<JsonToken> {
        if let Some(string) = &mut self.string {
            let part = string.next(text)?;
            if part != StringPart::Plain('"') {
                return Some(JsonToken::Inside(part));
            }
            self.string = None;
            return Some(JsonToken::End);
        }
        let mut rest = text.chars();
        let next = rest.next()?;
        *text = rest.as_str();
        if next != '"' {
            return Some(JsonToken::Between(next));
        }
        self.string = Some(StringDecoder::default());
        Some(JsonToken::Begin)
    }
}

/// Gathers the text of one value. It knows strings and brackets and nothing else of JSON: what it cuts
/// out, [`strict`] judges. Each character is read once, however small the pieces.
#[derive(Debug, Clone)]
pub struct Scan {
    text: String,
    /// Brackets that are open, of the value and around it.
    depth: usize,
    outside: usize,
    lexer: JsonLexer,
    rules: ReadingRules,
}

impl Scan {
    /// `outside`: brackets that are open around the value.
    pub fn new(outside: usize) -> Self {
        Self {
            text: String::new(),
            depth: outside,
            outside,
            lexer: JsonLexer::default(),
            rules: ReadingRules::default(),
        }
    }

    /// Reads values by these rules instead of the current ones.
    #[must_use]
    pub fn under(self, rules: ReadingRules) -> Self {
        Self { rules, ..self }
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
        Ok(Some((parse(self.rules, &self.text)?, rest)))
    }

    /// The text has ended: a number or a literal has no other end, and what else was begun is cut.
    /// Without a value: none.
    pub fn finish(&self) -> Result<Option<Value>, String> {
        if self.text.is_empty() {
            return Ok(None);
        }
        parse(self.rules, &self.text).map(Some)
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
        let mut rest = piece;
        loop {
            let before = piece.len() - rest.len();
            let Some(token) = self.lexer.next(&mut rest) else {
                return Ok(None);
            };
            let is_outermost = self.depth == self.outside;
            match token {
                JsonToken::Between('{' | '[') => {
                    self.depth += 1;
                    // As in the complete reply.
                    if self.depth > MAX_DEPTH {
                        return Err(format!(
                            "values are nested more than {MAX_DEPTH} deep; write it flatter"
                        ));
                    }
                }
                // What follows a number or a literal.
                JsonToken::Between('}' | ']' | ',' | ' ' | '\t' | '\n' | '\r') if is_outermost => {
                    return Ok(Some(before));
                }
                JsonToken::Between('}' | ']') => {
                    self.depth -= 1;
                    if self.depth == self.outside {
                        return Ok(Some(piece.len() - rest.len()));
                    }
                }
                JsonToken::End if is_outermost => return Ok(Some(piece.len() - rest.len())),
                _ => {}
            }
        }
    }
}

fn parse(rules: ReadingRules, text: &str) -> Result<Value, String> {
    strict::parse_under(rules, text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn scan(text: &str) -> Option<(String, String)> {
        let (value, rest) = Scan::new(0).push(text).unwrap()?;
        Some((value.to_string(), rest.to_owned()))
    }

    /// The value and the bytes before its end, or that it is none, of a text that arrives in pieces.
    fn scan_pieces<'t>(
        pieces: impl IntoIterator<Item = &'t str>,
    ) -> Result<Option<(Value, usize)>, String> {
        let mut scan = Scan::new(0);
        let mut end = 0;
        for piece in pieces {
            end += piece.len();
            if let Some((value, rest)) = scan.push(piece)? {
                return Ok(Some((value, end - rest.len())));
            }
        }
        Ok(None)
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
    fn unfinished_text_gives_no_value() {
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
    fn malformed_text_with_balanced_ends_is_refused() {
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
            let expected = strict::parse(&text).is_ok();
            assert_eq!(Scan::new(0).push(&text).is_ok(), expected, "{depth}");
            let inner = &text[2..];
            assert_eq!(Scan::new(2).push(inner).is_ok(), expected);
        }
    }

    proptest! {
        #[test]
        fn a_cut_changes_nothing(
            value in prop_oneof!["\\PC*".prop_map(Value::from), any::<f64>().prop_map(Value::from)],
            wild in r#"[\[\]{}",:\\ud8e01\n é😀]{0,20}"#,
        ) {
            for text in [json!({"a": [value, {"\"\\": {}}]}).to_string() + &wild, wild] {
                let whole = scan_pieces([text.as_str()]);
                for (at, _) in text.char_indices() {
                    let (head, tail) = text.split_at(at);
                    prop_assert_eq!(&scan_pieces([head, tail]), &whole, "cut at {}", at);
                }
                prop_assert_eq!(scan_pieces(text.split("").filter(|c| !c.is_empty())), whole);
            }
        }
    }
}
