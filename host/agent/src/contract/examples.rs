//! Worked examples as turns of the conversation: with two of them a 1.5 B model solves twenty of
//! twenty easy tasks, without any seven (docs/toolchains.md, "A model on the CPU").

use std::sync::Arc;
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::{Example, Tool};
use toolhold_protocol::turn::Answered;
use toolhold_protocol::turn::{Exchange, Turn};

/// The most tasks that there are examples of.
pub const MAX_EXAMPLES: usize = 2;

/// Turns made from the tools' own examples: a task with one call, then a task of two parts with both
/// calls in one reply. Of the arrangements tried on a 0.5 B model this one led most often to the
/// right calls and an end: with the parts in two replies it never stopped, without the first task it
/// called too much. At most `count` tasks, from different modules where there are two. A module's words stand here as
/// those of the user and of the model, so they are one line each that begins with a word or a number; of each tool the
/// first such example is taken.
pub fn turns(tools: &[Arc<Tool>], count: usize) -> Vec<Turn> {
    let picked = pick(tools);
    let mut turns = Vec::new();
    if let (Some(first), 1..) = (picked.first(), count) {
        turns.push(Turn::user(first.task.clone()));
        turns.push(exchange(&[(0, first)]));
        turns.push(Turn::assistant(first.answer.clone()));
    }
    if let ([a, b, ..], 2..) = (picked.as_slice(), count) {
        let both = |one: &PromptText, other: &PromptText| {
            PromptText::joined(&[one.clone(), other.clone()], " ")
        };
        turns.push(Turn::user(both(&b.task, &a.task)));
        turns.push(exchange(&[(1, b), (2, a)]));
        turns.push(Turn::assistant(both(&b.answer, &a.answer)));
    }
    turns
}

struct ChosenExample<'a> {
    tool: &'a Tool,
    example: &'a Example,
    task: PromptText,
    answer: PromptText,
}

impl<'a> ChosenExample<'a> {
    /// The first example of a tool whose texts can be shown. `None` if there is none.
    fn of(tool: &'a Tool) -> Option<Self> {
        tool.examples.iter().find_map(|example| {
            Some(Self {
                tool,
                example,
                task: PromptText::example(&example.task)?,
                answer: PromptText::example(&example.answer)?,
            })
        })
    }
}

/// The tools that have examples, one of each module before the second of any.
fn pick(tools: &[Arc<Tool>]) -> Vec<ChosenExample<'_>> {
    let module = |tool: &Tool| tool.name.split('.').next().unwrap_or_default().to_owned();
    let mut seen = Vec::new();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for tool in tools.iter().map(Arc::as_ref) {
        let Some(chosen) = ChosenExample::of(tool) else {
            continue;
        };
        if seen.contains(&module(tool)) {
            rest.push(chosen);
        } else {
            seen.push(module(tool));
            first.push(chosen);
        }
    }
    first.append(&mut rest);
    first
}

fn exchange(calls: &[(usize, &ChosenExample<'_>)]) -> Turn {
    let calls = calls
        .iter()
        .map(|(index, chosen)| Answered {
            call: Call {
                id: format!("example_{index}"),
                tool: chosen.tool.name.clone(),
                arguments: chosen.example.arguments.clone(),
                reason: Some(format!("The user asks: {}", chosen.task.as_str())),
                ..Call::default()
            },
            fence: format!("example{index}"),
            text: chosen.example.output.to_string(),
            failed: false,
        })
        .collect();
    Turn::Exchange(Exchange {
        calls,
        ..Exchange::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_example_that_can_be_shown_is_taken() {
        let example = |task: &str, answer: &str| Example {
            task: task.into(),
            arguments: json!({}),
            output: json!(1),
            answer: answer.into(),
        };
        let task = |examples: Vec<Example>| {
            let tool = Tool {
                examples,
                ..Tool::new("m.a")
            };
            ChosenExample::of(&tool).map(|chosen| String::from(chosen.task))
        };
        let shown = task(vec![
            example("/tmp/a: read it", "x"),
            example("Sum it", "[1, 2]"),
            example("Take 5 from 0", "-5"),
            example("Later", "x"),
        ]);
        assert_eq!(shown.as_deref(), Some("Take 5 from 0"));
        assert_eq!(task(vec![example("Sum it", "✓")]), None);
    }
}
