//! A client reads the same answer whether it asks for a stream or not, in both of OpenAI's APIs.

use super::{answers, calls, host, scripted, serve};
use serde_json::{Value, json};
use support::endpoint::Reply;
use support::server::{Server, ServerSentEvent};

const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/responses"];
const TOOLS: &str = "[endpoints.default]\ncontract = \"tools\"\n";
const SIMPLE: &str = "[endpoints.default]\ncontract = \"simple\"\n";
/// A secret that some runs hide.
const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
/// A text that a shield blocks.
const MAIL: &str = "Write to ann@example.com.";

/// Parts of a request beside its question.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Plain,
    /// A tool of the client.
    Tool,
    /// JSON of a schema.
    Json,
}

/// The replies of one run, and the text that each client reads.
struct Row {
    asked: Asked,
    replies: Vec<Reply>,
    text: &'static str,
}

fn row(asked: Asked, replies: impl IntoIterator<Item = Reply>, text: &'static str) -> Row {
    Row {
        asked,
        replies: replies.into_iter().collect(),
        text,
    }
}

fn plain(reply: &str, text: &'static str) -> Row {
    row(Asked::Plain, [Reply::content(reply)], text)
}

fn request(path: &str, asked: Asked) -> Value {
    let is_chat = path == PATHS[0];
    let question = format!("What is it? My key is {KEY}.");
    let mut request = json!({"model": "default"});
    if is_chat {
        request["messages"] = json!([{"role": "user", "content": question}]);
    } else {
        request["input"] = question.into();
    }
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
        "additionalProperties": false});
    match (asked, is_chat) {
        (Asked::Plain, _) => {}
        (Asked::Tool, true) => {
            request["tools"] = json!([{"type": "function", "function": {"name": "weather", "parameters": schema}}]);
        }
        (Asked::Tool, false) => {
            request["tools"] =
                json!([{"type": "function", "name": "weather", "parameters": schema}]);
        }
        (Asked::Json, true) => {
            request["response_format"] =
                json!({"type": "json_schema", "json_schema": {"name": "city", "schema": schema}});
        }
        (Asked::Json, false) => {
            request["text"] =
                json!({"format": {"type": "json_schema", "name": "city", "schema": schema}});
        }
    }
    request
}

fn streamed(server: &Server, path: &str, asked: Asked) -> Vec<Value> {
    let mut request = request(path, asked);
    request["stream"] = true.into();
    let sent = server.post(path, &request).events();
    let sent = sent.iter().filter(|event| event.data != "[DONE]");
    sent.map(ServerSentEvent::json).collect()
}

/// The text of an answer that came whole, and the kinds of its parts.
fn whole(path: &str, answer: &Value) -> (String, Vec<Value>) {
    if path == PATHS[0] {
        let choice = &answer["choices"][0];
        let text = choice["message"]["content"].as_str().unwrap_or_default();
        return (text.to_owned(), vec![choice["finish_reason"].clone()]);
    }
    let items = answer["output"].as_array().unwrap();
    let parts = items.iter().filter_map(|item| item["content"].as_array());
    let texts = parts.flatten().filter_map(|part| part["text"].as_str());
    let kinds = items.iter().map(|item| item["type"].clone());
    (texts.collect(), kinds.collect())
}

/// Text and kinds of parts of a streamed answer.
fn heard(path: &str, events: &[Value]) -> (String, Vec<Value>) {
    if path == PATHS[0] {
        let choices = || events.iter().map(|event| &event["choices"][0]);
        let texts = choices().filter_map(|choice| choice["delta"]["content"].as_str());
        let ends = choices().map(|choice| choice["finish_reason"].clone());
        let ends = ends.filter(|end| !end.is_null());
        return (texts.collect(), ends.collect());
    }
    let deltas = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta");
    let text: String = deltas.filter_map(|event| event["delta"].as_str()).collect();
    let (last, kinds) = whole(path, &events.last().unwrap()["response"]);
    assert_eq!(text, last, "the items have the text of the pieces");
    (text, kinds)
}

