//! Replies that could not be used.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// Why a reply could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusableReply {
    pub step: u32,
    /// Calls of the reply were made before it turned out, so only the rest of it is lost. Otherwise the
    /// model is asked again.
    pub calls_made: bool,
    /// The fault. It quotes what the model wrote, so it is not for clients that may see only
    /// what the shields on the run's output let through; empty where it was taken out for them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// For people, in one line.
impl Display for UnusableReply {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.calls_made {
            "the rest of the reply could not be used"
        } else {
            "the reply could not be used, asking again"
        })?;
        if self.reason.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;
    use serde_json::json;

    #[test]
    fn a_reply_that_could_not_be_used_says_what_became_of_it() {
        let told = |calls_made, reason: &str| UnusableReply {
            step: 1,
            calls_made,
            reason: reason.into(),
        };
        for (told, text) in [
            (
                told(false, "it is empty"),
                "the reply could not be used, asking again: it is empty",
            ),
            (
                told(true, "it ends"),
                "the rest of the reply could not be used: it ends",
            ),
            (told(true, ""), "the rest of the reply could not be used"),
        ] {
            assert_eq!(told.to_string(), text);
            let event = EventKind::UnusableReply(told);
            let read: EventKind = serde_json::from_value(json!(event)).unwrap();
            assert_eq!((json!(read), read.name()), (json!(event), "unusable_reply"));
        }
    }
}
