//! The vault of a run: replaces data by placeholders before the model sees it.
//!
//! Inside of a run all data is real, so that references wire real values. On its way to the model it
//! is hidden, and what the model writes is revealed; tools that the policy does not let see it get the
//! placeholders as well, and what they give back is revealed for what they were given.
//!
//! - The same value always has the same placeholder, numbered by its first occurrence, so that a run
//!   that is replayed comes to the same.
//! - Text that looks like a placeholder is hidden like data. So only this vault can write one: a page that
//!   says `<email_1>` does not get an address into an answer or a call.
//! - A value that occurs only in the data of some instances is revealed only to their calls: a model
//!   that mixes instances up passes on a placeholder and no data (docs/protocol.md, 9).
//! - Values that are known are hidden wherever they occur, also where nothing around them says what
//!   they are: a model cannot have one shown by writing its placeholder into a longer word.

use super::written::{TEXT, escaped, placeholders, replaced, replaced_in, strings};
use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Debug, Formatter};
use toolhold_policy::pii::Kind;
use toolhold_policy::pii::find;
use toolhold_protocol::privacy::Privacy;
use toolhold_text::fold::Folded;

/// Maximum values with a placeholder of their own. Further values are hidden permanently.
const MAX_VALUES: usize = 10_000;
/// Maximum passes over the rest of a text: a match may reveal another one that it had covered.
const MAX_SEARCH_PASSES: usize = 6;

/// The values that a run hides, and what stands for each.
#[derive(Default)]
pub struct Vault {
    privacy: Privacy,
    entries: Vec<VaultEntry>,
    /// Values, and the same as they are written in JSON text.
    by_value: HashMap<String, usize>,
    by_placeholder: HashMap<String, usize>,
    numbers: BTreeMap<&'static str, usize>,
    known: Option<KnownValues>,
}

struct VaultEntry {
    /// Absent: text that looks like a placeholder.
    kind: Option<Kind>,
    value: String,
    placeholder: String,
    /// The instances in whose data it was seen; `None` is the data of all.
    owners: BTreeSet<Option<String>>,
}

/// Finds the values of the first `entries`.
struct KnownValues {
    entries: usize,
    automaton: AhoCorasick,
    /// By pattern.
    of: Vec<usize>,
}

/// The placeholders that a tool was given instead of values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct GivenPlaceholders(BTreeMap<String, String>);

/// In whose data a value is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner<'a> {
    /// The owner is unknown; showing the value makes it no instance's property.
    Unknown,
    All,
    Instance(&'a str),
}

/// A piece of a text that is hidden.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
    kind: Option<Kind>,
}

/// The values to hide in one pass.
struct HidingScope<'a> {
    kinds: &'a dyn Fn(Kind) -> bool,
    /// Whether placeholders of this vault are kept: true for text that the model wrote.
    keeps: bool,
    owner: Owner<'a>,
}

impl Vault {
    pub fn new(privacy: Privacy) -> Self {
        Self {
            privacy,
            ..Self::default()
        }
    }

    pub fn is_off(&self) -> bool {
        self.privacy.is_off()
    }

    pub fn privacy(&self) -> &Privacy {
        &self.privacy
    }

    /// How many values are hidden, by kind.
    pub fn counts(&self) -> BTreeMap<Kind, usize> {
        let mut counts = BTreeMap::new();
        for kind in self.entries.iter().filter_map(|entry| entry.kind) {
            *counts.entry(kind).or_default() += 1;
        }
        counts
    }

    /// Uses these placeholders for their values, which belong to all instances.
    pub fn learn_masked(&mut self, masked: &GivenPlaceholders) {
        for (placeholder, value) in &masked.0 {
            let written = placeholder.trim_matches(['<', '>']);
            let Some((label, Ok(number))) = written
                .rsplit_once('_')
                .map(|(label, number)| (label, number.parse::<usize>()))
            else {
                continue;
            };
            let kind = Kind::ALL.iter().copied().find(|kind| kind.name() == label);
            let last = self
                .numbers
                .entry(kind.map_or(TEXT, Kind::name))
                .or_default();
            *last = number.max(*last);
            self.insert(kind, value, placeholder.clone(), None);
        }
    }

    /// Remembers whose data this is, before it is shown.
    pub fn note(&mut self, data: &Value, instance: Option<&str>) {
        self.value(data, Owner::of(instance), false, &|_| true);
    }

    pub fn note_text(&mut self, text: &str, instance: Option<&str>) {
        self.text(text, Owner::of(instance), false, &|_| true);
    }