fn finish() -> Reply {
    Reply::tool_calls([("finish", json!({"output": {"name": "Bern"}}))])
}

fn weather() -> Reply {
    Reply::tool_calls([("weather", json!({"name": "Bern"}))])
}

/// A reply with calls, and a text before them.
fn beside(text: &str, calls: Reply) -> Reply {
    Reply {
        content: Some(text.into()),
        ..calls
    }
}

/// Rows by the configuration that they need.
fn table() -> Vec<(String, Vec<Row>)> {
    use Asked::{Json, Plain, Tool};
    const ANSWER: &str = "The answer is 42.";
    const BERN: &str = "{\"name\":\"Bern\"}";
    let half = |text: &str| Reply::content(text).cut();
    let tools = vec![
        plain("hello world\n", "hello world"),
        plain("\n\nhello", "hello"),
        plain("a  b\n\nc ", "a  b\n\nc"),
        plain("```py\nx=1\n```\n", "```py\nx=1\n```"),
        plain("Run `it`", "Run `it`"),
        plain("<think>hm, secret plan</think>\nThe answer.", "The answer."),
        plain(
            "<think>a</think>\n<reasoning>b</reasoning>\n\nThe answer.",
            "The answer.",
        ),
        plain(
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>The answer.",
            "The answer.",
        ),
        row(
            Plain,
            [half("The answer is "), Reply::content(ANSWER)],
            ANSWER,
        ),
        row(Plain, [half("<think>hm"), Reply::content(ANSWER)], ANSWER),
        row(Json, [Reply::content("Sorry, no"), finish()], BERN),
        row(
            Json,
            [Reply::content("```json\n{\"name\":\"Bern\"}\n```")],
            BERN,
        ),
        row(Json, [beside("I will finish now.", finish())], BERN),
        row(Tool, [beside("Let me see.", weather())], "Let me see."),
        row(
            Tool,
            [beside("<think>hm</think>\nLet me see `it`\n", weather())],
            "Let me see `it`",
        ),
        row(Tool, [weather()], ""),
        row(Tool, [Reply::content("Sunny.\n")], "Sunny."),
        // JSON that calls nothing.
        plain("{\"sky\": \"blue\"}\n", "{\"sky\": \"blue\"}"),
        row(
            Tool,
            [Reply::content("```json\n{\"sky\": \"blue\"}\n```")],
            "```json\n{\"sky\": \"blue\"}\n```",
        ),
        row(
            Tool,
            [Reply::content("Weather is fine.")],
            "Weather is fine.",
        ),
    ];
    // The text of a call is no answer: of a client's tool, and of one of our own, which the answer follows.
    let calls_as_text = [
        r#"{"name": "weather", "arguments": {"name": "Bern"}}"#,
        r#"[{"name": "weather", "arguments": {"name": "Bern"}}]"#,
        r#"[weather(name="Bern")]"#,
        "```json\n{\"name\": \"weather\", \"arguments\": {\"name\": \"Bern\"}}\n```",
        "weather\n{\"name\": \"Bern\"}",
        "<tool_call>{\"name\": \"weather\", \"arguments\": {\"name\": \"Bern\"}}</tool_call>",
    ]
    .map(|call| row(Tool, [Reply::content(call)], ""));
    let said = "Let me see.\n<tool_call>{\"name\": \"weather\", \"arguments\": {\"name\": \"Bern\"}}</tool_call>";
    let said = row(Tool, [Reply::content(said)], "Let me see.");
    let own_calls_as_text = [
        r#"{"name": "calculator-evaluate", "arguments": {"expression": "6*7"}}"#,
        r#"[calculator_evaluate(expression="6*7")]"#,
        "```json\n{\"name\": \"calculator-evaluate\", \"arguments\": {\"expression\": \"6*7\"}}\n```",
        "calculator-evaluate\n{\"expression\": \"6*7\"}",
    ]
    .map(|call| row(Plain, [Reply::content(call), Reply::content(ANSWER)], ANSWER));
    let written: Vec<Row> = calls_as_text
        .into_iter()
        .chain([said])
        .chain(own_calls_as_text)
        .collect();
    let schema = vec![
        row(Plain, [answers("hello\n")], "hello\n"),
        row(Plain, [answers("")], ""),
        plain(
            "<think>{\"output\": \"no\"}</think>\n{\"calls\": [], \"output\": \"yes\"}",
            "yes",
        ),
        plain("```json\n{\"calls\": [], \"output\": \"yes\"}\n```", "yes"),
        row(
            Plain,
            [
                half("{\"calls\": [], \"output\": \"The answer is "),
                answers(ANSWER),
            ],
            ANSWER,
        ),
        row(
            Json,
            [answers("Sorry, no"), answers(json!({"name": "Bern"}))],
            BERN,
        ),
        row(Tool, [calls([("weather", json!({"name": "Bern"}))])], ""),
    ];
    let simple = vec![
        plain("{\"final_answer\": \"hello\\n\"}", "hello\n"),
        plain("<think>hm \"</think>\n{\"final_answer\": \"yes\"}", "yes"),
        plain("```json\n{\"final_answer\": \"yes\"}\n```", "yes"),
        row(
            Plain,
            [
                half("{\"final_answer\": \"The answer is "),
                Reply::content("{\"final_answer\": \"The answer is 42.\"}"),
            ],
            ANSWER,
        ),
    ];
    let hidden = vec![
        plain("It is <api_key_1>.\n", "It is <api_key_1>."),
        row(
            Tool,
            [beside("It is <api_key_1>.", weather())],
            "It is <api_key_1>.",
        ),
    ];
    let private = "[shields.private]\nkind = \"pii\"\nhide = [\"api_key\"]\n";
    vec![
        (TOOLS.into(), written),
        (TOOLS.into(), tools),
        (String::new(), schema),
        (SIMPLE.into(), simple),
        (format!("{TOOLS}{private}"), hidden),
    ]
}

