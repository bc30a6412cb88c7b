//! Worked examples as turns of the conversation: with two of them a 1.5 B model solves twenty of
//! twenty easy tasks, without any seven (docs/toolchains.md, "A model on the CPU").

use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::{Example, Tool};
use toolhold_protocol::turn::Answered;
use toolhold_protocol::turn::{Exchange, Turn};

/// The most tasks that there are examples of.
pub const MAX_EXAMPLES: usize = 2;

/// Turns made from the tools' own examples: a task with one call, then a task of two parts with both
/// calls in one reply. Of the arrangements tried on a 0.5 B model this one led most often to the
/// right calls and an end: with the parts in two replies it never stopped, without the first task it
/// called too much. At most `count` tasks, from different modules where there are two.
pub fn turns(tools: &[Tool], count: usize) -> Vec<Turn> {
    let picked = pick(tools);
    let mut turns = Vec::new();
    if let (Some((tool, example)), 1..) = (picked.first(), count) {
        turns.push(Turn::user(example.task.clone()));
        turns.push(exchange(&[(0, tool, example)]));
        turns.push(Turn::assistant(example.answer.clone()));
    }
    if let ([(first, a), (second, b), ..], 2..) = (picked.as_slice(), count) {
        turns.push(Turn::user(format!("{} {}", b.task, a.task)));
        turns.push(exchange(&[(1, second, b), (2, first, a)]));
        turns.push(Turn::assistant(format!("{} {}", b.answer, a.answer)));
    }
    turns
}

type ChosenExample<'a> = (&'a Tool, &'a Example);

/// The tools that have examples, one of each module before the second of any.
fn pick(tools: &[Tool]) -> Vec<ChosenExample<'_>> {
    let module = |tool: &Tool| tool.name.split('.').next().unwrap_or_default().to_owned();
    let mut seen = Vec::new();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for tool in tools {
        let Some(example) = tool.examples.first() else {
            continue;
        };
        if seen.contains(&module(tool)) {
            rest.push((tool, example));
        } else {
            seen.push(module(tool));
            first.push((tool, example));
        }
    }
    first.append(&mut rest);
    first
}

fn exchange(calls: &[(usize, &Tool, &Example)]) -> Turn {
    let calls = calls
        .iter()
        .map(|(index, tool, example)| Answered {
            call: Call {
                id: format!("example_{index}"),
                tool: tool.name.clone(),
                arguments: example.arguments.clone(),
                reason: Some(format!("The user asks: {}", example.task)),
                ..Call::default()
            },
            fence: format!("example{index}"),
            text: example.output.to_string(),
            failed: false,
        })
        .collect();
    Turn::Exchange(Exchange { calls })
}
