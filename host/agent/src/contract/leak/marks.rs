//! How calls in a text begin and end, and what stands around them.

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
}

const fn tag(open: &'static str, close: &'static str) -> Mark {
    Mark {
        open,
        close,
        is_named: false,
        is_token: false,
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

pub(super) static MARKS: [Mark; 20] = [
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

/// What stands around calls and means nothing by itself.
const AROUND: [&str; 39] = [
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<|tool▁calls▁begin|>",
    "<|tool▁calls▁end|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<function_calls>",
    "</function_calls>",
    "<tool_calls>",
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

/// What stands on the line of a call, behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterCall {
    /// So far.
    Nothing,
    /// A mark that is not complete.
    Begun,
    /// Another one, or the end of the line.
    Calls,
    Prose,
}

pub(super) fn follows(rest: &str) -> AfterCall {
    let blank = |c: char| c.is_whitespace() && c != '\n';
    let mut rest = rest.trim_start_matches(blank);
    while let Some(more) = AROUND.iter().find_map(|around| rest.strip_prefix(around)) {
        rest = more.trim_start_matches(blank);
    }
    if rest.is_empty() {
        AfterCall::Nothing
    } else if rest.starts_with('\n') || MARKS.iter().any(|mark| rest.starts_with(mark.open)) {
        AfterCall::Calls
    } else if is_begun(rest) {
        AfterCall::Begun
    } else {
        AfterCall::Prose
    }
}

/// Without white space and what stands around calls.
pub(super) fn past_around(text: &str) -> &str {
    let mut text = text.trim_start();
    while let Some(rest) = AROUND.iter().find_map(|around| text.strip_prefix(around)) {
        text = rest.trim_start();
    }
    text
}

/// The same at the end.
pub(super) fn trim_around(text: &str) -> &str {
    let mut text = text.trim_end();
    while let Some(rest) = AROUND.iter().find_map(|around| text.strip_suffix(around)) {
        text = rest.trim_end();
    }
    text
}

/// Whether more text may make a mark of it.
pub(super) fn is_begun(text: &str) -> bool {
    let marks = MARKS.iter().map(|mark| mark.open);
    marks
        .chain(AROUND)
        .any(|mark| mark.len() > text.len() && mark.starts_with(text))
}
