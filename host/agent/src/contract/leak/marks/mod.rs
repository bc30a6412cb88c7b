//! How calls in a text begin and end, and what stands around them.

mod behind;

pub(super) use behind::{
    AfterCall, along_line, begins_sentence, follows, is_begun_behind, is_over, past_behind,
    starts_turn, trim_around,
};

use toolhold_json::rules::ReadingRules;

/// How a call in a text begins and ends.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) open: &'static str,
    /// Empty where nothing ends it but the next or the end of the reply.
    pub(super) close: &'static str,
    /// Whether what opens it is part of the call: it holds the name.
    pub(super) is_named: bool,
    /// Whether it is a special token, which does not occur in typed text.
    pub(super) is_token: bool,
    /// Whether it may hold calls that have marks of their own.
    pub(super) is_list: bool,
}

impl Mark {
    /// The mark that ends the call: the next call where none closes it.
    pub(super) fn end(&self) -> &'static str {
        match self.close {
            "" => self.open,
            close => close,
        }
    }

    /// Whether the end of the call is a special token, too: prose on its line does not speak of it.
    fn is_ended_by_token(&self) -> bool {
        self.is_token && !self.close.is_empty()
    }

    /// The call in `start`, which this mark opens, up to `end` bytes behind the mark.
    pub(super) fn body<'t>(&self, start: &'t str, end: usize) -> &'t str {
        let from = if self.is_named { 0 } else { self.open.len() };
        &start[from..self.open.len() + end]
    }
}

const fn tag(open: &'static str, close: &'static str) -> Mark {
    Mark {
        open,
        close,
        is_named: false,
        is_token: false,
        is_list: false,
    }
}

const fn list(open: &'static str, close: &'static str) -> Mark {
    Mark {
        is_list: true,
        ..tag(open, close)
    }
}

const fn named(open: &'static str, close: &'static str) -> Mark {
    Mark {
        is_named: true,
        ..tag(open, close)
    }
}

const fn token(open: &'static str, close: &'static str) -> Mark {
    Mark {
        is_token: true,
        ..tag(open, close)
    }
}

const fn named_token(open: &'static str, close: &'static str) -> Mark {
    Mark {
        is_named: true,
        ..token(open, close)
    }
}

static MARKS: [Mark; 20] = [
    tag("<tool_call>", "</tool_call>"),
    tag("<tools>", "</tools>"),
    tag("<function_call>", "</function_call>"),
    named("<function=", "</function>"),
    named("<invoke name=", "</invoke>"),
    token("[TOOL_CALLS]", ""),
    token("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    token("<|tool▁call▁begin|>", "<|tool▁call▁end|>"),
    token("<|tool_call_begin|>", "<|tool_call_end|>"),
    token("<|python_tag|>", ""),
    token("<|tool_call|>", ""),
    token("<start_function_call>", "<end_function_call>"),
    token("<|tool_call>", "<tool_call|>"),
    token("<|START_ACTION|>", "<|END_ACTION|>"),
    token("<|plugin|>", "<|action_end|>"),
    named_token("<｜DSML｜invoke name=", "</｜DSML｜invoke>"),
    named_token("<|DSML|invoke name=", "</|DSML|invoke>"),
    named_token("<|start|>assistant", "<|call|>"),
    named_token("<|channel|>", "<|call|>"),
    tag("```tool_code", "```"),
];

/// Marks that the rules of format 3 do not know.
static LATER_MARKS: [Mark; 10] = [
    list("<tool_calls>", "</tool_calls>"),
    list("<function_calls>", "</function_calls>"),
    list("<dots_function_call>", "</dots_function_call>"),
    token("<|tool_call_start|>", "<|tool_call_end|>"),
    tag("<seed:tool_call>", "</seed:tool_call>"),
    tag("<longcat_tool_call>", "</longcat_tool_call>"),
    tag("<TOOLCALL>", "</TOOLCALL>"),
    token("<|tools_prefix|>", "<|tools_suffix|>"),
    token("<｜tool_call_begin｜>", "<｜tool_call_end｜>"),
    named("<steptml:invoke name=", "</steptml:invoke>"),
];

/// Marks that the rules before format 5 do not know.
static MARKS_FROM_5: [Mark; 2] = [
    token("[unused11]", "[unused12]"),
    tag("[TOOL_REQUEST]", "[END_TOOL_REQUEST]"),
];

/// What stands around calls and means nothing by itself.
static AROUND: [&str; 37] = [
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<|tool▁calls▁begin|>",
    "<|tool▁calls▁end|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "</function_calls>",
    "</tool_calls>",
    "<｜DSML｜function_calls>",
    "</｜DSML｜function_calls>",
    "<｜DSML｜tool_calls>",
    "</｜DSML｜tool_calls>",
    "<|DSML|function_calls>",
    "</|DSML|function_calls>",
    "<|DSML|tool_calls>",
    "</|DSML|tool_calls>",
    "<|action_start|>",
    "</tool_call>",
    "</think>",
    "</thinking>",
    "</thought>",
    "</reasoning>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "</s>",
    "<end_of_turn>",
    "<turn|>",
    "<start_function_response>",
    "<|tool_response>",
    "<channel|>",
    "<eos>",
    "<｜end▁of▁sentence｜>",
];

/// Further marks around calls, unknown to the rules of format 3.
static LATER_AROUND: [&str; 3] = [
    "<｜tool_calls_begin｜>",
    "<｜tool_calls_end｜>",
    "<|/tool_call|>",
];
/// The mark with which Ling begins its turn.
const ROLE: &str = "<role>ASSISTANT</role>";

/// A mark around calls that the rules before format 5 do not know.
static AROUND_FROM_5: [&str; 1] = [ROLE];

/// Marks around calls under the rules of format 3, which are marks of lists now.
static FORMER_AROUND: [&str; 2] = ["<function_calls>", "<tool_calls>"];

/// The marks of calls under these rules.
pub(super) fn marks(rules: ReadingRules) -> impl Iterator<Item = &'static Mark> {
    let later = LATER_MARKS.iter().filter(move |_| rules.are_from_4());
    let last = MARKS_FROM_5.iter().filter(move |_| rules.are_from_5());
    MARKS.iter().chain(later).chain(last)
}