    /// For the model.
    pub fn hide(&mut self, text: &str) -> String {
        self.text(text, Owner::Unknown, false, &|_| true)
    }

    /// For the model, of what the model wrote.
    pub fn hide_again(&mut self, text: &str) -> String {
        self.text(text, Owner::Unknown, true, &|_| true)
    }

    pub fn hide_value(&mut self, data: &Value) -> Value {
        self.value(data, Owner::Unknown, false, &|_| true)
    }

    /// For the model, of what the model wrote.
    pub fn hide_value_again(&mut self, data: &Value) -> Value {
        self.value(data, Owner::Unknown, true, &|_| true)
    }

    /// For the model, of a JSON Schema. Its numbers are bounds, which must stay numbers.
    pub fn hide_schema(&mut self, schema: &Value) -> Value {
        if self.is_off() {
            return schema.clone();
        }
        self.learn();
        replaced_in(schema, 0, false, &mut |text| {
            Some(self.told(text, Owner::Unknown, true, &|_| true))
        })
    }

    /// For a tool that works on `instance`: kinds that it is not let to see.
    pub fn mask(
        &mut self,
        data: &Value,
        instance: Option<&str>,
        hides: &dyn Fn(Kind) -> bool,
    ) -> Value {
        self.value(data, Owner::of(instance), false, hides)
    }

    /// For the user: secrets stay hidden. Idempotent.
    pub fn conceal(&mut self, output: &Value) -> Value {
        self.value(output, Owner::Unknown, true, &Kind::is_secret)
    }

    /// Text that the model wrote, as it is meant. What belongs to other instances than `instance`
    /// stays as it is.
    pub fn reveal(&self, text: &str, instance: Option<&str>) -> String {
        replaced(text, |placeholder| {
            let entry = self.entry_of(placeholder)?;
            entry.is_seen_by(instance).then_some(entry.value.as_str())
        })
    }

    pub fn reveal_value(&self, data: &Value, instance: Option<&str>) -> Value {
        strings(data, 0, &mut |text| Some(self.reveal(text, instance)))
    }

    /// Reveals the values of all instances, for a recipient that owns all of them.
    pub fn reveal_all(&self, data: &Value) -> Value {
        strings(data, 0, &mut |text| {
            Some(replaced(text, |placeholder| {
                Some(self.entry_of(placeholder)?.value.as_str())
            }))
        })
    }

    /// A statement with placeholders as it is meant, if the statement alone tells that each of its values is hidden.
    /// Otherwise it keeps the placeholders: a later run would not know what it must hide.
    pub fn reveal_evident(&self, text: &str) -> String {
        if self.is_off() {
            return text.to_owned();
        }
        let meant = replaced(text, |placeholder| {
            Some(self.entry_of(placeholder)?.value.as_str())
        });
        let found = find(&meant, |kind| self.privacy.hide.contains(&kind));
        // Up to where text and meaning were compared.
        let (mut seen, mut told) = (0, 0);
        for (start, stop) in placeholders(text) {
            let entry = text.get(start..stop).and_then(|it| self.entry_of(it));
            let Some(entry) = entry else {
                continue;
            };
            let begin = told + (start - seen);
            let end = begin + entry.value.len();
            (seen, told) = (stop, end);
            let is_found = found.iter().any(|it| it.start <= begin && end <= it.end);
            if entry.kind.is_some() && !is_found {
                return text.to_owned();
            }
        }
        meant
    }

