//! JSON as models write it when nothing constrains them: in a code fence, with prose around it, single
//! quotes, trailing commas, Python's literals, brackets that were never closed.
//!
//! Punctuation is mended, values are not made up: whatever could be read in two ways, or was cut off
//! in the middle of a value, is refused. Of the crates that repair JSON, those that know these faults
//! complete missing values too, which is how a call gets made that nobody asked for.

use crate::guard::repair::Kind;
use serde_json::{Map, Value};

/// Deeper than any arguments that are accepted.
const MAX_DEPTH: usize = 100;
/// Of a block of code in Markdown.
const FENCE: &str = "```";

/// What was meant, and what had to be mended.
#[derive(Debug, Clone, PartialEq)]
pub struct Mended {
    pub value: Value,
    /// Each kind of fault once, in the order of the text.
    pub repairs: Vec<Kind>,
}

/// Whether brackets that are missing at the end may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The model stopped by itself, so nothing but brackets is missing.
    Own,
    /// It was cut off: what is missing may be anything.
    Cut,
}

/// Reads the first object or list in `text`. Nothing if there is none, or if it cannot be read in one
/// way only.
pub fn mend(text: &str, end: End) -> Option<Mended> {
    let start = text.find(['{', '['])?;
    let mut reader = Reader {
        rest: &text[start..],
        end,
        repairs: Vec::new(),
    };
    let before = text[..start].trim_end();
    let last_line = before.rfind('\n').map_or(0, |end| end + 1);
    let (prose, is_fenced) = if before[last_line..].trim_start().starts_with(FENCE) {
        (&before[..last_line], true)
    } else {
        (before, false)
    };
    if !prose.trim().is_empty() {
        reader.note(Kind::TextBefore);
    }
    if is_fenced {
        reader.note(Kind::CodeFence);
    }
    let value = reader.value(0)?;
    let after = reader.rest.trim();
    let after = if is_fenced {
        after.strip_prefix(FENCE).unwrap_or(after).trim_start()
    } else {
        after
    };
    if !after.is_empty() {
        // A second object would be a second reading.
        if after.contains(['{', '[']) {
            return None;
        }
        reader.note(Kind::TextAfter);
    }
    Some(Mended {
        value,
        repairs: reader.repairs,
    })
}

struct Reader<'a> {
    rest: &'a str,
    end: End,
    repairs: Vec<Kind>,
}

