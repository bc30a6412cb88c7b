//! Marks of any form: a short text in angle brackets, or in one of a few frames like them.

use crate::contract::leak::tags::unquoted;
use std::borrow::Cow;
use toolhold_json::rules::ReadingRules;

/// Maximum bytes of a mark without its frame.
pub(super) const MAX_MARK: usize = 128;
/// Prefix of each mark of MiniMax M3.
pub(super) const NAMESPACE: &str = "]<]minimax[>[";
pub(super) const BARS: [char; 2] = ['|', '｜'];

/// Parts of names of marks that say that a call stands between them.
const CALL_WORDS: [&str; 8] = [
    "tool", "func", "call", "invoke", "action", "plugin", "execute", "command",
];
/// Attributes that hold the name of a tool.
pub(super) const TOOL_KEYS: [&str; 5] = ["name", "tool", "function", "tool_name", "function_name"];
/// Attributes that hold the name of a parameter.
pub(super) const PARAMETER_KEYS: [&str; 4] = ["name", "key", "parameter", "param"];
/// Names of elements around all parameters.
const WRAPPERS: [&str; 8] = [
    "arguments",
    "parameters",
    "args",
    "params",
    "input",
    "inputs",
    "tool_input",
    "kwargs",
];
/// Elements of HTML and SVG: a text that begins with one is a page.
const HTML: [&str; 98] = [
    "a",
    "abbr",
    "address",
    "article",
    "aside",
    "audio",
    "b",
    "blockquote",
    "body",
    "br",
    "button",
    "canvas",
    "caption",
    "center",
    "circle",
    "code",
    "col",
    "dd",
    "del",
    "details",
    "div",
    "dl",
    "dt",
    "em",
    "fieldset",
    "figcaption",
    "figure",
    "font",
    "footer",
    "form",
    "g",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "i",
    "iframe",
    "img",
    "ins",
    "kbd",
    "label",
    "legend",
    "li",
    "line",
    "link",
    "main",
    "mark",
    "math",
    "menu",
    "meta",
    "nav",
    "ol",
    "optgroup",
    "option",
    "p",
    "path",
    "picture",
    "pre",
    "q",
    "rect",
    "s",
    "samp",
    "script",
    "section",
    "select",
    "small",
    "span",
    "strong",
    "style",
    "sub",
    "summary",
    "sup",
    "svg",
    "table",
    "tbody",
    "td",
    "template",
    "text",
    "textarea",
    "tfoot",
    "th",
    "thead",
    "time",
    "title",
    "tr",
    "track",
    "u",
    "ul",
    "var",
    "video",
    "wbr",
    "xml",
];

/// The text around a mark.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    pub(super) kind: FrameKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    Angle,
    Square,
    /// A special token, which opens an element or closes one.
    Opens,
    Closes,
}

pub(super) static FRAMES: [Frame; 8] = [
    // Kimi K3.
    Frame {
        open: "<|open|>",
        close: "<|sep|>",
        kind: FrameKind::Opens,
    },
    Frame {
        open: "<|close|>",
        close: "<|sep|>",
        kind: FrameKind::Closes,
    },
    // Gorilla.
    Frame {
        open: "<<",
        close: ">>",
        kind: FrameKind::Angle,
    },
    Frame {
        open: "<",
        close: ">",
        kind: FrameKind::Angle,
    },
    Frame {
        open: "[[",
        close: "]]",
        kind: FrameKind::Square,
    },
    Frame {
        open: "[",
        close: "]",
        kind: FrameKind::Square,
    },
    Frame {
        open: "◁",
        close: "▷",
        kind: FrameKind::Opens,
    },
    Frame {
        open: "⟦",
        close: "⟧",
        kind: FrameKind::Opens,
    },
];

/// Beginnings of frames that the rules before format 5 do not know.
const FROM_5: [&str; 3] = ["<<", "[[", "⟦"];

#[derive(Debug, Clone, Copy)]
pub(super) struct AnyMark<'t> {
    /// Without bars and slash.
    pub(super) name: &'t str,
    /// The text behind the name, in the mark.
    pub(super) attributes: &'t str,
    /// The name with the bars before it.
    stem: &'t str,
    kind: FrameKind,
    pub(super) is_close: bool,
    pub(super) is_token: bool,
}