    /// The placeholders in what a tool is given.
    pub fn masked<'a>(&self, given: impl IntoIterator<Item = &'a Value>) -> GivenPlaceholders {
        let mut masked = GivenPlaceholders::default();
        for value in given {
            strings(value, 0, &mut |text| {
                replaced(text, |placeholder| {
                    let entry = self.entry_of(placeholder)?;
                    masked
                        .0
                        .insert(entry.placeholder.clone(), entry.value.clone());
                    None
                });
                None
            });
        }
        masked
    }

    /// The most characters of `text`, of `max` at most, that do not end inside of something that is
    /// hidden: half of it would not be recognised.
    pub fn clear(&self, text: &str, max: usize) -> usize {
        let Some((end, _)) = text.char_indices().nth(max).filter(|_| !self.is_off()) else {
            return max;
        };
        let scope = HidingScope {
            kinds: &|_| true,
            keeps: true,
            owner: Owner::Unknown,
        };
        let spans = self.spans(text, &scope);
        let cut = spans.iter().find(|span| span.start < end && end < span.end);
        cut.map_or(max, |span| {
            let kept = text.get(..span.start).unwrap_or_default();
            kept.chars().count()
        })
    }

    fn entry_of(&self, placeholder: &str) -> Option<&VaultEntry> {
        let index = self.by_placeholder.get(placeholder)?;
        self.entries.get(*index)
    }

    fn value(
        &mut self,
        data: &Value,
        owner: Owner<'_>,
        keeps: bool,
        kinds: &dyn Fn(Kind) -> bool,
    ) -> Value {
        if self.is_off() {
            return data.clone();
        }
        self.learn();
        let known = self.entries.len();
        let hidden = strings(data, 0, &mut |text| {
            Some(self.told(text, owner, keeps, kinds))
        });
        if self.entries.len() == known {
            return hidden;
        }
        // A value found in one text may occur in another one without the context that identifies it. Learning
        // after each text would take quadratic time.
        self.learn();
        strings(data, 0, &mut |text| {
            Some(self.told(text, owner, keeps, kinds))
        })
    }

    fn text(
        &mut self,
        text: &str,
        owner: Owner<'_>,
        keeps: bool,
        kinds: &dyn Fn(Kind) -> bool,
    ) -> String {
        if self.is_off() {
            return text.to_owned();
        }
        self.learn();
        self.told(text, owner, keeps, kinds)
    }

    fn told(
        &mut self,
        text: &str,
        owner: Owner<'_>,
        keeps: bool,
        kinds: &dyn Fn(Kind) -> bool,
    ) -> String {
        let scope = HidingScope {
            kinds,
            keeps,
            owner,
        };
        let spans = self.spans(text, &scope);
        let mut hidden = String::with_capacity(text.len());
        let mut end = 0;
        for span in spans {
            hidden.push_str(text.get(end..span.start).unwrap_or_default());
            let value = text.get(span.start..span.end).unwrap_or_default();
            hidden.push_str(&self.placeholder(span.kind, value, scope.owner));
            end = span.end;
        }
        hidden.push_str(text.get(end..).unwrap_or_default());
        hidden
    }

    /// Brings the search for values that are known up to date.
    fn learn(&mut self) {
        if self.known.as_ref().map_or(0, |known| known.entries) == self.entries.len() {
            return;
        }
        let mut of = Vec::new();
        let mut patterns = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            // What only looks like a placeholder is recognised by that.
            if entry.kind.is_none() {
                continue;
            }
            patterns.push(entry.value.clone());
            of.push(index);
            if let Some(escaped) = escaped(&entry.value) {
                patterns.push(escaped);
                of.push(index);
            }
            // As it is found in a text without hidden characters.
            let folded = Folded::of(&entry.value);
            let is_other = folded.text() != entry.value;
            for form in is_other
                .then_some(folded)
                .into_iter()
                .chain(Folded::without_hidden(&entry.value))
            {
                patterns.push(form.text().to_owned());
                of.push(index);
            }
        }
        // It can only fail on more patterns than `MAX_VALUES` values have.
        self.known = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(patterns)
            .ok()
            .map(|automaton| KnownValues {
                entries: self.entries.len(),
                automaton,
                of,
            });
    }

    /// The hidden spans of `text`, in order and without overlaps.
    fn spans(&self, text: &str, scope: &HidingScope<'_>) -> Vec<Span> {
        let mut spans = Vec::new();
        self.cover(text, 0, MAX_SEARCH_PASSES, scope, &mut spans);
        spans.sort_by_key(|span| span.start);
        spans
    }

    fn cover(
        &self,
        text: &str,
        offset: usize,
        rounds: usize,
        scope: &HidingScope<'_>,
        spans: &mut Vec<Span>,
    ) {
        let found = self.once(text, scope);
        let Some(first) = found.first().copied() else {
            return;
        };
        if rounds == 0 {
            // Such a text does not occur by accident.
            spans.push(Span {
                start: offset,
                end: offset + text.len(),
                ..first
            });
            return;
        }
        let mut end = 0;
        for span in &found {
            let gap = text.get(end..span.start).unwrap_or_default();
            self.cover(gap, offset + end, rounds - 1, scope, spans);
            spans.push(Span {
                start: offset + span.start,
                end: offset + span.end,
                ..*span
            });
            end = span.end;
        }
        let rest = text.get(end..).unwrap_or_default();
        self.cover(rest, offset + end, rounds - 1, scope, spans);
    }

    fn once(&self, text: &str, scope: &HidingScope<'_>) -> Vec<Span> {
        let wanted = |kind: Kind| self.privacy.hide.contains(&kind) && (scope.kinds)(kind);
        let mut found: Vec<Span> = find(text, wanted)
            .into_iter()
            .map(|finding| Span {
                start: finding.start,
                end: finding.end,
                kind: Some(finding.kind),
            })
            .collect();
        // A model is shown a placeholder, or a value that is known, without the hidden characters that divide it.
        let without_hidden = Folded::without_hidden(text);
        let divided = without_hidden.iter().flat_map(|shown| {
            let place = move |(start, end)| (shown.origin(start), shown.origin_of_end(end));
            placeholders(shown.text()).map(place)
        });
        for (start, end) in placeholders(text).chain(divided) {
            let placeholder = text.get(start..end).unwrap_or_default();
            if !(scope.keeps && self.entry_of(placeholder).is_some()) {
                found.push(Span {
                    start,
                    end,
                    kind: None,
                });
            }
        }
        if let Some(known) = &self.known {
            let whole = known.automaton.find_iter(text);
            let whole = whole.map(|it| (it.pattern(), it.start(), it.end()));
            let divided = without_hidden.iter().flat_map(|shown| {
                let occurrences = known.automaton.find_iter(shown.text());
                occurrences.map(move |it| {
                    let end = shown.origin_of_end(it.end());
                    (it.pattern(), shown.origin(it.start()), end)
                })
            });
            for (pattern, start, end) in whole.chain(divided) {
                let index = known.of.get(pattern.as_usize()).copied();
                let entry = index.and_then(|index| self.entries.get(index));
                let kind = entry.and_then(|entry| entry.kind);
                if kind.is_some_and(wanted) {
                    found.push(Span { start, end, kind });
                }
            }
        }
        found.sort_by_key(|span| (span.start, usize::MAX - span.end));
        let mut merged: Vec<Span> = Vec::with_capacity(found.len());
        for span in found {
            match merged.last_mut() {
                Some(last) if span.start < last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        merged
    }

    /// What stands for `value`.
    fn placeholder(&mut self, kind: Option<Kind>, value: &str, owner: Owner<'_>) -> String {
        let label = kind.map_or(TEXT, Kind::name);
        if let Some(index) = self.by_value.get(value).copied()
            && let Some(entry) = self.entries.get_mut(index)
        {
            if owner != Owner::Unknown {
                entry.owners.insert(owner.instance());
            }
            return entry.placeholder.clone();
        }
        if self.entries.len() >= MAX_VALUES {
            return format!("<{label}_more>");
        }
        let number = self.numbers.entry(label).or_default();
        *number += 1;
        let placeholder = format!("<{label}_{number}>");
        self.insert(kind, value, placeholder.clone(), owner.instance());
        placeholder
    }

    fn insert(
        &mut self,
        kind: Option<Kind>,
        value: &str,
        placeholder: String,
        owner: Option<String>,
    ) {
        let index = self.entries.len();
        self.by_value.insert(value.to_owned(), index);
        if let Some(escaped) = escaped(value) {
            self.by_value.entry(escaped).or_insert(index);
        }
        self.by_placeholder.insert(placeholder.clone(), index);
        self.entries.push(VaultEntry {
            kind,
            value: value.to_owned(),
            placeholder,
            owners: BTreeSet::from([owner]),
        });
    }
}

impl<'a> Owner<'a> {
    fn of(instance: Option<&'a str>) -> Self {
        instance.map_or(Self::All, Self::Instance)
    }

    fn instance(self) -> Option<String> {
        match self {
            Self::Instance(instance) => Some(instance.to_owned()),
            Self::All | Self::Unknown => None,
        }
    }
}

impl VaultEntry {
    /// Whether the data of `instance`, or that of all, holds the value.
    fn is_seen_by(&self, instance: Option<&str>) -> bool {
        self.owners.contains(&None)
            || instance.is_some_and(|own| self.owners.contains(&Some(own.to_owned())))
    }
}

impl GivenPlaceholders {
    pub fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Replaces the tool's placeholders in its result by their values.
    pub fn reveal(&self, text: &str) -> String {
        replaced(text, |placeholder| {
            self.0.get(placeholder).map(String::as_str)
        })
    }

    pub fn reveal_value(&self, data: &Value) -> Value {
        if self.0.is_empty() {
            return data.clone();
        }
        strings(data, 0, &mut |text| Some(self.reveal(text)))
    }
}

/// `Debug` shows no values, so that they reach no log.
impl Debug for GivenPlaceholders {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The same.
impl Debug for Vault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault")
            .field("hidden", &self.counts())
            .finish_non_exhaustive()
    }
}
