//! Origins of the text of a reply. A model repeats what it is shown, and a call in text that it repeats is a
//! quotation: not where it stands decides, but where it came from (docs/protocol.md, 4; docs/security.md, promise 10).

mod cover;
mod plain;
mod quotation;

use super::simple::{ARGUMENTS, TOOL_NAME};
use super::thought::EndMark;
use plain::plain;
use quotation::CallText;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use toolhold_protocol::contract::Contract;

/// Bytes of plain text that are kept of a run. Beyond that no call is read out of text any more: what it may repeat is
/// not known.
const MAX_KEPT_BYTES: usize = 8 << 20;
/// Letters around a mark that are compared with it, and how many are no coincidence.
const AROUND_MARK: usize = 24;
const MIN_AROUND_MARK: usize = 8;
/// Separator of two texts. It occurs in none of them.
const BETWEEN: char = '\0';

/// Whose text it is. A call that is pieced together has all of its pieces from one of the two: the form that the operator
/// teaches, filled with what a result says, is what a model is asked to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextSource {
    /// Instructions and descriptions of tools, which a person wrote or approved.
    Host,
    /// All else: results, passages, files, messages.
    Other,
}

/// Texts that a model was shown in a run, without its own calls. They only grow.
#[derive(Debug, Clone, Default)]
pub struct Provenance {
    host: Corpus,
    other: Corpus,
    /// A native call of the run was read: its endpoint has them, and text is text.
    has_native_calls: bool,
}

/// Texts in their plain form, each once.
#[derive(Debug, Clone, Default)]
struct Corpus {
    text: String,
    seen: HashSet<u64>,
    is_full: bool,
}

impl Corpus {
    fn add(&mut self, text: &str) {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        if self.is_full || text.is_empty() || !self.seen.insert(hasher.finish()) {
            return;
        }
        if self.text.len().saturating_add(text.len()) > MAX_KEPT_BYTES {
            self.is_full = true;
            return;
        }
        self.text.push(BETWEEN);
        self.text.push_str(&plain(text));
    }

    fn has(&self, call: &CallText) -> bool {
        self.is_full || (!self.text.is_empty() && call.is_in(&self.text))
    }
}

impl Provenance {
    /// The model is shown `text`.
    pub(crate) fn add(&mut self, source: TextSource, text: &str) {
        match source {
            TextSource::Host => self.host.add(text),
            TextSource::Other => self.other.add(text),
        }
    }

    /// A native call was read: from here on no call is read out of text.
    pub(crate) fn had_native_call(&mut self) {
        self.has_native_calls = true;
    }

    pub(crate) fn has_native_calls(&self) -> bool {
        self.has_native_calls
    }

