//! References: `†kind.path.to[2].value`, and the expressions made of them (docs/protocol.md, 5).
//!
//! A string argument that begins with one dagger is a reference, as a whole. A text that begins with a
//! dagger is written with one more in front: `††`. Daggers elsewhere are daggers.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::{self, Display, Formatter, Write as _};
use std::str::FromStr;
use thiserror::Error;

pub const DAGGER: char = '†';
/// Maximum segments of a path: a deeper one is a mistake, and every level costs work.
const MAX_SEGMENTS: usize = 64;
/// Maximum list index: lists are padded up to an index that is written to.
pub const MAX_INDEX: usize = 9_999;
/// Maximum references in one expression.
pub(crate) const MAX_TERMS: usize = 16;
/// Maximum levels of arguments that are searched for references; validation allows no more.
const MAX_DEPTH: usize = 128;

/// A place in the context's data.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Path {
    /// Which data: `state`, `input`, or the kind of a data message.
    pub kind: String,
    pub segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Segment {
    Key(String),
    Index(usize),
}

/// What a string argument stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// Itself, without the first of two daggers at its beginning.
    Literal(String),
    Reference(Source),
}

/// An input expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `†a || †b`: the first that exists. A single reference is one of these.
    First(Vec<Path>),
    /// `†a && †b`: the last, once all exist.
    All(Vec<Path>),
}

/// An output expression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// `†a && †b`: all of them. A single path is one of these.
    Every(Vec<Path>),
    /// `†a || †b`: the outcome picks one. Success takes the first and failure the last, unless the
    /// tool says which.
    Outcome(Vec<Path>),
}

/// A text that is no reference, with the place that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{text:?} is no reference: at character {at} {expected} is expected; write †kind.path.to[2].value"
)]
pub struct ReferenceError {
    pub text: String,
    /// Characters before the place, beginning with 1.
    pub at: usize,
    pub expected: &'static str,
}

impl Argument {
    /// Reads a string argument.
    ///
    /// # Errors
    /// It begins with one dagger and is no input expression.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        match text.strip_prefix(DAGGER) {
            None => Ok(Self::Literal(text.to_owned())),
            Some(rest) if rest.starts_with(DAGGER) => Ok(Self::Literal(rest.to_owned())),
            Some(_) => text.parse().map(Self::Reference),
        }
    }
}

impl Source {
    pub fn paths(&self) -> &[Path] {
        match self {
            Self::First(paths) | Self::All(paths) => paths,
        }
    }
}

impl Target {
    pub fn paths(&self) -> &[Path] {
        match self {
            Self::Every(paths) | Self::Outcome(paths) => paths,
        }
    }

    /// Where a result goes if the tool does not say.
    pub fn chosen(&self, succeeded: bool) -> Vec<&Path> {
        match self {
            // A failure has no value to write.
            Self::Every(paths) if succeeded => paths.iter().collect(),
            Self::Every(_) => Vec::new(),
            Self::Outcome(paths) if succeeded => paths.first().into_iter().collect(),
            Self::Outcome(paths) => paths.last().into_iter().collect(),
        }
    }
}

/// `value` as arguments that stand for it: texts that begin with a dagger have one more.
#[must_use]
pub fn escaped(value: Value) -> Value {
    match value {
        Value::String(text) if text.starts_with(DAGGER) => format!("{DAGGER}{text}").into(),
        Value::Array(items) => items.into_iter().map(escaped).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields.map(|(key, field)| (key, escaped(field))).collect()
        }
        other => other,
    }
}

/// `value` as arguments that stand for what they stood for in records of format 3: there, each pair of daggers in a text
/// that is no reference was one dagger, wherever it stood.
#[must_use]
pub fn with_paired_daggers(value: Value) -> Value {
    match value {
        Value::String(text) => match Argument::parse(&text) {
            Ok(Argument::Literal(_)) => escaped(text.replace("††", "†").into()),
            Ok(Argument::Reference(_)) | Err(_) => text.into(),
        },
        Value::Array(items) => items.into_iter().map(with_paired_daggers).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields = fields.map(|(key, field)| (key, with_paired_daggers(field)));
            fields.collect()
        }
        other => other,
    }
}

/// Every reference in `arguments`, with the JSON pointer of the string that holds it.
///
/// # Errors
/// The first string that begins like a reference and is none, with its JSON pointer.
pub fn references(arguments: &Value) -> Result<Vec<(String, Source)>, (String, ReferenceError)> {
    let mut found = Vec::new();
    search(arguments, &mut String::new(), 0, &mut found)?;
    Ok(found)
}

/// True if a text in `arguments` is a reference to data of this kind, or begins as one does and is none.
pub fn refers_to(arguments: &Value, kind: &str) -> bool {
    refers_within(arguments, kind, 0)
}

