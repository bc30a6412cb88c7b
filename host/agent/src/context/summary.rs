//! What takes the place of dropped history: which calls were made, and every identifier with its values,
//! verbatim. No model writes it: one that sums up is one more that makes things up, and what a run
//! goes on with would be different each time.

use crate::guard::validate::cut;
use crate::protocol::Turn;
use crate::protocol::turn::Answered;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Characters of a value that is kept as it is; longer ones are prose.
const MAX_VALUE: usize = 120;
/// Characters of a call's arguments, of an error, of a note.
const MAX_TEXT: usize = 200;
const MAX_DEPTH: usize = 32;

/// The dropped part of a history.
#[derive(Debug, Default)]
pub struct Summary {
    entries: Vec<Entry>,
    /// What is kept already is not kept again.
    seen: BTreeSet<String>,
}

#[derive(Debug)]
struct Entry {
    /// What was done, or said.
    head: String,
    facts: Vec<String>,
}

impl Summary {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn add(&mut self, turn: &Turn) {
        match turn {
            Turn::Exchange(exchange) => {
                for answered in &exchange.calls {
                    self.add_call(answered);
                }
            }
            Turn::Text { text, .. } => {
                let facts = self.unseen(identifiers(text));
                self.entries.push(Entry {
                    head: cut(text, MAX_TEXT),
                    facts,
                });
            }
            // What could not be used says nothing that is needed.
            Turn::Rejected { .. } | Turn::Summary(_) => {}
        }
    }

    fn add_call(&mut self, answered: &Answered) {
        let arguments = answered.call.arguments.to_string();
        let mut facts = Vec::new();
        if arguments.chars().count() > MAX_TEXT {
            facts.extend(facts_of(&answered.call.arguments));
        }
        let outcome = if answered.failed {
            format!("failed: {}", cut(&answered.text, MAX_TEXT))
        } else {
            format!("({})", answered.call.id)
        };
        match serde_json::from_str::<Value>(&answered.text) {
            Ok(value) if !answered.failed => facts.extend(facts_of(&value)),
            _ => facts.extend(identifiers(&answered.text)),
        }
        let facts = self.unseen(facts);
        self.entries.push(Entry {
            head: format!(
                "{} {} → {outcome}",
                answered.call.tool,
                cut(&arguments, MAX_TEXT)
            ),
            facts,
        });
    }

    fn unseen(&mut self, facts: Vec<String>) -> Vec<String> {
        facts
            .into_iter()
            .filter(|fact| self.seen.insert(fact.clone()))
            .collect()
    }

    /// At most about `max` bytes: first what the oldest calls were is left out, then their facts, and
    /// it is said.
    pub fn text(&self, max: usize) -> String {
        let heads: usize = self.entries.iter().map(|entry| entry.head.len() + 3).sum();
        let facts: usize = self.entries.iter().map(Entry::facts_len).sum();
        let (mut over_heads, mut over_facts) = (
            (heads + facts).saturating_sub(max),
            facts.saturating_sub(max),
        );
        let (mut left_out_heads, mut left_out_facts) = (0, 0);
        let mut text = String::new();
        for entry in &self.entries {
            if over_heads > 0 {
                over_heads = over_heads.saturating_sub(entry.head.len() + 3);
                left_out_heads += 1;
            } else {
                let _ = write!(text, "\n- {}", entry.head);
            }
            if over_facts > 0 {
                over_facts = over_facts.saturating_sub(entry.facts_len());
                left_out_facts += entry.facts.len();
            } else {
                for fact in &entry.facts {
                    let _ = write!(text, "\n  {fact}");
                }
            }
        }
        let mut head =
            "# Earlier in this run\nThe calls that were made and what they told, in short."
                .to_owned();
        if left_out_heads > 0 {
            let _ = write!(head, " The oldest {left_out_heads} calls are left out");
            let _ = match left_out_facts {
                0 => write!(head, ", not what they told."),
                facts => write!(head, ", and {facts} lines of what they told."),
            };
        }
        head + &text
    }
}

impl Entry {
    fn facts_len(&self) -> usize {
        self.facts.iter().map(|fact| fact.len() + 3).sum()
    }
}

/// A line for each object that holds values: where it is, and all of them, so that an identifier stays
/// with what belongs to it.
fn facts_of(value: &Value) -> Vec<String> {
    let mut facts = Vec::new();
    collect("", value, 0, &mut facts);
    facts
}

fn collect(at: &str, value: &Value, depth: usize, facts: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(fields) => collect_object(at, fields, depth, facts),
        Value::Array(items) => {
            let plain: Vec<String> = items.iter().filter_map(verbatim).collect();
            if !plain.is_empty() {
                facts.push(line(at, &plain.join(", ")));
            }
            for (index, item) in items.iter().enumerate() {
                if verbatim(item).is_none() {
                    collect(&format!("{at}[{index}]"), item, depth + 1, facts);
                }
            }
        }
        Value::String(text) if verbatim(value).is_none() => {
            let found = identifiers(text).into_iter();
            facts.extend(found.map(|fact| line(at, &fact)));
        }
        other => facts.extend(verbatim(other).map(|value| line(at, &value))),
    }
}