/// The pieces of a stream are the answer that comes without one, for each reply of a model.
#[test]
fn a_streamed_answer_is_the_answer() {
    for (config, rows) in table() {
        let host = host(&config);
        // Each row is asked four times.
        let replies = rows
            .iter()
            .flat_map(|row| std::iter::repeat_n(&row.replies, 4).flatten().cloned());
        let endpoint = scripted(replies);
        let server = serve(&host, &endpoint);
        for row in &rows {
            for path in PATHS {
                let replies = &row.replies;
                let answer = server.post(path, &request(path, row.asked)).good();
                let whole = whole(path, &answer);
                assert_eq!(whole.0, row.text, "{path}: {replies:?}: {answer}");
                let events = streamed(&server, path, row.asked);
                let heard = heard(path, &events);
                assert_eq!(heard, whole, "{path}: {replies:?}: {events:?}");
            }
        }
        assert_eq!(endpoint.replies_left(), 0);
    }
}

/// A blocked answer is not streamed, and the text for people is the same.
#[test]
fn a_blocked_answer_is_the_same_streamed_and_whole() {
    for config in [
        "[shields.mails]\nkind = \"pii\"\nblock = [\"email\"]\nplaces = [\"output\"]\n".to_owned(),
        format!(
            "{TOOLS}[shields.mails]\nkind = \"pii\"\nblock = [\"email\"]\nplaces = [\"output\"]\n"
        ),
    ] {
        let reply = || {
            if config.starts_with(TOOLS) {
                Reply::content(MAIL)
            } else {
                answers(MAIL)
            }
        };
        let host = host(&config);
        // A blocked answer goes back to the model once.
        let endpoint = scripted((0..8).map(|_| reply()));
        let server = serve(&host, &endpoint);
        for path in PATHS {
            let answer = server.post(path, &request(path, Asked::Plain)).good();
            let events = streamed(&server, path, Asked::Plain);
            assert_eq!(heard(path, &events), whole(path, &answer), "{events:?}");
            let all = format!("{answer}{events:?}");
            assert!(!all.contains("ann@example.com"), "{all}");
        }
    }
}

