//! Rules of the loop, by the format of the record. A record of an older format is replayed by the rules under which it
//! came about, and a resumed run keeps them.

use crate::context::TrimOrder;
use toolhold_json::rules::ReadingRules;
use toolhold_protocol::event::{FORMAT, OLDEST_FORMAT};

/// The format between the oldest one and the current one.
const FORMAT_4: u32 = 4;

/// The rules by which a run goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoopRules {
    /// Before: calls of a reply wait for what they read alone, votes of consulted advisors do not count, a property that
    /// names another call is ignored, arguments of latent calls are not repaired, a dagger is always a reference, names of
    /// tools are exact, but for a hyphen in the place of a dot, and replies are read by [`ReadingRules::Format3`]:
    ///
    /// - function calls without arguments are made when the next one begins, also if the reply was cut there;
    /// - an output of a schema is given by calling its function alone, and in no form of another contract;
    /// - arguments that were encoded twice are refused, and numbers are taken also if they lose digits;
    /// - calls in text have the forms and marks that were known then, and other marks are text;
    /// - a call is compared with what the model was shown by the name that it has, and without parameters that begin with
    ///   `_`.
    Format3,
    /// Before: a call that may change something keeps the count of its repetitions when others are made, and is held back each
    /// time from the third one on. What calls change by other calls, or while the process ends, does not count. Statements
    /// leave the summary of a conversation by their weight ([`TrimOrder::Weight`]), and nothing of the newest turn is summed
    /// up. A Request whose length an endpoint refuses without a number is made shorter three times, by a fifth each. Replies
    /// are read by [`ReadingRules::Format4`]:
    ///
    /// - calls in text, and thoughts, have the forms and marks that were known then;
    /// - the text of a reply is no output of a schema if it has the members of a call, of any tool or none;
    /// - dates have English words or none, and an answer in the form of another contract has only null members beside it;
    /// - passages are data for all calls, so that a dagger begins a reference beside them;
    /// - a parameter that is called `_tool` cannot be given by that name.
    Format4,
    #[default]
    Current,
}

impl LoopRules {
    /// The rules under which a record of this format was written; none where this version has no such rules.
    pub fn of(format: u32) -> Option<Self> {
        match format {
            FORMAT => Some(Self::Current),
            FORMAT_4 => Some(Self::Format4),
            OLDEST_FORMAT => Some(Self::Format3),
            _ => None,
        }
    }

    /// The format of records that are written under these rules.
    pub fn format(self) -> u32 {
        match self {
            Self::Format3 => OLDEST_FORMAT,
            Self::Format4 => FORMAT_4,
            Self::Current => FORMAT,
        }
    }

    /// The rules by which replies, and arguments of calls, are read.
    pub fn reading(self) -> ReadingRules {
        match self {
            Self::Format3 => ReadingRules::Format3,
            Self::Format4 => ReadingRules::Format4,
            Self::Current => ReadingRules::Current,
        }
    }

    /// The order in which statements leave the summary of a conversation.
    pub fn trim_order(self) -> TrimOrder {
        if self.are_from_5() {
            TrimOrder::Rarity
        } else {
            TrimOrder::Weight
        }
    }

    /// True under the rules of format 4, and under later ones.
    pub fn are_from_4(self) -> bool {
        self >= Self::Format4
    }

    /// True under the rules of format 5, which are the current ones.
    pub fn are_from_5(self) -> bool {
        self >= Self::Current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_that_is_replayed_has_its_rules() {
        for format in OLDEST_FORMAT..=FORMAT {
            let rules = LoopRules::of(format);
            assert_eq!(rules.map(LoopRules::format), Some(format));
        }
        assert_eq!(LoopRules::of(OLDEST_FORMAT - 1), None);
        assert_eq!(LoopRules::of(FORMAT + 1), None);
        assert_eq!(LoopRules::default().format(), FORMAT);
    }
}