fn collect_object(at: &str, fields: &Map<String, Value>, depth: usize, facts: &mut Vec<String>) {
    let plain: Vec<String> = fields
        .iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", verbatim(value)?)))
        .collect();
    if !plain.is_empty() {
        facts.push(line(at, &plain.join(", ")));
    }
    for (key, value) in fields {
        if verbatim(value).is_none() {
            let place = if at.is_empty() {
                key.clone()
            } else {
                format!("{at}.{key}")
            };
            collect(&place, value, depth + 1, facts);
        }
    }
}

fn line(at: &str, what: &str) -> String {
    if at.is_empty() {
        what.to_owned()
    } else {
        format!("{at}: {what}")
    }
}

/// A value as it is, if it is one that can be an identifier or belong to one.
fn verbatim(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.chars().count() <= MAX_VALUE => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null => Some("null".into()),
        _ => None,
    }
}

/// The words of a text that look like identifiers, quantities or addresses, each with the word before it:
/// `order A-17`.
fn identifiers(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut before = "";
    for word in text.split_whitespace() {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        if is_identifier(bare) && bare.chars().count() <= MAX_VALUE {
            found.push(if before.is_empty() {
                bare.to_owned()
            } else {
                format!("{before} {bare}")
            });
            before = "";
        } else {
            before = bare;
        }
    }
    found
}

fn is_identifier(word: &str) -> bool {
    word.chars().any(|c| c.is_ascii_digit()) || word.contains('@') || word.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Call, Exchange};
    use proptest::prelude::*;
    use serde_json::json;

    fn exchange(id: &str, result: &Value) -> Turn {
        Turn::Exchange(Exchange {
            calls: vec![Answered {
                call: Call {
                    id: id.into(),
                    tool: "orders.find".into(),
                    arguments: json!({"of": id}),
                    ..Call::default()
                },
                fence: String::new(),
                text: result.to_string(),
                failed: false,
            }],
        })
    }

    #[test]
    fn identifiers_stay_with_their_values() {
        let mut summary = Summary::default();
        summary.add(&exchange(
            "call_1",
            &json!({"orders": [
                {"id": "A-17", "total": 55.5, "address": {"city": "Köln"}, "note": "long ".repeat(60)},
                {"id": "A-18", "total": 12},
            ], "tags": ["x", "y"]}),
        ));
        summary.add(&exchange(
            "call_2",
            &json!("The parcel JD-0042 of order A-17 left on 2026-11-21."),
        ));
        let text = summary.text(10_000);
        for line in [
            "- orders.find {\"of\":\"call_1\"} → (call_1)",
            "orders[0]: id=A-17, total=55.5",
            "orders[0].address: city=Köln",
            "orders[1]: id=A-18, total=12",
            "tags: x, y",
            "The parcel JD-0042 of order A-17 left on 2026-11-21.",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("long long"), "{text}");
    }

    #[test]
    fn of_prose_the_identifiers_are_kept() {
        let prose = format!(
            "{} parcel JD-0042, invoice 77/3; ask a@b.example.",
            "word ".repeat(60)
        );
        let mut summary = Summary::default();
        summary.add(&exchange("call_1", &json!(prose)));
        let text = summary.text(10_000);
        for fact in ["parcel JD-0042", "invoice 77/3", "a@b.example"] {
            assert!(text.contains(fact), "{fact}: {text}");
        }
        assert!(!text.contains("word word"), "{text}");
    }

    #[test]
    fn what_is_told_twice_is_kept_once_and_what_is_left_out_is_said() {
        let mut summary = Summary::default();
        for n in 0..50 {
            summary.add(&exchange(
                &format!("call_{n}"),
                &json!({"id": n / 2, "name": "n"}),
            ));
        }
        let whole = summary.text(100_000);
        assert_eq!(whole.matches("id=7, name=n").count(), 1, "{whole}");
        let heads_out = summary.text(1_500);
        assert!(
            heads_out.contains("calls are left out, not what they told"),
            "{heads_out}"
        );
        for n in 0..25 {
            assert!(
                heads_out.contains(&format!("id={n}, name=n")),
                "{n}: {heads_out}"
            );
        }
        assert!(heads_out.len() < 1_700);
        let little = summary.text(200);
        assert!(
            little.len() < 400 && little.contains("lines of what they told"),
            "{little}"
        );
        assert!(little.contains("id=24"), "the newest stay: {little}");
    }

    proptest! {
        /// PROTOCOL.md, 7: identifiers and their values stay verbatim.
        #[test]
        fn no_pair_is_lost(pairs in prop::collection::vec(("[A-Za-z0-9-]{1,20}", "[ -~]{1,60}", 0i64..), 1..20), nested in any::<bool>()) {
            let items: Vec<Value> = pairs.iter().map(|(id, name, n)| json!({"id": id, "name": name, "n": n})).collect();
            let result = if nested { json!({"page": {"items": items}}) } else { json!(items) };
            let mut summary = Summary::default();
            summary.add(&exchange("call_1", &result));
            let text = summary.text(1 << 20);
            for (id, name, n) in &pairs {
                let pair = format!("id={id}, name={name}, n={n}");
                prop_assert!(text.lines().any(|line| line.ends_with(&pair)), "{}: {}", pair, text);
            }
        }
    }
}
