//! One call of an answer: what is known of it so far, and how its arguments grow.

use super::written::Written;
use crate::call_arguments::UnreadMembers;
use crate::offered::OfferedFunction;
use serde::de::IgnoredAny;
use std::sync::OnceLock;
use toolhold_json::scan::SPACE;
use toolhold_protocol::completion::ChatToolCall;

#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The server's index, which need not be the call's place here.
    pub(super) index: Option<u64>,
    /// The server's id. If an earlier call has the same, `call` has none.
    pub(super) id: String,
    pub(super) call: ChatToolCall,
    pub(super) written: Written,
    /// Members of its pieces that were not read and may be its arguments.
    pub(super) unread: UnreadMembers,
    /// Whether the arguments are JSON. It is read once, when all brackets are closed: blanks behind them change nothing.
    pub(super) is_json: OnceLock<bool>,
    pub(super) is_id_told: bool,
    pub(super) is_name_told: bool,
    /// Bytes of the arguments that were told.
    pub(super) told: usize,
}

impl Slot {
    /// Takes the next piece of the arguments. False: they are whole without it.
    pub(super) fn write(&mut self, piece: &str) -> bool {
        let next = piece.trim_start_matches(SPACE);
        let so_far = self.call.arguments.as_str();
        if next.is_empty() {
            // Blanks around the arguments are left out; inside of a string they count.
            if !so_far.is_empty() && !self.written.is_closed {
                self.append(piece);
            }
            return true;
        }
        if so_far.is_empty() {
            self.append(next);
            return true;
        }
        if self.is_empty_object() {
            // In the place of arguments that come only now.
            let begins = next.starts_with('{');
            if begins && next.trim_end_matches(SPACE) != so_far {
                self.replace(next);
            }
            return begins || says_nothing(next);
        }
        if self.is_whole() {
            return next.trim_end_matches(SPACE) == so_far || says_nothing(next);
        }
        match next.strip_prefix(so_far) {
            // The beginning again, and more.
            Some(more) if !goes_on(so_far, next) => self.append(more),
            _ => self.append(piece),
        }
        true
    }

    fn append(&mut self, piece: &str) {
        self.written.push(piece);
        self.call.arguments.push_str(piece);
        if self.written.is_closed {
            let end = self.call.arguments.trim_end_matches(SPACE).len();
            self.call.arguments.truncate(end);
        }
    }

    /// Puts arguments into the place of an empty object. Of that its bracket may have been told, and blanks.
    fn replace(&mut self, arguments: &str) {
        let told = self.call.arguments.get(..self.told).unwrap_or_default();
        let arguments = match arguments.strip_prefix('{') {
            Some(rest) if !told.is_empty() => format!("{told}{rest}"),
            _ => arguments.to_owned(),
        };
        self.written = Written::default();
        self.is_json = OnceLock::new();
        self.call.arguments.clear();
        self.append(&arguments);
    }

    /// Arguments that were not told. Those that are an empty object wait until the answer `is_over`: others may take
    /// their place.
    pub(super) fn untold(&self, is_over: bool) -> Option<&str> {
        if self.is_empty_object() && (!is_over || self.is_unread()) {
            return None;
        }
        let untold = self.call.arguments.get(self.told..);
        untold.filter(|text| !text.is_empty())
    }

    /// True if the call has no arguments, and members that were not read may be them.
    pub(super) fn is_unread(&self) -> bool {
        match self.unread {
            UnreadMembers::None => false,
            UnreadMembers::Unknown => self.has_none(),
            UnreadMembers::Arguments => self.is_bare(),
        }
    }

    /// Whether it has no arguments, or an empty object.
    pub(super) fn is_bare(&self) -> bool {
        self.has_none() || self.is_empty_object()
    }

    /// Whether it has no arguments: an empty text, perhaps encoded once more, or `null`.
    fn has_none(&self) -> bool {
        let arguments = self.call.arguments.trim_matches(SPACE);
        matches!(arguments, "" | "\"\"" | "null")
    }

    /// Whether it may have more arguments.
    pub(super) fn is_open(&self) -> bool {
        self.is_empty_object() || !self.is_whole()
    }

    /// Whether its function has no parameters.
    pub(super) fn takes_nothing(&self, offered: &[OfferedFunction]) -> bool {
        let name = self.call.name.as_str();
        let mut own = offered.iter().filter(|function| function.name == name);
        own.any(|function| function.takes_nothing)
    }

    pub(super) fn is_empty_object(&self) -> bool {
        self.written.is_closed && self.written.tokens == 2 && self.call.arguments.starts_with('{')
    }

    pub(super) fn is_whole(&self) -> bool {
        // The cheap look first: this is asked for every piece of servers that repeat the name.
        self.written.is_closed
            && !self.written.is_broken
            && *self.is_json.get_or_init(|| {
                let arguments = &self.call.arguments;
                arguments.ends_with('}') && serde_json::from_str::<IgnoredAny>(arguments).is_ok()
            })
    }
}

/// True for a piece without any argument: blanks, ends of JSON, or a mark of the template that ends the model's turn.
pub(super) fn says_nothing(piece: &str) -> bool {
    let piece = piece.trim_matches(SPACE);
    let is_mark = piece.starts_with('<') && piece.ends_with('>') && !piece.contains(SPACE);
    is_mark || piece.chars().all(|c| "\"}]".contains(c))
}

/// Whether JSON that begins with `before` may go on with `more`.
fn goes_on(before: &str, more: &str) -> bool {
    let begins = |text: &str| match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => true,
        Err(error) => error.is_eof(),
    };
    begins(&format!("{before}{more}")) || !begins(before)
}
