//! The prose of a Rust file: doc comments, constants with a doc, and names of tests. Tokens are read and not lines, so
//! that text inside of a string is never taken for a comment.

use std::mem;
use std::str::FromStr;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

#[derive(Debug, Default)]
pub struct RustProse {
    pub comments: Vec<DocComment>,
    pub constants: Vec<NumericConstant>,
    pub tests: Vec<TestName>,
}

/// The doc of one item, without its code blocks.
#[derive(Debug, Default, Clone)]
pub struct DocComment {
    pub lines: Vec<DocLine>,
}

#[cfg(test)]
impl DocComment {
    pub fn of(lines: &[&str]) -> Self {
        let lines = lines.iter().enumerate();
        let lines = lines.map(|(index, text)| DocLine {
            number: index + 1,
            text: (*text).to_owned(),
        });
        Self {
            lines: lines.collect(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct DocLine {
    /// Line of the file, from 1.
    pub number: usize,
    /// Text behind `///` and one space.
    pub text: String,
}

/// A documented `const` or `static` that is an integer, a float or a `Duration`.
#[derive(Debug)]
pub struct NumericConstant {
    pub name: String,
    /// True for `Duration`, whose values carry their unit.
    pub is_duration: bool,
    /// Line of its name.
    pub line: usize,
    pub doc: DocComment,
}

#[derive(Debug)]
pub struct TestName {
    pub name: String,
    pub line: usize,
}

/// Reads one file.
///
/// # Errors
/// The text is not Rust: a bracket is not closed, or a string does not end.
pub fn read(text: &str) -> Result<RustProse> {
    let stream = TokenStream::from_str(text)
        .map_err(|error| anyhow!("line {}: {error}", error.span().start().line))?;
    let mut reader = RustReader {
        lines: text.lines().collect(),
        prose: RustProse::default(),
    };
    reader.walk(stream);
    // The lexer keeps the text of each file for its spans, which end here.
    proc_macro2::extra::invalidate_current_thread_spans();
    Ok(reader.prose)
}

struct RustReader<'a> {
    lines: Vec<&'a str>,
    prose: RustProse,
}

/// Attributes in front of an item.
#[derive(Default)]
struct ItemAttributes {
    doc: DocComment,
    in_code: bool,
    is_test: bool,
}

impl ItemAttributes {
    fn is_empty(&self) -> bool {
        self.doc.lines.is_empty() && !self.is_test && !self.in_code
    }
}

/// Words before `fn`, beside `const` and `pub`.
const MODIFIERS: [&str; 3] = ["async", "unsafe", "extern"];

impl RustReader<'_> {
    fn walk(&mut self, stream: TokenStream) {
        let tokens: Vec<_> = stream.into_iter().collect();
        let mut bodies = Vec::new();
        let mut item = ItemAttributes::default();
        let mut was_inner = false;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let rest = &tokens[at..];
            at += 1;
            match token {
                TokenTree::Punct(hash) if hash.as_char() == '#' => {
                    if let Some((is_inner, attribute)) = attribute(rest) {
                        // `//!` speaks of the module around, and not of the item that follows.
                        if was_inner && !is_inner {
                            self.finish(&mut item);
                        }
                        was_inner = is_inner;
                        self.add_attribute(attribute, &mut item);
                        at += 1 + usize::from(is_inner);
                    }
                }
                TokenTree::Group(group) => {
                    self.finish(&mut item);
                    bodies.push(group.stream());
                }
                // Most tokens: only an item with attributes matters.
                _ if item.is_empty() => {}
                TokenTree::Ident(word) if word == "pub" => {
                    // `pub(super)`
                    at += usize::from(is_parenthesis(rest.get(1)));
                }
                TokenTree::Ident(word) if word == "const" || word == "static" => {
                    self.add_constant(rest, &item);
                }
                TokenTree::Ident(word) if MODIFIERS.iter().any(|each| word == each) => {}
                TokenTree::Ident(word) if word == "fn" => {
                    self.add_test(rest, &item);
                    self.finish(&mut item);
                }
                _ => self.finish(&mut item),
            }
        }
        self.finish(&mut item);
        // The bodies would be copied while `tokens` has them, too.
        drop(tokens);
        for body in bodies {
            self.walk(body);
        }
    }

    /// Keeps the doc that belongs to the item which has begun.
    fn finish(&mut self, item: &mut ItemAttributes) {
        if item.is_empty() {
            return;
        }
        let item = mem::take(item);
        if !item.doc.lines.is_empty() {
            self.prose.comments.push(item.doc);
        }
    }

    fn add_attribute(&mut self, attribute: TokenStream, item: &mut ItemAttributes) {
        let mut tokens = attribute.into_iter();
        let Some(TokenTree::Ident(mut name)) = tokens.next() else {
            return;
        };
        if name == "doc" {
            tokens.next();
            if let Some(TokenTree::Literal(literal)) = tokens.next() {
                self.add_doc(literal.span(), item);
            }
            return;
        }
        // The last name of `tokio::test`.
        for token in tokens {
            match token {
                TokenTree::Ident(next) => name = next,
                TokenTree::Punct(colon) if colon.as_char() == ':' => {}
                _ => break,
            }
        }
        item.is_test |= name == "test";
    }

    /// Adds the lines of `///`, `//!`, `/**`, `/*!` or the string of `#[doc = "…"]`.
    fn add_doc(&self, span: Span, item: &mut ItemAttributes) {
        let (start, end) = (span.start(), span.end());
        for number in start.line..=end.line {
            let line = self.lines.get(number - 1).copied().unwrap_or_default();
            let from = if number == start.line {
                column(line, start.column)
            } else {
                0
            };
            let to = if number == end.line {
                column(line, end.column)
            } else {
                line.len()
            };
            let text = without_marks(line.get(from..to).unwrap_or_default());
            if text.trim_start().starts_with("```") {
                item.in_code = !item.in_code;
            } else if !item.in_code {
                let text = text.to_owned();
                item.doc.lines.push(DocLine { number, text });
            }
        }
    }

    fn add_constant(&mut self, tokens: &[TokenTree], item: &ItemAttributes) {
        let is_mutable = matches!(tokens.get(1), Some(TokenTree::Ident(word)) if word == "mut");
        let tokens = &tokens[1 + usize::from(is_mutable)..];
        let [TokenTree::Ident(name), TokenTree::Punct(colon), kind @ ..] = tokens else {
            return;
        };
        if colon.as_char() != ':' || item.doc.lines.is_empty() {
            return;
        }
        let Some(kind) = last_name(kind) else {
            return;
        };
        let is_duration = kind == "Duration";
        if is_duration || is_number(&kind) {
            self.prose.constants.push(NumericConstant {
                name: name.to_string(),
                is_duration,
                line: name.span().start().line,
                doc: item.doc.clone(),
            });
        }
    }

    fn add_test(&mut self, tokens: &[TokenTree], item: &ItemAttributes) {
        if let Some(TokenTree::Ident(name)) = tokens.get(1)
            && item.is_test
        {
            self.prose.tests.push(TestName {
                name: name.to_string(),
                line: name.span().start().line,
            });
        }
    }
}

/// The inside of the attribute that `tokens` begins with, and true for `#![…]`.
fn attribute(tokens: &[TokenTree]) -> Option<(bool, TokenStream)> {
    let is_inner = matches!(tokens.get(1), Some(TokenTree::Punct(bang)) if bang.as_char() == '!');
    match tokens.get(1 + usize::from(is_inner)) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => {
            Some((is_inner, group.stream()))
        }
        _ => None,
    }
}

