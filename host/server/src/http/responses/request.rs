//! The request of a response, and its conversion into a run.

use super::input;
use super::object::ResponseState;
use crate::http::agent::limit_replies;
use crate::http::bounds::{self, MAX_PAIR_NAME, MAX_PAIR_TEXT, MAX_PAIRS};
use crate::http::client_tools::{ClientTool, PlacedTool, output_schema};
use crate::http::error::ApiError;
use crate::http::messages::{ChatMessage, ClientCall, conversation, has_all_results};
use crate::http::refusals::{NO_LOGPROBS, refuse};
use crate::http::sampling;
use crate::http::tool_choice::ChosenTools;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use toolhold_agent::language;
use toolhold_connections::UnsentBytes;
use toolhold_protocol::context::Message;
use toolhold_protocol::settings::{CarriedTexts, RunRequest};
use utoipa::ToSchema;
use uuid::Uuid;

/// The request of OpenAI's API. Fields that are not listed are accepted and have no effect; a listed field
/// with an unsupported value is refused. `docs/server.md`, "Parameters", says of each what it does.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[schema(example = json!({"model": "default", "input": "What is 2^61 - 1?"}))]
pub struct ResponseRequest {
    #[schema(schema_with = bounds::model, required = true)]
    pub model: String,
    #[schema(schema_with = bounds::input, required = true)]
    input: Value,
    /// Replace the agent's instructions, for this response only.
    instructions: Option<String>,
    /// The response to continue: `input` is added to its context.
    pub previous_response_id: Option<String>,
    /// The client's tools, and names of the agent's, which it has without being told.
    tools: Option<Vec<ClientTool>>,
    #[schema(schema_with = bounds::tool_choice)]
    tool_choice: Value,
    /// {"format": {"type": "json_schema", "schema": …}}
    #[schema(value_type = Option<Object>)]
    text: Value,
    /// The most tokens of one reply of the model; cannot exceed the agent's limit.
    #[schema(minimum = 1)]
    max_output_tokens: Option<u32>,
    /// The most tool calls of the whole turn; cannot exceed the agent's limit.
    #[schema(minimum = 1)]
    max_tool_calls: Option<u32>,
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    #[schema(schema_with = bounds::metadata)]
    metadata: Option<BTreeMap<String, String>>,
    /// Stream typed events.
    pub stream: Option<bool>,
    /// Has no effect: runs are always recorded. `DELETE /v1/responses/{response}` deletes the record.
    store: Option<bool>,
    /// `false`: at most one call in a reply.
    parallel_tool_calls: Option<bool>,
    /// Answers at once, with a response that is in progress.
    background: Option<bool>,
    #[schema(minimum = -2, maximum = 2)]
    frequency_penalty: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    presence_penalty: Option<f64>,
    /// `disabled`: an input that does not fit the model's window is refused. Otherwise (`auto`) its oldest messages are summed
    /// up.
    truncation: Option<Truncation>,
    /// Has no effect; the response repeats it.
    user: Option<String>,
    /// Has no effect; the response repeats it.
    safety_identifier: Option<String>,
    /// Has no effect; the response repeats it.
    prompt_cache_key: Option<String>,
    /// `reasoning.encrypted_content` and what OpenAI's own tools give, which have no effect.
    include: Option<Vec<String>>,
    /// Only 0.
    #[schema(maximum = 0)]
    top_logprobs: Option<u32>,
    /// Only null: use `previous_response_id`.
    #[schema(value_type = Option<Value>)]
    conversation: Value,
    /// Only null.
    #[schema(value_type = Option<Value>)]
    prompt: Value,
    /// Only null.
    #[schema(value_type = Option<Value>)]
    moderation: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Truncation {
    Auto,
    Disabled,
}

/// The state that the previous response left.
#[derive(Debug, Default)]
pub struct PreviousResponse {
    pub context: Vec<Message>,
    /// Messages of the context that the host composed, and the documents and facts whose texts they may have.
    pub carried: CarriedTexts,
    /// Calls of the client's tools.
    pub calls: Vec<ClientCall>,
    /// Ids of calls that the input names, whose arguments the host may have filled in.
    pub named_calls: BTreeSet<String>,
    /// System messages of the inputs so far.
    pub system: Option<String>,
    /// Input and output items so far.
    pub items: Vec<Value>,
    /// The run whose scratch files are copied.
    pub run: Option<Uuid>,
    pub language: Option<String>,
    /// The memory of what was read of it.
    pub unsent: Option<UnsentBytes>,
}

/// Values of `include` that have no effect: parts of reasoning and of OpenAI's own tools, none of which an answer has.
const INCLUDED: [&str; 7] = [
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
];

impl ResponseRequest {
    /// # Errors
    /// The request has a value that an agent does not support.
    pub fn check(&self) -> Result<(), ApiError> {
        let mut included = self.include.iter().flatten();
        refuse(&[
            (
                included.any(|what| !INCLUDED.contains(&what.as_str())),
                "include",
                "an agent's answer has nothing of the kind; GET /v1/runs/{run} has the way to the answer",
            ),
            (
                self.top_logprobs.is_some_and(|most| most > 0),
                "top_logprobs",
                NO_LOGPROBS,
            ),
            (
                !self.conversation.is_null(),
                "conversation",
                "there are none; previous_response_id goes on from a response, and /v1/sessions has conversations",
            ),
            (
                !self.prompt.is_null(),
                "prompt",
                "there are no templates; POST /v1/requests/{request} runs a saved Request",
            ),
            (
                !self.moderation.is_null(),
                "moderation",
                "shields screen what is said; the operator configures them",
            ),
        ])?;
        if !self.text.is_null() && !self.text.is_object() {
            return Err(ApiError::member("text", "expected an object with format"));
        }
        let chars = |text: &str| text.chars().count();
        let metadata = self.metadata.iter().flatten();
        let is_long = |(name, text): (&String, &String)| {
            chars(name) > MAX_PAIR_NAME || chars(text) > MAX_PAIR_TEXT
        };
        if metadata.clone().count() > MAX_PAIRS || metadata.clone().any(is_long) {
            let reason = format_args!(
                "at most {MAX_PAIRS} pairs, with names of {MAX_PAIR_NAME} and texts of {MAX_PAIR_TEXT} characters"
            );
            return Err(ApiError::member("metadata", reason));
        }
        Ok(())
    }