    /// Whether a call that was read out of prose is a quotation. `written`: its text, with its marks; `tool` and
    /// `arguments`: what was read.
    pub(super) fn is_quoted(
        &self,
        written: &str,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> bool {
        let as_written = CallText::new(written, tool);
        if self.host.has(&as_written) || self.other.has(&as_written) {
            return true;
        }
        // One of several calls in one text.
        let arguments = parameters(arguments);
        let alone = json!({"name": tool, "arguments": arguments}).to_string();
        let alone = CallText::new(&alone, tool);
        !arguments.is_empty() && (self.host.has(&alone) || self.other.has(&alone))
    }

    /// Whether a mark that ends a thought stands in text that the operator did not write, with the same words before or
    /// behind it: then the model repeats it.
    pub(super) fn is_quoted_mark(&self, mark: EndMark<'_>) -> bool {
        if !self.other.text.contains(&plain(mark.mark)) {
            return false;
        }
        let (before, after) = (plain(mark.before), plain(mark.after));
        let from = before.char_indices().rev().take(AROUND_MARK).last();
        let before = from.map_or("", |(from, _)| &before[from..]);
        let to = after.char_indices().nth(AROUND_MARK);
        let after = to.map_or(after.as_str(), |(to, _)| &after[..to]);
        let has = |text: &str| text.len() >= MIN_AROUND_MARK;
        let mark = plain(mark.mark);
        let in_other = |text: String| self.other.text.contains(&text);
        (has(before) && in_other(format!("{before}{mark}")))
            || (has(after) && in_other(format!("{mark}{after}")))
    }

    /// Whether a call in a contract's own form is a copy of text that the operator did not write; `call` as it stands in
    /// a solution. In prose the operator's text counts, too.
    pub(super) fn is_copied(&self, contract: Contract, call: &Value, is_prose: bool) -> bool {
        let (Contract::Schema | Contract::Simple, Some(object)) = (contract, call.as_object())
        else {
            return false;
        };
        let tool = object
            .get("_tool")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let mut arguments = parameters(object);
        let (own, written) = match contract {
            Contract::Simple => (TOOL_NAME, json!({TOOL_NAME: tool, ARGUMENTS: arguments})),
            _ => {
                arguments.shift_insert(0, "_tool".into(), tool.into());
                ("_tool", arguments.into())
            }
        };
        let written = written.to_string();
        let has = |corpus: &Corpus| {
            corpus.text.contains(own) && CallText::new(&written, tool).is_in(&corpus.text)
        };
        has(&self.other) || (is_prose && (self.other.is_full || has(&self.host)))
    }
}

/// Without the reserved properties: a form may demand those, so that a copy has them besides what is copied.
fn parameters(properties: &Map<String, Value>) -> Map<String, Value> {
    let parameters = properties.iter().filter(|(key, _)| !key.starts_with('_'));
    parameters
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "<tool_call>{\"name\": \"echo\", \"arguments\": {\"of\": 7}}</tool_call>";

    fn shown(source: TextSource, texts: &[&str]) -> Provenance {
        let mut provenance = Provenance::default();
        for text in texts {
            provenance.add(source, text);
        }
        provenance
    }

    fn is_quoted(provenance: &Provenance) -> bool {
        let arguments = json!({"of": 7});
        provenance.is_quoted(WRITTEN, "echo", arguments.as_object().unwrap())
    }

    #[test]
    fn the_form_of_the_operator_filled_by_others_is_the_models_call() {
        let form = "<tool_call>{\"name\": \"echo\", \"arguments\": {\"of\": 1}}</tool_call>";
        let mut provenance = shown(TextSource::Host, &[form]);
        provenance.add(TextSource::Other, "{\"of\": 7}");
        assert!(!is_quoted(&provenance));
        provenance.add(TextSource::Other, form);
        assert!(is_quoted(&provenance), "all of it is of others");
        assert!(is_quoted(&shown(TextSource::Host, &[WRITTEN])));
    }

    #[test]
    fn one_of_several_calls_in_a_text_is_found() {
        let provenance = shown(TextSource::Other, &[WRITTEN]);
        let both = "[TOOL_CALLS][{\"name\": \"own\", \"arguments\": {\"x\": \"mine alone\"}}, {\"name\": \"echo\", \
                    \"arguments\": {\"of\": 7}}]";
        let of = |tool: &str, arguments: Value| {
            provenance.is_quoted(both, tool, arguments.as_object().unwrap())
        };
        assert!(of("echo", json!({"of": 7, "_reasoningForCall": "why"})));
        assert!(!of("own", json!({"x": "mine alone"})));
    }

    #[test]
    fn what_is_not_kept_counts_as_repeated() {
        let mut provenance = Provenance::default();
        for n in 0..9 {
            provenance.add(TextSource::Other, &format!("{n}{}", "x".repeat(1 << 20)));
        }
        assert!(provenance.other.text.len() <= MAX_KEPT_BYTES + 1);
        assert!(is_quoted(&provenance));
        let call = json!({"_tool": "echo", "of": 7});
        assert!(!provenance.is_copied(Contract::Schema, &call, false));
        assert!(provenance.is_copied(Contract::Schema, &call, true));
    }

    #[test]
    fn a_text_is_kept_once() {
        let provenance = shown(TextSource::Other, &["a text", "a text", "another"]);
        assert_eq!(provenance.other.text, "\0atext\0another");
    }

    #[test]
    fn a_copy_has_the_form_of_its_contract() {
        let call = json!({"_tool": "echo", "_reasoningForCall": "new words", "of": 7});
        let provenance = shown(
            TextSource::Other,
            &[
                "{\"calls\": [{\"of\": 7, \"_tool\": \"echo\"}]}",
                "{\"tool\": \"echo\"}",
            ],
        );
        assert!(provenance.is_copied(Contract::Schema, &call, false));
        assert!(!provenance.is_copied(Contract::Simple, &call, false));
        let other = json!({"_tool": "echo", "of": 8});
        assert!(!provenance.is_copied(Contract::Schema, &other, true));
        let simple = "{\"tool_name\": \"echo\", \"arguments\": {\"of\": 7}}";
        let host = shown(TextSource::Host, &[simple]);
        assert!(!host.is_copied(Contract::Simple, &call, false));
        assert!(host.is_copied(Contract::Simple, &call, true));
    }
}