/// A client cannot take back what it was sent, so an error says that the answer is another one, and where it is.
#[test]
fn a_stream_ends_with_an_error_where_the_next_reply_is_another() {
    let host = host(TOOLS);
    let replies = || {
        [
            Reply::content("The answer is ").cut(),
            Reply::content("42."),
        ]
    };
    let endpoint = scripted([replies(), replies()].concat());
    let server = serve(&host, &endpoint);
    for path in PATHS {
        let events = streamed(&server, path, Asked::Plain);
        let (error, text) = if path == PATHS[0] {
            (&events.last().unwrap()["error"], heard(path, &events).0)
        } else {
            let failed = events.last().unwrap();
            assert_eq!(failed["type"], "response.failed", "{events:?}");
            let deltas = events
                .iter()
                .filter(|event| event["type"] == "response.output_text.delta");
            let text = deltas.filter_map(|event| event["delta"].as_str()).collect();
            (&failed["response"]["error"], text)
        };
        assert_eq!(text, "The answer is");
        assert_eq!(error["code"], "answer_changed", "{events:?}");
        let message = error["message"].as_str().unwrap();
        let (_, path) = message.split_once("GET ").unwrap();
        let run = server.get(path).good();
        assert_eq!(run["answer"]["output"], "42.", "{run}");
    }
}

/// Some chat templates write the opening mark of a thought themselves. It cannot be known for a thought before it ends.
#[test]
fn an_answer_follows_a_thought_without_an_opening_mark() {
    let host = host(TOOLS);
    let reply = || Reply::content("Four, I think.\n</think>\nIt is 4.");
    let endpoint = scripted([reply(), reply(), reply(), reply()]);
    let server = serve(&host, &endpoint);
    for path in PATHS {
        let answer = server.post(path, &request(path, Asked::Plain)).good();
        assert_eq!(whole(path, &answer).0, "It is 4.");
        let events = streamed(&server, path, Asked::Plain);
        if path == PATHS[0] {
            let text = heard(path, &events).0;
            // A thought that arrives together with its closing mark is not shown.
            let shown = text.strip_suffix("It is 4.").unwrap();
            let thought = shown.strip_suffix("\n\n").unwrap_or_default();
            assert!("Four, I think.".starts_with(thought), "{events:?}");
            assert_eq!(thought.is_empty(), shown.is_empty(), "{events:?}");
        } else {
            let items = events.last().unwrap()["response"]["output"].clone();
            let last = items.as_array().unwrap().last().unwrap();
            assert_eq!(last["content"][0]["text"], "It is 4.", "{events:?}");
        }
    }
}

/// A text beside a call of one of our own tools is no part of the answer, which an empty line parts from it.
#[test]
fn an_answer_follows_a_text_beside_our_own_call() {
    let host = host(TOOLS);
    let call = || {
        let call = Reply::tool_calls([("calculator-evaluate", json!({"expression": "6*7"}))]);
        [beside("Let me see.", call), Reply::content("It is 42.")]
    };
    let endpoint = scripted((0..4).flat_map(|_| call()));
    let server = serve(&host, &endpoint);
    for path in PATHS {
        let answer = server.post(path, &request(path, Asked::Plain)).good();
        assert_eq!(whole(path, &answer).0, "It is 42.");
        let events = streamed(&server, path, Asked::Plain);
        let text = heard(path, &events).0;
        let expected = match path {
            "/v1/responses" => "Let me see.It is 42.",
            _ => "Let me see.\n\nIt is 42.",
        };
        assert_eq!(text, expected, "{events:?}");
    }
}
