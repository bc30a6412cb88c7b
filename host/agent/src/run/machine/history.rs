//! What happened in a run, as far as the model is shown it: the turns, a summary in the place of the oldest of
//! them, and the results that are kept outside of the window (docs/protocol.md, 7.11).

use super::privacy::RunPrivacy;
use crate::context::summary::CUT;
use crate::context::{Stored, Summary};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::turn::{Answered, Turn};
use toolhold_text::cut;

/// Results shorter than this are not worth a key, and may stand twice.
pub(super) const MIN_STORED_RESULT_BYTES: usize = 400;
/// Maximum characters of a call's arguments where a result is the same as an earlier one.
const MAX_ARGUMENTS_CHARS: usize = 80;

/// The history of one run.
#[derive(Debug, Default)]
pub(super) struct History {
    turns: Vec<Turn>,
    /// The turns up to here are in the summary.
    dropped: usize,
    summary: Summary,
    /// The summary as it is shown until more is dropped. Made anew, it may differ in a byte, and all behind
    /// it would be read again.
    summed_up: PromptText,
    stored: Stored,
}

impl History {
    pub fn push(&mut self, turn: Turn) {
        self.turns.push(turn);
    }

    pub fn extend(&mut self, turns: impl IntoIterator<Item = Turn>) {
        self.turns.extend(turns);
    }

    /// Every turn, whether it was dropped or not.
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Calls that are over, in their order.
    pub fn answered(&self) -> impl Iterator<Item = &Answered> {
        self.turns.iter().flat_map(|turn| match turn {
            Turn::Exchange(exchange) => exchange.calls.as_slice(),
            _ => &[],
        })
    }

    /// The summary of what was dropped, and the turns after it. Of results that are the same the first is
    /// shown, and the others point to it.
    pub fn shown(&self, privacy: &RunPrivacy) -> Vec<Turn> {
        let mut turns = Vec::new();
        if !self.summary.is_empty() {
            turns.push(Turn::Summary(self.summed_up.clone().into()));
        }
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for turn in self.turns.iter().skip(self.dropped) {
            let Turn::Exchange(exchange) = turn else {
                turns.push(turn.clone());
                continue;
            };
            let mut exchange_shown = exchange.clone();
            for (answered, shown) in exchange.calls.iter().zip(&mut exchange_shown.calls) {
                if answered.text.len() < MIN_STORED_RESULT_BYTES {
                    continue;
                }
                if !seen.insert(&answered.text) {
                    let arguments = answered.call.arguments.to_string();
                    let most = privacy.clear(&arguments, MAX_ARGUMENTS_CHARS);
                    shown.text = format!(
                        "the same, to the letter, as an earlier result above ({} {})",
                        answered.call.tool,
                        cut(&arguments, most)
                    );
                }
            }
            turns.push(Turn::Exchange(exchange_shown));
        }
        turns
    }

    /// How many turns [`Self::shown`] gives.
    pub fn shown_len(&self) -> usize {
        let summary = usize::from(self.is_summed_up());
        summary + self.turns.len().saturating_sub(self.dropped)
    }

    pub fn is_summed_up(&self) -> bool {
        !self.summary.is_empty()
    }

    /// The turns that are not in the summary and may go there: those before the newest exchange.
    pub fn droppable(&self) -> usize {
        let newest = self
            .turns
            .iter()
            .rposition(|turn| matches!(turn, Turn::Exchange(_)));
        newest.map_or(0, |newest| newest.saturating_sub(self.dropped))
    }

    /// The turn that goes into the summary next, if one may.
    pub fn oldest(&self) -> Option<&Turn> {
        self.turns
            .get(self.dropped)
            .filter(|_| self.droppable() > 0)
    }

    /// The oldest turn is in the summary from now on; `shown` is how the model is shown it, and `hide` what it is
    /// shown of a text. The summary is shown as it was until [`Self::sum_up`]. Returns the results as a whole that it
    /// may tell more of than the turn does.
    pub fn drop_oldest(&mut self, shown: &Turn, hide: impl FnMut(&str) -> String) -> Vec<String> {
        let wholes = self.wholes(shown, hide);
        self.summary.add(shown, &wholes);
        self.dropped += 1;
        wholes.into_values().collect()
    }

    /// All of what calls returned, where it is kept, as the model may be shown it.
    fn wholes(
        &self,
        turn: &Turn,
        mut hide: impl FnMut(&str) -> String,
    ) -> BTreeMap<String, String> {
        let Turn::Exchange(exchange) = turn else {
            return BTreeMap::new();
        };
        let answered = exchange.calls.iter().filter(|answered| !answered.failed);
        answered
            .filter_map(|answered| {
                let id = &answered.call.id;
                Some((id.clone(), hide(self.stored.find(id)?)))
            })
            .collect()
    }

    /// From now on the summary is shown as it is now, in about `max` bytes; `mark` is derived for it.
    pub fn sum_up(&mut self, max: usize, mark: &str) {
        let stored = &self.stored;
        let mut text = self.summary.text(max, mark, |call| stored.contains(call));
        if !stored.is_empty() {
            text.words(
                "\nread_result reads the whole of what a call returned: its key is what stands in brackets.",
            );
        }
        self.summed_up = text;
    }

    /// Keeps a result outside of the window.
    pub fn store(&mut self, id: &str, text: String) {
        self.stored.keep(id, text);
    }

    pub fn has_stored(&self) -> bool {
        !self.stored.is_empty()
    }

    /// What a call of `read_result` returns: at most `max` characters.
    ///
    /// # Errors
    /// As [`Stored::read`].
    pub fn read_stored(
        &self,
        arguments: &Value,
        max: usize,
        shown: impl FnOnce(&str) -> String,
    ) -> Result<Value, String> {
        self.stored.read(arguments, max, shown)
    }

