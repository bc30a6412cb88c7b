//! JSON in pieces: nothing panics, cuts change nothing, and what is read is what the complete text says.

use serde_json::Value;
use toolhold_json::scan::{JsonLexer, JsonToken, Scan};
use toolhold_json::strict;
use toolhold_json::string::StringPart;

pub fn run(data: &[u8]) {
    // The first byte says where the cuts are.
    let Some((&cut, text)) = data.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    let pieces = || text.split_inclusive(char::from(cut % 128));
    let characters = || text.split("").filter(|c| !c.is_empty());

    let tokens = lex([&*text]);
    assert_eq!(lex(pieces()), tokens);
    assert_eq!(lex(characters()), tokens);

    let value = scan([&*text]);
    assert_eq!(scan(pieces()), value);
    assert_eq!(scan(characters()), value);

    if let Ok(whole) = strict::parse(&text) {
        if let Value::String(string) = &whole {
            assert_eq!(decoded(&tokens), *string);
        }
        let value = value.map(|found| found.map(|(value, _)| value));
        assert_eq!(value, Ok(Some(whole)));
    }
}

fn lex<'t>(pieces: impl IntoIterator<Item = &'t str>) -> Vec<JsonToken> {
    let mut lexer = JsonLexer::default();
    let mut tokens = Vec::new();
    for mut piece in pieces {
        while let Some(token) = lexer.next(&mut piece) {
            tokens.push(token);
        }
        assert_eq!(piece, "");
    }
    tokens
}

/// The first value, and the bytes before its end.
fn scan<'t>(pieces: impl IntoIterator<Item = &'t str>) -> Result<Option<(Value, usize)>, String> {
    let mut scan = Scan::new(0);
    let mut end = 0;
    for piece in pieces {
        end += piece.len();
        if let Some((value, rest)) = scan.push(piece)? {
            return Ok(Some((value, end - rest.len())));
        }
    }
    Ok(scan.finish()?.map(|value| (value, end)))
}

fn decoded(tokens: &[JsonToken]) -> String {
    let characters = tokens.iter().filter_map(|token| match token {
        JsonToken::Inside(StringPart::Plain(c) | StringPart::Escaped(c)) => Some(*c),
        _ => None,
    });
    characters.collect()
}