impl Reader<'_> {
    fn note(&mut self, repair: Kind) {
        if !self.repairs.contains(&repair) {
            self.repairs.push(repair);
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Skips white space and comments.
    fn space(&mut self) -> Option<()> {
        loop {
            self.rest = self.rest.trim_start();
            let comment = if self.rest.starts_with("//") {
                self.rest.find('\n').unwrap_or(self.rest.len())
            } else if self.rest.starts_with("/*") {
                self.rest.find("*/")? + 2
            } else {
                return Some(());
            };
            self.rest = &self.rest[comment..];
            self.note(Kind::Comment);
        }
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.space()?;
        match self.peek()? {
            '{' => self.object(depth).map(Value::Object),
            '[' => self.list(depth).map(Value::Array),
            '"' | '\'' | '“' | '”' | '‘' | '’' => self.string().map(Value::String),
            '-' | '+' | '.' | '0'..='9' => self.number(),
            _ => self.literal(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Map<String, Value>> {
        self.next();
        let mut fields = Map::new();
        loop {
            if self.is_closed('}', fields.is_empty())? {
                return Some(fields);
            }
            let key = match self.peek()? {
                '"' | '\'' | '“' | '”' | '‘' | '’' => self.string()?,
                _ => self.bare_key()?,
            };
            self.space()?;
            if !self.take(":") {
                return None;
            }
            let value = self.value(depth + 1)?;
            match fields.get(&key) {
                Some(known) if *known != value => return None,
                Some(_) => self.note(Kind::DoubledKey),
                None => {}
            }
            fields.insert(key, value);
        }
    }

    fn list(&mut self, depth: usize) -> Option<Vec<Value>> {
        self.next();
        let mut items = Vec::new();
        loop {
            if self.is_closed(']', items.is_empty())? {
                return Some(items);
            }
            items.push(self.value(depth + 1)?);
        }
    }

    /// Reads what may stand between two members: nothing before the first, one comma between others.
    /// Whether the container ends here.
    fn is_closed(&mut self, bracket: char, is_first: bool) -> Option<bool> {
        self.space()?;
        let has_comma = !is_first && self.take(",");
        self.space()?;
        match self.peek() {
            Some(next) if next == bracket => {
                self.next();
                if has_comma {
                    self.note(Kind::TrailingComma);
                }
                Some(true)
            }
            Some('}' | ']' | ',') => None,
            Some(_) => {
                if !is_first && !has_comma {
                    self.note(Kind::MissingComma);
                }
                Some(false)
            }
            // Of what is empty, the first member may be what is missing.
            None if self.end == End::Own && !has_comma && !is_first => {
                self.note(Kind::Unclosed);
                Some(true)
            }
            None => None,
        }
    }

    fn bare_key(&mut self) -> Option<String> {
        let end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '.')))?;
        let (key, rest) = self.rest.split_at(end);
        if key.is_empty() {
            return None;
        }
        self.rest = rest;
        self.note(Kind::BareKey);
        Some(key.to_owned())
    }

    fn string(&mut self) -> Option<String> {
        let close: &[char] = match self.next()? {
            '"' => &['"'],
            '\'' => {
                self.note(Kind::SingleQuotes);
                &['\'']
            }
            '“' | '”' => {
                self.note(Kind::SmartQuotes);
                &['”', '“']
            }
            _ => {
                self.note(Kind::SmartQuotes);
                &['’', '‘']
            }
        };
        let mut text = String::new();
        loop {
            match self.next()? {
                c if close.contains(&c) => return Some(text),
                '\\' => self.escape(&mut text)?,
                c => {
                    if c < ' ' {
                        self.note(Kind::LineBreakInText);
                    }
                    text.push(c);
                }
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Option<()> {
        let c = self.next()?;
        let meant = match c {
            '"' | '\\' | '/' => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.unicode(text),
            '\'' => {
                self.note(Kind::EscapedSingleQuote);
                c
            }
            // `\d` of a regular expression: nothing else can be meant.
            other => {
                self.note(Kind::StrayBackslash);
                text.push('\\');
                other
            }
        };
        text.push(meant);
        Some(())
    }

    fn unicode(&mut self, text: &mut String) -> Option<()> {
        let first = self.hex()?;
        let code = match first {
            0xd800..=0xdbff => {
                if !self.take("\\u") {
                    return None;
                }
                let second = self.hex().filter(|low| (0xdc00..=0xdfff).contains(low))?;
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            other => other,
        };
        text.push(char::from_u32(code)?);
        Some(())
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self
            .rest
            .get(..4)
            .filter(|digits| digits.chars().all(|c| c.is_ascii_hexdigit()))?;
        self.rest = &self.rest[4..];
        u32::from_str_radix(digits, 16).ok()
    }

    fn number(&mut self) -> Option<Value> {
        let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_');
        // At the end of the text there may have been more digits.
        let end = self.rest.find(|c| !belongs(c))?;
        let (written, rest) = self.rest.split_at(end);
        let value = match serde_json::from_str(written) {
            Ok(value) => value,
            Err(_) => {
                let plain = written.strip_prefix('+').unwrap_or(written);
                let plain = if plain.starts_with('.') {
                    format!("0{plain}")
                } else {
                    plain.to_owned()
                };
                let plain = plain.strip_suffix('.').unwrap_or(&plain);
                let value = serde_json::from_str(plain).ok()?;
                self.note(Kind::OddNumber);
                value
            }
        };
        self.rest = rest;
        Some(value)
    }

    fn literal(&mut self) -> Option<Value> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric())?;
        let (word, rest) = self.rest.split_at(end);
        let (value, is_json) = match word {
            "true" => (Value::Bool(true), true),
            "false" => (Value::Bool(false), true),
            "null" => (Value::Null, true),
            "True" => (Value::Bool(true), false),
            "False" => (Value::Bool(false), false),
            "None" => (Value::Null, false),
            _ => return None,
        };
        if !is_json {
            self.note(Kind::PythonLiteral);
        }
        self.rest = rest;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn faults_of_form_are_mended() {
        for (text, expect, repairs) in [
            // Around it.
            (
                "Sure!\n```json\n{\"a\": 1}\n```",
                json!({"a": 1}),
                &[Kind::TextBefore, Kind::CodeFence][..],
            ),
            ("```\n[1]\n```", json!([1]), &[Kind::CodeFence]),
            ("```json {\"a\": 1}```", json!({"a": 1}), &[Kind::CodeFence]),
            ("```json\n{\"a\": 1}", json!({"a": 1}), &[Kind::CodeFence]),
            ("{\"a\": 1} Done.", json!({"a": 1}), &[Kind::TextAfter]),
            ("{\"a\": 1}}", json!({"a": 1}), &[Kind::TextAfter]),
            ("It is {\"a\": 1}", json!({"a": 1}), &[Kind::TextBefore]),
            // Quotes.
            ("{'a': 'b'}", json!({"a": "b"}), &[Kind::SingleQuotes]),
            (
                "{'a': 'it\\'s'}",
                json!({"a": "it's"}),
                &[Kind::SingleQuotes, Kind::EscapedSingleQuote],
            ),
            (
                "{'a': 'say \"x\"'}",
                json!({"a": "say \"x\""}),
                &[Kind::SingleQuotes],
            ),
            (
                "{\"a\": \"it's\"} .",
                json!({"a": "it's"}),
                &[Kind::TextAfter],
            ),
            ("{“a”: “b”}", json!({"a": "b"}), &[Kind::SmartQuotes]),
            ("{‘a’: ‘b’}", json!({"a": "b"}), &[Kind::SmartQuotes]),
            ("{„a“: 1}", Value::Null, &[]),
            // Keys and commas.
            ("{a: 1}", json!({"a": 1}), &[Kind::BareKey]),
            (
                "{\"a\": [1, 2,],}",
                json!({"a": [1, 2]}),
                &[Kind::TrailingComma],
            ),
            (
                "{\"a\": 1 \"b\": 2}",
                json!({"a": 1, "b": 2}),
                &[Kind::MissingComma],
            ),
            ("[1 2]", json!([1, 2]), &[Kind::MissingComma]),
            (
                "{\"a\": 1, \"a\": 1,}",
                json!({"a": 1}),
                &[Kind::DoubledKey, Kind::TrailingComma],
            ),
            // Literals and numbers.
            (
                "{\"a\": True, \"b\": None, \"c\": [False]}",
                json!({"a": true, "b": null, "c": [false]}),
                &[Kind::PythonLiteral],
            ),
            (
                "{\"a\": .5, \"b\": +1, \"c\": 2.}",
                json!({"a": 0.5, "b": 1, "c": 2}),
                &[Kind::OddNumber],
            ),
            // Ends.
            (
                "{\"a\": [{\"b\": \"c\"}",
                json!({"a": [{"b": "c"}]}),
                &[Kind::Unclosed],
            ),
            (
                "{\"a\": {\"b\": null}",
                json!({"a": {"b": null}}),
                &[Kind::Unclosed],
            ),
            ("{\"a\": \"b\"\n", json!({"a": "b"}), &[Kind::Unclosed]),
            // Texts.
            (
                "{\"a\": \"x\ny\"}",
                json!({"a": "x\ny"}),
                &[Kind::LineBreakInText],
            ),
            (
                "{\"a\": \"\\d+\"}",
                json!({"a": "\\d+"}),
                &[Kind::StrayBackslash],
            ),
            (
                "{\"a\": 1 /* one */, // two\n \"b\": 2}",
                json!({"a": 1, "b": 2}),
                &[Kind::Comment],
            ),
            (
                "{\"a\": \"\\ud83d\\ude00\"} ok",
                json!({"a": "😀"}),
                &[Kind::TextAfter],
            ),
        ] {
            let mended = mend(text, End::Own);
            let Some(mended) = mended else {
                assert_eq!(expect, Value::Null, "{text} was refused");
                continue;
            };
            assert_eq!(mended.value, expect, "{text}");
            assert_eq!(mended.repairs, repairs, "{text}");
        }
    }

    #[test]
    fn what_may_mean_something_else_is_refused() {
        for text in [
            "",
            "no JSON at all",
            "{",
            "[",
            "{\"a\": {",
            "{\"a\": [[",
            "{\"a\"",
            "{\"a\":",
            "{\"a\": ,",
            "{\"a\": }",
            "{: 1}",
            "{\"a\" 1}",
            "{\"a\": \"cut in the mid",
            "{'a': 'cut in the mid",
            "{“a”: “cut in the mid",
            "{\"a\": \"ends in a backslash\\",
            "{\"a\": 12",
            "{\"a\": tru",
            "{\"a\": Tru}",
            "{\"a\": 1,",
            "[1,",
            "[\"a\", \"b",
            "{\"a\": 1, \"a\": 2}",
            "{'a': 1, \"a\": 2}",
            "{\"a\": {\"b\": 1}, \"a\": {\"b\": 2}}",
            "{\"a\": NaN}",
            "{\"a\": Infinity}",
            "{\"a\": undefined}",
            "{\"a\": 0x1f}",
            "{\"a\": 1_000}",
            "{\"a\": 1,000}",
            "{\"a\": 007}",
            "{\"a\": 1,, \"b\": 2}",
            "{, \"a\": 1}",
            "{\"a\": [1}",
            "[1}",
            "{\"a\": 1} {\"a\": 2}",
            "{\"a\": 1} or [2]",
            "{\"a\": \"\\ud83d\"}",
            "{\"a\": \"\\u12\"}",
            "{\"a\": yes}",
            "{\"a\": b}",
            "{'a': 'it's'}",
            "{\"a\": \"say \"x\"\"}",
            "{\"a\": 1 /* without an end }",
            "{\"a\": ...}",
            "{<a>: 1}",
            "{x}",
        ] {
            assert_eq!(mend(text, End::Own), None, "{text}");
        }
        for text in ["{\"a\": [1", "{\"a\": [\"b\"", "{\"a\": 1", "{", "["] {
            assert_eq!(mend(text, End::Cut), None, "{text}");
        }
        assert_eq!(mend(&"[".repeat(1_000), End::Own), None);
    }

    /// Whatever it is made of, twice the text takes about twice the time.
    #[test]
    fn its_time_grows_with_the_text() {
        const SIZE: usize = 100_000;
        for part in [
            "[",
            "{",
            "{\"a\":",
            "'",
            "\"",
            "\\",
            "/*",
            "//\n",
            "/* */",
            "a",
            " ",
            "1",
            "1,",
            "[1],",
            "{\"a\":1,",
            "\\ud83d",
            "```",
            "```{",
            "“",
            "True,",
            "\n",
            "\u{0}",
            "{'a':'b'},",
        ] {
            for start in ["", "{", "[", "{\"a\": \"", "[\"", "{\"a\": 1, "] {
                let text = start.to_owned() + &part.repeat(SIZE / part.len());
                let begun = std::time::Instant::now();
                let _ = mend(&text, End::Own);
                // A step for every byte takes milliseconds; for every pair of bytes, minutes.
                let took = begun.elapsed();
                assert!(took.as_secs() < 5, "{start}{part}… took {took:?}");
            }
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec(("[a-z\"'\\\\{}]{0,6}", inner), 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// JSON escapes those below U+0020 and no others.
    #[test]
    fn control_characters_that_json_allows_are_no_fault() {
        let text = "{\"a\": \"\u{7f}\u{85}\"}";
        let mended = mend(text, End::Cut).unwrap();
        assert_eq!(mended.value, json!({"a": "\u{7f}\u{85}"}));
        assert!(mended.repairs.is_empty(), "{:?}", mended.repairs);
    }

    proptest! {
        #[test]
        fn what_is_json_is_read_as_it_is(value in value(), pretty in any::<bool>()) {
            let wrapped = json!([value]);
            let text = if pretty { serde_json::to_string_pretty(&wrapped).unwrap() } else { wrapped.to_string() };
            let mended = mend(&text, End::Cut).unwrap();
            prop_assert_eq!(mended.value, wrapped);
            prop_assert!(mended.repairs.is_empty(), "{:?}", mended.repairs);
        }

        #[test]
        fn no_text_breaks_it(text in "[\\PC\n]{0,64}", end in prop_oneof![Just(End::Own), Just(End::Cut)]) {
            let _ = mend(&text, end);
        }

        /// Of a text that was cut, nothing is read that the whole does not begin with.
        #[test]
        fn closing_brackets_adds_no_values(value in value(), at in 0.0..1.0f64) {
            let text = json!({"k": value, "z": [1, "end"]}).to_string();
            let mut cut = (text.len() as f64 * at) as usize;
            while !text.is_char_boundary(cut) { cut -= 1; }
            if let Some(mended) = mend(&text[..cut], End::Own) {
                prop_assert!(begins(&mended.value, &serde_json::from_str(&text).unwrap()), "{} of {text}", mended.value);
            }
        }
    }

    /// Whether every value of `part` stands at its place in `whole`.
    fn begins(part: &Value, whole: &Value) -> bool {
        match (part, whole) {
            (Value::Object(part), Value::Object(whole)) => part
                .iter()
                .all(|(key, value)| whole.get(key).is_some_and(|other| begins(value, other))),
            (Value::Array(part), Value::Array(whole)) => {
                part.len() <= whole.len() && part.iter().zip(whole).all(|(a, b)| begins(a, b))
            }
            (part, whole) => part == whole,
        }
    }
}
