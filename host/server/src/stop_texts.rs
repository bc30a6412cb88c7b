//! Texts before which an answer ends (`stop` of Chat Completions). The model is not told of them: a reply has a form, which
//! a stop sequence would break. The answer is cut when it is shown, streamed or whole.

use serde_json::Value;
use std::mem;
use std::sync::Arc;

/// Maximum number of texts.
pub const MAX_TEXTS: usize = 16;
/// Maximum bytes of one text.
pub const MAX_BYTES: usize = 1_024;

/// The form of the member, for the message of a refusal.
pub const FORM: &str = "expected a text, or a list of at most 16 texts, each of 1 to 1024 bytes";

/// Looks for the first of the texts in an answer that comes in pieces.
#[derive(Debug, Clone, Default)]
pub struct StopTexts {
    texts: Arc<[String]>,
    /// The end of the answer so far, if one of the texts may begin with it.
    held: String,
    /// True behind one of the texts.
    is_over: bool,
}

impl StopTexts {
    /// Reads the member of a request; `None` if it is neither null, a text nor a list of texts.
    pub fn read(value: &Value) -> Option<Self> {
        let texts = match value {
            Value::Null => Vec::new(),
            Value::String(text) => vec![text.clone()],
            Value::Array(texts) => {
                let texts = texts.iter().map(|text| text.as_str().map(str::to_owned));
                texts.collect::<Option<Vec<_>>>()?
            }
            _ => return None,
        };
        let is_usable = |text: &String| (1..=MAX_BYTES).contains(&text.len());
        let are_usable = texts.len() <= MAX_TEXTS && texts.iter().all(is_usable);
        are_usable.then(|| Self {
            texts: texts.into(),
            ..Self::default()
        })
    }

    /// Returns the same texts for another answer.
    pub fn anew(&self) -> Self {
        Self {
            texts: self.texts.clone(),
            ..Self::default()
        }
    }

    /// The part of a whole answer before the first of the texts.
    pub fn cut<'a>(&self, answer: &'a str) -> &'a str {
        let end = self.first(answer);
        end.and_then(|end| answer.get(..end)).unwrap_or(answer)
    }

    /// Takes the next piece of an answer, and returns what may be shown by now.
    pub fn push(&mut self, piece: String) -> String {
        if self.texts.is_empty() {
            return piece;
        }
        if self.is_over {
            return String::new();
        }
        self.held.push_str(&piece);
        if let Some(end) = self.first(&self.held) {
            self.is_over = true;
            self.held.truncate(end);
            return mem::take(&mut self.held);
        }
        let shown = self.held.len().saturating_sub(self.begun());
        let rest = self.held.split_off(shown);
        mem::replace(&mut self.held, rest)
    }

    /// Byte place at which the text begins that ends first. It is the same whether the answer comes whole or in pieces.
    fn first(&self, answer: &str) -> Option<usize> {
        let found = self.texts.iter().filter_map(|text| {
            let start = answer.find(text.as_str())?;
            Some((start.saturating_add(text.len()), start))
        });
        found.min().map(|(_, start)| start)
    }

    /// Bytes at the end of what is held that one of the texts begins with.
    fn begun(&self) -> usize {
        let begins = |text: &String| {
            let lengths = (1..text.len()).rev();
            let mut begun = lengths.filter_map(|length| text.get(..length));
            begun
                .find(|begun| self.held.ends_with(*begun))
                .map_or(0, str::len)
        };
        self.texts.iter().map(begins).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn shown(stops: &StopTexts, pieces: &[&str]) -> String {
        let mut stops = stops.anew();
        let pieces = pieces.iter().map(|piece| stops.push((*piece).to_owned()));
        pieces.collect()
    }

    #[test]
    fn an_answer_ends_before_the_first_of_the_texts() {
        let stops = StopTexts::read(&json!(["END", "\n\n"])).unwrap();
        for (answer, cut) in [
            ("It is 4.END of it", "It is 4."),
            ("a\n\nb END", "a"),
            ("END", ""),
            ("ENTER", "ENTER"),
        ] {
            assert_eq!(stops.cut(answer), cut);
        }
        assert_eq!(shown(&stops, &["It is 4.E", "N", "D of it"]), "It is 4.");
        assert_eq!(shown(&stops, &["E", "N", "TER"]), "ENTER");
        assert_eq!(shown(&stops, &["a\n", "\nb"]), "a");
        // What may be the beginning of one is shown when the answer is whole.
        assert_eq!(shown(&stops, &["a", "E"]), "a");
        let none = StopTexts::read(&Value::Null).unwrap();
        assert_eq!(none.cut("END"), "END");
    }

    #[test]
    fn texts_of_another_form_are_not_read() {
        for value in [
            json!(""),
            json!([1]),
            json!({}),
            json!([""]),
            json!(vec!["x"; MAX_TEXTS + 1]),
            json!("x".repeat(MAX_BYTES + 1)),
        ] {
            assert!(StopTexts::read(&value).is_none(), "{value}");
        }
    }

    proptest! {
        #[test]
        fn pieces_are_a_beginning_of_the_cut_answer(
            pieces in prop::collection::vec("[abé]{0,4}", 0..8),
            texts in prop::collection::vec("[abé]{1,3}", 0..3),
        ) {
            let stops = StopTexts::read(&json!(texts)).unwrap();
            let answer = pieces.concat();
            let parts: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let cut = stops.cut(&answer);
            let said = shown(&stops, &parts);
            prop_assert!(cut.starts_with(&said), "{cut:?} {said:?}");
            let longest = texts.iter().map(String::len).max().unwrap_or(1);
            prop_assert!(cut.len() - said.len() < longest.max(1));
        }
    }
}