fn is_parenthesis(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
}

/// Byte of a line at which a column begins; the lexer counts columns in characters.
fn column(line: &str, column: usize) -> usize {
    line.char_indices()
        .nth(column)
        .map_or(line.len(), |(at, _)| at)
}

/// The text of a line of a doc comment, or of the string of a doc attribute.
fn without_marks(line: &str) -> &str {
    let line_comment = line.strip_prefix("///").or(line.strip_prefix("//!"));
    let text = line_comment.unwrap_or_else(|| {
        let line = line.trim_start();
        let opened = line.strip_prefix("/**").or(line.strip_prefix("/*!"));
        let text = opened.unwrap_or(line);
        let text = text.strip_suffix("*/").unwrap_or(text);
        let text = text.strip_prefix('*').unwrap_or(text);
        let quoted = text.trim_start_matches('r').trim_matches('#');
        quoted
            .strip_prefix('"')
            .map_or(text, |text| text.strip_suffix('"').unwrap_or(text))
    });
    text.strip_prefix(' ').unwrap_or(text)
}

/// The last name of the path that is a type: `Duration` of `std::time::Duration`. Nothing for a type of another form.
fn last_name(kind: &[TokenTree]) -> Option<String> {
    let mut last = None;
    for token in kind {
        match token {
            TokenTree::Ident(name) => last = Some(name.to_string()),
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            TokenTree::Punct(end) if matches!(end.as_char(), '=' | ';') => return last,
            _ => return None,
        }
    }
    None
}