    pub fn input_mut(&mut self) -> &mut Value {
        &mut self.input
    }

    pub fn defined(&self) -> Vec<PlacedTool> {
        PlacedTool::all("tools", "", self.tools.iter().flatten())
    }

    /// True if the request asks for an output of a form.
    pub fn has_format(&self) -> bool {
        !self.text["format"].is_null()
    }

    /// Reads which tools may be called, the agent's included, and which have to be.
    ///
    /// # Errors
    /// The choice has none of the known forms.
    pub fn chosen(&self) -> Result<ChosenTools, ApiError> {
        ChosenTools::read("tool_choice", &self.tool_choice)
    }

    /// The items of the input as messages, whose images and files are not read yet. `composed`: places of items whose
    /// texts the host composed.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn messages(&self, composed: &BTreeSet<usize>) -> Result<Vec<ChatMessage>, ApiError> {
        input::messages(&self.input, composed)
    }

    /// Merges the request into the agent's, after the state `before`. Returns the fields that the response
    /// repeats. `messages`: the input. `tools`: the names of the client's own.
    ///
    /// # Errors
    /// The input cannot be read, or the result of a call is missing.
    pub fn put(
        &self,
        before: PreviousResponse,
        messages: &[ChatMessage],
        request: &mut RunRequest,
        tools: &BTreeSet<String>,
    ) -> Result<ResponseState, ApiError> {
        has_all_results("input", "function_call_output", &before.calls, messages)?;
        let said = conversation("input", &before.calls, messages, tools)?;
        let system = joined([before.system, said.instructions]);
        if let Some(instructions) = joined([self.instructions.clone(), system.clone()]) {
            request.instructions = instructions;
        }
        let known = said.language.map(str::to_owned).or(before.language);
        if let Some(tag) = known {
            language::keep(request, &tag, false);
        }
        request.context = before.context;
        let begin = request.context.len();
        request.context.extend(said.context);
        let mut carried = before.carried;
        for place in said.composed {
            carried.add_at(begin + place, &request.context);
        }
        let mut calls = before.named_calls;
        calls.extend(before.calls.iter().map(|call| call.id.clone()));
        carried.add_results(&calls, &request.context);
        request.carried = carried.if_any();
        let format = &self.text["format"];
        if self.has_format() {
            let schema = output_schema("text.format", format, &format["schema"])?;
            request.output_schema = schema.or(request.output_schema.take());
        }
        let settings = &mut request.settings;
        let most = sampling::OPENAI_MAX_TEMPERATURE;
        sampling::put_temperature(settings, self.temperature, most)?;
        sampling::put_top_p(settings, self.top_p)?;
        sampling::put_penalties(settings, self.frequency_penalty, self.presence_penalty)?;
        if self.parallel_tool_calls == Some(false) {
            settings.max_calls = 1;
        }
        limit_replies(settings, "max_output_tokens", self.max_output_tokens)?;
        if let Some(most) = self.max_tool_calls {
            let allowed = settings.max_tool_calls.unwrap_or(u32::MAX);
            settings.max_tool_calls = Some(most.min(allowed));
        }
        let is_input_whole = self.truncation == Some(Truncation::Disabled);
        if is_input_whole {
            settings.window.conversation = None;
        }
        let mut state = ResponseState {
            input: input::listed(request.id, before.items, &self.input),
            previous_response_id: self.previous_response_id.clone(),
            instructions: self.instructions.clone(),
            system,
            tools: self.tools.iter().flatten().map(ClientTool::flat).collect(),
            tool_choice: self.tool_choice.clone(),
            parallel_tool_calls: self.parallel_tool_calls,
            is_background: self.background == Some(true),
            text: self.text.clone(),
            max_output_tokens: self.max_output_tokens,
            max_tool_calls: self.max_tool_calls,
            temperature: self.temperature,
            top_p: self.top_p,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            metadata: self.metadata.clone().unwrap_or_default(),
            user: self.user.clone(),
            safety_identifier: self.safety_identifier.clone(),
            prompt_cache_key: self.prompt_cache_key.clone(),
            is_input_whole,
            is_streamed: false,
            is_shown_early: false,
        };
        state.complete(settings);
        Ok(state)
    }
}