fn refers_within(value: &Value, kind: &str, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    let is_in = |part: &Value| refers_within(part, kind, depth + 1);
    match value {
        Value::String(text) => match text.parse::<Source>() {
            Ok(source) => source.paths().iter().any(|path| path.kind == kind),
            Err(_) => text
                .strip_prefix(DAGGER)
                .and_then(|text| text.strip_prefix(kind))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', ' '])),
        },
        Value::Array(items) => items.iter().any(is_in),
        Value::Object(fields) => fields.values().any(is_in),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn search(
    value: &Value,
    pointer: &mut String,
    depth: usize,
    found: &mut Vec<(String, Source)>,
) -> Result<(), (String, ReferenceError)> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    let length = pointer.len();
    match value {
        Value::String(text) => match Argument::parse(text) {
            Ok(Argument::Reference(source)) => found.push((pointer.clone(), source)),
            Ok(Argument::Literal(_)) => {}
            Err(error) => return Err((pointer.clone(), error)),
        },
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let _ = write!(pointer, "/{index}");
                search(item, pointer, depth + 1, found)?;
                pointer.truncate(length);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
                search(field, pointer, depth + 1, found)?;
                pointer.truncate(length);
            }
        }
        _ => {}
    }
    Ok(())
}

impl Path {
    /// The root of a kind of data.
    pub fn root(kind: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            segments: Vec::new(),
        }
    }

    /// Whether one of the two is, or contains, the other: writing one changes what the other reads.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self
                .segments
                .iter()
                .zip(&other.segments)
                .all(|(mine, theirs)| mine == theirs)
    }
}

impl FromStr for Path {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let mut reader = ReferenceReader::new(text);
        let path = reader.path()?;
        reader.end("the end, or a '.' or '[' that goes deeper")?;
        Ok(path)
    }
}

impl FromStr for Source {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        Ok(match ReferenceReader::new(text).terms()? {
            (Operator::Or, paths) => Self::First(paths),
            (Operator::And, paths) => Self::All(paths),
        })
    }
}

impl FromStr for Target {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        Ok(match ReferenceReader::new(text).terms()? {
            (Operator::Or, paths) if paths.len() > 1 => Self::Outcome(paths),
            (_, paths) => Self::Every(paths),
        })
    }
}

impl TryFrom<String> for Path {
    type Error = ReferenceError;

    fn try_from(text: String) -> Result<Self, ReferenceError> {
        text.parse()
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.to_string()
    }
}

impl TryFrom<String> for Target {
    type Error = ReferenceError;

    fn try_from(text: String) -> Result<Self, ReferenceError> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

impl Display for Path {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{DAGGER}{}", self.kind)?;
        self.segments.iter().try_for_each(|segment| match segment {
            Segment::Key(key) => write!(f, ".{key}"),
            Segment::Index(index) => write!(f, "[{index}]"),
        })
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(paths) => join(f, paths, " || "),
            Self::All(paths) => join(f, paths, " && "),
        }
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(paths) => join(f, paths, " && "),
            Self::Outcome(paths) => join(f, paths, " || "),
        }
    }
}

fn join(f: &mut Formatter<'_>, paths: &[Path], between: &str) -> fmt::Result {
    for (index, path) in paths.iter().enumerate() {
        if index > 0 {
            f.write_str(between)?;
        }
        write!(f, "{path}")?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    And,
    Or,
}

/// Reads one text from the left.
struct ReferenceReader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> ReferenceReader<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, rest: text }
    }

    fn fail<T>(&self, expected: &'static str) -> Result<T, ReferenceError> {
        let read = &self.text[..self.text.len() - self.rest.len()];
        Err(ReferenceError {
            text: self.text.chars().take(100).collect(),
            at: read.chars().count() + 1,
            expected,
        })
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

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn end(&self, expected: &'static str) -> Result<(), ReferenceError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        self.fail(expected)
    }

    fn path(&mut self) -> Result<Path, ReferenceError> {
        if !self.take("†") {
            return self.fail("a dagger †");
        }
        let kind = self.take_while(is_name);
        if kind.is_empty() {
            return self.fail("the kind of data, such as state");
        }
        let mut path = Path::root(kind);
        loop {
            let before = self.rest;
            let segment = if self.take(".") {
                let key = self.take_while(is_name);
                if key.is_empty() {
                    return self.fail("a name of letters, digits, _ or -");
                }
                Segment::Key(key.to_owned())
            } else if self.take("[") {
                let at = self.rest;
                let digits = self.take_while(|c| c.is_ascii_digit());
                let Some(index) = digits.parse().ok().filter(|index| *index <= MAX_INDEX) else {
                    self.rest = at;
                    return self.fail("an index from 0 to 9999");
                };
                if !self.take("]") {
                    return self.fail("a ]");
                }
                Segment::Index(index)
            } else {
                return Ok(path);
            };
            if path.segments.len() == MAX_SEGMENTS {
                self.rest = before;
                return self.fail("the end, because 64 levels are the most");
            }
            path.segments.push(segment);
        }
    }

    fn terms(&mut self) -> Result<(Operator, Vec<Path>), ReferenceError> {
        let mut operator = None;
        let mut paths = vec![self.path()?];
        loop {
            self.take_while(char::is_whitespace);
            let next = if self.rest.is_empty() {
                return Ok((operator.unwrap_or(Operator::Or), paths));
            } else if self.rest.starts_with("&&") {
                Operator::And
            } else if self.rest.starts_with("||") {
                Operator::Or
            } else {
                return self.fail("&&, || or the end");
            };
            if operator.is_some_and(|first| first != next) {
                return self.fail("the same operator as before, because && and || do not mix");
            }
            if paths.len() == MAX_TERMS {
                return self.fail("the end, because 16 references are the most");
            }
            operator = Some(next);
            self.rest = &self.rest[2..];
            self.take_while(char::is_whitespace);
            paths.push(self.path()?);
        }
    }
}

