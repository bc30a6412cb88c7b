//! Worked examples as turns of the conversation: with two of them a 1.5 B model solves twenty of
//! twenty easy tasks, without any seven (TOOLCHAINS.md).

use crate::protocol::message::Answered;
use crate::protocol::{Call, Example, Exchange, Message, Role, Tool};

/// Turns made from the tools' own examples: a task with one call, then a task of two parts with both
/// calls in one reply. Of the arrangements tried on a 0.5 B model this one led most often to the
/// right calls and an end: with the parts in two replies it never stopped, without the first task it
/// called too much. At most `count` tasks, from different modules where there are two.
pub fn turns(tools: &[Tool], count: usize) -> Vec<Message> {
    let picked = pick(tools);
    let mut turns = Vec::new();
    if let (Some((tool, example)), 1..) = (picked.first(), count) {
        turns.push(user(example.task.clone()));
        turns.push(exchange(&[(0, tool, example)]));
        turns.push(assistant(example.answer.clone()));
    }
    if let ([(first, a), (second, b), ..], 2..) = (picked.as_slice(), count) {
        turns.push(user(format!("{} {}", b.task, a.task)));
        turns.push(exchange(&[(1, second, b), (2, first, a)]));
        turns.push(assistant(format!("{} {}", b.answer, a.answer)));
    }
    turns
}

type Picked<'a> = (&'a Tool, &'a Example);

/// The tools that have examples, one of each module before the second of any.
fn pick(tools: &[Tool]) -> Vec<Picked<'_>> {
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

fn user(text: String) -> Message {
    Message::Text {
        role: Role::User,
        text,
    }
}

fn assistant(text: String) -> Message {
    Message::Text {
        role: Role::Assistant,
        text,
    }
}

fn exchange(calls: &[(usize, &Tool, &Example)]) -> Message {
    let calls = calls
        .iter()
        .map(|(index, tool, example)| Answered {
            call: Call {
                id: format!("example_{index}"),
                tool: tool.name.clone(),
                arguments: example.arguments.clone(),
                reason: Some(format!("The user asks: {}", example.task)),
            },
            fence: format!("example{index}"),
            text: example.output.to_string(),
            failed: false,
        })
        .collect();
    Message::Exchange(Exchange { calls })
}
