//! The parts of the context that a call, or a consulted advisor, sees (docs/protocol.md, 10).

use super::results::list;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::mem;
use std::sync::Arc;
use toolhold_json::bounded::text_bytes;
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::advisor::Advisor;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::context::{Context, Message, ToolResultMessage};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::reference::Path;
use toolhold_protocol::saved::SavedRequest;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool;
use toolhold_protocol::tool::Scopes;
use toolhold_protocol::tool::Tool;
use toolhold_protocol::turn::{Role, Turn};
use toolhold_text::cut;

/// Maximum bytes of the conversation that a consulted advisor is shown, and the part of the window that it may take: the
/// advisor's answer and the run's data need the rest.
pub(super) const MAX_CONVERSATION_BYTES: usize = 32 << 10;
pub(super) const CONVERSATION_WINDOW_DIVISOR: u64 = 4;
/// Maximum characters of a tool's description where an advisor may vote for it.
const MAX_DESCRIPTION_CHARS: usize = 300;
/// Maximum Requests to a consulted advisor.
const MAX_CONSULTATION_REQUESTS: u32 = 3;

/// The advisor that a consultation names.
pub(super) fn advisor<'a>(
    context: &'a Context,
    arguments: &Value,
) -> Result<&'a Advisor, ToolFailure> {
    let id = arguments.get("id").and_then(Value::as_str);
    let mut advisors = context.advisors.iter();
    advisors
        .find(|advisor| Some(advisor.id.as_str()) == id)
        .ok_or_else(|| ToolFailure::correctable("arguments", "there is no such advisor"))
}

/// What the advisor should look at whom a call asks. `asked` is the call's tool.
pub(super) fn guidance(context: &Context, asked: Option<&Bound>, call: &Call) -> Vec<Path> {
    let asked = asked.filter(|bound| matches!(bound.runner, Runner::Advisor));
    let advisor = asked.and_then(|_| advisor(context, &call.arguments).ok());
    advisor.map_or_else(Vec::new, scopes_of)
}

/// All data that an advisor is shown. Its scopes are guidance and no isolation (10.5).
pub(super) fn everything(context: &Context, instance: Option<&str>) -> Vec<(Path, Value)> {
    let kinds = context.data.kinds(instance).into_iter();
    let kinds = kinds.map(|(kind, value)| (Path::root(kind), value));
    owned(kinds.collect())
}

/// The part of a run that an advisor is shown beside its data: the latest texts of user and model, calls with their
/// results, and the summary of older ones.
/// They have at most `max` bytes, and the task is always among them.
pub(super) fn conversation(context: &Context, history: &[Turn], max: usize) -> Vec<Message> {
    let is_said = |message: &&Message| match message {
        Message::Text(text) => text.role != Role::System,
        message => matches!(message, Message::ToolResult(_) | Message::Summary(_)),
    };
    let said = context.messages.iter().filter(is_said).cloned();
    let said = said.map(without_reasoning);
    let all: Vec<Message> = said.chain(history.iter().flat_map(made)).collect();
    let (mut shown, mut left, mut has_task) = (Vec::new(), max, false);
    for message in all.into_iter().rev() {
        let (bytes, is_users) = match &message {
            Message::Text(text) => (text.text.len(), text.role == Role::User),
            Message::ToolResult(result) => {
                let bytes = text_bytes(&result.arguments) + text_bytes(&result.result);
                (usize::try_from(bytes).unwrap_or(usize::MAX), false)
            }
            Message::Summary(summary) => {
                let lines = summary.lines.iter().map(|line| line.text.len());
                (summary.text.len() + lines.sum::<usize>(), false)
            }
            _ => continue,
        };
        let is_task = is_users && !has_task;
        if is_task || bytes <= left {
            left = left.saturating_sub(bytes);
            has_task |= is_task;
            shown.push(message);
        } else if has_task {
            break;
        }
    }
    shown.reverse();
    shown
}

/// Reasoning is for the endpoint that it came from alone.
fn without_reasoning(mut message: Message) -> Message {
    if let Message::ToolResult(result) = &mut message {
        result.reasoning.clear();
        result.members.clear();
    }
    message
}

/// The calls of a turn with their results.
fn made(turn: &Turn) -> Vec<Message> {
    let Turn::Exchange(exchange) = turn else {
        return Vec::new();
    };
    let calls = exchange.calls.iter().enumerate();
    let results = calls.map(|(at, answered)| {
        Message::ToolResult(ToolResultMessage {
            tool: answered.call.tool.clone(),
            arguments: answered.call.arguments.clone(),
            result: answered.text.clone().into(),
            id: String::new(),
            next_step: at == 0,
            failed: answered.failed,
            ..ToolResultMessage::default()
        })
    });
    results.collect()
}

/// Changes the values of a message of a conversation to what its reader may see.
pub(super) fn masked(message: &mut Message, mut mask: impl FnMut(Value) -> Value) {
    let mut mask_text = |text: &mut String| {
        if let Value::String(shown) = mask(Value::String(mem::take(text))) {
            *text = shown;
        }
    };
    match message {
        Message::Text(text) => mask_text(&mut text.text),
        Message::Summary(summary) => {
            let lines = summary.lines.iter_mut().map(|line| &mut line.text);
            for text in lines.chain([&mut summary.text]) {
                mask_text(text);
            }
        }
        Message::ToolResult(result) => {
            result.arguments = mask(mem::take(&mut result.arguments));
            result.result = mask(mem::take(&mut result.result));
        }
        _ => {}
    }
}