/// Letters of any script: keys of data are the user's.
fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    #[test]
    fn paths_are_dotted_with_indices() {
        assert_eq!(
            path("†state.user-1.größe[2].x"),
            Path {
                kind: "state".into(),
                segments: vec![
                    Segment::Key("user-1".into()),
                    Segment::Key("größe".into()),
                    Segment::Index(2),
                    Segment::Key("x".into())
                ],
            }
        );
    }

    #[test]
    fn references_are_found_with_their_places() {
        let arguments = json!({"a": "†state.x", "b/c": [1, {"d": "†y && †z"}], "e": "††"});
        let found = references(&arguments).unwrap();
        let places: Vec<_> = found
            .iter()
            .map(|(at, source)| (at.as_str(), source.to_string()))
            .collect();
        assert_eq!(
            places,
            [
                ("/a", "†state.x".into()),
                ("/b~1c/1/d", "†y && †z".to_owned())
            ]
        );
        let (at, _) = references(&json!([0, "†"])).unwrap_err();
        assert_eq!(at, "/1");
    }

    #[test]
    fn texts_refer_to_a_kind_wherever_it_stands_among_their_references() {
        for (text, expect) in [
            ("†k", true),
            ("†k.a[0].text", true),
            ("†s.a || †k.a", true),
            ("†s.a && †t && †k", true),
            ("†k.a ||†s.a", true),
            // No reference, but meant as one.
            ("†k.a.", true),
            ("†k of it", true),
            ("†s.a || †t.k", false),
            ("†kk.a", false),
            ("†s.a || k.a", false),
            ("††k.a", false),
            ("k.a", false),
            ("", false),
        ] {
            let arguments = json!([{"of": ["a", text]}]);
            assert_eq!(refers_to(&arguments, "k"), expect, "{text}");
        }
    }

    #[test]
    fn pairs_of_daggers_in_texts_were_one() {
        for (written, meant) in [
            ("a††b", Ok(Argument::Literal("a†b".into()))),
            ("††a", Ok(Argument::Literal("†a".into()))),
            ("†††a††", Ok(Argument::Literal("††a†".into()))),
            ("†s.a", Argument::parse("†s.a")),
        ] {
            let read = with_paired_daggers(json!([{"text": written}]));
            assert_eq!(Argument::parse(read[0]["text"].as_str().unwrap()), meant);
        }
    }

    #[test]
    fn references_overlap_when_one_contains_the_other() {
        for (a, b, expect) in [
            ("†s.a", "†s.a", true),
            ("†s", "†s.a.b", true),
            ("†s.a.b", "†s.a", true),
            ("†s.a", "†s.b", false),
            ("†s[0]", "†s[1]", false),
            ("†s.a", "†t.a", false),
        ] {
            assert_eq!(path(a).overlaps(&path(b)), expect, "{a} {b}");
        }
    }

    proptest! {
        #[test]
        fn an_escaped_text_is_itself(text in "[a†]{0,6}") {
            let escaped = escaped(json!({"text": [text]}));
            prop_assert_eq!(references(&escaped), Ok(Vec::new()));
            let written = escaped["text"][0].as_str().unwrap();
            prop_assert_eq!(Argument::parse(written), Ok(Argument::Literal(text)));
        }

        #[test]
        fn parsed_text_prints_unchanged(text in "†?[a-z†.\\[\\]0-9|& ]{0,24}") {
            if let Ok(source) = text.parse::<Source>() {
                prop_assert_eq!(source.to_string().parse::<Source>(), Ok(source));
            }
            if let Ok(target) = text.parse::<Target>() {
                prop_assert_eq!(target.to_string().parse::<Target>(), Ok(target));
            }
        }

        #[test]
        fn no_text_breaks_the_reader(text in "\\PC{0,64}") {
            let _ = Argument::parse(&text);
            let _ = text.parse::<Target>();
        }
    }
}
