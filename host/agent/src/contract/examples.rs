//! Worked examples as turns of the conversation: with two of them a 1.5 B model solves twenty of
//! twenty easy tasks, without any seven (TOOLCHAINS.md).

use crate::protocol::message::Answered;
use crate::protocol::{Call, Example, Exchange, Message, Role, Tool};

/// Turns made from the tools' own examples: one task with one call, and one task that needs two
/// calls after each other, so that a model sees both where to stop and where to go on. At most
/// `count` tasks; tools of different modules first.
pub fn turns(tools: &[Tool], count: usize) -> Vec<Message> {
    let picked = pick(tools);
    let mut turns = Vec::new();
    let mut ids = 0..;
    if let Some(&(tool, example)) = picked.first().filter(|_| count > 0) {
        turns.push(user(example.task.clone()));
        turns.push(exchange(tool, example, ids.next().unwrap_or(0)));
        turns.push(assistant(example.answer.clone()));
    }
    if let Some(((first, a), (second, b))) = pair(&picked).filter(|_| count > 1) {
        turns.push(user(format!("Two things. 1. {} 2. {}", a.task, b.task)));
        turns.push(exchange(first, a, ids.next().unwrap_or(0)));
        turns.push(exchange(second, b, ids.next().unwrap_or(0)));
        turns.push(assistant(format!("1. {} 2. {}", a.answer, b.answer)));
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

/// Two examples for the second task: the later ones, so that it does not repeat the first.
fn pair<'a>(picked: &[Picked<'a>]) -> Option<(Picked<'a>, Picked<'a>)> {
    match picked {
        [] | [_] => None,
        [a, b] => Some((*b, *a)),
        [_, b, c, ..] => Some((*b, *c)),
    }
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

fn exchange(tool: &Tool, example: &Example, index: u32) -> Message {
    let call = Call {
        id: format!("example_{index}"),
        tool: tool.name.clone(),
        arguments: example.arguments.clone(),
        reason: Some("The task asks for this.".into()),
    };
    Message::Exchange(Exchange {
        calls: vec![Answered {
            call,
            fence: format!("example{index}"),
            text: example.output.to_string(),
            failed: false,
        }],
    })
}