/// The parts of the context that a call's scopes name, and nothing else.
pub(super) fn scoped(
    context: &Context,
    scopes: &[Path],
    instance: Option<&str>,
) -> Result<Vec<(Path, Value)>, ToolFailure> {
    let scope = context.data.scoped(scopes, instance);
    match scope.missing {
        Some(missing) => {
            let message = format!("its scope names nothing: {missing}");
            Err(ToolFailure::correctable("scope", message))
        }
        None => Ok(owned(scope.values)),
    }
}

fn owned(values: Vec<(Path, Cow<'_, Value>)>) -> Vec<(Path, Value)> {
    let values = values.into_iter();
    values
        .map(|(path, value)| (path, value.into_owned()))
        .collect()
}

fn scopes_of(advisor: &Advisor) -> Vec<Path> {
    let keys = advisor.scopes.iter();
    keys.filter_map(|key| tool::scope(&json!(key)).ok())
        .collect()
}

/// The Request that asks an advisor a question (10). `conversation` is what came before, `tools` those that it may vote
/// for.
pub(super) fn consultation<'a>(
    advisor: &Advisor,
    arguments: &Value,
    conversation: Vec<Message>,
    tools: impl Iterator<Item = &'a Arc<Tool>>,
) -> SavedRequest {
    let question = arguments.get("question").and_then(Value::as_str);
    let mut role = PromptText::default();
    role.quoted(&advisor.role).words(
        "\nYou advise an agent. You are shown its task, its data, and what it did so far. Answer its question, the last \
         message, from where you stand.",
    );
    if !advisor.scopes.is_empty() {
        role.words(" Look first at: ")
            .line(&advisor.scopes.join(", "))
            .words(".");
    }
    let mut tools = tools.peekable();
    if tools.peek().is_some() {
        role.words(
            "\nYou may vote on what the agent calls next: \"calls\" is a string that holds a JSON object, the name of a \
             tool and its weight from 0 (against) to 100 (for), such as \"{\\\"<tool>\\\": 80}\". The tools:",
        );
    }
    for tool in tools {
        let description = cut(&tool.description, MAX_DESCRIPTION_CHARS);
        role.words("\n- ")
            .line(&tool.name)
            .words(": ")
            .line(&description);
    }
    let mut asked = PromptText::default();
    asked.quoted(question.unwrap_or_default());
    let mut context = conversation;
    context.push(Message::user(asked));
    SavedRequest {
        instructions: Some(role.into()),
        context,
        schema: Some(advisor.answer()),
        // It has no tools: more than one Request are attempts at an answer of the right form.
        max_steps: Some(MAX_CONSULTATION_REQUESTS),
        ..SavedRequest::default()
    }
}

/// The scopes of a call: fixed by the tool's author, or the requested part of what the author
/// offers.
pub(super) fn scopes(tool: &Tool, call: &Call) -> Result<Vec<Path>, ToolFailure> {
    let failed = |message: String| ToolFailure::correctable("scope", message);
    let offered = match &tool.scopes {
        Scopes::Provisioned(paths) => return Ok(paths.clone()),
        Scopes::Requested(offered) => offered.as_slice(),
        Scopes::None => &[],
    };
    let asked = match &call.scopes {
        None => return Ok(Vec::new()),
        Some(Value::Array(asked)) => asked.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    let allowed = || match offered {
        [] => "this tool sees nothing of the context; leave _scopes out".to_owned(),
        offered => format!("it may see {}", list(offered)),
    };
    let keys = asked.iter().map(|key| {
        let path = tool::scope(key)
            .map_err(|reason| failed(format!("_scopes {reason}; {}", allowed())))?;
        if offered.contains(&path) {
            return Ok(path);
        }
        Err(failed(format!(
            "_scopes asks for {path}, which {} is not offered; {}",
            call.tool,
            allowed()
        )))
    });
    keys.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::context::{Speaker, SummaryLine, SummaryMessage};

    #[test]
    fn an_advisor_is_shown_the_summary_of_older_messages() {
        let line = SummaryLine {
            from: Speaker::User,
            text: "The price is 1900.".into(),
            weight: 1,
        };
        let summary = SummaryMessage {
            messages: 9,
            lines: vec![line],
            ..SummaryMessage::default()
        };
        let task = Message::user("Sell it.");
        let messages = vec![Message::Summary(summary), task.clone()];
        let context = Context::new(messages.clone()).unwrap();
        let mut shown = conversation(&context, &[], 1_000);
        assert_eq!(shown, messages);
        assert_eq!(conversation(&context, &[], 20), [task]);
        for message in &mut shown {
            masked(message, |value| match value {
                Value::String(text) => text.replace("1900", "<n>").into(),
                other => other,
            });
        }
        let shown = serde_json::to_string(&shown).unwrap();
        assert!(
            shown.contains("The price is <n>.") && !shown.contains("1900"),
            "{shown}"
        );
    }
}