impl<'t> AnyMark<'t> {
    /// The mark between the ends of a frame.
    fn of(inner: &'t str, kind: FrameKind) -> Option<Self> {
        if inner.contains(['<', '\n']) {
            return None;
        }
        let unbarred = inner.trim_start_matches(BARS);
        let (plain, has_slash) = match unbarred.strip_prefix('/') {
            Some(plain) => (plain.trim_start_matches(BARS), true),
            None => (unbarred, false),
        };
        let end = plain.find(|c: char| c.is_whitespace() || c == '=');
        let (head, attributes) = plain.split_at(end.unwrap_or(plain.len()));
        let name = head.trim_end_matches(BARS);
        let is_name = |c: char| c.is_alphanumeric() || "_-.:/|｜▁".contains(c);
        if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') || !name.chars().all(is_name)
        {
            return None;
        }
        let is_upper = name
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        // `[1]` and `[Rome]` are text.
        if kind == FrameKind::Square && !(is_upper && has_call_word(name)) {
            return None;
        }
        let begins = inner.starts_with(BARS);
        let ends = inner.ends_with(BARS);
        let before = inner.len() - plain.len();
        let from = if has_slash { before } else { 0 };
        Some(Self {
            name,
            attributes: attributes.trim_end_matches(BARS),
            stem: inner.get(from..before + head.len())?,
            kind,
            is_close: has_slash || kind == FrameKind::Closes || (ends && !begins),
            is_token: begins || ends || kind != FrameKind::Angle,
        })
    }

    /// Whether it says that a call stands behind it.
    pub(super) fn is_of_calls(&self) -> bool {
        self.is_token || has_call_word(self.name)
    }

    fn is_html(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        !self.is_token && HTML.contains(&name.as_str())
    }

    pub(super) fn is_bare(&self) -> bool {
        self.attributes.trim().is_empty()
    }

    pub(super) fn is_around_parameters(&self) -> bool {
        self.is_bare() && WRAPPERS.contains(&self.name.to_ascii_lowercase().as_str())
    }

    /// Whether it stands between a tool's name and its arguments: `<tool_sep:opensource>`.
    pub(super) fn is_separator(&self) -> bool {
        let name = self.name.split(':').next().unwrap_or(self.name);
        self.is_bare() && (self.is_token || name.ends_with("sep"))
    }

    /// The name of a tool that it holds beside its own.
    pub(super) fn said(&self, keys: &[&str]) -> Option<&'t str> {
        match self.attributes.strip_prefix('=') {
            Some(name) => Some(unquoted(name).unwrap_or(name.trim())),
            None => attribute(self.attributes, keys),
        }
    }

    /// The beginning of the marks that open such an element.
    pub(super) fn open(&self) -> String {
        match self.kind {
            FrameKind::Square => format!("[{}", self.stem),
            FrameKind::Angle => format!("<{}", self.stem),
            FrameKind::Opens | FrameKind::Closes => format!("<|open|>{}", self.name),
        }
    }

    /// The mark that closes the element that this one opens.
    pub(super) fn close(&self) -> String {
        match self.kind {
            FrameKind::Square => format!("[/{}]", self.stem),
            FrameKind::Angle => format!("</{}>", self.stem),
            FrameKind::Opens | FrameKind::Closes => format!("<|close|>{}<|sep|>", self.name),
        }
    }
}

pub(super) fn has_call_word(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CALL_WORDS.iter().any(|word| name.contains(word))
}

/// The value of the first attribute with one of these names.
fn attribute<'t>(attributes: &'t str, keys: &[&str]) -> Option<&'t str> {
    let mut rest = attributes.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let (value, next) = match after.chars().next() {
            Some(quote @ ('"' | '\'')) => after.get(1..)?.split_once(quote)?,
            _ => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
        };
        if keys.contains(&key.trim()) {
            return Some(value);
        }
        rest = next.trim_start();
    }
    None
}

/// The mark that a text begins with, of HTML too, and the text behind it.
pub(super) fn any_mark(rules: ReadingRules, text: &str) -> Option<(AnyMark<'_>, &str)> {
    let is_known = |frame: &&Frame| rules.are_from_5() || !FROM_5.contains(&frame.open);
    FRAMES.iter().filter(is_known).find_map(|frame| {
        let rest = text.strip_prefix(frame.open)?;
        let head = rest.get(..rest.floor_char_boundary(MAX_MARK))?;
        let inner = head.get(..head.find(frame.close)?)?;
        let mark = AnyMark::of(inner, frame.kind)?;
        Some((mark, rest.get(inner.len() + frame.close.len()..)?))
    })
}

/// The mark of a text, unless it is an element of HTML, behind which no call stands.
pub(super) fn mark(rules: ReadingRules, text: &str) -> Option<(AnyMark<'_>, &str)> {
    any_mark(rules, text).filter(|(mark, _)| !mark.is_html())
}

pub(super) fn without_namespace(text: &str) -> Cow<'_, str> {
    if text.starts_with(NAMESPACE) {
        text.replace(NAMESPACE, "").into()
    } else {
        text.into()
    }
}
