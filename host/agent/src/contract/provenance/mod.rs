//! Origins of the text of a reply. A model repeats what it is shown, and a call in text that it repeats is a
//! quotation: not where it stands decides, but where it came from (docs/protocol.md, 4; docs/security.md, promise 10).

mod cover;
mod marks;
mod plain;
mod quotation;

use super::simple::{ARGUMENTS, TOOL_NAME};
use crate::catalogue::PlainText;
use marks::MarkComparison;
use plain::{DecodedText, plain};
use quotation::CallText;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeSet, HashSet};
use toolhold_json::rules::ReadingRules;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::function_names::bare_name;
use toolhold_protocol::tool::is_reserved;

/// Maximum bytes of plain text that are kept of one source in a run. Beyond that no call is read out of text any more:
/// what it may repeat is not known.
const MAX_KEPT_BYTES: usize = 8 << 20;
/// Maximum bytes of kept text that the calls of one reply are compared with, and how many calls are compared at least.
/// Each further one counts as a quotation.
const MAX_COMPARED_BYTES: usize = 64 << 20;
const MIN_COMPARED_CALLS: usize = 4;
/// Separator of two texts. It occurs in none of them.
const BETWEEN: char = '\0';
/// Forms of a call without arguments: what stands before its name and behind it, in plain form.
const WITHOUT_ARGUMENTS: [(&str, &str); 11] = [
    ("function=", ">"),
    ("invokename=", ">"),
    ("name:", ",arguments:{}"),
    ("name:", ",parameters:{}"),
    ("{name:", "}"),
    ("<tool_call>", "<"),
    ("[tool_calls]", ""),
    ("tool_sep|>", ""),
    ("to=functions_", ""),
    ("call:", "{}"),
    ("", "()"),
];

/// Whose text it is. A call that is pieced together has all of its pieces from one of them: the form that the operator
/// teaches, filled with what a result says, is what a model is asked to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextSource {
    /// Instructions and descriptions of tools, which a person wrote or approved.
    Host,
    /// The task of a run that has nothing else. A person who says what to call asks for it, so a call is a quotation
    /// only in the form that it has there.
    Task,
    /// All else: results, passages, files, messages.
    Other,
}

/// The plain form of a text, to be kept for all runs that show it.
pub(crate) fn plain_text(text: &str) -> PlainText {
    PlainText {
        digest: Sha256::digest(text).into(),
        bytes: text.len(),
        plain: plain(text),
    }
}

/// Texts that a model was shown in a run, without its own calls. They only grow.
#[derive(Debug, Clone, Default)]
pub struct Provenance {
    /// The rules by which calls are compared.
    rules: ReadingRules,
    host: Corpus,
    task: Corpus,
    other: Corpus,
    /// Wordings of the texts of others.
    worded: String,
    /// Endpoints of which a native call of the run was read, by the driver's names: they have them, and text is text.
    native: BTreeSet<Option<String>>,
    /// Whether the endpoint that replies is one of them.
    has_native_calls: bool,
}

/// Texts in their plain form, each once.
#[derive(Debug, Clone, Default)]
struct Corpus {
    text: String,
    seen: HashSet<[u8; 32]>,
    is_full: bool,
}

impl Corpus {
    /// Keeps the text, and gives it back if it is new.
    fn add<'t>(&mut self, text: &'t str) -> Option<DecodedText<'t>> {
        if self.is_full || text.is_empty() || !self.seen.insert(Sha256::digest(text).into()) {
            return None;
        }
        let has_room = |bytes: usize| self.text.len().saturating_add(bytes) <= MAX_KEPT_BYTES;
        // A plain form may be eleven times as long.
        let decoded = has_room(text.len()).then(|| DecodedText::of(text));
        let forms = decoded.map(|text| (text.plain(), text));
        let Some((plain, decoded)) = forms.filter(|(plain, _)| has_room(plain.len())) else {
            self.is_full = true;
            return None;
        };
        self.push(&plain);
        Some(decoded)
    }

    /// Keeps a text whose plain form was made before.
    fn add_plain(&mut self, text: &PlainText) {
        if self.is_full || text.bytes == 0 || !self.seen.insert(text.digest) {
            return;
        }
        let has_room = |bytes: usize| self.text.len().saturating_add(bytes) <= MAX_KEPT_BYTES;
        if has_room(text.bytes) && has_room(text.plain.len()) {
            self.push(&text.plain);
        } else {
            self.is_full = true;
        }
    }

    fn push(&mut self, plain: &str) {
        self.text.push(BETWEEN);
        self.text.push_str(plain);
    }

    fn has(&self, call: &CallText) -> bool {
        self.is_full || (!self.text.is_empty() && call.is_in(&self.text))
    }
}

