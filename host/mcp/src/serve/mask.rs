//! Removes data that `[shields]` hide from models from texts for clients.
//!
//! Within a run, placeholders stand for hidden data and can be resolved. Calls of an MCP client share no
//! state that could resolve them, and the same placeholder in two results would look like the same person. So
//! hidden data is replaced by its kind alone, such as `<email>`.

use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;
use toolhold_agent::calls::PartyPrivacy;
use toolhold_policy::pii::Kind;
use toolhold_policy::redaction;
use toolhold_policy::redaction::Masking;
use toolhold_protocol::privacy::Privacy;

/// Kinds of data that are hidden from clients.
#[derive(Debug, Clone, Default)]
pub struct Mask {
    hide: BTreeSet<Kind>,
}

impl Mask {
    pub fn of(privacy: &Privacy) -> Self {
        Self {
            hide: privacy.hide.clone(),
        }
    }

    pub fn is_off(&self) -> bool {
        self.hide.is_empty()
    }

    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.masked(text)
    }

    /// Whether `text` holds hidden data.
    pub fn hides(&self, text: &str) -> bool {
        matches!(self.text(text), Cow::Owned(_))
    }

    pub fn hides_in(&self, value: &Value) -> bool {
        !self.is_off() && self.masked_value(value.clone()) != *value
    }
}

impl PartyPrivacy for Mask {
    fn is_off(&self) -> bool {
        self.hide.is_empty()
    }

    fn hide_value(&self, value: Value) -> Value {
        if self.is_off() {
            value
        } else {
            self.masked_value(value)
        }
    }

    fn hide_text(&self, text: String) -> String {
        match self.masked(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(masked) => masked,
        }
    }
}

impl Masking for Mask {
    /// Depth bound of a result; far above every module's `json_depth`.
    const DEEPEST: usize = 256;

    fn masked<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.is_off() {
            return Cow::Borrowed(text);
        }
        redaction::without(text, |kind| self.hide.contains(&kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hiding_removes_personal_data_and_nothing_else() {
        let mask = Mask {
            hide: [Kind::Email, Kind::Card].into(),
        };
        for (before, after) in [
            (json!("to ada@example.org, soon"), json!("to <email>, soon")),
            (json!(4_111_111_111_111_111_u64), json!("<card>")),
            (
                json!({"ada@example.org": 1, "bob@example.org": 2, "n": [3.5, null, true]}),
                json!({"<email>": 1, "<email> 2": 2, "n": [3.5, null, true]}),
            ),
            (json!("call +49 30 901820"), json!("call +49 30 901820")),
        ] {
            assert_eq!(mask.hide_value(before), after);
        }
        let open = json!({"ada@example.org": "ada@example.org"});
        assert_eq!(Mask::default().hide_value(open.clone()), open);
    }
}