    /// At most `max` characters of a result, saying what is missing and how to get it. It ends where
    /// that leaves no half of something that is hidden.
    pub fn shortened(&self, id: &str, text: &str, max: usize, privacy: &mut RunPrivacy) -> String {
        let length = text.chars().count();
        if length <= max {
            return text.to_owned();
        }
        let max = max.min(privacy.clear(text, max));
        let kept: String = text.chars().take(max).collect();
        let rest = if self.stored.contains(id) {
            let from = privacy.hide(&kept).chars().count();
            format!("call read_result with \"key\": \"{id}\" and \"from\": {from} to see more")
        } else {
            "ask the tool for a smaller part to see the rest".to_owned()
        };
        format!("{kept}{CUT}{max} of {length} characters shown; {rest}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_protocol::privacy::Privacy;
    use toolhold_protocol::solution::Call;
    use toolhold_protocol::turn::Exchange;

    fn exchange(id: &str, text: &str) -> Turn {
        Turn::Exchange(Exchange {
            calls: vec![Answered {
                call: Call {
                    id: id.into(),
                    tool: "orders.find".into(),
                    arguments: json!({"of": id}),
                    ..Call::default()
                },
                fence: String::new(),
                text: text.into(),
                failed: false,
            }],
            ..Exchange::default()
        })
    }

    fn history(turns: impl IntoIterator<Item = Turn>) -> History {
        let mut history = History::default();
        history.extend(turns);
        history
    }

    fn open() -> RunPrivacy {
        RunPrivacy::new(Privacy::default())
    }

    fn drop_all(history: &mut History) -> usize {
        let mut dropped = 0;
        while let Some(turn) = history.oldest().cloned() {
            history.drop_oldest(&turn, str::to_owned);
            dropped += 1;
        }
        history.sum_up(10_000, "abcd1234");
        dropped
    }

    #[test]
    fn turns_before_the_newest_exchange_go_into_the_summary() {
        let mut history = history([
            Turn::user("task"),
            exchange("call_1", r#"{"id":"A-17"}"#),
            exchange("call_2", r#"{"id":"A-18"}"#),
            Turn::user("note"),
        ]);
        assert_eq!(history.droppable(), 2);
        assert_eq!(drop_all(&mut history), 2);
        let shown = history.shown(&open());
        assert_eq!(shown.len(), 3);
        assert_eq!(history.shown_len(), 3);
        let Turn::Summary(text) = &shown[0] else {
            panic!("{shown:?}");
        };
        assert!(text.contains("id=A-17") && !text.contains("A-18"), "{text}");
        assert_eq!(
            history.answered().count(),
            2,
            "nothing of the record is lost"
        );
        assert_eq!(history.turns().len(), 4);
    }

    #[test]
    fn without_an_exchange_nothing_is_dropped() {
        for mut history in [history([]), history([Turn::user("a"), Turn::user("b")])] {
            assert_eq!((history.droppable(), drop_all(&mut history)), (0, 0));
            assert!(!history.is_summed_up());
        }
    }

    #[test]
    fn the_summary_stays_the_same_until_it_is_made_anew() {
        let mut history = history((0..3).map(|n| exchange(&format!("call_{n}"), "{}")));
        let first = history.oldest().cloned().unwrap();
        history.drop_oldest(&first, str::to_owned);
        history.sum_up(10_000, "abcd1234");
        let before = history.shown(&open()).remove(0);
        let second = history.oldest().cloned().unwrap();
        history.drop_oldest(&second, str::to_owned);
        assert_eq!(history.shown(&open()).remove(0), before);
        history.sum_up(10_000, "abcd1234");
        assert_ne!(history.shown(&open()).remove(0), before);
    }

    #[test]
    fn a_long_result_is_shown_once() {
        let long = "x".repeat(MIN_STORED_RESULT_BYTES);
        let history = history([exchange("call_1", &long), exchange("call_2", &long)]);
        let shown = history.shown(&open());
        let texts: Vec<&str> = shown
            .iter()
            .map(|turn| match turn {
                Turn::Exchange(exchange) => exchange.calls[0].text.as_str(),
                _ => "",
            })
            .collect();
        assert_eq!(texts[0], long);
        assert!(texts[1].contains("the same, to the letter"), "{}", texts[1]);
    }

    #[test]
    fn kept_values_are_whole_and_masked_in_the_summary() {
        let mut history = history([exchange("call_1", "[\"A-1"), exchange("call_2", "{}")]);
        history.store("call_1", json!(["A-1", "A-2"]).to_string());
        let turn = history.oldest().cloned().unwrap();
        history.drop_oldest(&turn, |text| text.replace("A-2", "hidden"));
        history.sum_up(10_000, "abcd1234");
        let Turn::Summary(text) = history.shown(&open()).remove(0) else {
            panic!("no summary");
        };
        assert!(text.contains("A-1, hidden"), "{text}");
        assert!(text.contains("read_result reads the whole"), "{text}");
        let read = history.read_stored(&json!({"key": "call_1"}), 5, str::to_owned);
        assert_eq!(read.unwrap()["text"], "[\"A-1");
    }

    #[test]
    fn a_cut_result_says_how_to_read_the_rest() {
        let mut history = History::default();
        let shortened =
            |history: &History, max| history.shortened("call_1", "0123456789", max, &mut open());
        assert_eq!(shortened(&history, 10), "0123456789");
        assert!(shortened(&history, 4).contains("ask the tool for a smaller part"));
        history.store("call_1", "0123456789".into());
        let text = shortened(&history, 4);
        assert!(
            text.starts_with("0123\n[cut: 4 of 10 characters shown; call read_result"),
            "{text}"
        );
        assert!(text.contains("\"from\": 4"), "{text}");
    }
}