fn is_number(kind: &str) -> bool {
    const NUMBERS: [&str; 14] = [
        "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize",
        "f32", "f64",
    ];
    NUMBERS.contains(&kind) || kind.starts_with("NonZero")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comments(text: &str) -> Vec<Vec<(usize, String)>> {
        let comments = read(text).unwrap().comments;
        let lines = |comment: DocComment| {
            let lines = comment.lines.into_iter();
            lines.map(|line| (line.number, line.text)).collect()
        };
        comments.into_iter().map(lines).collect()
    }

    fn one(lines: &[(usize, &str)]) -> Vec<(usize, String)> {
        let lines = lines.iter();
        lines.map(|(at, text)| (*at, (*text).to_owned())).collect()
    }

    #[test]
    fn comments_of_modules_items_and_fields_are_read() {
        let text = "//! Root.\n//!\n//! More.\n/// Äpfel.\n#[derive(Debug)]\npub(crate) struct One {\n    \
            /// Field.\n    pub two: u8, // not a doc\n}\n//// no doc\n";
        assert_eq!(
            comments(text),
            [
                one(&[(1, "Root."), (2, ""), (3, "More.")]),
                one(&[(4, "Äpfel.")]),
                one(&[(7, "Field.")]),
            ]
        );
    }

    #[test]
    fn strings_and_plain_comments_are_no_docs() {
        let text = "fn f() {\n    let a = \"\n/// What.\n\";\n    let b = r##\"\"#\n/// What.\n\"##;\n    \
            /* a /* /// What. */ b */\n    let c = '\"'; // /// What.\n    /// Doc.\n    let d = 1;\n}\n";
        assert_eq!(comments(text), [one(&[(10, "Doc.")])]);
    }

    #[test]
    fn doc_attributes_and_block_comments_are_docs() {
        let text = "#[doc = \"One.\"]\n#[doc = r#\"Two.\"#]\n#[doc(hidden)]\n#[doc = include_str!(\"x\")]\nfn f() {}\n\
            /** Three\n * four. */\nfn g() {}\nmacro_rules! m { ($d:literal) => { #[doc = $d] fn h() {} } }\n";
        assert_eq!(
            comments(text),
            [
                one(&[(1, "One."), (2, "Two.")]),
                one(&[(6, "Three"), (7, "four. ")]),
            ]
        );
    }

    #[test]
    fn code_blocks_of_docs_are_left_out() {
        let text = "/// Before.\n/// ```\n/// What is code.\n/// ```\n/// After.\nfn f() {}\n/// Next.\nfn g() {}\n";
        assert_eq!(
            comments(text),
            [one(&[(1, "Before."), (5, "After.")]), one(&[(7, "Next.")])]
        );
    }

    #[test]
    fn constants_are_numbers_with_a_doc() {
        let text = "/// A.\nconst A: u64 = 1;\n/// B.\npub(super) static mut B: std::time::Duration = X;\n\
            const NO_DOC: u8 = 1;\n/// Text.\nconst C: &str = \"\";\n/// Many.\nconst D: [u8; 2] = [1, 2];\n\
            /// Function.\nconst fn f(a: *const u8) -> u8 { 1 }\nimpl X {\n/// E.\nconst E: f64 = 1.0;\n}\n";
        let prose = read(text).unwrap();
        let found: Vec<_> = prose.constants.iter().collect();
        let found: Vec<_> = found
            .iter()
            .map(|each| (each.name.as_str(), each.is_duration, each.line))
            .collect();
        assert_eq!(found, [("A", false, 2), ("B", true, 4), ("E", false, 14)]);
        assert_eq!(prose.constants[2].doc.lines[0].text, "E.");
        assert_eq!(prose.comments.len(), 6, "each doc is there once");
    }

    #[test]
    fn tests_have_an_attribute_and_may_be_inside_of_a_macro() {
        let text = "#[test]\nfn one() {}\n#[tokio::test(start_paused = true)]\nasync fn two() {}\n\
            #[cfg(test)]\nfn helper() {}\nproptest! { #[test] fn three(a in 0..1) {} }\nfn what() {}\n";
        let tests = read(text).unwrap().tests;
        let names: Vec<_> = tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["one", "two", "three"]);
    }

    #[test]
    fn unclosed_brackets_are_an_error_with_their_line() {
        let error = read("fn f() {\n    (\n}\n").unwrap_err().to_string();
        assert!(error.contains("line "), "{error}");
    }
}