fn around(rules: ReadingRules) -> impl Iterator<Item = &'static str> {
    let own: &'static [&'static str] = match rules {
        ReadingRules::Format3 => &FORMER_AROUND,
        ReadingRules::Format4 | ReadingRules::Current => &LATER_AROUND,
    };
    let last = AROUND_FROM_5.iter().filter(move |_| rules.are_from_5());
    AROUND.iter().chain(own).chain(last).copied()
}

/// The mark of a call that `text` begins with.
pub(super) fn opening(rules: ReadingRules, text: &str) -> Option<&'static Mark> {
    marks(rules).find(|mark| text.starts_with(mark.open))
}

/// Without white space and what stands around calls.
pub(super) fn past_around(rules: ReadingRules, text: &str) -> &str {
    let mut text = text.trim_start();
    while let Some(rest) = around(rules).find_map(|around| text.strip_prefix(around)) {
        text = rest.trim_start();
    }
    text
}

/// Without the mark of a role, behind which forms without marks may stand.
pub(super) fn past_role(rules: ReadingRules, text: &str) -> &str {
    let text = text.trim_start();
    let rest = text.strip_prefix(ROLE);
    let is_mark = || around(rules).any(|mark| mark == ROLE);
    rest.filter(|_| is_mark()).map_or(text, str::trim_start)
}

/// A complete text without white space, its role and what stands behind calls.
pub(super) fn alone(rules: ReadingRules, text: &str) -> &str {
    trim_around(rules, past_role(rules, text))
}

/// Whether more text may make a mark of it.
pub(super) fn is_begun(rules: ReadingRules, text: &str) -> bool {
    let marks = marks(rules).map(|mark| mark.open);
    marks
        .chain(around(rules))
        .any(|mark| mark.len() > text.len() && mark.starts_with(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::leak::marks::behind::behind;

    /// Marks that were passed over once need not be read again when more text comes.
    #[test]
    fn no_mark_begins_another() {
        for rules in [
            ReadingRules::Format3,
            ReadingRules::Format4,
            ReadingRules::Current,
        ] {
            let behind = behind(rules).filter(|_| rules.are_from_4());
            let all = || {
                let own = marks(rules).map(|mark| mark.open).chain(around(rules));
                own.chain(behind.clone())
            };
            for mark in all() {
                assert!(!mark.is_empty() && !mark.starts_with(char::is_whitespace));
                let longer: Vec<_> = all().filter(|other| other.starts_with(mark)).collect();
                assert_eq!(longer, [mark]);
            }
        }
    }
}