fn joined(parts: [Option<String>; 2]) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::messages::ClientFunction;
    use serde_json::json;

    fn read(body: Value) -> ResponseRequest {
        serde_json::from_value(body).unwrap()
    }

    fn told(request: &RunRequest) -> Vec<String> {
        let texts = request.context.iter().filter_map(|message| match message {
            Message::Text(text) => Some(format!("{:?}: {}", text.role, text.text)),
            Message::ToolResult(of) => {
                Some(format!("{} {} -> {}", of.tool, of.arguments, of.result))
            }
            _ => None,
        });
        texts.collect()
    }

    #[test]
    fn an_input_is_a_conversation() {
        let asked = read(json!({
            "instructions": "Be short.",
            "input": [
                {"role": "developer", "content": "In French."},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "2+2?"}]},
                {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                    "content": [{"type": "output_text", "text": "4", "annotations": []}]},
                {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "sunny"}]},
            ],
        }));
        asked.check().unwrap();
        let mut request = RunRequest::new(Uuid::now_v7(), "");
        let before = PreviousResponse {
            context: vec![Message::user("before")],
            system: Some("Be polite.".into()),
            ..PreviousResponse::default()
        };
        let messages = asked.messages(&BTreeSet::new()).unwrap();
        let kept = asked
            .put(before, &messages, &mut request, &BTreeSet::new())
            .unwrap();
        assert_eq!(
            request.instructions,
            "Be short.\n\nBe polite.\n\nIn French."
        );
        assert_eq!(kept.system.as_deref(), Some("Be polite.\n\nIn French."));
        assert_eq!(
            told(&request),
            [
                "User: before",
                "User: 2+2?",
                "Assistant: 4",
                "weather {} -> \"sunny\"",
            ]
        );
    }

    /// Such messages lose their texts together with the record of the response.
    #[test]
    fn texts_of_named_items_are_carried() {
        let asked = read(json!({"input": [
            {"type": "reasoning", "summary": []},
            {"role": "user", "content": "What does it cost?"},
            {"type": "message", "role": "assistant", "content": "A lost card costs 20 euro."},
            {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": "{\"euro\": 20}"},
            {"type": "function_call_output", "call_id": "c1", "output": "paid"},
        ]}));
        let mut request = RunRequest::new(Uuid::now_v7(), "");
        let run = Uuid::now_v7();
        let before = PreviousResponse {
            context: vec![Message::user("before")],
            carried: CarriedTexts {
                from: run,
                passages: BTreeSet::from([7]),
                ..CarriedTexts::default()
            },
            named_calls: BTreeSet::from(["c1".to_owned()]),
            ..PreviousResponse::default()
        };
        let messages = asked.messages(&BTreeSet::from([2])).unwrap();
        asked
            .put(before, &messages, &mut request, &BTreeSet::new())
            .unwrap();
        let carried = request.carried.unwrap();
        assert_eq!((carried.from, carried.passages), (run, BTreeSet::from([7])));
        assert_eq!(carried.messages, BTreeSet::from([2, 3]));
    }

    #[test]
    fn function_output_may_come_without_its_call() {
        let call = ClientCall {
            id: "c1".into(),
            function: ClientFunction {
                name: "weather".into(),
                arguments: "{}".into(),
            },
            ..ClientCall::default()
        };
        let before = || PreviousResponse {
            calls: vec![call.clone()],
            ..PreviousResponse::default()
        };
        let result =
            json!({"input": [{"type": "function_call_output", "call_id": "c1", "output": "sun"}]});
        let mut request = RunRequest::new(Uuid::now_v7(), "");
        let none = BTreeSet::new();
        let mut put = |asked: ResponseRequest| {
            let messages = asked.messages(&BTreeSet::new())?;
            asked
                .put(before(), &messages, &mut request, &none)
                .map(drop)
        };
        put(read(result)).unwrap();
        let refused = put(read(json!({"input": "go on"})));
        assert_eq!(told(&request), ["weather {} -> \"sun\""]);
        let reason = refused.unwrap_err().body().error.message;
        assert!(reason.contains("\"c1\" of weather"), "{reason}");
    }
}