impl Provenance {
    /// The provenance of a run whose model was shown these texts of others.
    pub fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut provenance = Self::default();
        for text in texts {
            provenance.add(TextSource::Other, text);
        }
        provenance
    }

    /// The provenance of a run whose model was shown nothing yet, by these rules.
    pub(crate) fn under(rules: ReadingRules) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    /// The model is shown `text`.
    pub(crate) fn add(&mut self, source: TextSource, text: &str) {
        let corpus = match source {
            TextSource::Host => &mut self.host,
            TextSource::Task => &mut self.task,
            TextSource::Other => &mut self.other,
        };
        let added = corpus.add(text);
        if let Some(text) = added.filter(|_| source == TextSource::Other) {
            let worded = text.wording(self.rules);
            if self.worded.len().saturating_add(worded.len()) > MAX_KEPT_BYTES {
                self.other.is_full = true;
                return;
            }
            self.worded.push(BETWEEN);
            self.worded.push_str(&worded);
        }
    }

    /// The model is shown a text of [`TextSource::Host`] whose plain form is kept.
    pub(crate) fn add_of_host(&mut self, text: &PlainText) {
        self.host.add_plain(text);
    }

    /// Sets the endpoint that replies from here on; `None` is the one of the run's own model.
    pub(crate) fn asks(&mut self, endpoint: Option<&str>) {
        self.has_native_calls = self.native.iter().any(|name| name.as_deref() == endpoint);
    }

    /// A native call was read: from here on no call is read out of the text of this endpoint.
    pub(crate) fn had_native_call(&mut self, endpoint: Option<&str>) {
        self.native.insert(endpoint.map(str::to_owned));
        self.asks(endpoint);
    }

    pub(crate) fn has_native_calls(&self) -> bool {
        self.has_native_calls
    }

    /// Whether more was shown than is compared.
    pub(super) fn is_full(&self) -> bool {
        self.corpora().iter().any(|corpus| corpus.is_full)
    }

    fn corpora(&self) -> [&Corpus; 3] {
        [&self.host, &self.task, &self.other]
    }

    /// How many calls of one reply are compared.
    pub(super) fn max_compared(&self) -> usize {
        let kept: usize = self.corpora().iter().map(|corpus| corpus.text.len()).sum();
        (MAX_COMPARED_BYTES / kept.max(1)).max(MIN_COMPARED_CALLS)
    }

    /// Whether a call that was read out of prose is a quotation. `written`: its text, with its marks; `tool` and
    /// `arguments`: what was read.
    pub(super) fn is_quoted(
        &self,
        written: &str,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> bool {
        let has = |call: &CallText| self.corpora().iter().any(|corpus| corpus.has(call));
        if has(&CallText::new(self.rules, written, tool)) {
            return true;
        }
        // One of several calls in one text, or another form of it.
        readings(self.rules, arguments).iter().any(|arguments| {
            let alone = json!({"name": tool, "arguments": arguments}).to_string();
            has(&CallText::new(self.rules, &alone, tool)) || self.is_worded(tool, arguments)
        })
    }

    /// Whether a text of others has the call in any form.
    fn is_worded(&self, tool: &str, arguments: &Map<String, Value>) -> bool {
        match CallText::of_wording(self.rules, tool, arguments) {
            Some(call) => call.is_in(&self.worded),
            None => {
                let name = plain(tool);
                WITHOUT_ARGUMENTS.iter().any(|(before, after)| {
                    let form = format!("{before}{name}{after}");
                    self.other.text.contains(&form)
                })
            }
        }
    }

    /// The comparison of the marks of one reply.
    pub(super) fn marks(&self) -> MarkComparison<'_> {
        MarkComparison::with(&self.other.text)
    }

    /// Whether a call in a contract's own form is a copy of text that the operator did not write; `call` as it stands in
    /// a solution. In prose the operator's text counts, too.
    pub(super) fn is_copied(&self, contract: Contract, call: &Value, is_prose: bool) -> bool {
        let (Contract::Schema | Contract::Simple, Some(object)) = (contract, call.as_object())
        else {
            return false;
        };
        let written = object
            .get("_tool")
            .and_then(Value::as_str)
            .unwrap_or_default();
        // A name is read without what stands around it, so a copy may have another prefix.
        let bare = bare_name(written);
        let mut names = vec![written];
        if self.rules.are_from_4() && !bare.is_empty() && bare != written {
            names.push(&bare);
        }
        readings(self.rules, object).iter().any(|arguments| {
            let mut names = names.iter();
            names.any(|name| self.is_copy(contract, name, arguments, is_prose))
        })
    }

    fn is_copy(
        &self,
        contract: Contract,
        tool: &str,
        arguments: &Map<String, Value>,
        is_prose: bool,
    ) -> bool {
        let (own, written) = match contract {
            // Without arguments their member may be missing.
            Contract::Simple if arguments.is_empty() => (TOOL_NAME, json!({ TOOL_NAME: tool })),
            Contract::Simple => (TOOL_NAME, json!({TOOL_NAME: tool, ARGUMENTS: arguments})),
            _ => {
                let mut call = arguments.clone();
                call.shift_insert(0, "_tool".into(), tool.into());
                ("_tool", call.into())
            }
        };
        let written = written.to_string();
        let has = |corpus: &Corpus| {
            corpus.text.contains(own)
                && CallText::new(self.rules, &written, tool).is_in(&corpus.text)
        };
        has(&self.other) || (is_prose && (self.is_full() || has(&self.host) || has(&self.task)))
    }
}

