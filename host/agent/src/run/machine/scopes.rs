//! The parts of the context that a call, or a consulted advisor, sees (docs/protocol.md, 10).

use super::results::list;
use serde_json::{Value, json};
use std::borrow::Cow;
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::advisor::Advisor;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::context::{Context, Message};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::reference::Path;
use toolhold_protocol::saved::SavedRequest;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool;
use toolhold_protocol::tool::Scopes;
use toolhold_protocol::tool::Tool;

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

/// What there is of what an advisor should look at. Its scopes are guidance: one that names
/// nothing is no fault of the call (10).
pub(super) fn looked_at(
    context: &Context,
    advisor: &Advisor,
    instance: Option<&str>,
) -> Vec<(Path, Value)> {
    owned(context.data.scoped(&scopes_of(advisor), instance).values)
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

/// The Request that asks an advisor a question (10).
pub(super) fn consultation(advisor: &Advisor, arguments: &Value) -> SavedRequest {
    let question = arguments.get("question").and_then(Value::as_str);
    let mut role = PromptText::default();
    role.quoted(&advisor.role)
        .words("\nAnswer what you are asked, from where you stand.");
    let mut asked = PromptText::default();
    asked.quoted(question.unwrap_or_default());
    SavedRequest {
        instructions: Some(role.into()),
        context: vec![Message::user(asked)],
        schema: Some(advisor.fields()),
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