/// The arguments as a copy may have them. Properties with a leading `_` may be demanded by a form, so that a copy has them
/// besides what is copied; others than those of the host may be parameters of the tool.
fn readings(rules: ReadingRules, properties: &Map<String, Value>) -> Vec<Map<String, Value>> {
    let without = |is_left_out: fn(&str) -> bool| {
        let kept = properties.iter().filter(|(key, _)| !is_left_out(key));
        let kept = kept.map(|(key, value)| (key.clone(), value.clone()));
        kept.collect::<Map<String, Value>>()
    };
    let plain = without(|key| key.starts_with('_'));
    let all = without(is_reserved);
    if rules.are_from_4() && all.len() > plain.len() {
        vec![plain, all]
    } else {
        vec![plain]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::tests::read_completion_from;
    use std::sync::Arc;
    use toolhold_protocol::completion::Completion;
    use toolhold_protocol::tool::Tool;

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

    /// A parameter may be called like a property of the host's.
    #[test]
    fn parameters_with_a_leading_underscore_are_compared() {
        let text = "<function=echo>\n<parameter=_of>\nseven\n</parameter>\n<parameter=n>\n2\n</parameter>\n</function>";
        let provenance = shown(TextSource::Other, &[text]);
        for (of, is_copy) in [("seven", true), ("another value", false)] {
            let arguments = json!({"_of": of, "n": 2, "_reasoningForCall": "why"});
            let written = json!({"name": "echo", "arguments": arguments}).to_string();
            let is_quoted = provenance.is_quoted(&written, "echo", arguments.as_object().unwrap());
            assert_eq!(is_quoted, is_copy, "{of}");
        }
    }

    /// Names are read without a prefix, so a copy may have one.
    #[test]
    fn a_copy_with_another_prefix_of_its_name_is_a_copy() {
        let text = "{\"calls\": [{\"_tool\": \"echo\", \"of\": 7}]}";
        let provenance = shown(TextSource::Other, &[text]);
        for name in ["echo", "functions.echo", "tools/echo", "<|message|>echo"] {
            let call = json!({"_tool": name, "of": 7});
            assert!(
                provenance.is_copied(Contract::Schema, &call, false),
                "{name}"
            );
            let other = json!({"_tool": name, "of": 8});
            assert!(
                !provenance.is_copied(Contract::Schema, &other, false),
                "{name}"
            );
        }
        let text = "<function=tools.echo><parameter=of>7</parameter></function>";
        assert!(is_quoted(&shown(TextSource::Other, &[text])));
    }

    /// A run whose record has format 3 made such a call.
    #[test]
    fn under_the_rules_of_format_3_a_name_with_another_prefix_was_another() {
        let call = json!({"_tool": "tools/echo", "of": 7});
        for (rules, is_copy) in [
            (ReadingRules::Format3, false),
            (ReadingRules::Current, true),
        ] {
            let mut provenance = Provenance::under(rules);
            provenance.add(
                TextSource::Other,
                "{\"calls\": [{\"_tool\": \"echo\", \"of\": 7}]}",
            );
            let is_copied = provenance.is_copied(Contract::Schema, &call, false);
            assert_eq!(is_copied, is_copy, "{rules:?}");
        }
    }

    #[test]
    fn a_call_in_another_form_is_the_same() {
        let tags = "<function=echo>\n<parameter=of>\n7\n</parameter>\n</function>";
        assert!(is_quoted(&shown(TextSource::Other, &[tags])));
        // A person who says what to call asks for it.
        assert!(!is_quoted(&shown(TextSource::Task, &["Call echo(of=7)."])));
        assert!(is_quoted(&shown(TextSource::Task, &[WRITTEN])));
    }

    #[test]
    fn a_call_without_arguments_is_found_beside_others() {
        let both = "[TOOL_CALLS][{\"name\": \"own\", \"arguments\": {\"x\": 1}}, {\"name\": \"stop\", \"arguments\": {}}]";
        for text in [
            "{\"name\": \"stop\", \"arguments\": {}}",
            "<function=stop></function>",
            "<function=stop>\n</function>",
            "```tool_code\nstop()\n```",
            "<|channel|>commentary to=functions.stop <|message|>{}<|call|>",
        ] {
            let provenance = shown(TextSource::Other, &[text]);
            assert!(provenance.is_quoted(both, "stop", &Map::new()), "{text}");
        }
        let provenance = shown(TextSource::Other, &["Then stop. {\"name\": \"other\"}"]);
        assert!(!provenance.is_quoted(both, "stop", &Map::new()));
    }

    #[test]
    fn native_calls_are_of_one_endpoint() {
        let mut provenance = Provenance::default();
        provenance.had_native_call(Some("spare"));
        assert!(provenance.has_native_calls());
        provenance.asks(None);
        assert!(!provenance.has_native_calls());
        provenance.asks(Some("spare"));
        assert!(provenance.has_native_calls());
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
    fn the_reason_says_that_more_was_shown_than_is_compared() {
        let completion = Completion {
            content: WRITTEN.to_owned(),
            ..Completion::default()
        };
        let tools = [Arc::new(Tool::new("echo"))];
        let reason = |provenance: &Provenance| {
            read_completion_from(Contract::Tools, &completion, &tools, provenance).unwrap_err()
        };
        let mut provenance = shown(TextSource::Other, &[WRITTEN]);
        assert!(reason(&provenance).contains("only repeated"));
        provenance.host.is_full = true;
        assert!(reason(&provenance).contains("8 MiB"));
    }

    #[test]
    fn letters_that_stand_for_many_are_bounded() {
        let provenance = shown(TextSource::Other, &[&"\u{FDFA}".repeat(300_000)]);
        assert!(provenance.is_full() && provenance.other.text.is_empty());
    }

    #[test]
    fn a_text_is_kept_once() {
        let provenance = shown(TextSource::Other, &["a text", "a text", "another"]);
        assert_eq!(provenance.other.text, "\0atext\0another");
        assert_eq!(provenance.worded, "\0:atext:\0:another:");
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
